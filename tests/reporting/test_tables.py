"""Tables: ranks, missing cells, the paper's figures, formats."""

import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from pfes.reporting.comparisons import compare
from pfes.reporting.paper import paper_table
from pfes.reporting.sheets import Sheet, escape_latex, latex, markdown
from pfes.reporting.tables import StudyTable, comma_separated, make_tables
from pfes.runs.result import FreeResult, Result
from pfes.studies.frame import study_frame
from pfes.studies.plan import PlannedRun, StudySpec, plan_runs, read_study_spec

ROWS = [{"method": "manual"}, {"label": "SaES <b>", "method": "saes"}, {"method": "zosgd"}]
SEEDS = [0, 1, 42, 43, 100]


def make(**changes: object) -> tuple[StudySpec, list[PlannedRun]]:
    base = {"name": "x", "models": ["m"], "tasks": ["sst2"], "seeds": [0, 1], "rows": ROWS}
    spec = StudySpec.model_validate(base | changes)
    return spec, plan_runs(spec, {})


def result(test: float, seconds: float | None = None) -> Result:
    missing = dict.fromkeys(Result.model_fields)
    measured = {"test": test, "seconds_per_evaluation": seconds, "free": []}
    return Result.model_construct(**missing | measured)


def tables(spec: StudySpec, plan: list[PlannedRun], results: dict[int, Result]) -> list[StudyTable]:
    return make_tables(spec, plan, study_frame(plan, results))


def test_ranks_and_missing_cells() -> None:
    found = {0: result(0.5), 3: result(0.7), 1: result(0.8, 0.25)}
    (table,) = tables(*make(), found)
    assert [table.rank(row, "sst2") for row in table.rows] == [2, 1, None]
    assert table.cells["manual", "sst2"].text == "60.00 ± 14.14"
    assert table.cells["SaES <b>", "sst2"].text == "80.00 (1/2)"
    assert table.cells["zosgd", "sst2"].text == "–"
    assert table.seconds == {"SaES <b>": 0.25}
    assert "| SaES &lt;b> | **80.00 (1/2)** | 0.2500 |" in markdown(table.sheets())
    assert "| zosgd | – | – |" in markdown(table.sheets())
    assert r"\underline{60.00 $\pm$ 14.14} & --" in latex(table.sheets())
    assert r"SaES $<$b$>$" in latex(table.sheets())


SAME: dict[str, Any] = {"model": "FacebookAI/roberta-large", "seeds": SEEDS, "test": 872}


def sheets(model: str, seeds: list[int], test: int, **defaults: object) -> list[Sheet]:
    rows = [
        {"label": "BBT", "method": "bbt"},
        {"label": "ours alone", "method": "saes"},
        {"label": "SaES-ID-CR", "method": "saes-id-cr"},
        {"label": "RLPrompt", "method": "rlprompt", "preset": "authors"},
    ]
    same = {"reading": "plain"} | defaults
    spec, plan = make(name="main", models=[model], rows=rows, defaults=same, seeds=seeds)
    whole = result(0.9).model_copy(update={"test_examples": test})
    (table,) = tables(spec, plan, {0: whole, 4: whole.model_copy(update={"test": 0.8})})
    return list(table.sheets())


def test_the_papers_figures_stand_beside_ours_where_everything_agrees() -> None:
    sheet, apart = sheets(**SAME)
    lines = {label: entries[0].text for label, entries in sheet.lines}
    assert lines == {
        "BBT": "85.00 ± 7.07 (2/5)", "BBT (paper)": "88.03 ± 2.02", "ours alone": "–",
        "SaES-ID-CR": "–", "SaES-ID-CR (paper)": "90.37 ± 1.20", "RLPrompt": "–",
    }  # fmt: skip
    assert dict(sheet.lines)["BBT"][0].rank == 1  # the paper's is not ranked with ours
    assert dict(sheet.lines)["BBT (paper)"][0].rank is None
    assert [label for label, _ in apart.lines] == ["RLPrompt [1]"]
    assert apart.notes == (
        "[1] What differs: the paper cites these figures, of other runs, from BDPL's.",
    )


@pytest.mark.parametrize(
    ("change", "note"),
    [
        ({"budget": 300}, "300 evaluations, not 5000"),
        ({"model": "roberta-base"}, "model roberta-base, not roberta-large"),
        ({"seeds": [0, 1]}, "seeds 0, 1, not 0, 1, 42, 43, 100"),
        ({"prompt_length": 10}, "10 prompt tokens, not 50"),
        ({"test": 300}, "300 test examples of sst2, not 872"),
        ({"reading": "auto"}, "reading auto, not plain"),
    ],
)
def test_the_papers_figures_are_apart_where_something_differs(change: dict, note: str) -> None:
    ours, theirs = sheets(**SAME | change)
    assert not [label for label, _ in ours.lines if "(paper)" in label and "BBT" in label]
    mark = next(label for label, _ in theirs.lines if label.startswith("BBT")).removeprefix("BBT ")
    assert f"{mark} What differs: {note}." in theirs.notes
    assert note in markdown([theirs])
    assert "not comparable" in theirs.caption


