"""A study whose runs are in an object store; fsspec's own in memory stands for one."""

import weakref
from collections.abc import Callable, Iterator
from pathlib import Path

import fsspec
import pytest
import yaml
from typer.testing import CliRunner

from pfes.cli import app
from pfes.config import RunConfig
from pfes.contract import LanguageModel
from pfes.errors import PfesError
from pfes.models.open import open_model
from pfes.reporting.study_report import read_report, write_report
from pfes.runs.result import Result
from pfes.searches.loop import Step
from pfes.studies import store
from pfes.studies.execute import execute_runs
from pfes.studies.plan import PlannedRun, StudySpec, plan_runs
from pfes.studies.store import FolderStore, open_store
from pfes.tasks import TaskSpec
from tests.small_runs import study_defaults

OUT = "memory://bucket/runs"


@pytest.fixture(autouse=True)
def empty() -> Iterator[None]:
    yield
    fsspec.filesystem("memory").store.clear()


@pytest.fixture
def spec(folders: Callable[[str], Path], task_file: Path) -> StudySpec:
    return StudySpec(
        name="tiny", models=[str(folders("bert"))], tasks=[str(task_file)], seeds=[0, 1],
        defaults=study_defaults(budget=36, prompt_length=2),
        rows=[{"method": "manual"}, {"method": "saes-id-cr"}],
    )  # fmt: skip


def there() -> set[str]:
    return {name.removeprefix("/bucket/runs/") for name in fsspec.filesystem("memory").store}


def finish(plan: list[PlannedRun], out: str | Path) -> list[Result]:
    return [e.event for e in execute_runs(plan, out) if isinstance(e.event, Result)]


def test_a_run_that_was_cut_off_goes_on_from_its_copy(
    spec: StudySpec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = plan_runs(spec, {})
    whole = finish(plan, tmp_path)
    monkeypatch.setattr(store, "UPLOAD_EVERY", 0.0)
    steps = 0
    for happened in execute_runs(plan, OUT):
        steps += isinstance(happened.event, Step)
        if steps == 3:
            break
    begun = {name for name in there() if "saes" in name}
    assert {Path(name).name for name in begun} == {
        "start.json", "task.json", "config.json", "history.jsonl", "checkpoint.safetensors",
        "prompt.safetensors",
    }  # fmt: skip
    monkeypatch.setattr(store, "UPLOAD_EVERY", 1e9)
    events = list(execute_runs(plan, OUT))
    begun_again = [e for e in events if e.number == 1 and isinstance(e.event, Step)]
    assert begun_again[0].event.evaluations == 24
    parted = [e.event for e in events if isinstance(e.event, Result)]
    assert [r.train_loss for r in parted] == [r.train_loss for r in whole]
    for run in plan:
        kept = fsspec.filesystem("memory").cat(f"/bucket/runs/{run.folder}/prompt.safetensors")
        assert kept == (tmp_path / run.folder / "prompt.safetensors").read_bytes()
    assert not any(name.endswith(".tmp") for name in there())
    assert all(
        isinstance(e.event, Result) for e in execute_runs(plan, OUT)
    )  # nothing is left to do


def test_the_report_lies_beside_the_runs(spec: StudySpec, tmp_path: Path) -> None:
    file = tmp_path / "tiny.yaml"
    file.write_text(yaml.safe_dump(spec.model_dump()))
    done = CliRunner().invoke(app, ["study", "run", str(file), "--out", OUT])
    assert done.exit_code == 0, done.output
    done = CliRunner().invoke(app, ["study", "report", str(file), "--out", OUT, "--html"])
    assert done.exit_code == 0, done.output
    written = set(done.output.split())
    assert f"{OUT}/report-tiny/report.html" in written
    assert {f"{OUT}/{name}" for name in there() if name.startswith("report-")} == written
    table = fsspec.filesystem("memory").cat("/bucket/runs/report-tiny/table.md").decode()
    assert "4 of 4 runs are finished" in table


@pytest.mark.parametrize("address", ["nonsense://bucket/runs", "dropbox://no-such-package/runs"])
def test_storage_that_cannot_be_reached_is_one_line(spec: StudySpec, address: str) -> None:
    with pytest.raises(PfesError) as caught:
        finish(plan_runs(spec, {}), address)
    assert str(caught.value).startswith(f"out: {address}")
    assert "\n" not in str(caught.value)


def test_a_place_that_is_a_file_is_one_line(spec: StudySpec, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    events = list(execute_runs(plan_runs(spec, {})[:1], tmp_path / "file"))
    assert str(events[-1].event).endswith("cannot be made: Not a directory")
    (tmp_path / "report-tiny").write_text("")
    report = read_report(spec, [], FolderStore(tmp_path))
    with pytest.raises(PfesError, match="File exists"):
        write_report(report, tmp_path / "report-tiny")


def test_an_object_store_that_refuses_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    bucket = open_store(OUT)

    def refuse(_: object, place: str) -> bool:
        raise PermissionError(13, "denied", place)

    monkeypatch.setattr(type(fsspec.filesystem("memory")), "exists", refuse)
    with pytest.raises(PfesError, match=f"^out: {OUT}: PermissionError"):
        bucket.exists()


def test_there_is_one_model_at_a_time(
    spec: StudySpec, folders: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[weakref.ref] = []

    def watch(config: RunConfig, task: TaskSpec) -> LanguageModel:
        assert [one() for one in opened if one() is not None] == []
        model = open_model(config, task)
        opened.append(weakref.ref(model))
        return model

    monkeypatch.setattr("pfes.studies.execute.open_model", watch)
    models = [str(folders("llama")), str(folders("gpt2"))]
    rows = [{"method": "manual"}, {"method": "saes", "prompt_length": 9999}]  # the second cannot be
    changes = {"models": models, "seeds": [0], "rows": rows}
    kept = list(execute_runs(plan_runs(spec.model_copy(update=changes), {}), tmp_path / "runs"))
    assert sum(isinstance(one.event, PfesError) for one in kept) == len(opened) == 2
    assert opened[1]() is None
