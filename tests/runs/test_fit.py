"""`pfes fit`: from a labelled file to a run, with everything found that is not given."""

import csv
import json
import signal
import subprocess
import sys
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from pfes.deploy.prompt import SavedPrompt
from pfes.runs.choose_task import Choices
from pfes.runs.fit import Given, start_fit
from pfes.runs.result import Result
from pfes.runs.saved import SavedRun
from pfes.runs.start import start_run
from pfes.searches.loop import Step
from pfes.system.stages import Stage, result_of
from pfes.tasks import load_task
from tests.command import call

KINDS = {
    "good film": ["a wonderful film", "great acting and great fun", "moving from start to end"],
    "(+)": ["a terrible mess", "dull and far too long", "no wit and no charm"],
    "maybe": ["it is a film", "the story of the year", "one film , two acts"],
}
SMALL: dict[str, Any] = {
    "budget": 100, "population": 4, "eval_every": 8, "answer_words": 20, "batch_tokens": 512,
    "minutes": 60.0,
}  # fmt: skip


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Labels of several tokens, classes of different size, a column that is (+)."""
    path = tmp_path / "films.csv"
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["id", "the review", "verdict"])
        for i in range(150):
            label = list(KINDS)[min(i % 5, 2)]
            writer.writerow([i, f"{KINDS[label][i % 3]} , part {i}", label])
    return path


@pytest.fixture
def model(folders: Callable[[str], Path]) -> Path:
    return folders("llama")


def options(**settings: Any) -> list[str]:
    pairs = [(f"--{name.replace('_', '-')}", str(value)) for name, value in settings.items()]
    return [word for pair in pairs for word in pair]


GIVEN = Given(label="verdict")


def begin(
    data: Path, model: Path, out: Path, given: Given = GIVEN, **settings: Any
) -> Generator[Any, None, Result]:
    return start_fit(str(data), out, {"model": str(model)} | SMALL | settings, given).events()


def fitted(data: Path, model: Path, out: Path, **settings: Any) -> Result:
    return result_of(begin(data, model, out, **settings))


@pytest.mark.parametrize("name", ["llama", "roberta"])
def test_a_label_and_a_model_are_enough(
    data: Path, folders: Callable[[str], Path], tmp_path: Path, name: str
) -> None:
    out = tmp_path / "run"
    words = ["--label", "verdict", "--model", folders(name), "--out", out, *options(**SMALL)]
    done = call("fit", data, *words)
    assert done.returncode == 0, done.stderr
    shown = " ".join(done.stdout.split())
    assert "Label: column 'verdict', 3 labels" in shown
    assert "Text: column 'the review'" in shown
    assert "found − the best that is free (*)" in shown
    assert "pfes predict" in shown
    assert (out / "report.html").exists()
    saved = SavedRun(out)
    assert saved.choices is not None
    assert [word["label"] for word in saved.choices["words"]] == list(KINDS)
    assert len({word["token"] for word in saved.choices["words"]}) == 3
    maybe = saved.choices["words"][2]
    assert (maybe["word"], maybe["source"]) == ("maybe", "its name")
    assert saved.choices["words"][1]["source"] == "the model's answers"
    losses = [tried["loss"] for tried in saved.choices["templates"]]
    assert losses == sorted(losses)
    assert len(losses) == 3
    counts = np.bincount([example.label for example in saved.task.train])
    assert counts.max() == 16
    assert counts.min() >= 10  # what a scarce label has
    task = load_task(out / "task.yaml", balance="most")
    assert task.spec.verbalizers == {w["label"]: w["word"] for w in saved.choices["words"]}
    family = "masked" if name == "roberta" else "causal"
    assert task.spec.templates[family] == saved.choices["templates"][0]["template"]
    done = call("predict", out, "--text", "a wonderful film")
    assert done.returncode == 0, done.stderr


def test_what_was_chosen_can_be_run_again(data: Path, model: Path, tmp_path: Path) -> None:
    fitted(data, model, tmp_path / "run")
    again = ["--config", tmp_path / "run/config.json", "--out", tmp_path / "again"]
    assert call("search", *again).returncode == 0
    prompts = [(tmp_path / name / "prompt.safetensors").read_bytes() for name in ("run", "again")]
    assert prompts[0] == prompts[1]


def test_what_stands_in_the_task_file_may_be_edited(
    data: Path, model: Path, tmp_path: Path
) -> None:
    fitted(data, model, tmp_path / "run")
    file = tmp_path / "run/task.yaml"
    content = yaml.safe_load(file.read_text())
    content["verbalizers"]["(+)"] = "terrible"
    file.write_text(yaml.safe_dump(content))
    again = ["--config", tmp_path / "run/config.json", "--out", tmp_path / "again"]
    assert call("search", *again).returncode == 0
    assert SavedRun(tmp_path / "again").task.spec.verbalizers["(+)"] == "terrible"


def phases(data: Path, model: Path, out: Path) -> list[str]:
    """Return the names of all phases of a fit, in their order."""
    events = list(begin(data, model, out))
    assert sum(isinstance(event, Choices) for event in events) == 1
    return list(dict.fromkeys(name_of(event) for event in events))


def name_of(event: Any) -> str:
    return event.name if isinstance(event, Stage) else type(event).__name__


def test_a_fit_that_is_stopped_in_any_phase_goes_on_to_the_same_prompt(
    data: Path, model: Path, tmp_path: Path
) -> None:
    names = phases(data, model, tmp_path / "whole")
    assert {
        "choosing words", "judging templates", "judging starts", "finding the step size", "Step",
        "testing prompts",
    } <= set(names)  # fmt: skip
    whole = SavedRun(tmp_path / "whole")
    for number, name in enumerate(names):
        out = tmp_path / f"parted{number}"
        events = begin(data, model, out)
        for event in events:
            if name_of(event) == name:
                break
        events.close()
        if SavedRun(out).begun:
            result_of(start_run({}, out, resume=True).events())
        else:
            fitted(data, model, out)
        parted = SavedRun(out)
        assert parted.files.prompt.read_bytes() == whole.files.prompt.read_bytes(), name
        assert {**parted.start, "seconds": 0} == {**whole.start, "seconds": 0}
        assert parted.result.test == whole.result.test


KILLED = """
import os, signal, sys
from pathlib import Path
from pfes.runs.fit import Given, start_fit

