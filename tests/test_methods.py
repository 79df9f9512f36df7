"""The methods on a small real model, their settings, and what the intrinsic dimension saves."""

from pathlib import Path

import numpy as np
import pytest

import pfes
from pfes.config import RunConfig, Settings, make_config
from pfes.methods import METHOD_SETTINGS, METHODS, PRESETS, settings_of
from pfes.models.local.local_model import LocalModel
from pfes.optimizers import SAES
from pfes.studies.plan import StudySpec, plan_runs
from tests import tiny

FACTOR = 3.0  # evaluations of `saes` over those of `saes-id`, at least, in the median of the seeds


def evaluations_until(part: float, damping_dimension: float | None, seed: int) -> int:
    """Minimise a function of a hidden 50-dimensional image of 20,000 dimensions."""
    rng = np.random.default_rng(seed)
    image = rng.standard_normal((20_000, 50), dtype=np.float32) / np.float32(np.sqrt(20_000))
    goal = rng.standard_normal(50, dtype=np.float32) * 3
    start = np.zeros(20_000, dtype=np.float32)
    search = SAES(start, 1 / np.sqrt(3), damping_dimension=damping_dimension, seed=seed)
    first = float((goal**2).sum())
    for generation in range(1, 1500):
        values = ((search.ask() @ image - goal) ** 2).sum(axis=1)
        search.tell(values)
        if values.min() < part * first:
            return generation * search.population
    return generation * search.population


def test_the_intrinsic_dimension_saves_evaluations() -> None:
    standard = np.median([evaluations_until(0.02, None, seed) for seed in range(3)])
    for intrinsic_dimension in (50, 150, 500):
        ours = [evaluations_until(0.02, intrinsic_dimension, seed) for seed in range(3)]
        assert standard >= FACTOR * np.median(ours), intrinsic_dimension


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> LocalModel:
    return pfes.load_model(str(tiny.save_folder("llama", tmp_path_factory.mktemp("small"))))


@pytest.mark.parametrize("name", [name for name in METHODS if METHODS[name].optimizer])
def test_every_search_lowers_its_objective(
    small: LocalModel, task_file: Path, tmp_path: Path, name: str
) -> None:
    taken = {"population": 10, "policy_model": small.name}
    settings = {key: taken[key] for key in settings_of(METHODS[name]) if key in taken}
    gains = []
    for seed in range(5):
        result = pfes.search(
            small,
            pfes.load_task(task_file, shots=4, seed=seed, test_limit=8),
            name,
            out=tmp_path / str(seed),
            budget=200,
            prompt_length=2 if name == "cmaes" else None,
            eval_every=50,
            **settings,
        )
        last = pfes.SavedRun(tmp_path / str(seed)).history[-1]
        gains.append(result.initial_train_loss - last["best_loss"])
    assert np.median(gains) > 0


def test_every_setting_of_a_method_is_one_of_a_run() -> None:
    assert set(RunConfig.model_fields) >= METHOD_SETTINGS
    assert settings_of(METHODS["manual"]) == ()
    assert settings_of(METHODS["icl"]) == ("demonstrations", "draws")
    for name, method in METHODS.items():
        taken = settings_of(method)
        assert len(set(taken)) == len(taken)
        assert ("beta" in taken) == name.endswith("-cr")
        assert ("init" in taken) == (method.space in ("full", "subspace"))


@pytest.mark.parametrize("method", PRESETS["authors"])
def test_a_preset_gives_its_settings_except_where_others_are_given(method: str) -> None:
    settings = PRESETS["authors"][method]
    assert settings.keys() <= set(settings_of(METHODS[method]))
    config = make_config(model="m", task="t", method=method, preset="authors")
    assert {name: getattr(config, name) for name in settings} == settings
    shorter = make_config(model="m", task="t", method=method, preset="authors", budget=60)
    assert (shorter.budget, shorter.sigma0) == (60, settings["sigma0"])
    row = {"method": method, "preset": "authors"}
    spec = StudySpec(name="s", models=["m"], tasks=["t"], rows=[row], defaults={"budget": 5})
    assert plan_runs(spec, {})[0].config.budget == settings["budget"]
    assert plan_runs(spec, {"budget": 7})[0].config.budget == 7


def test_keyword_settings_are_those_of_a_run() -> None:
    """What editors and type checkers see of `pfes.search` is what it takes."""
    names = set(RunConfig.model_fields) - {"model", "task", "method"}
    assert set(Settings.__annotations__) == names
