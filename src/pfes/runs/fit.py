"""From labelled data to a run: everything that a person would have to choose is found here.

The choices are written into a task file and a config that `pfes search` can run again.
"""

from collections.abc import Generator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pfes.config import RunConfig, is_served, make_config, takes_only_text
from pfes.contract import LanguageModel
from pfes.errors import SettingError
from pfes.methods import METHOD_SETTINGS, get_method, settings_of
from pfes.models.open import open_model
from pfes.models.source import ModelSource, find_model
from pfes.runs.check import check_names, check_settings
from pfes.runs.choose_task import Choices, choose_task
from pfes.runs.expected_requests import choice_requests
from pfes.runs.folder import RunFolder
from pfes.runs.result import Result
from pfes.runs.run import Event, run
from pfes.runs.saved import SavedRun
from pfes.searches.read_answers import search_reader
from pfes.system.files import make_folder, replace_file, replace_json
from pfes.system.stages import Notice, Stage
from pfes.tasks.columns import Columns, find_columns
from pfes.tasks.draft import Draft, draft_task
from pfes.tasks.encode import has_end, without_end
from pfes.tasks.loader import load_run_task
from pfes.tasks.spec import builtin_tasks, label_key, read_spec
from pfes.tasks.templates import POOL

# The best that was measured, beside the defaults of a search: docs/defaults.md
SETTINGS: dict[str, Any] = {
    "method": "saes-id",
    "budget": 300,
    "init": "auto",
    "eval_every": 20,
    "stop_after": 100,
    "minutes": 5.0,
    "balance": "most",
    "prior": "train",
    "test_limit": 400,
}
# The same where a model takes only text, which has no cheaper search than that for a start
TEXT_SETTINGS: dict[str, Any] = SETTINGS | {"method": "best-start", "draws": 3}


@dataclass(frozen=True)
class Given:
    """What a person has said about labelled data; all of it may be left out."""

    label: str | None = None
    texts: tuple[str, ...] = ()
    template: str | None = None
    words: Mapping[str, str] | None = None


@dataclass(frozen=True)
class Fit:
    """Labelled data, a model, and what a person has said about them."""

    config: RunConfig
    folder: RunFolder
    columns: Columns | None  # None where the task is given
    data: Path
    given: Given
    placed: bool  # whether the placement was given
    source: ModelSource | None

    def events(self) -> Generator[Event | Choices, None, Result]:
        """Choose, search and test; yield signs of progress and, once, the choices."""
        config, model = self.config, None
        try:
            with self.folder.locked():
                yield Stage("loading task")
                if self.columns is not None:
                    self._write_draft(draft_task(self.data, self.columns, self.folder.path))
                task = load_run_task(config)
                yield Stage("loading model")
                spec = task.spec if self.columns is None else None
                model = open_model(config, spec, self.source)
                choices = Choices(task)
                if self.columns is not None:
                    given = self.given.words or {}, self.given.template
                    if model.sent is not None:
                        templates = 1 if self.given.template is not None else POOL
                        expected = choice_requests(model, task, templates)
                        said = expected.sentence(config.price_per_million)
                        yield Notice(f"To choose words and a template: {said}")
                    reader = search_reader(config)
                    choices = yield from choose_task(model, task, reader, *given)
                    self._write(choices)
                task = choices.task
                if not self.placed:
                    config = placed_by_template(config, model, task.spec.template(model.family))
            yield choices
            return (yield from run(config, self.folder, model=model, task=task))
        finally:
            if model is not None:
                model.close()

    def _write(self, choices: Choices) -> None:
        columns = self.columns
        assert columns is not None
        losses = {t.template: t.loss for t in choices.templates if t.loss is not None}
        self._write_draft(Draft(choices.task.spec, columns, losses))
        content = {
            "label": columns.label,
            "guessed": columns.guessed,
            "texts": columns.texts,
            "rows": columns.rows,
            "empty": columns.empty,
            "words": [asdict(word) for word in choices.words],
            "templates": [asdict(template) for template in choices.templates],
        }
        replace_json(self.folder.files.choices, content)

    def _write_draft(self, draft: Draft) -> None:
        replace_file(self.folder.files.task_file, draft.yaml().encode())


