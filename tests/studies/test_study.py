"""Whole studies on a tiny model: killed, resumed, mended, reported."""

import csv
import json
import os
import signal
import statistics
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml

from pfes.config import make_config
from pfes.runs.folder import RunFolder
from pfes.runs.result import Result
from pfes.searches.loop import Step
from pfes.studies.execute import begun_config, execute_runs
from pfes.studies.plan import PlannedRun, config_key, plan_runs, read_study_spec
from pfes.system.files import replace_json
from tests import command
from tests.small_runs import study_defaults

ROWS = [
    {"method": "manual"},
    {"label": "SaES <b>", "method": "saes-id-cr"},
    {"label": "one_1", "method": "one-plus-one"},
]
COMMAND = [sys.executable, "-c", "from pfes.cli import main; main()", "study"]


@pytest.fixture
def study_file(folders, task_file: Path, tmp_path: Path) -> Path:
    content = {
        "name": "tiny",
        "models": [str(folders("llama"))],
        "tasks": [str(task_file)],
        "seeds": [0, 1],
        "defaults": study_defaults(prompt_length=2),
        "rows": ROWS,
    }
    file = tmp_path / "tiny.yaml"
    file.write_text(yaml.safe_dump(content))
    return file


def call(*arguments: object) -> subprocess.CompletedProcess:
    return command.call("study", *arguments)


def results(out: Path) -> dict[str, dict]:
    found = {}
    for file in out.glob("*/result.json"):
        found[file.parent.name] = json.loads(file.read_text())
        for name in ("seconds_per_evaluation", "profile", "environment"):
            del found[file.parent.name][name]
    return found


