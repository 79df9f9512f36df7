"""What a study with a ceiling reports: free rows, corrected comparisons, shares, cost, graphs."""

import json
import math
from pathlib import Path
from typing import Any

import pytest
import yaml
from scipy.stats import binomtest

from pfes.reporting.comparisons import compare, holm, mcnemar, only_right
from pfes.reporting.coverage import coverage
from pfes.reporting.graphs import evaluation_graphs, graph_sheet, label_graphs
from pfes.reporting.study_cost import gpu_seconds
from pfes.runs.result import EarlierResult, FreeResult, Result
from pfes.studies.frame import study_frame, with_free_rows
from pfes.studies.plan import StudySpec, plan_runs
from tests.command import call
from tests.small_runs import study_defaults

SPEC: dict[str, Any] = {
    "name": "x", "models": ["m"], "tasks": ["sst2", "rte"], "seeds": [0, 1],
    "rows": [{"method": "saes"}, {"label": "ceiling", "method": "prompt-tuning"}],
    "free": ["template", "best start"], "ceiling": "ceiling",
    "parts": [
        {"name": "main"},
        {"name": "more", "tasks": ["sst2"], "settings": {"shots": 50}},
    ],
}  # fmt: skip


def free(name: str, test: float, right: str = "") -> FreeResult:
    return FreeResult(
        name=name, title=name, test=test, interval=(0, 1), auc=None, loss=0.5, right=right
    )


def result(test: float, zero_shot: float = 0.5, right: str = "", **more: Any) -> Result:
    missing = dict.fromkeys(Result.model_fields)
    own = {"test": test, "zero_shot": zero_shot, "right": right, "earlier": [], "calibration": {}}
    own |= {
        "free": [free("template", zero_shot, right)],
        "evaluations": 60,
        "config": {"init": "vocab"},
    }
    return Result.model_construct(**missing | own | more)


def test_holm_and_mcnemar() -> None:
    assert holm([]) == []
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.6, 0.9]) == [1.0, 1.0]
    assert only_right("1101", "1011") == (1, 1)
    assert mcnemar(0, 0) == 1.0
    by_hand = 2 * sum(math.comb(12, k) for k in range(3)) / 2**12
    assert mcnemar(2, 10) == pytest.approx(by_hand) == binomtest(2, 12).pvalue


def test_comparisons_are_corrected_and_look_at_sentences() -> None:
    spec = StudySpec.model_validate(SPEC | {"seeds": list(range(8)), "parts": [], "tasks": ["rte"]})
    plan = plan_runs(spec, {})
    good, bad = "1" * 20 + "0" * 4, "0" * 18 + "1" * 6
    found = {}
    for i, run in enumerate(plan):
        better = run.label == "ceiling"
        answers = good if better and run.config.seed < 3 else bad
        test = (0.7 if better else 0.6) + 0.01 * run.config.seed
        found[i] = result(test, right=answers)
        found[i].free[0] = free("template", 0.5, bad)
    frame = with_free_rows(study_frame(plan, found), found, spec.free)
    pairs = [("ceiling", "saes"), ("saes", "template"), ("saes", "best start")]
    first, second = compare(frame, pairs)  # there was no start to be the best
    assert (first.row, first.against, first.pairs, first.better) == ("ceiling", "saes", 8, 8)
    assert first.p == pytest.approx(2 / 2**8)
    assert first.corrected == pytest.approx(4 / 2**8)
    # 18 sentences against 2 in three of eight runs
    assert (first.sentences_better, first.sentences_worse) == (3, 0)
    assert (second.sentences_better, second.sentences_worse) == (0, 0)


def test_free_rows_stand_once_for_each_place() -> None:
    spec = StudySpec.model_validate(SPEC)
    plan = plan_runs(spec, {})
    auto = {"config": {"init": "auto"}, "start": object(), "text": None}
    found = {0: result(0.6), 1: result(0.7, 0.55, **auto)}
    frame = with_free_rows(study_frame(plan, found), found, spec.free)
    rows = frame[frame["folder"] == ""]
    assert len(rows) == 2 * (2 * 2 + 2)
    done = rows[rows["finished"].astype(bool)]
    # nothing in front was the best start of the second run: that is the template
    assert dict(zip(done["row"], done["test"], strict=True)) == {
        "template": 0.5, "best start": 0.55,
    }  # fmt: skip
    assert set(done["task"]) == {"sst2"}
    assert set(frame["task"]) == {"sst2", "rte", "sst2, shots 50"}