def test_another_weight_of_the_regulariser_is_another_row() -> None:
    ours, theirs = sheets(**SAME | {"beta": 10})
    assert "BBT (paper)" in dict(ours.lines)
    assert "SaES-ID-CR (paper)" not in dict(ours.lines)
    assert "[1] What differs: β 10 on sst2, not 1." in theirs.notes


def test_a_constant_answer_is_the_floor_of_a_table() -> None:
    constant = FreeResult(
        name="constant", title="always", test=0.81, interval=(0, 1), auc=None, loss=1
    )
    free = result(0.5).model_copy(update={"free": [constant]})
    (table,) = tables(*make(), {0: free, 1: free, 3: free})
    assert next(table.sheets()).lines[0][0] == "constant answer"
    assert table.constant["sst2"].values == (81.0, 81.0)
    assert "| constant answer | 81.00 ± 0.00 | – |" in markdown(table.sheets())


@pytest.mark.parametrize("name", ["main", "beta", "opt", "baselines"])
def test_every_row_of_the_papers_tables_is_in_our_study(name: str) -> None:
    spec = read_study_spec(name)
    paper = paper_table(name)
    assert paper is not None
    assert {row["label"] for row in spec.rows} == set(paper.rows)
    assert {Path(model).name for model in spec.models} == {paper.model}
    assert all(set(figures) == set(spec.tasks) for figures in paper.rows.values())
    assert (spec.seeds, spec.tasks) == (list(paper.seeds), list(paper.test_examples))
    plan = plan_runs(spec, {})
    for row in paper.rows:
        runs = [(run.config, None) for run in plan if run.label == row]
        assert paper.differences(row, runs) == ([paper.notes[row]] if row in paper.notes else [])


def test_one_run_is_one_folder_in_every_study() -> None:
    folders = {}
    for name in ("main", "beta", "convergence"):
        plan = plan_runs(read_study_spec(name), {})
        folders[name] = {run.folder for run in plan}
    assert folders["convergence"] < folders["main"]
    # both strategies at the best β of each of seven tasks, for five seeds
    assert len(folders["beta"] & folders["main"]) == 2 * 7 * 5


def test_comparisons_are_paired() -> None:
    seeds = list(range(8))
    _, plan = make(seeds=seeds, rows=[{"method": "manual"}, {"method": "saes"}])
    found = {i: result(0.5 + 0.01 * run.config.seed) for i, run in enumerate(plan)}
    for i, run in enumerate(plan):
        if run.label == "saes":
            found[i] = result(found[i].test + 0.02 + 0.001 * run.config.seed)
    (one,) = compare(study_frame(plan, found))
    assert (one.row, one.against, one.pairs, one.better) == ("manual", "saes", 8, 0)
    assert one.median == pytest.approx(-2.35)
    assert one.p == pytest.approx(2 / 2**8)  # all eight of one sign: the exact two-sided value
    (few,) = compare(study_frame(plan[:10], {i: found[i] for i in range(10)}))
    assert few.p is None


def test_text_in_latex() -> None:
    assert escape_latex("a_b & 50 % of β, d̃ = 5") == r"a\_b \& 50 \% of $\beta$, $\tilde{d}$ = 5"


@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="needs pdflatex")
def test_latex_compiles(tmp_path: Path) -> None:
    names = [r"\ { } # ^ ~ $ _ & % < > |", "β σ λ μ d̃ √ − ± –"]
    rows = [{"label": name, "method": "saes"} for name in [*names, "BBT"]]
    (table,) = tables(*make(name="main", rows=rows), {0: result(0.5), 3: result(0.6)})
    head = r"\documentclass{article}\usepackage{booktabs}\begin{document}"
    (tmp_path / "table.tex").write_text(latex(table.sheets()), encoding="utf-8")
    (tmp_path / "doc.tex").write_text(head + "\n\\input{table.tex}\n\\end{document}\n")
    command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "doc.tex"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout[-2000:]
    assert (tmp_path / "doc.pdf").stat().st_size > 1000


def test_areas_under_the_curve_have_a_table_of_their_own() -> None:
    spec, plan = make()
    without = {0: result(0.5), 1: result(0.8)}
    measured = {i: one.model_copy(update={"auc": 0.9}) for i, one in without.items()}
    (plain,), (table,) = tables(spec, plan, without), tables(spec, plan, measured)
    assert len(list(plain.sheets())) == 1
    figures, areas = table.sheets()
    assert figures == next(plain.sheets())
    assert areas.lines[0][1][0].text == "90.00 (1/2)"
    assert "auc" not in comma_separated([plain])
    assert comma_separated([table]).splitlines()[1].endswith(",90.0")
