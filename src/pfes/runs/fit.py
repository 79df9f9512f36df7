"""From labelled data to a run: everything that a person would have to choose is found here.

The choices are written into a task file and a config that `pfes search` can run again.
"""

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from pfes.config import RunConfig, is_served, make_config
from pfes.contract import Family, LanguageModel
from pfes.errors import SettingError
from pfes.methods import METHOD_SETTINGS, get_method, settings_of
from pfes.models.open import open_model
from pfes.models.source import ModelSource, find_model
from pfes.runs.check import check_names, check_settings
from pfes.runs.folder import RunFolder
from pfes.runs.result import Result
from pfes.runs.run import Event, run
from pfes.searches.model_words import words_from_answers
from pfes.searches.read_answers import search_reader
from pfes.searches.starts import FIRST_LOOK, Judge
from pfes.system.files import make_folder, replace_file
from pfes.system.stages import Stage
from pfes.tasks.columns import Columns, find_columns
from pfes.tasks.draft import Draft, draft_task
from pfes.tasks.encode import single_token
from pfes.tasks.label_words import label_words
from pfes.tasks.loader import load_run_task
from pfes.tasks.spec import builtin_tasks, label_key, read_spec
from pfes.tasks.task import Task
from pfes.tasks.templates import template_pool

# The best that was measured, beside the defaults of a search: docs/defaults.md
SETTINGS: dict[str, Any] = {
    "method": "saes-id",
    "budget": 300,
    "sigma0": "auto",
    "init": "auto",
    "eval_every": 20,
    "stop_after": 100,
    "minutes": 5.0,
    "balance": "most",
    "test_limit": 400,
}
PLACEMENT: dict[Family, str] = {"causal": "middle", "masked": "prefix"}


@dataclass(frozen=True)
class Word:
    """The word of a label, with its token, and where it is from."""

    label: str
    word: str
    token: int
    source: str  # given, the name, its first token, the model's answers


@dataclass(frozen=True)
class Choices:
    """What was found out about labelled data."""

    task: Task
    words: list[Word] = field(default_factory=list)
    templates: dict[str, float] = field(default_factory=dict)  # each with its loss; chosen first


@dataclass(frozen=True)
class Fit:
    """Labelled data, a model, and what a person has said about them."""

    config: RunConfig
    folder: RunFolder
    columns: Columns | None  # None where the task is given
    data: Path
    template: str | None
    words: Mapping[str, str]
    source: ModelSource | None

    def events(self) -> Generator[Event | Choices, None, Result]:
        """Choose, search and test; yield signs of progress and, once, the choices."""
        with self.folder.locked():
            yield Stage("loading task")
            task = self._load_task()
            yield Stage("loading model")
            model = open_model(
                self.config, task.spec if self.columns is None else None, self.source
            )
        try:
            choices = Choices(task)
            if self.columns is not None:
                choices = yield from self._choose(model, task)
                self._write(choices)
            yield choices
            return (yield from run(self.config, self.folder, model=model, task=choices.task))
        finally:
            model.close()

    def _load_task(self) -> Task:
        if self.columns is not None:
            draft = draft_task(self.data, self.columns, self.folder.path)
            replace_file(self.folder.files.task_file, draft.yaml().encode())
        return load_run_task(self.config)

    def _choose(self, model: LanguageModel, task: Task) -> Generator[Stage, None, Choices]:
        assert self.columns is not None
        family, labels = model.family, task.spec.labels
        pool = template_pool(task.spec.fields, self.columns.label, family)
        named = label_words(labels, model.tokenizer)
        yield Stage("choosing words")
        words = words_from_answers(model, task, named | dict(self.words), self.template or pool[0])
        spec = task.spec.model_copy(update={"verbalizers": words})
        candidates = [self.template] if self.template is not None else pool
        losses: dict[str, float] = {}
        judge = Judge(model, search_reader(self.config))
        for number, template in enumerate(candidates):
            templates = spec.templates | {family: template}
            tried = replace(task, spec=spec.model_copy(update={"templates": templates}))
            if len(candidates) > 1:
                yield Stage("judging templates", number, len(candidates), "templates")
                losses[template] = judge.loss(tried, FIRST_LOOK)
            else:
                return Choices(tried, self._about(words, model))
        ranked = dict(sorted(losses.items(), key=lambda item: item[1]))
        templates = spec.templates | {family: next(iter(ranked))}
        chosen = replace(task, spec=spec.model_copy(update={"templates": templates}))
        return Choices(chosen, self._about(words, model), ranked)

    def _about(self, words: Mapping[str, str], model: LanguageModel) -> list[Word]:
        about = []
        for label, word in words.items():
            source = "the model's answers"
            if label in self.words:
                source = "given"
            elif word == label:
                source = "its name"
            elif label.lower().startswith(word.lower()):
                source = "the first token of its name"
            token = single_token(word, model.tokenizer)
            assert token is not None
            about.append(Word(label, word, token, source))
        return about

    def _write(self, choices: Choices) -> None:
        assert self.columns is not None
        draft = Draft(choices.task.spec, self.columns, choices.templates)
        replace_file(self.folder.files.task_file, draft.yaml().encode())


def start_fit(
    data: str,
    out: Path,
    settings: Mapping[str, Any],
    *,
    label: str | None = None,
    texts: Sequence[str] = (),
    template: str | None = None,
    words: Mapping[str, str] | None = None,
) -> Fit:
    """Check labelled data and settings, and make the folder; nothing is loaded yet.

    `data` is a labelled file, a task file or the name of a task. `settings` are those that were
    given; the others are chosen.
    """
    folder = RunFolder(out)
    path, columns, task = Path(data), None, data
    if data not in builtin_tasks() and path.suffix not in (".yaml", ".yml"):
        columns = find_columns(path, label, texts)
        task = str(folder.files.task_file)
        unknown = [name for name in words or {} if label_key(name) not in columns.labels]
        if unknown:
            known = ", ".join(columns.labels)
            raise SettingError("word", f"no label {unknown[0]!r}; the labels are {known}")
    else:
        given = {"label": label, "text": texts, "template": template, "word": words}
        for name, value in given.items():
            if value:
                raise SettingError(name, f"{data} is a task, which says this itself")
        read_spec(data)
    source = None if is_served(str(settings["model"])) else find_model(str(settings["model"]))
    chosen = chosen_settings(settings, source.family if source else "causal") | {"task": task}
    config = make_config(**chosen)
    check_settings(config, settings.keys())
    check_names(config, task=columns is None)
    make_folder(folder.path)
    folder.create()
    return Fit(config, folder, columns, path, template, words or {}, source)


def chosen_settings(given: Mapping[str, Any], family: Family) -> dict[str, Any]:
    """Return the settings of a run: those given, and the best measured for all others."""
    method = get_method(str(given.get("method", SETTINGS["method"])))
    unused = METHOD_SETTINGS - set(settings_of(method))
    usual = SETTINGS | {"placement": PLACEMENT[family]}
    if method.space == "tokens" or method.optimizer == "zosgd":
        usual.pop("sigma0")
    if given.get("shots") == "all":
        usual["balance"] = "natural"
    return {name: value for name, value in usual.items() if name not in unused} | dict(given)
