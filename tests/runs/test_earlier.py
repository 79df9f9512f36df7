"""`--report-at`: what a search had selected earlier, tested; and the figures of all that is."""

import json
from pathlib import Path

import numpy as np
import pytest

from pfes.config import make_config
from pfes.errors import PfesError
from pfes.runs.context import TestCache
from pfes.runs.result import Result
from pfes.runs.run import run
from pfes.runs.saved import SavedRun
from pfes.runs.versions import versions
from pfes.searches.loop import Step
from pfes.system.stages import Stage, result_of
from tests.small_runs import begin, finish, small_settings
from tests.stand_in import StandIn

LOOKS = {"eval_every": 6, "test_limit": None}


@pytest.mark.parametrize("method", ["saes-id-cr", "one-plus-one-id-cr", "bbt", "prompt-tuning"])
def test_an_earlier_figure_is_that_of_a_run_that_ended_there(
    task_file: Path, tmp_path: Path, method: str
) -> None:
    settings = {"method": method, "budget": 60, "report_at": (6, 12, 24)} | LOOKS
    whole = finish(task_file, tmp_path / "whole", **settings)
    assert [one.at for one in whole.earlier] == [6, 12, 24]
    titles = [version.title for version in versions(whole)]
    assert {f"after {one.at} evaluations" for one in whole.earlier} < {*titles}
    for one in whole.earlier:
        if method == "prompt-tuning":  # whose learning rates share the budget
            continue
        settings |= {"budget": one.at, "report_at": ()}
        ended = finish(task_file, tmp_path / f"until {one.at}", **settings)
        assert one.selected_at == ended.selected_at
        for name in ("validation", "test", "auc", "probability", "right", "train_ce"):
            assert getattr(one, name) == getattr(ended, name)
        assert one.ece == ended.calibration["read"].ece


def test_nothing_is_reported_before_the_first_generation(task_file: Path, tmp_path: Path) -> None:
    result = finish(task_file, tmp_path / "run", report_at="3,20", **LOOKS)
    assert [one.at for one in result.earlier] == [20]
    assert result.config["report_at"] == (3, 20)


@pytest.mark.parametrize("stop", [1, 2, 3])
def test_a_resumed_run_reports_the_same(task_file: Path, tmp_path: Path, stop: int) -> None:
    settings = {"report_at": (6, 12, 18)} | LOOKS
    whole = finish(task_file, tmp_path / "whole", **settings)
    events = begin(task_file, tmp_path / "parted", **settings)
    steps = (event for event in events if isinstance(event, Step))
    for _ in range(stop):
        next(steps)
    events.close()
    resumed = finish(task_file, tmp_path / "parted", resume=True, **settings)
    assert resumed.earlier == whole.earlier
    assert SavedRun(tmp_path / "parted").result.earlier == whole.earlier


@pytest.mark.parametrize(
    ("value", "words"),
    [(24, "24 is not before the end"), ("6,x", "whole numbers"), ("0", "greater than or equal")],
)
def test_mistakes(task_file: Path, tmp_path: Path, value: object, words: str) -> None:
    with pytest.raises(PfesError, match=f"^report_at: .*{words}"):
        begin(task_file, tmp_path / "run", report_at=value)


def test_all_that_is_tested_has_the_same_figures(task_file: Path, tmp_path: Path) -> None:
    result = finish(task_file, tmp_path / "run", reading="offset", free="all", **LOOKS)
    lines = [json.loads(line) for line in (tmp_path / "run/answers.jsonl").open()]
    found = [max(line["found"], key=line["found"].get) == line["label"] for line in lines]
    assert [one == "1" for one in result.right] == found
    assert np.mean(found) == pytest.approx(result.test)
    free = {one.name: one for one in result.free}
    plain = [max(line["zero_shot"], key=line["zero_shot"].get) == line["label"] for line in lines]
    assert [one == "1" for one in free["template"].right] == plain
    for one in result.free:
        assert one.right.count("1") / len(one.right) == pytest.approx(one.test)
        assert (one.train_ce is None) == (one.ece is None) == (one.name == "constant")
    assert free["template + reading"].train_ce <= free["template"].train_ce + 1e-9
    assert result.train_ce == pytest.approx(result.train_loss, abs=1)  # which has CR, too
    assert result.sentence_tokens > 3


def test_runs_that_share_their_tests_keep_no_prompt_of_their_own(task_file: Path) -> None:
    cache: TestCache = {}
    sizes = []
    for method in ("saes-id-cr", "saes-id", "bbt"):
        names = {"model": "stand-in", "task": str(task_file), "free": "all", "reading": "offset"}
        config = make_config(**small_settings(method=method, report_at=12) | names)
        result_of(run(config, model=StandIn(), test_cache=cache))
        sizes.append(len(cache))
    assert sizes[0] == sizes[1] == sizes[2] > 0


def test_runs_of_one_model_judge_starts_once(task_file: Path) -> None:
    def do(seed: int, method: str, cache: TestCache) -> tuple[Result, list[str]]:
        names = {"model": "stand-in", "task": str(task_file), "init": "auto", "seed": seed}
        changed = small_settings(method=method, budget=60, reading="offset") | names
        events = run(make_config(**changed), model=StandIn(), test_cache=cache)
        stages = []
        while True:
            try:
                event = next(events)
            except StopIteration as end:
                return end.value, stages
            stages += [event.name] if isinstance(event, Stage) else []

    cache: TestCache = {}
    first, judged = do(0, "saes-id", cache)
    assert "judging starts" in judged
    second, again = do(0, "bbt", cache)
    assert "judging starts" not in again
    alone, judged = do(0, "bbt", {})
    assert "judging starts" in judged
    assert first.start.trials == second.start.trials == alone.start.trials
    assert second.start == alone.start
    assert second.test == alone.test
    _, other = do(1, "bbt", cache)
    assert "judging starts" in other
