"""Starting and resuming runs: one way in, with the same checks for everybody."""

import inspect
import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_type_hints

import numpy as np
import pytest
import transformers

import pfes
from pfes.config import RunConfig, Settings
from pfes.errors import PfesError
from pfes.models.local.load import load_model
from pfes.models.source import ModelSource, find_model
from pfes.runs.saved import SavedRun
from pfes.runs.start import start_run
from pfes.system.stages import result_of
from pfes.tasks.encode import encode
from tests.command import call
from tests.conftest import LINES
from tests.small_runs import SMALL, search_command, small_settings
from tests.stand_in import StandIn

TEMPLATE = "Review: {text}\nSentiment:"
WORDS = {"bad": "terrible", "good": "great"}


def films(part: str = "part", shots: Any = 4) -> pfes.Task:
    texts = [f"{text} , {part} {i}" for i in range(20) for text, _ in LINES]
    labels = [label for _ in range(20) for _, label in LINES]
    settings = {"template": TEMPLATE, "verbalizers": WORDS, "name": "films"}
    return pfes.Task.from_examples(texts, labels, shots=shots, seed=1, **settings)


def python_settings(**changes: object) -> dict:
    settings = small_settings(**changes)
    return {k: v for k, v in settings.items() if k not in ("shots", "seed", "test_limit")}


@pytest.mark.parametrize(("name", "given"), [("seed", 3), ("shots", 8), ("balance", "most")])
def test_a_task_and_a_setting_that_disagree(name: str, given: Any) -> None:
    with pytest.raises(PfesError, match=f"^{name}: the task was made with"):
        pfes.search(StandIn(), films(), **{name: given})


def test_a_task_and_settings_that_agree() -> None:
    result = pfes.search(StandIn(), films(), seed=1, shots=4, **python_settings())
    assert (result.seed, result.config["shots"]) == (1, 4)


def test_a_loaded_task_may_have_all_its_examples(tmp_path: Path) -> None:
    out = tmp_path / "run"
    task = films(shots="all")
    result = pfes.search(StandIn(), task, out=out, **python_settings())
    assert (result.config["shots"], result.config["balance"]) == ("all", "natural")
    saved = SavedRun(out)
    assert saved.task == task
    assert saved.config.shots == "all"