def test_killed_mended_and_reported(study_file: Path, tmp_path: Path) -> None:
    whole, parted = tmp_path / "whole", tmp_path / "parted"
    done = call("run", study_file, "--out", whole)
    assert done.returncode == 0, done.stderr
    assert "6 of 6 runs" in done.stdout
    assert done.stderr.count("accuracy") == 6

    for wanted in (1, 3):
        process = subprocess.Popen(
            [*COMMAND, "run", str(study_file), "--out", str(parted)], stderr=subprocess.DEVNULL
        )
        for _ in range(3000):
            if len(list(parted.glob("*/result.json"))) >= wanted or process.poll() is not None:
                break
            time.sleep(0.02)
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert len(results(parted)) >= 3
    jobs = [*COMMAND, "run", str(study_file), "--out", str(parted), "--jobs", "2"]
    done = subprocess.run(jobs, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert results(whole) == results(parted)

    # one run deleted: that one alone is made again
    gone = sorted(results(parted))[0]
    before = {file: file.stat().st_mtime_ns for file in parted.glob("*/result.json")}
    for file in (parted / gone).iterdir():
        file.unlink()
    done = call("run", study_file, "--out", parted)
    assert done.returncode == 0
    after = {file: file.stat().st_mtime_ns for file in parted.glob("*/result.json")}
    assert {file.parent.name for file in before if before[file] != after[file]} == {gone}
    assert results(whole) == results(parted)

    done = call("report", study_file, "--out", parted, "--html")
    assert done.returncode == 0, done.stderr
    names = {Path(line).name for line in done.stdout.splitlines()}
    assert names == {
        "table.md", "table.tex", "table.csv", "comparisons.md", "report.html", "convergence.png",
    }  # fmt: skip
    place = parted / "report-tiny"
    text = (place / "table.md").read_text()
    assert "6 of 6 runs" in text
    assert "SaES &lt;b>" in text
    assert r"one\_1" in (place / "table.tex").read_text()
    with (place / "table.csv").open() as file:
        lines = list(csv.DictReader(file))
    methods = {row.get("label", row["method"]): row["method"] for row in ROWS}
    found = list(results(parted).values())
    for line in lines:
        own = [100 * one["test"] for one in found if one["method"] == methods[line["row"]]]
        assert float(line["mean"]) == pytest.approx(statistics.mean(own))
        assert float(line["deviation"]) == pytest.approx(statistics.stdev(own))

    # the figures alone, as one would publish them, are enough for the report
    for file in parted.glob("*/*"):
        if file.parent != place and file.name != "result.json":
            file.unlink()
    assert call("report", study_file, "--out", parted).returncode == 0
    assert (place / "table.md").read_text() == text
    assert "6 of 6 runs" in call("run", study_file, "--out", parted).stdout


def test_a_begun_run_goes_on_where_its_data_has_moved_to(study_file: Path, tmp_path: Path) -> None:
    def plan(data_dir: str) -> list[PlannedRun]:
        return plan_runs(read_study_spec(study_file), {"data_dir": data_dir})[2:3]

    begun = execute_runs(plan("old"), tmp_path / "runs")
    while not isinstance(next(begun).event, Step):
        pass
    begun.close()
    *_, last = execute_runs(plan("new"), tmp_path / "runs")
    assert isinstance(last.event, Result)
    assert last.event.config["data_dir"] == "new"
    assert len(list((tmp_path / "runs").iterdir())) == 1


def test_a_study_is_told_precision_and_devices(study_file: Path, tmp_path: Path) -> None:
    pytest.importorskip("accelerate")
    out = tmp_path / "runs"
    given = ("--seeds", "0", "--dtype", "float64")
    done = call("run", study_file, "--out", out, *given, "--device", "cpu", "--device-map", "auto")
    assert done.returncode == 0, done.stderr
    configs = [json.loads(file.read_text())["config"] for file in out.glob("*/result.json")]
    assert len(configs) == 3
    for config in configs:
        assert config["dtype"] == "float64"
        assert (config["device"], config["device_map"]) == ("cpu", "auto")
    # where a run takes place does not change which run it is; its precision does
    for options, finished in ((given, 3), (("--seeds", "0"), 0)):
        assert call("report", study_file, "--out", out, *options).returncode == 0
        assert f"{finished} of 3 runs" in (out / "report-tiny/table.md").read_text()


def test_a_begun_run_knows_where_its_server_has_moved_to(tmp_path: Path) -> None:
    old, new = (
        make_config(model=f"vllm:http://{place}:8000/v1", task="sst2", data_dir=place)
        for place in ("old", "new")
    )
    assert config_key(old) == config_key(new)
    folder = RunFolder(tmp_path)
    replace_json(folder.files.config, old.model_dump())
    assert begun_config(folder, new) == new
    other = make_config(model="m", task="sst2")
    assert begun_config(folder, other).model == old.model


def test_a_run_that_cannot_be_made_is_reported_and_the_rest_goes_on(
    study_file: Path, tmp_path: Path
) -> None:
    content = yaml.safe_load(study_file.read_text())
    content["rows"] = [{"method": "manual"}, {"method": "saes-id-cr", "prompt_length": 9999}]
    content["seeds"] = [0]
    study_file.write_text(yaml.safe_dump(content))
    done = call("run", study_file, "--out", tmp_path / "out")
    assert done.returncode == 1
    assert "leaves no room for text" in done.stderr
    assert "1 of 2 runs" in done.stdout
    assert call("report", study_file, "--out", tmp_path / "out").returncode == 0
    assert "1 of 2 runs" in (tmp_path / "out/report-tiny/table.md").read_text()
    assert "–" in (tmp_path / "out/report-tiny/table.md").read_text()


def test_a_task_that_cannot_be_read_ends_it_before_the_first_run(
    study_file: Path, tmp_path: Path
) -> None:
    content = yaml.safe_load(study_file.read_text())
    known = content["tasks"][0]
    done = call("run", study_file, "--tasks", f"{known},sst-2", "--out", tmp_path / "out")
    assert done.returncode == 2
    assert done.stderr.startswith("pfes: --task: no 'sst-2'")
    assert done.stderr.count("\n") == 1
    assert not list(tmp_path.glob("out/*"))


def test_a_study_follows_its_parent_into_the_grave(study_file: Path, tmp_path: Path) -> None:
    """Workers of a killed study stop by themselves."""
    content = yaml.safe_load(study_file.read_text())
    content["defaults"]["budget"] = 100_000
    study_file.write_text(yaml.safe_dump(content))
    jobs = [*COMMAND, "run", str(study_file), "--out", str(tmp_path / "out"), "--jobs", "2"]
    process = subprocess.Popen(jobs, stderr=subprocess.DEVNULL)
    for _ in range(3000):
        if len(list(tmp_path.glob("out/*/history.jsonl"))) >= 2:
            break
        assert process.poll() is None
        time.sleep(0.02)
    process.kill()
    process.wait()
    sizes: list[int] = []
    for _ in range(600):
        sizes.append(sum(f.stat().st_size for f in tmp_path.glob("out/*/history.jsonl")))
        if len(sizes) > 20 and len(set(sizes[-20:])) == 1:
            return
        time.sleep(0.05)
    pytest.fail("the workers go on")


def test_ctrl_c_reaches_all_and_one_line_is_said(study_file: Path, tmp_path: Path) -> None:
    content = yaml.safe_load(study_file.read_text())
    content["defaults"]["budget"] = 100_000
    study_file.write_text(yaml.safe_dump(content))
    jobs = [*COMMAND, "run", str(study_file), "--out", str(tmp_path / "out"), "--jobs", "2"]
    process = subprocess.Popen(
        jobs, stderr=subprocess.PIPE, text=True, start_new_session=True,
        preexec_fn=command.hear_ctrl_c,
    )  # fmt: skip
    for _ in range(3000):
        if len(list(tmp_path.glob("out/*/history.jsonl"))) >= 2:
            break
        assert process.poll() is None
        time.sleep(0.02)
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does
    errors = process.communicate(timeout=60)[1]
    assert process.returncode == 130
    assert "Traceback" not in errors
    assert "Run the same command to continue" in errors


@pytest.mark.parametrize("name", ["projection", "confidence"])
def test_a_study_may_be_called_as_an_analysis(study_file: Path, tmp_path: Path, name: str) -> None:
    content = yaml.safe_load(study_file.read_text()) | {"name": name}
    study_file.write_text(yaml.safe_dump(content))
    (tmp_path / "out").mkdir()
    assert call("report", study_file, "--out", tmp_path / "out").returncode == 0