def start_fit(data: str, out: Path, settings: Mapping[str, Any], given: Given) -> Fit:
    """Check labelled data and settings, and make the folder; nothing is loaded yet.

    `data` is a labelled file, a task file or the name of a task. `settings` are those that were
    given; the others are chosen.
    """
    folder = RunFolder(out)
    path, columns, task = Path(data), None, data
    if data not in builtin_tasks() and path.suffix not in (".yaml", ".yml"):
        columns = find_columns(path, given.label, given.texts)
        task = str(folder.files.task_file)
        unknown = [name for name in given.words or {} if label_key(name) not in columns.labels]
        if unknown:
            known = ", ".join(columns.labels)
            raise SettingError("word", f"no label {unknown[0]!r}; the labels are {known}")
    else:
        names = ("label", "text", "template", "word")
        parts = (given.label, given.texts, given.template, given.words)
        for name, value in zip(names, parts, strict=True):
            if value:
                raise SettingError(name, f"{data} is a task, which says this itself")
        read_spec(data)
    source = None if is_served(str(settings["model"])) else find_model(str(settings["model"]))
    text = takes_only_text(str(settings["model"]))
    chosen = chosen_settings(settings, text) | {"task": task}
    config = make_config(**chosen)
    check_settings(config, settings.keys())
    check_names(config, task=columns is None)
    make_folder(folder.path)
    folder.create()
    return Fit(config, folder, columns, path, given, "placement" in settings, source)


def check_resumed(saved: SavedRun, data: str, given: Given) -> None:
    """Refuse to go on with a fit if other data or choices are given than it was begun with."""
    if saved.choices is None and data != saved.config.task:
        raise SettingError("out", f"{saved.path} is a run on {saved.config.task}, not on {data}")
    dataset = saved.task.spec.dataset
    if saved.choices is not None and dataset is not None and dataset.file is not None:
        begun_on = (saved.path / dataset.file).resolve()
        if begun_on != Path(data).resolve():
            raise SettingError("out", f"{saved.path} is a run on {begun_on}, not on {data}")
    choices = saved.choices or {"label": None, "texts": [], "words": [], "templates": []}
    words = {word["label"]: word["word"] for word in choices["words"]}
    chosen = choices["templates"][0]["template"] if choices["templates"] else None
    for name, value, kept in (
        ("label", given.label, choices["label"]),
        ("text", list(given.texts) or None, choices["texts"]),
        ("template", given.template, chosen),
        *(("word", word, words.get(label)) for label, word in (given.words or {}).items()),
    ):
        if value is not None and value != kept:
            message = f"this run has {kept!r}, not {value!r}; a resumed run keeps its choices"
            raise SettingError(name, message)


def chosen_settings(given: Mapping[str, Any], text_only: bool = False) -> dict[str, Any]:
    """Return the settings of a run: those given, and the best measured for all others."""
    usual = TEXT_SETTINGS if text_only else SETTINGS | {"placement": "middle"}
    method = get_method(str(given.get("method", usual["method"])))
    unused = METHOD_SETTINGS - set(settings_of(method))
    if given.get("shots") == "all":
        usual = usual | {"balance": "natural"}
    return {name: value for name, value in usual.items() if name not in unused} | dict(given)


def placed_by_template(config: RunConfig, model: LanguageModel, template: str) -> RunConfig:
    """Return a config with the prompt elsewhere, if the template has no end to keep."""
    if config.placement == "middle" and not has_end(template, model.tokenizer, model.family):
        return config.model_copy(update={"placement": without_end(model.family)})
    return config