def test_a_task_made_in_python_is_stored_whole(
    folders: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Then evaluate, predict and resume find it, wherever they are called."""
    task, out = films(), tmp_path / "run"
    result = pfes.search(str(folders("llama")), task, out=out, **python_settings())
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert pfes.SavedRun(out).task == task
    shown = call("evaluate", out, "--json")
    assert json.loads(shown.stdout)["value"] == pytest.approx(result.test)
    assert call("predict", out, "--text", "a great film").returncode == 0
    for name in ("result.json", "prompt.safetensors"):
        (out / name).unlink()
    resumed = call("search", "--out", out, "--resume", "--json")
    assert resumed.returncode == 0, resumed.stderr
    assert json.loads(resumed.stdout)["test"] == result.test
    (out / "result.json").unlink()
    with pytest.raises(PfesError, match="^task: .* is a run on other examples"):
        pfes.search(str(folders("llama")), films("reel"), out=out, resume=True)


def test_evaluate_takes_fewer_test_examples_or_more(
    folders: Callable[[str], Path], task_file: Path, tmp_path: Path
) -> None:
    assert call(*search_command(folders("llama"), task_file, tmp_path / "run")).returncode == 0
    for limit in (5, 12, 16):
        shown = call("evaluate", tmp_path / "run", "--test-limit", limit, "--json")
        assert json.loads(shown.stdout)["test_examples"] == limit


def test_a_run_from_python_leaves_what_the_command_leaves(
    folders: Callable[[str], Path], task_file: Path, tmp_path: Path
) -> None:
    model = str(folders("llama"))
    assert call(*search_command(model, task_file, tmp_path / "command")).returncode == 0
    pfes.search(model, task_file, out=tmp_path / "python", **small_settings())
    names = [
        {path.name for path in (tmp_path / name).iterdir()} - {".lock"}
        for name in ("command", "python")
    ]
    assert names[0] == names[1] >= {"convergence.png", "task.json"}
    contents = [
        (tmp_path / name / "prompt.safetensors").read_bytes() for name in ("command", "python")
    ]
    assert contents[0] == contents[1]


@pytest.fixture
def no_loading(monkeypatch: pytest.MonkeyPatch) -> None:
    """No model is loaded, and nothing of one is read, in this test."""

    def refuse(self: ModelSource, *_: object, **__: object) -> None:
        pytest.fail("the model was touched")

    monkeypatch.setattr(ModelSource, "load_module", refuse)
    monkeypatch.setattr(ModelSource, "_load", refuse)


WRONG = [
    ({"init": "nonsense"}, "init: choose auto, vocab, zeros or text:…"),
    ({"init": "text:"}, "init: the text after text: is empty"),
    ({"method": "nonsense"}, "method: no 'nonsense'"),
    ({"task": "nonsense"}, "task: no 'nonsense'"),
    ({"model": "no/thing"}, "model: no 'no/thing'"),
    ({"method": "saes", "beta": 0.5}, "beta: saes has no regulariser"),
    ({"beta": "auto", "budget": 20}, "beta: auto needs a budget of at least"),
    ({"parents": 7}, "parents: 7 is more than the population, 6"),
    ({"method": "bbt", "population": 2}, "population: bbt needs at least 3"),
    ({"method": "bdpl", "population": 1}, "population: bdpl needs at least 2"),
    ({"method": "bbt", "intrinsic_dimension": 0.4}, "intrinsic_dimension: bbt needs at least 1"),
    ({"method": "rlprompt", "policy_model": "no/thing"}, "policy_model: no 'no/thing'"),
    ({"method": "bdpl", "init": "zeros"}, "init: bdpl does not use it"),
    ({"method": "manual", "budget": 20}, "budget: manual does not search"),
    ({"method": "one-plus-one", "population": 5}, "population: one-plus-one does not use it"),
    ({"tokenizer": "some"}, "tokenizer: this is for a served model"),
    ({"patience": 20.0}, "patience: this is for a served model"),
    ({"served_name": "some"}, "served_name: this is for a served model"),
    ({"model": "vllm:http://127.0.0.1:9/v1", "device": "cpu"}, "device: this is for a local model"),
    (
        {"model": "vllm:http://127.0.0.1:9/v1", "method": "prompt-tuning"},
        "method: prompt-tuning follows gradients, and a served model gives none",
    ),
    (
        {"engine": "ray", "method": "prompt-tuning"},
        "method: prompt-tuning follows gradients, and a model in Ray workers gives none",
    ),
    ({"method": "prompt-tuning", "budget": 10}, "budget: prompt-tuning tries 4 learning rates"),
]


@pytest.mark.parametrize(
    ("method", "changes"),
    [("saes", {"beta": None}), ("saes", {"beta": 0}), ("bbt", {"parents": None}), ("manual", {})],
)
def test_a_setting_without_effect_may_be_given(task_file: Path, method: str, changes: dict) -> None:
    names = {"model": "stand-in", "task": str(task_file)}
    settings = names | small_settings(method=method) | changes
    assert result_of(start_run(settings, model=StandIn()).events()).method == method


@pytest.mark.parametrize(("name", "value"), [("device", "cpu"), ("threads", 1), ("engine", "ray")])
def test_a_loaded_model_takes_no_setting_of_its_loading(
    task_file: Path, name: str, value: object
) -> None:
    with pytest.raises(PfesError, match=f"^{name}: the model is loaded already"):
        pfes.search(StandIn(), task_file, **small_settings(**{name: value}))


def test_a_kill_before_the_start_leaves_room_for_a_start(task_file: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    out.mkdir()
    (out / "task.json").write_text("{}")  # written first; the config follows
    pfes.search(StandIn(), task_file, out=out, **small_settings())
    assert pfes.SavedRun(out).task.name == "films"


def test_a_runs_config_serves_another_method(
    folders: Callable[[str], Path], task_file: Path, tmp_path: Path
) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    assert call(*search_command(folders("llama"), task_file, first)).returncode == 0
    options = ["--config", first / "config.json", "--method", "bbt", "--out", second]
    done = call("search", *options)
    assert done.returncode == 0, done.stderr
    assert pfes.SavedRun(second).result.method == "bbt"


def test_an_ended_run_is_not_another_tasks(tmp_path: Path) -> None:
    pfes.search(StandIn(), films(), out=tmp_path / "run", **python_settings())
    with pytest.raises(PfesError, match="^task: .* is a run on other examples"):
        pfes.search(StandIn(), films("reel"), out=tmp_path / "run", resume=True)


def test_evaluate_uses_all_that_a_python_task_has(
    folders: Callable[[str], Path], tmp_path: Path
) -> None:
    out = tmp_path / "run"
    pfes.search(str(folders("llama")), films(), out=out, **python_settings())
    shown = call("evaluate", out, "--test-limit", 500, "--json")
    assert json.loads(shown.stdout)["test_examples"] == 16


@pytest.mark.parametrize(("changes", "message"), WRONG)
@pytest.mark.usefixtures("no_loading")
def test_wrong_settings_are_found_before_anything_is_loaded(
    folders: Callable[[str], Path], task_file: Path, tmp_path: Path, changes: dict, message: str
) -> None:
    """In Python and on the command line, and no folder is made."""
    names = {"model": str(folders("llama")), "task": str(task_file)}
    method = changes.get("method", SMALL["method"])
    base = {} if method == "nonsense" else small_settings(method=method)
    settings = names | base | changes
    with pytest.raises(PfesError) as caught:
        start_run(settings, tmp_path / "run")
    assert str(caught.value).startswith(message)
    options = [f"--{name.replace('_', '-')}={value}" for name, value in settings.items()]
    done = call("search", *options, "--out", tmp_path / "run")
    name, _, rest = message.partition(":")
    assert done.returncode == 2
    assert done.stderr.startswith(f"pfes: --{name.replace('_', '-')}:{rest}")
    assert done.stderr.count("\n") == 1
    assert not (tmp_path / "run").exists()


def test_an_embedded_model_is_not_downloaded_for_a_folder_that_is_taken(
    task_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "pfes.models.source.embedded_model", lambda name: pytest.fail("downloading")
    )
    (tmp_path / "run").mkdir()
    (tmp_path / "run/notes.txt").write_text("mine")
    done = call(*search_command("smollm2-135m", task_file, tmp_path / "run"))
    assert done.returncode == 2
    assert "is not empty" in done.stderr


def test_a_config_names_its_precision(
    folders: Callable[[str], Path], task_file: Path, tmp_path: Path
) -> None:
    model = str(folders("llama"))
    result = pfes.search(model, task_file, out=tmp_path / "run", **small_settings())
    assert result.config["dtype"] == "float32"
    (tmp_path / "run/result.json").unlink()
    double = load_model(model, dtype="float64")
    message = "^dtype: this run has float32, and the model was loaded in float64"
    with pytest.raises(PfesError, match=message):
        pfes.search(double, task_file, out=tmp_path / "run", resume=True)
    with pytest.raises(PfesError, match="^dtype: this run has 'float32', not 'bfloat16'"):
        start_run({"dtype": "bfloat16"}, tmp_path / "run", resume=True)


def test_a_run_is_resumed_with_the_precision_it_was_begun_with(
    folders: Callable[[str], Path], task_file: Path, tmp_path: Path
) -> None:
    """Also where the default would be another: on another device, say."""
    model = str(folders("llama"))
    settings = {"model": model, "task": str(task_file), "dtype": "float64"} | small_settings()
    events = start_run(settings, tmp_path / "run").events()
    for event in events:
        if getattr(event, "evaluations", 0):
            break
    events.close()
    resumed = result_of(start_run({}, tmp_path / "run", resume=True).events())
    assert resumed.config["dtype"] == "float64"


def test_settings_are_typed_as_the_config_has_them() -> None:
    """`pfes.search` completes in an editor; its names and types are those of the config."""
    hints = get_type_hints(Settings)
    fields = {
        n: f for n, f in RunConfig.model_fields.items() if n not in ("model", "task", "method")
    }
    assert hints.keys() == fields.keys()
    plain = get_type_hints(RunConfig)
    for name, hint in hints.items():
        if name not in ("beta", "report_at"):  # with limits there; also as text
            assert hint == plain[name], name
    assert "settings" in inspect.signature(pfes.search).parameters


def test_errors_are_value_errors_that_name_the_parameter() -> None:
    with pytest.raises(ValueError, match="^prompt_length: "):
        pfes.search("smollm2-135m", "rotten-tomatoes", prompt_length=0)


def test_a_run_without_test_examples(tmp_path: Path) -> None:
    labels = [label for _, label in LINES] * 10
    texts = [f"{text} , part {i}" for i, (text, _) in enumerate(LINES * 10)]
    settings = {"template": TEMPLATE, "verbalizers": WORDS, "shots": 4, "holdout": 0.0}
    task = pfes.Task.from_examples(texts, labels, **settings)
    result = pfes.search(StandIn(), task, out=tmp_path / "run", **python_settings())
    assert result.test_examples == 0
    assert np.isnan([result.test, result.zero_shot, *result.intervals["gain"]]).all()
    assert np.isfinite([result.validation, result.train_loss]).all()
    again = pfes.SavedRun(tmp_path / "run").result
    assert np.isnan(again.test)
    shown = call("search", "--out", tmp_path / "run", "--resume")
    assert shown.returncode == 0
    assert "nan" not in shown.stdout
    assert call("report", tmp_path / "run").returncode == 0


def test_work_is_done_once(
    folders: Callable[[str], Path],
    task_file: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One search looks up the model once, loads each of its parts once, encodes each split once."""
    counts: Counter[str] = Counter()

    def counted(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def call_it(*arguments: Any, **options: Any) -> Any:
            counts[name] += 1
            return function(*arguments, **options)

        return call_it

    for name in ("AutoTokenizer", "AutoModelForCausalLM"):
        loader = getattr(transformers, name)
        monkeypatch.setattr(loader, "from_pretrained", counted(name, loader.from_pretrained))
    monkeypatch.setattr("pfes.runs.check.find_model", counted("names", find_model))
    monkeypatch.setattr("pfes.models.local.load.find_model", counted("names", find_model))
    monkeypatch.setattr("pfes.searches.encoded.encode", counted("splits", encode))
    pfes.search(str(folders("llama")), task_file, out=tmp_path / "run", **small_settings())
    loaded = dict.fromkeys(("AutoTokenizer", "AutoModelForCausalLM", "names"), 1)
    # and a few of the examples alone, on which a model may try its precision
    assert counts == loaded | {"splits": 3 + 1}
