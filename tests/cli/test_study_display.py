"""What a study says on its way where there is no terminal."""

import pytest

from pfes.cli import study_display
from pfes.cli.study_display import follow_study
from pfes.config import make_config
from pfes.errors import PfesError
from pfes.runs.result import Result
from pfes.runs.run import Event
from pfes.searches.loop import Step
from pfes.studies.execute import RunEvent
from pfes.studies.plan import PlannedRun, config_key
from pfes.system.stages import Stage

Happening = tuple[int, Event | PfesError, float]  # run, event, seconds since the one before


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    """Show a study of two runs of 100 evaluations; return the lines after their titles."""

    class Clock:
        now = 0.0

        def perf_counter(self) -> float:
            return self.now

    clock = Clock()
    monkeypatch.setattr(study_display, "time", clock)
    configs = [make_config(model="m", task="sst2", budget=100, seed=seed) for seed in (0, 1)]
    plan = [PlannedRun("row", config, config_key(config)) for config in configs]

    def show(*happenings: Happening) -> list[str]:
        def events():
            for number, event, seconds in happenings:
                clock.now += seconds
                yield RunEvent(number, event)

        follow_study("two", plan, events())
        return [
            line.replace("row · sst2 · m · ", "") for line in capsys.readouterr().err.split("\n")
        ]

    return show


def step(evaluations: int) -> Step:
    return Step(evaluations, [0.5] * 10, 0.25, 0.25, 0.1, 1.0, None, False)


def result(seed: int) -> Result:
    return Result.model_construct(metric="accuracy", test=0.75, seed=seed)


def test_a_long_run_says_once_a_minute_where_it_is(said) -> None:
    loading = Stage("loading the model", 0, None)
    steps = [(0, step(evaluations), 31.0) for evaluations in (10, 20, 30, 40)]
    assert said((0, loading, 0.0), *steps) == [
        "0/2  seed 0: 20/100, best 0.250  9 min left",  # 62 s for 20 of 200
        "0/2  seed 0: 40/100, best 0.250  8 min left",
        "",
    ]


def test_the_time_left_counts_only_what_this_session_did(said) -> None:
    # 80 of 100 were there: 10 evaluations took a minute, 10 and a run of 100 are left
    assert said((0, step(90), 60.0)) == ["0/2  seed 0: 90/100, best 0.250  11 min left", ""]


def test_ends_are_said_at_once_but_not_those_of_earlier_sessions(said) -> None:
    lines = said((0, result(0), 1.0), (1, step(10), 6.0), (1, PfesError("no such file"), 1.0))
    assert lines == ["2/2  seed 1: no such file  0 min left", ""]
    lines = said((0, PfesError("no data"), 1.0), (1, step(10), 6.0), (1, result(1), 53.0))
    assert lines == ["1/2  seed 0: no data  – left", "2/2  seed 1: accuracy 0.7500  0 min left", ""]
