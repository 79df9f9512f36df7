"""The command line as a user has it."""

import json
import math
from pathlib import Path

import pytest

from pfes.methods import METHODS
from pfes.models.source import ModelSource
from pfes.runs.saved import SavedRun
from tests.cli.conftest import Cli, check_error
from tests.small_runs import SMALL, search_command, small_settings


@pytest.mark.parametrize("architecture", ["llama", "roberta"])
@pytest.mark.parametrize("method", METHODS)
def test_search_evaluate_predict(
    cli: Cli, folders, task_file: Path, tmp_path: Path, architecture: str, method: str
) -> None:
    out = tmp_path / "run"
    changes = {"method": method, "policy_model": folders("gpt2")}
    code, shown, log = cli(*search_command(folders(architecture), task_file, out, **changes))
    assert code == 0, log
    assert ("found prompt" if METHODS[method].optimizer else method) in shown
    result = json.loads((out / "result.json").read_text())
    assert result["rank"] >= 1
    if METHODS[method].optimizer is not None:
        assert "24/24 FEs" in log
        assert (out / "convergence.png").stat().st_size > 5000

    code, shown, _ = cli("evaluate", out, "--json")
    assert code == 0
    again = json.loads(shown)
    assert again["value"] == pytest.approx(result["test"])
    assert again["probability"] == pytest.approx(result["probability"])
    assert again["rank"] == pytest.approx(result["rank"])

    code, shown, _ = cli("predict", out, "--text", "a great film", "--text", "dull", "--json")
    assert code == 0
    lines = [json.loads(line) for line in shown.splitlines()]
    assert [line["text"] for line in lines] == ["a great film", "dull"]
    for line in lines:
        assert sum(line["probabilities"].values()) == pytest.approx(1)
        assert line["label"] == max(line["probabilities"], key=line["probabilities"].get)


def test_the_same_command_resumes(cli: Cli, folders, task_file: Path, tmp_path: Path) -> None:
    changes = {"beta": 0.1, "seed": 3}
    command = search_command(folders("llama"), task_file, tmp_path / "run", **changes)
    assert cli(*command)[0] == 0
    (tmp_path / "run/result.json").unlink()
    code, _, log = cli(*command, "--resume")
    assert code == 0, log
    other = ["0.2" if part == "0.1" else part for part in command]
    code, _, log = cli(*other, "--resume")
    assert code == 2
    assert "--beta: this run has 0.1, not 0.2" in log


def test_beta_auto_draws_the_chosen_one(cli: Cli, folders, task_file: Path, tmp_path: Path) -> None:
    changes = {"beta": "auto", "budget": 90}
    command = search_command(folders("llama"), task_file, tmp_path / "run", **changes)
    code, shown, log = cli(*command)
    assert code == 0, log
    assert "β = " in shown
    result = json.loads((tmp_path / "run/result.json").read_text())
    assert sum(trial["evaluations"] for trial in result["beta_trials"]) == 90
    assert (tmp_path / "run/convergence.png").exists()


def test_a_prompt_behind_the_text_stays_there(
    cli: Cli, folders, task_file: Path, tmp_path: Path
) -> None:
    out = tmp_path / "run"
    assert cli(*search_command(folders("llama"), task_file, out, placement="suffix"))[0] == 0
    result = json.loads((out / "result.json").read_text())
    code, shown, _ = cli("evaluate", out, "--json")
    assert code == 0
    assert json.loads(shown)["value"] == pytest.approx(result["test"])
    assert json.loads(shown)["probability"] == pytest.approx(result["probability"], rel=1e-4)


def test_a_masked_model_refuses_a_prompt_behind_the_text(
    cli: Cli, folders, task_file: Path, tmp_path: Path
) -> None:
    options = search_command(folders("roberta"), task_file, tmp_path / "run", placement="suffix")
    code, _, log = cli(*options)
    assert code == 2
    assert "--placement: suffix is for causal models" in log


