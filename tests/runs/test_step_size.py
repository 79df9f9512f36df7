"""Runs whose step size is found: every method of the continuous space, at every scale."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import transformers

import pfes
from pfes.errors import PfesError
from pfes.methods import METHODS
from pfes.runs.start import start_run
from pfes.searches.loop import Step
from pfes.system.stages import result_of
from tests.small_runs import begin, finish, small_settings

CONTINUOUS = [method.name for method in METHODS.values() if method.space in ("full", "subspace")]


@pytest.mark.parametrize("method", CONTINUOUS)
def test_every_continuous_method_finds_its_step_size(
    task_file: Path, tmp_path: Path, method: str
) -> None:
    result = finish(task_file, tmp_path / "run", method=method, sigma0=None)
    assert result.config["sigma0"] == "auto"
    assert result.start is not None
    assert result.start.sigma0 > 0
    assert result.start.evaluations == 3
    assert result.evaluations == 24
    assert (result.start.radius is not None) == method.startswith("zosgd")


@pytest.mark.parametrize("method", ["zosgd-cr", "saes-id"])
def test_what_was_found_is_kept_on_resume(task_file: Path, tmp_path: Path, method: str) -> None:
    changes: dict[str, Any] = {"method": method, "sigma0": "auto"}
    whole = finish(task_file, tmp_path / "whole", **changes)
    for event in begin(task_file, tmp_path / "cut", **changes):
        if isinstance(event, Step):
            break
    resumed = result_of(begin(task_file, tmp_path / "cut", resume=True, **changes))
    assert resumed.start == whole.start
    np.testing.assert_array_equal(resumed.prompt, whole.prompt)


def test_a_radius_that_is_given_is_kept(task_file: Path, tmp_path: Path) -> None:
    result = finish(task_file, tmp_path / "run", method="zosgd", sigma0=None, radius=0.02)
    assert result.start is not None
    assert result.start.radius == 0.02


def test_the_papers_step_size_may_be_given_again(task_file: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    for event in begin(task_file, out, sigma0="paper"):
        if isinstance(event, Step):
            break
    assert result_of(begin(task_file, out, sigma0="paper", resume=True)).config["sigma0"] == 1.0
    with pytest.raises(PfesError, match="^sigma0: this run has 1.0, not 'auto'"):
        begin(task_file, out, sigma0="auto", resume=True)


@pytest.mark.parametrize("method", ["saes-id", "zosgd", "bbt"])
def test_the_papers_step_sizes_stay(task_file: Path, tmp_path: Path, method: str) -> None:
    result = finish(task_file, tmp_path / "run", method=method, sigma0="paper")
    sigma0 = METHODS[method].sigma0
    assert sigma0 is not None
    assert result.config["sigma0"] == sigma0.causal
    assert result.config["radius"] == (1e-4 if method == "zosgd" else None)
    assert result.start is not None
    assert result.start.evaluations == 0


def test_tokens_have_no_step_size_to_find(task_file: Path, tmp_path: Path) -> None:
    assert finish(task_file, tmp_path / "run", method="bdpl", sigma0=None).config["sigma0"] == 1e-4
    settings = small_settings(method="bdpl", sigma0="auto")
    with pytest.raises(PfesError, match="^sigma0: auto is a step size"):
        start_run({"model": "stand-in", "task": str(task_file)} | settings, tmp_path / "other")


@pytest.mark.parametrize("method", ["saes-id", "one-plus-one-id-cr", "bbt", "zosgd"])
def test_an_embedding_ten_times_as_large_has_steps_ten_times_as_large(
    folders: Any, task_file: Path, tmp_path: Path, method: str
) -> None:
    """The layers' first norm takes the scale out again, so the answers are the same."""

    def start(scale: float) -> Any:
        model = pfes.load_model(str(folders("llama")))
        assert isinstance(model.module, transformers.LlamaForCausalLM)
        model.module.model.embed_tokens.weight.data *= scale
        for layer in model.module.model.layers:  # what is added to the stream is as large as that
            layer.self_attn.o_proj.weight.data *= scale
            layer.mlp.down_proj.weight.data *= scale
        changes: dict[str, Any] = {"sigma0": None, "reading": "offset", "placement": "suffix"}
        out = tmp_path / f"{scale:g}"
        return finish(task_file, out, model=model, method=method, **changes).start

    plain, large = start(1.0), start(10.0)
    if method == "zosgd":
        assert large.radius == pytest.approx(10 * plain.radius, rel=0.02)
        assert large.sigma0 == pytest.approx(100 * plain.sigma0, rel=0.05)
    else:
        assert large.sigma0 == pytest.approx(10 * plain.sigma0, rel=0.02)
