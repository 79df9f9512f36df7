"""A search may have faster answers; validation and the test have those of the model itself."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pfes.contract import Batch, Floats, LanguageModel
from pfes.errors import SettingError
from pfes.runs.saved import SavedRun
from pfes.runs.start import start_run
from pfes.searches.loop import Step
from pfes.system.files import read_json, replace_json
from tests.small_runs import SMALL, begin, finish, small_settings
from tests.stand_in import StandIn


class Fast(StandIn):
    """What answers while a search runs; it notes for how many candidates."""

    precision = "bfloat16"

    def __init__(self) -> None:
        self.candidates = 0

    def logprobs(self, prompts: Floats, batch: Batch) -> Floats:
        self.candidates += len(prompts)
        return super().logprobs(prompts, batch) + np.float32(0.25)  # a constant changes no choice


class Exact(StandIn):
    """A model that has a faster one like it, and notes what it was asked for."""

    precision = "float32"

    def __init__(self) -> None:
        self.fast = Fast()
        self.asked: list[str | None] = []

    def for_search(self, precision: str | None, prompt_length: int, batch: Batch) -> LanguageModel:
        self.asked.append(precision)
        return self if precision == "float32" else self.fast


def test_candidates_alone_have_the_faster_answers(task_file: Path, tmp_path: Path) -> None:
    exact, plain = Exact(), finish(task_file, tmp_path / "plain")
    result = finish(task_file, tmp_path / "run", model=exact)
    assert exact.fast.candidates == SMALL["budget"]
    assert exact.asked == [None]
    assert (result.config["dtype"], result.config["search_dtype"]) == ("float32", "bfloat16")
    assert (result.test, result.validation) == (plain.test, plain.validation)
    assert result.train_loss == plain.train_loss  # judged by the model itself


def interrupted(task: Path, folder: Path, **changes: Any) -> None:
    events = begin(task, folder, model=Exact(), **changes)
    for event in events:
        if isinstance(event, Step):
            break
    events.close()


def test_a_resumed_run_keeps_its_precision(task_file: Path, tmp_path: Path) -> None:
    interrupted(task_file, tmp_path / "run")
    exact = Exact()
    resumed = finish(task_file, tmp_path / "run", model=exact, resume=True)
    whole = finish(task_file, tmp_path / "whole", model=Exact())
    assert exact.asked == ["bfloat16"]
    assert resumed.train_loss == whole.train_loss
    left, right = (SavedRun(tmp_path / name).history for name in ("run", "whole"))
    assert [step["losses"] for step in left] == [step["losses"] for step in right]


def test_a_machine_that_cannot_is_refused(task_file: Path, tmp_path: Path) -> None:
    interrupted(task_file, tmp_path / "run")
    only = StandIn()
    only.precision = "float32"
    with pytest.raises(SettingError, match="search_dtype.*float32 only"):
        finish(task_file, tmp_path / "run", model=only, resume=True)


def test_a_run_from_before_goes_on_in_its_own_precision(task_file: Path, tmp_path: Path) -> None:
    interrupted(task_file, tmp_path / "run")
    file = tmp_path / "run" / "config.json"
    config = read_json(file)
    del config["search_dtype"]
    replace_json(file, config)
    exact = Exact()
    finish(task_file, tmp_path / "run", model=exact, resume=True)
    assert exact.asked == ["float32"]


def test_the_precision_can_be_given(task_file: Path, tmp_path: Path) -> None:
    exact = Exact()
    result = finish(task_file, tmp_path / "run", model=exact, search_dtype="float32")
    assert exact.asked == ["float32"]
    assert exact.fast.candidates == 0
    assert result.config["search_dtype"] == "float32"
    with pytest.raises(SettingError, match="search_dtype"):
        start_run({"model": "stand-in", "task": str(task_file), "method": "manual",
                   "search_dtype": "float32"}, model=exact)  # fmt: skip


def test_an_automatic_precision_may_be_given_again(task_file: Path, tmp_path: Path) -> None:
    interrupted(task_file, tmp_path / "run")
    settings = {"model": "stand-in", "task": str(task_file)} | small_settings(dtype="auto")
    assert start_run(settings, tmp_path / "run", resume=True).config.dtype == "float32"
    with pytest.raises(SettingError, match="this run has 'float32'"):
        start_run(settings | {"dtype": "bfloat16"}, tmp_path / "run", resume=True)