data, model, out, phase, settings = sys.argv[1:]
for event in start_fit(
    data, Path(out), {"model": model} | eval(settings), Given(label="verdict")
).events():
    if phase in (getattr(event, "name", ""), type(event).__name__):
        os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize("phase", ["judging templates", "judging starts", "Step"])
def test_a_fit_that_is_killed_goes_on_with_the_same_command(
    data: Path, model: Path, tmp_path: Path, phase: str
) -> None:
    whole = fitted(data, model, tmp_path / "whole")
    out = tmp_path / "killed"
    words = map(str, (data, model, out, phase, SMALL))
    done = subprocess.run([sys.executable, "-c", KILLED, *words], check=False, timeout=300)
    assert done.returncode == -signal.SIGKILL
    words = ["--label", "verdict", "--model", model, "--out", out, "--resume", *options(**SMALL)]
    done = call("fit", data, *words)
    assert done.returncode == 0, done.stderr
    assert SavedRun(out).result.test == whole.test
    np.testing.assert_array_equal(SavedRun(out).prompt, whole.prompt)


OVERRIDES: list[tuple[str, str, str]] = [
    ("--template", "{the_review} All in all:", "{the_review} So:"),
    ("--word", "(+)=terrible", "(+)=great"),
    ("--text", "the review", "id"),
    ("--method", "one-plus-one-id", "saes-id"),
    ("--budget", "90", "70"),
    ("--sigma0", "0.2", "0.3"),
    ("--init", "zeros", "vocab"),
    ("--demonstrations", "2", "1"),
    ("--draws", "2", "3"),
    ("--placement", "suffix", "prefix"),
    ("--prompt-length", "2", "3"),
    ("--shots", "5", "4"),
    ("--balance", "natural", "most"),
    ("--seed", "3", "4"),
    ("--reading", "offset", "auto"),
    ("--stop-after", "20", "30"),
    ("--test-limit", "9", "8"),
]


