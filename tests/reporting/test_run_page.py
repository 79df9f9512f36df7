"""The page of one search, in Chromium, and its command."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import pfes
from pfes.reporting.pages.run_page import run_page
from pfes.runs.folder import RunFolder
from pfes.runs.saved import SavedRun
from tests.command import call
from tests.reporting.conftest import Opened
from tests.small_runs import finish, small_settings


@pytest.fixture
def run(folders: Callable[[str], Path], task_file: Path, tmp_path: Path) -> Path:
    out = tmp_path / "run"
    settings = small_settings(budget=60, test_limit=None)
    pfes.search(str(folders("gpt2")), task_file, out=out, **settings)
    return out


def test_the_page_says_what_the_run_found(run: Path, open_page: Callable[..., Opened]) -> None:
    done = call("report", run)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == str(run / "report.html")
    result = json.loads((run / "result.json").read_text())
    page = open_page(run / "report.html").page
    before = page.get_by_role("table", name="On 16 held-out examples")
    values = before.locator("tbody tr > :nth-child(2)").all_inner_texts()
    assert values == [f"{result[name]:.4f}" for name in ("zero_shot", "initial", "test")]

    # the confusion matrix holds every example, the right ones on its diagonal
    matrix = page.get_by_role("table", name="Found prompt: true labels down")
    counts = np.array([int(t) for t in matrix.locator("td").all_inner_texts()]).reshape(2, 2)
    assert counts.sum() == 16
    assert np.trace(counts) / 16 == pytest.approx(result["test"])
    assert "terrible" in matrix.inner_text()

    answers = SavedRun(run).answers
    changed = [
        answer
        for answer in answers
        if len({max(answer[v], key=answer[v].__getitem__) for v in ("zero_shot", "found")}) > 1
    ]
    assert changed, "this search changes some answers"
    sentences = page.get_by_role("table", name="Answers that changed").locator("td.text")
    assert sentences.all_inner_texts() == [answer["fields"]["text"] for answer in changed]

    titles = page.locator("figcaption").all_inner_texts()
    assert titles == ["Reliability", "Training loss", "Validation", "Step size", "Confidence"]
    bars = page.locator("figure.chart").nth(4)
    bars.scroll_into_view_if_needed()
    content = json.loads(bars.locator("script").inner_text())
    assert [sum(line["y"]) for line in content["lines"]] == [16, 16]
    tokens = page.get_by_role("table", name="Nearest tokens")
    assert tokens.locator("tbody tr").count() == 3


def test_a_search_of_one_step_is_seen(
    task_file: Path, tmp_path: Path, open_page: Callable[..., Opened]
) -> None:
    finish(task_file, tmp_path / "run", budget=6)
    file = tmp_path / "run/report.html"
    file.write_text(run_page(SavedRun(tmp_path / "run")))
    figure = open_page(file).page.locator("figure.chart", has_text="Step size")
    figure.scroll_into_view_if_needed()
    assert figure.locator(".plot circle").count() == 1


def test_nearest_tokens_of_tokens_are_themselves(folders: Callable[[str], Path]) -> None:
    from pfes.models.nearest_tokens import nearest_tokens

    model = pfes.load_model(str(folders("llama")))
    tokens = [7, 300, 12]
    found = nearest_tokens(model, model.embed(tokens), count=2)
    assert [first[0] for first, _ in found] == [model.tokenizer.decode([t]) for t in tokens]
    assert [first[1] for first, _ in found] == pytest.approx([1, 1, 1], abs=1e-3)
    assert all(second[1] < 0.99 for _, second in found)
    assert nearest_tokens(model, np.empty((0, model.width), dtype=np.float32)) == []


def test_a_run_that_has_not_ended_is_one_line(tmp_path: Path) -> None:
    begun = tmp_path / "begun"
    begun.mkdir()
    (begun / "config.json").write_text("{}")
    for folder, words in ((tmp_path / "none", "holds no run"), (begun, "no result yet")):
        done = call("report", folder)
        assert done.returncode == 2
        assert words in done.stderr
        assert done.stderr.count("\n") == 1


def test_answers_that_were_no_numbers_have_a_page(run: Path) -> None:
    answers = SavedRun(run).answers
    answers[0]["found"] = dict.fromkeys(answers[0]["found"])
    RunFolder(run).write_answers(answers)
    assert "Answers" in run_page(SavedRun(run))