def test_profile_says_where_the_time_went(
    cli: Cli, folders, task_file: Path, tmp_path: Path
) -> None:
    code, _, log = cli(*search_command(folders("llama"), task_file, tmp_path / "run"), "--profile")
    assert code == 0
    for words in ("evaluating candidates", "telling the optimizer", "checkpoints", "preparing"):
        assert words in log
    profile = json.loads((tmp_path / "run/result.json").read_text())["profile"]
    assert set(profile) == {
        "data", "disk", "loading", "model", "optimizer", "testing", "validation",
    }  # fmt: skip
    assert min(profile.values()) > 0


def test_a_prompt_that_does_harm_is_said(cli: Cli, finished: Path) -> None:
    for interval, said in (((-0.5, -0.1), True), ((-0.5, 0.1), False)):
        result = json.loads((finished / "result.json").read_text())
        result["intervals"]["gain"] = interval
        (finished / "result.json").write_text(json.dumps(result))
        shown = cli("search", "--out", finished, "--resume")[1]
        assert ("The template alone is better" in shown) == said
        for row in ("found − template alone", "found − initial prompt"):
            assert row in shown


def test_names_are_shown_as_they_are(cli: Cli, finished: Path) -> None:
    result = json.loads((finished / "result.json").read_text()) | {"task": "tickets [v2] a[/b]"}
    (finished / "result.json").write_text(json.dumps(result))
    odd = finished.rename(finished.with_name("[old]"))
    shown = cli("search", "--out", odd, "--resume")[1]
    assert "tickets [v2] a[/b]" in shown
    assert "/[old]" in shown


def test_an_infinite_cross_entropy_is_read_back(finished: Path) -> None:
    content = json.loads((finished / "result.json").read_text())
    trial = {"beta": 1.0, "evaluations": 3, "validation": 0.5, "cross_entropy": None}
    (finished / "result.json").write_text(json.dumps(content | {"beta_trials": [trial]}))
    result = SavedRun(finished).result
    assert result.beta_trials[0].cross_entropy == math.inf


def test_settings_without_names_are_one_line(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text("1: 2\n")
    arguments = ("--config", tmp_path / "c.yaml", "--out", tmp_path / "out")
    check_error(cli("search", *arguments), "the name of a setting must be text")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model": "no-such-model"}, "--model: no 'no-such-model'"),
        ({"model": "nobody/nothing"}, "--model: no 'nobody/nothing'"),
        ({"task": "no-such-task"}, "--task: no 'no-such-task'"),
        ({"task": "missing.yaml"}, "does not exist"),
        ({"method": "gradient-descent"}, "--method: no 'gradient-descent'"),
        ({"budget": -5}, "--budget"),
        ({"shots": 4000}, "shots or add data"),
        ({"device": "toaster"}, "--device"),
        ({"init": "nonsense"}, "--init: choose auto, vocab, zeros or text"),
        ({"prompt_length": 100000}, "leaves no room"),
        ({"data_dir": "nowhere", "task": "sst2"}, "nowhere/sst2 does not exist"),
        ({"config": "nowhere.yaml"}, "nowhere.yaml"),
    ],
)
def test_user_errors_are_one_line(
    cli: Cli, folders, task_file: Path, tmp_path: Path, changes: dict, message: str
) -> None:
    names = {"model": folders("llama"), "task": task_file, "out": tmp_path / "run"}
    settings = names | (SMALL | changes if "method" in changes else small_settings(**changes))
    options = [f"--{name.replace('_', '-')}={value}" for name, value in settings.items()]
    check_error(cli("search", *options), message)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("bad: terrible", "bad: unquestionably", "is not one token"),
        ("label: verdict", "label: stars", "no value for 'stars'"),
        ("good: great", "fine: great", "label 'good' has no verbalizer"),
        ("{text} It was {mask}.", "It was {mask}.", "no placeholder"),
        ("{text} It was {mask}.", "{text} It was.", "exactly one {mask}"),
        ("Review: {text}", "Review: {review}", "no value for 'review'"),
    ],
)
def test_wrong_tasks_are_one_line(
    cli: Cli, folders, task_file: Path, tmp_path: Path, old: str, new: str, message: str
) -> None:
    task_file.write_text(task_file.read_text().replace(old, new))
    out = tmp_path / "run"
    check_error(cli(*search_command(folders("llama"), task_file, out)), message)
    assert not out.exists() or not any(out.iterdir())
    check_error(
        cli("tasks", "check", task_file, "--model", folders("llama"), "--shots", 4), message
    )


