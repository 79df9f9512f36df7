"""The start of a search is a candidate: where nothing is better, it is what a run returns."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from pfes.contract import Batch, Floats
from pfes.methods import METHODS
from pfes.runs.saved import SavedRun
from pfes.runs.versions import kept_sentence, versions
from pfes.searches.loop import Step
from tests import small_runs
from tests.stand_in import StandIn


class StartIsBest(StandIn):
    """Answers the better, the nearer a prompt is to the one that its batch size is measured on.

    That one is the initial prompt of a run.
    """

    start: Floats

    def choose_batch_tokens(self, prompt: Floats, batch: Batch, candidates: int) -> int:
        self.start = prompt.mean(axis=0)
        return 1000

    def logprobs(self, prompts: Floats, batch: Batch) -> Floats:
        mean = prompts.mean(axis=1) if prompts.shape[1] else np.zeros((len(prompts), self.width))
        distance = np.square(mean - self.start).sum(axis=1)[:, None]
        right = -np.log(2 + np.broadcast_to(distance, (len(prompts), len(batch))))
        wrong = np.log1p(-np.exp(right)) - 1e-3
        answers = np.where(
            batch.labels[None, :, None] == [0, 1], right[..., None], wrong[..., None]
        )
        return answers.astype(np.float32)


@pytest.mark.parametrize("method", [name for name in METHODS if METHODS[name].optimizer])
def test_a_start_that_nothing_beats_is_kept(
    task_file: Path, tmp_path: Path, folders: Callable[[str], Path], method: str
) -> None:
    policy = {"policy_model": str(folders("llama"))} if method == "rlprompt" else {}
    model = StartIsBest()
    result = small_runs.finish(task_file, tmp_path / "run", model=model, method=method, **policy)
    assert result.kept_start
    assert result.selected_at == 0
    assert result.evaluations == 24
    assert result.train_loss == result.initial_train_loss
    np.testing.assert_array_equal(result.prompt.mean(axis=0), model.start)
    assert not any(line["selected"] for line in SavedRun(tmp_path / "run").history)
    assert (tmp_path / "run/convergence.png").exists()


def test_a_start_that_nothing_beats_is_kept_whatever_beta(task_file: Path, tmp_path: Path) -> None:
    changes = {"beta": "auto", "budget": 90, "model": StartIsBest()}
    result = small_runs.finish(task_file, tmp_path / "run", **changes)
    assert result.selected_at == 0
    assert result.beta == 1.0


@pytest.mark.parametrize("stop", [0, 1, 3])
def test_a_kept_start_survives_a_resume(task_file: Path, tmp_path: Path, stop: int) -> None:
    whole = small_runs.finish(task_file, tmp_path / "whole", model=StartIsBest())
    model = StartIsBest()
    events = small_runs.begin(task_file, tmp_path / "parted", model=model)
    steps = (event for event in events if isinstance(event, Step))
    for _ in range(stop):
        next(steps)
    events.close()
    resumed = small_runs.finish(task_file, tmp_path / "parted", model=model, resume=True)
    assert resumed.selected_at == 0
    assert resumed.validation == whole.validation
    np.testing.assert_array_equal(resumed.prompt, whole.prompt)


@pytest.mark.parametrize("method", ["saes-id-cr", "bbt"])
def test_the_start_may_have_a_seed_of_its_own(task_file: Path, tmp_path: Path, method: str) -> None:
    def prompt(seed: int, init_seed: int | str) -> Floats:
        out, settings = tmp_path / f"{seed}-{init_seed}", {"seed": seed, "init_seed": init_seed}
        model = StartIsBest()
        return small_runs.finish(task_file, out, model=model, method=method, **settings).prompt

    same = prompt(0, 7)
    np.testing.assert_array_equal(prompt(1, 7), same)
    np.testing.assert_array_equal(prompt(7, "run"), same)
    assert (prompt(0, "run") != prompt(1, "run")).any()


class EmptyIsBest(StandIn):
    """Answers every text rightly without a prompt, and the worse the longer a prompt is."""

    def logprobs(self, prompts: Floats, batch: Batch) -> Floats:
        size = np.abs(prompts).sum(axis=(1, 2))[:, None]
        right = -np.log(1.2 + np.broadcast_to(size, (len(prompts), len(batch))))
        wrong = np.log1p(-np.exp(right)) - 1e-3
        known = [i for i in range(len(batch.words)) if i < 2]
        answers = np.where(batch.labels[None, :, None] == known, right[..., None], wrong[..., None])
        further = np.full((*right.shape, len(batch.words) - 2), -20.0)
        return np.concatenate([answers, further], axis=-1).astype(np.float32)


@pytest.mark.parametrize("free", ["all", "none"])
def test_what_is_free_is_kept_where_no_prompt_is_better(
    task_file: Path, tmp_path: Path, free: str
) -> None:
    settings = {"init": "auto", "reading": "offset", "free": free, "budget": 60}
    result = small_runs.finish(task_file, tmp_path / "run", model=EmptyIsBest(), **settings)
    assert result.kept_start
    assert result.prompt.shape == (0, 6)
    assert result.initial == result.test
    assert result.added == 0
    assert result.began_free == (free == "all")
    sentence = "better than what is free" if free == "all" else "better than its start"
    assert sentence in kept_sentence(result)
    titles = [version.title for version in versions(result)]
    assert ("initial prompt" in titles) == (free == "none")


class LooksGood(StandIn):
    """Answers as without a prompt, but a little better or worse by chance on each text."""

    def logprobs(self, prompts: Floats, batch: Batch) -> Floats:
        size = np.abs(prompts).sum(axis=(1, 2))[:, None]
        lean = np.array([sum(row) % 7 for row in batch.token_ids])
        right = -0.6 + 0.02 * np.sin(50 * size) * (lean - 3)
        known = [i for i in range(len(batch.words)) if i < 2]
        wrong = np.log1p(-np.exp(right))
        answers = np.where(batch.labels[None, :, None] == known, right[..., None], wrong[..., None])
        further = np.full((*right.shape, len(batch.words) - 2), -20.0)
        return np.concatenate([answers, further], axis=-1).astype(np.float32)


def test_selection_by_loss_asks_for_more_than_chance(task_file: Path, tmp_path: Path) -> None:
    settings = {"reading": "offset", "budget": 60, "eval_every": 6, "model": LooksGood()}
    settings |= {"init": "auto", "demonstrations": 0}
    looks = {}
    for select in ("loss", "metric"):
        out = tmp_path / select
        result = small_runs.finish(task_file, out, select=select, **settings)
        assert result.config["select"] == select
        lines = [line for line in SavedRun(out).history if line["validation"]]
        looks[select] = [line["validation"] for line in lines]
        kept = [line["validation"] for line in lines if line["selected"]]
        if select == "loss":
            assert all(look["ahead"] >= 1 for look in kept)
            lows = [look["read_entropy"] for look in looks[select] if look["ahead"] >= 1]
            assert (kept[-1]["read_entropy"] if kept else None) == min(lows, default=None)
        else:
            assert kept[-1]["metric"] == max(look["metric"] for look in looks[select])
    by_loss, by_metric = ([look["metric"] for look in looks[name]] for name in ("loss", "metric"))
    assert by_loss == by_metric  # the search itself is the same
    assert looks["metric"][0]["ahead"] is None


def test_how_it_selects_depends_on_the_reading(task_file: Path, tmp_path: Path) -> None:
    for reading, expected in (("plain", "metric"), ("offset", "loss")):
        out = tmp_path / reading
        result = small_runs.finish(task_file, out, reading=reading)
        assert result.config["select"] == expected


@pytest.mark.parametrize("stored", ["loss", None])
def test_a_resumed_run_selects_as_it_was_begun(
    task_file: Path, tmp_path: Path, stored: str | None
) -> None:
    model, out = LooksGood(), tmp_path / "run"
    settings = {"reading": "offset", "budget": 60, "eval_every": 6, "model": model}
    events = small_runs.begin(task_file, out, **settings)
    next(event for event in events if isinstance(event, Step))
    events.close()
    config = SavedRun(out).path / "config.json"
    content = json.loads(config.read_text())
    if stored is None:  # as a run from before there was a choice
        del content["select"]
        config.write_text(json.dumps(content))
    resumed = small_runs.finish(task_file, out, resume=True, **settings)
    assert resumed.config["select"] == (stored or "metric")