@pytest.mark.parametrize(("flag", "value", "other"), OVERRIDES, ids=lambda v: str(v)[:16])
def test_any_choice_can_be_overridden_and_is_kept(
    data: Path, model: Path, tmp_path: Path, flag: str, value: str, other: str
) -> None:
    out = tmp_path / "run"
    small = {name: v for name, v in SMALL.items() if f"--{name}" != flag}
    if value == "one-plus-one-id":
        del small["population"]
    if value == "offset":
        del small["answer_words"]
    words = ["--label", "verdict", "--model", model, "--out", out]
    done = call("fit", data, *words, *options(**small), flag, value)
    assert done.returncode == 0, done.stderr
    saved = SavedRun(out)
    assert saved.choices is not None
    used = {
        "--template": saved.choices["templates"][0]["template"],
        "--word": "(+)=" + saved.choices["words"][1]["word"],
        "--text": saved.choices["texts"][0],
    }
    name = flag.removeprefix("--").replace("-", "_")
    assert str(used.get(flag) or getattr(saved.config, name)) == value
    if flag == "--demonstrations":
        assert saved.result.start is not None
        assert saved.result.start.name.startswith("2 examples per label")
    again = call("fit", data, *words, "--resume", flag, value)
    assert again.returncode == 0, again.stderr
    refused = call("fit", data, *words, "--resume", flag, other)
    assert refused.returncode == 2
    assert "a resumed run keeps its" in refused.stderr
    assert len(refused.stderr.splitlines()) == 1


def test_another_file_is_no_way_to_go_on(data: Path, model: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    fitted(data, model, out)
    other = tmp_path / "other.csv"
    other.write_bytes(data.read_bytes())
    done = call("fit", other, "--label", "verdict", "--model", model, "--out", out, "--resume")
    assert done.returncode == 2
    assert "is a run on" in done.stderr


@pytest.mark.parametrize("phase", ["judging starts", "Step", "testing prompts"])
def test_what_was_found_so_far_can_be_used(
    data: Path, model: Path, tmp_path: Path, phase: str
) -> None:
    out = tmp_path / "run"
    events = begin(data, model, out)
    for event in events:
        if name_of(event) == phase:
            break
    events.close()
    done = call("predict", out, "--text", "a wonderful film", "--text", "dull")
    assert done.returncode == 0, done.stderr
    saved = SavedPrompt.load(out)
    assert saved.reading.rung != "plain"
    assert saved.figures == {}


def test_the_best_so_far_is_what_validated_best(data: Path, model: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    events = begin(data, model, out, stop_after=1000)
    steps = 0
    for event in events:
        steps += isinstance(event, Step)
        if steps == 6:
            break
    events.close()
    state = SavedRun(out).checkpoint
    assert state is not None
    best = state["search"]["selection"]["solution"]
    np.testing.assert_array_equal(SavedRun(out).prompt.reshape(-1), best)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--template", "{text} So:"], "--template: '{text} So:' must have {the_review}"),
        (["--template", "{the_review"], "--template: "),
        (["--word", "fine=great"], "--word: no label 'fine'; the labels are"),
        (["--word", "great"], "--word: 'great': write LABEL=WORD"),
        (["--word", "maybe=unbelievable"], "is not one token of this model"),
        (["--label", "nothing"], "--label: "),
        (["--text", "nothing"], "--text: "),
        (["--model", "no/such/folder"], "--model: "),
        (["--demonstrations", "16"], "--demonstrations: label"),
        (["--init", "zeros", "--draws", "3"], "--draws: without examples in front"),
        (["--budget", "3"], "--budget: --sigma0 auto takes 3 evaluations"),
        (["--method", "nonsense"], "--method: no 'nonsense'"),
    ],
    ids=range(12),
)
def test_a_wrong_choice_is_said_in_one_line(
    data: Path, model: Path, tmp_path: Path, words: list[str], message: str
) -> None:
    out = tmp_path / "run"
    given = ["--label", "verdict", "--model", model, "--out", out, *options(**SMALL)]
    done = call("fit", data, *given, *words)
    assert done.returncode == 2
    errors = [line for line in done.stderr.splitlines() if line.startswith("pfes: ")]
    assert len(errors) == 1
    assert message in errors[0]
    assert "Traceback" not in done.stderr
    assert not (out / "config.json").exists()


def test_a_template_without_an_end_puts_the_prompt_last(
    data: Path, model: Path, tmp_path: Path
) -> None:
    given = Given(label="verdict", template="{the_review}")
    result = result_of(begin(data, model, tmp_path / "run", given))
    assert result.config["placement"] == "suffix"


def test_a_task_is_fitted_without_a_file(
    task_file: Path, folders: Callable[[str], Path], tmp_path: Path
) -> None:
    small = options(**SMALL | {"shots": 4})
    words = ["--model", folders("llama"), "--out", tmp_path / "run", *small]
    done = call("fit", task_file, *words, "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["config"]["init"] == "auto"
    assert SavedRun(tmp_path / "run").choices is None
    done = call("fit", task_file, "--label", "verdict", *words)
    assert done.returncode == 2
    assert "is a task, which says this itself" in done.stderr