def test_a_task_is_checked_before_weights_are_read(
    cli: Cli, folders, task_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ModelSource, "load_module", lambda *_, **__: pytest.fail("model loaded"))
    task_file.write_text(task_file.read_text().replace("terrible", "unquestionably"))
    command = search_command(folders("llama"), task_file, tmp_path / "run")
    check_error(cli(*command), "is not one token")


def test_a_used_folder_is_not_overwritten(
    cli: Cli, finished: Path, folders, task_file: Path
) -> None:
    before = {path.name: path.read_bytes() for path in finished.iterdir()}
    check_error(cli(*search_command(folders("llama"), task_file, finished)), "not empty")
    assert {path.name: path.read_bytes() for path in finished.iterdir()} == before


def test_resume_of_a_finished_run_shows_its_result(cli: Cli, finished: Path) -> None:
    code, shown, _ = cli("search", "--out", finished, "--resume")
    assert code == 0
    assert "found prompt" in shown


def test_resume_keeps_the_settings(cli: Cli, finished: Path) -> None:
    arguments = ("search", "--out", finished, "--resume", "--budget", 99)
    check_error(cli(*arguments), "--budget: this run has 24, not 99")


def test_resume_of_nothing_needs_settings(cli: Cli, tmp_path: Path) -> None:
    check_error(cli("search", "--out", tmp_path / "none", "--resume"), "--model")


def test_json_is_all_that_is_printed(cli: Cli, folders, task_file: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    code, shown, log = cli(*search_command(folders("llama"), task_file, out), "--json")
    assert (code, log) == (0, "")
    assert json.loads(shown) == json.loads((out / "result.json").read_text())


def test_config_file_and_options_over_it(
    cli: Cli, folders, task_file: Path, tmp_path: Path
) -> None:
    file = tmp_path / "c.yaml"
    file.write_text(
        f"model: {folders('llama')}\ntask: {task_file}\nshots: 4\nbudget: 50\nprompt_length: 2\n"
    )
    code, *_ = cli("search", "--config", file, "--budget", 7, "--out", tmp_path / "run")
    assert code == 0
    stored = json.loads((tmp_path / "run/config.json").read_text())
    assert (stored["budget"], stored["prompt_length"], stored["sigma0"]) == (7, 2, "auto")
    file.write_text("colour: red\nmodel: a\ntask: b\n")
    check_error(cli("search", "--config", file, "--out", tmp_path / "other"), "--colour")


@pytest.mark.parametrize("name", ["prompt.safetensors", "config.json"])
def test_damaged_runs_are_named(cli: Cli, finished: Path, name: str) -> None:
    (finished / name).write_bytes(b"{broken")
    check_error(cli("evaluate", finished), name)


def test_evaluate_of_nothing(cli: Cli, tmp_path: Path) -> None:
    check_error(cli("evaluate", tmp_path), "has no prompt")


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["methods"], list(METHODS)),
        (["models"], ["smollm2-135m"]),
        (["tasks"], ["sst2", "mnli", "rotten-tomatoes"]),
        (["tasks", "show", "mrpc"], ["sentence1", "yes", "f1"]),
        (["--help"], ["fit", "search", "evaluate", "predict"]),
        (["search", "--help"], ["--intrinsic-dimension", "--eval-every", "[500.0]"]),
    ],
)
def test_listings(cli: Cli, arguments: list[str], expected: list[str]) -> None:
    code, shown, _ = cli(*arguments)
    assert code == 0
    assert all(word in shown for word in expected)


def test_tasks_check_shows_an_example(cli: Cli, folders, task_file: Path) -> None:
    code, shown, _ = cli("tasks", "check", task_file, "--model", folders("llama"), "--shots", 4)
    assert code == 0
    assert "8 training, 8 validation, 16 test" in shown
    assert "Review: " in shown