def test_the_share_is_a_ratio_of_sums() -> None:
    spec = StudySpec.model_validate(SPEC | {"parts": [], "seeds": [0, 1, 2]})
    plan = plan_runs(spec, {})
    gains = {("sst2", "saes"): 0.03, ("sst2", "ceiling"): 0.1, ("rte", "saes"): 0.01}
    gains["rte", "ceiling"] = 0.0
    found = {i: result(0.5 + gains[run.column, run.label]) for i, run in enumerate(plan)}
    frame = with_free_rows(study_frame(plan, found), found, spec.free)
    by_row = {one.row: one for one in coverage(frame, "ceiling")}
    assert by_row["saes"].share == pytest.approx(0.4)  # (3 + 1) / (10 + 0)
    assert by_row["saes"].gain == pytest.approx(2.0)
    assert by_row["ceiling"].share == pytest.approx(1.0)
    assert by_row["template"].share == 0
    low, high = by_row["saes"].gain_interval
    assert 0.99 < low < 2 < high < 3.01
    low, high = by_row["saes"].share_interval
    assert 0.3 <= low < 0.4 < high
    gains["rte", "ceiling"] = -0.09  # more in all, but not in every resample
    unsure = {i: result(0.5 + gains[run.column, run.label]) for i, run in enumerate(plan)}
    (saes, _) = coverage(study_frame(plan, unsure), "ceiling")
    assert saes.share == pytest.approx(4.0)
    assert saes.share_interval is None
    few = {i: one for i, one in found.items() if plan[i].config.seed < 2}
    assert {one.gain_interval for one in coverage(study_frame(plan, few), "ceiling")} == {None}
    below = {i: result(0.4) for i in range(len(plan))}
    lowered = coverage(study_frame(plan, below), "ceiling")
    assert {one.share for one in lowered} == {None}


def test_graphs_have_what_was_measured() -> None:
    spec = StudySpec.model_validate(SPEC)
    plan = plan_runs(spec, {})

    def earlier(at: int, test: float) -> EarlierResult:
        where = {"at": at, "selected_at": at, "validation": 0.5}
        return EarlierResult(**where, test=test, interval=(0, 1), auc=None)

    found = {}
    for i, run in enumerate(plan):
        looks = [earlier(20, 0.55), earlier(40, 0.6)] if run.label == "saes" else []
        looks = looks[: 2 - run.config.seed]  # the second seed has one look less
        test = (0.7 if run.config.shots == 50 else 0.65) + 0.1 * (run.column == "rte")
        found[i] = result(test, earlier=looks, config={"budget": 60, "init": "vocab"})
    frame = with_free_rows(study_frame(plan, found), found, spec.free)
    (graph,) = evaluation_graphs(spec, found, frame[frame["part"] == "main"])
    lines = {line.name: line for line in graph.lines}
    assert (lines["saes"].x, lines["saes"].level) == ([20.0, 60.0], False)
    assert lines["saes"].y == pytest.approx([55, 70])
    assert lines["template"].y == pytest.approx([50, 50])
    assert lines["ceiling"].y == pytest.approx([70, 70])
    assert lines["ceiling"].level
    sheet = graph_sheet(graph)
    assert sheet.head[1:] == ("20", "60")
    assert [entry.text for entry in dict(sheet.lines)["saes"]] == ["55.00", "70.00"]
    assert [entry.text for entry in dict(sheet.lines)["template"]] == ["50.00", "50.00"]
    (labels,) = label_graphs(frame)
    lines = {line.name: line for line in labels.lines}
    assert set(lines) == {"saes", "ceiling", "template"}
    assert lines["saes"].x == [16.0, 50.0]
    assert lines["saes"].y == pytest.approx([65, 70])  # of sst2, which alone has both


def test_seconds_on_a_gpu_are_arithmetic() -> None:
    known = {"sentence_evaluations": 9600, "sentence_tokens": 40.0, "parameters": 135_000_000}
    seconds = 9600 * 40 * 2 * 135e6 / 0.3 / 312e12
    assert gpu_seconds(result(0.5, **known)) == pytest.approx(seconds)
    assert gpu_seconds(result(0.5)) is None


def test_a_report_from_results_alone(folders: Any, task_file: Path, tmp_path: Path) -> None:
    """The kept figures, without prompts, answers and histories, make all but the loss curves."""
    study = SPEC | {
        "models": [str(folders("llama"))],
        "tasks": [str(task_file)],
        "seeds": [0],
        "defaults": study_defaults(free="all", reading="offset", report_at=12),
        "where": [{"method": "prompt-tuning", "report_at": []}],
        "parts": [{"name": "main"}, {"name": "more labels", "settings": {"shots": 6}}],
    }
    file = tmp_path / "x.yaml"
    file.write_text(yaml.safe_dump(study))
    call("study", "run", file, "--out", tmp_path / "runs")
    kept = tmp_path / "kept"
    results = sorted((tmp_path / "runs").glob("*/result.json"))
    assert len(results) == 4
    for i, path in enumerate(results[:3]):
        (kept / path.parent.name).mkdir(parents=True)
        (kept / path.parent.name / "result.json").write_bytes(path.read_bytes())
        assert i or json.loads(path.read_text())["right"]
    call("study", "report", file, "--out", kept, "--html")
    report = kept / "report-x"
    names = {path.name for path in report.iterdir()}
    assert {"headline.md", "cost.md", "missing.md", "report.html", "labels.png"} <= names
    assert len((report / "missing.md").read_text().splitlines()) == 1
    page = (report / "report.html").read_text()
    for words in ("How far it is to the ceiling", "best start", "1 runs are missing", "McNemar"):
        assert words in page
    table = (report / "table.md").read_text()
    for words in ("main · ", "more labels · ", "expected calibration error", "told from chance"):
        assert words in table
