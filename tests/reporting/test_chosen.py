"""The part of a run's page about what was chosen before its search."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pfes.contract import Batch, Floats
from pfes.reporting.pages.chosen import STARTS, last_judgements
from pfes.reporting.pages.run_page import run_page
from pfes.runs.folder import RunFolder
from pfes.runs.saved import SavedRun
from pfes.searches.starts import StartTrial
from tests import small_runs
from tests.reporting.conftest import Opened
from tests.stand_in import StandIn

HOSTILE = "<img src=x onerror=alert(1)>"
CHOICES: dict[str, Any] = {
    "label": f"verdict {HOSTILE}",
    "guessed": True,
    "texts": ["text", "title"],
    "rows": 80,
    "empty": 3,
    "words": [
        {"label": f"bad {HOSTILE}", "word": f" {HOSTILE}", "token": 17, "source": "given"},
        {"label": "good & fine", "word": "good", "token": 21, "source": "its first token"},
    ],
    "templates": [
        {"template": f"{HOSTILE} {{text}}\nVerdict:", "loss": 0.2051},
        {"template": "</td>{text}", "loss": 0.25},
    ],
}


class LikesExamples(StandIn):
    """Answers the better, the more tokens a row has: with examples in front."""

    max_length = 5000

    def logprobs(self, prompts: Floats, batch: Batch) -> Floats:
        lengths = np.array([len(row) for row in batch.token_ids])
        right = np.log(lengths / (lengths + 50))
        is_right = np.array(batch.labels)[:, None] == [0, 1]
        answers = np.where(is_right, right[:, None], np.log1p(-np.exp(right))[:, None])
        return np.broadcast_to(answers, (len(prompts), *answers.shape)).astype(np.float32)


@pytest.fixture
def run(task_file: Path, tmp_path: Path) -> Path:
    """A run that has chosen its start, with texts that look like HTML."""
    data = task_file.parent / "films.csv"
    data.write_text(data.read_text().replace(" , part", f" {HOSTILE} , part"))
    out = tmp_path / "run"
    result = small_runs.finish(task_file, out, model=LikesExamples(), init="auto", budget=300)
    assert result.start is not None
    assert len(result.start.trials) > 2
    return out


def with_start(run: Path, **start: Any) -> None:
    """Change what a run's result says about its start."""
    file = run / "result.json"
    result = json.loads(file.read_text())
    result["start"] |= start
    file.write_text(json.dumps(result))


def test_the_page_says_what_was_chosen(run: Path, open_page: Callable[..., Opened]) -> None:
    (run / "choices.json").write_text(json.dumps(CHOICES))
    (run / "report.html").write_text(run_page(SavedRun(run)))
    page = open_page(run / "report.html", java_script_enabled=False).page
    chosen = page.get_by_role("region", name="What was chosen")
    said = chosen.locator("> p").first.inner_text()
    assert said == (
        f"Label: column 'verdict {HOSTILE}' (guessed: --label names another). Text: column 'text' "
        "and column 'title'. 80 rows, 3 of them left out: they have no text or no label."
    )
    assert cells(chosen, "Words of the labels") == [
        [f"bad {HOSTILE}", f"' {HOSTILE}'", "17", "given"],
        ["good & fine", "'good'", "21", "its first token"],
    ]
    assert cells(chosen, "Templates") == [
        [f"{HOSTILE} {{text}}\nVerdict:", "0.2051", "chosen"],
        ["</td>{text}", "0.2500", ""],
    ]
    start = SavedRun(run).result.start
    assert start is not None
    starts = cells(chosen, "Starts")
    assert sorted(row[0] for row in starts) == sorted(trial.name for trial in start.trials)
    assert [row[1] for row in starts] == sorted(f"{trial.loss:.4f}" for trial in start.trials)
    assert [row[0] for row in starts if row[3] == "chosen"] == [start.name]
    assert f"Step size σ at the start: {start.sigma0:.4g}." in chosen.inner_text()


def cells(parent: Any, name: str) -> list[list[str]]:
    rows = parent.get_by_role("table", name=name).locator("tbody tr").all()
    return [row.locator("> *").all_inner_texts() for row in rows]


def test_the_text_in_front_is_folded(run: Path, open_page: Callable[..., Opened]) -> None:
    saved = SavedRun(run)
    shown = saved.result_with_prompt().spec
    assert shown is not None
    text = "".join(shown.demonstrations)
    assert text, "this run has chosen something"
    (run / "report.html").write_text(run_page(saved))
    page = open_page(run / "report.html").page
    block = page.locator("details pre")
    assert not block.is_visible()
    page.locator("summary").click()
    assert block.is_visible()
    assert block.text_content() == text


def test_examples_that_look_like_html_are_text(run: Path) -> None:
    saved = SavedRun(run)
    (run / "choices.json").write_text(json.dumps(CHOICES))
    answers = saved.answers
    answers[0]["fields"] = {"text": HOSTILE * 30}
    RunFolder(run).write_answers(answers)
    assert "<img" not in run_page(SavedRun(run))


@pytest.mark.parametrize("loss", [None, 0.7531])
def test_a_given_template_has_no_loss(run: Path, loss: float | None) -> None:
    templates = [{"template": "{text} So:", "loss": loss}]
    content = CHOICES | {"words": [], "templates": templates, "empty": 0, "guessed": False}
    (run / "choices.json").write_text(json.dumps(content))
    page = run_page(SavedRun(run))
    assert "Words of the labels" not in page
    assert "left out" not in page
    assert "guessed" not in page
    assert ("0.7531" in page) == (loss is not None)


def test_a_run_that_chose_nothing_does_not_say_so(task_file: Path, tmp_path: Path) -> None:
    small_runs.finish(task_file, tmp_path / "run")
    saved = SavedRun(tmp_path / "run")
    assert saved.choices is None
    assert "What was chosen" not in run_page(saved)


def test_the_last_judgement_of_each_start_counts() -> None:
    trials = [
        StartTrial("a", 0.1, 64), StartTrial("b", 0.3, 64), StartTrial("c", 0.2, 64),
        StartTrial("d", float("nan"), 64), StartTrial("c", 0.5, 128), StartTrial("a", 0.6, 128),
    ]  # fmt: skip
    last = last_judgements(trials)
    assert [(trial.name, trial.examples) for trial in last] == [
        ("c", 128), ("a", 128), ("b", 64), ("d", 64),
    ]  # fmt: skip


def test_many_starts_are_not_all_listed(run: Path) -> None:
    trials = [{"name": f"start {i:03}", "loss": i / 10, "examples": 64} for i in range(40)]
    with_start(run, trials=trials, name="start 000")
    page = run_page(SavedRun(run))
    assert f"start {STARTS - 1:03}" in page
    assert f"start {STARTS:03}" not in page
    assert f"{40 - STARTS} more were judged worse" in page
