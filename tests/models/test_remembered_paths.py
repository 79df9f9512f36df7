"""Which paths a model can use is tried once for its architecture, and remembered."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pfes.models.local.load import load_model
from pfes.models.local.paths import EvaluationPaths
from pfes.models.source import ModelSource
from tests import tiny


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PFES_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "paths.json"


@pytest.mark.parametrize("name", ["llama", "albert", "roberta"])
def test_a_second_load_tries_nothing(
    name: str, cache: Path, folders: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    passes: list[str] = []
    original = ModelSource.load_module

    def counted(source: ModelSource, **options: Any) -> Any:
        module = original(source, **options)
        module.register_forward_hook(lambda *_: passes.append(name))
        return module

    monkeypatch.setattr(ModelSource, "load_module", counted)
    first = load_model(str(folders(name)), device="cpu")
    assert first.fast_paths == EvaluationPaths(tiny.make_module(name), first.family).names
    assert len(json.loads(cache.read_text())) == 1
    assert passes
    passes.clear()
    second = load_model(str(folders(name)), device="cpu")
    assert (second.fast_paths, passes) == (first.fast_paths, [])
    load_model(str(folders(name)), device="cpu", dtype="float64")
    assert passes  # in another precision they are tried again


def test_a_damaged_entry_is_tried_again(cache: Path, folders: Callable[[str], Path]) -> None:
    first = load_model(str(folders("llama")), device="cpu")
    (key,) = json.loads(cache.read_text())
    for content in ({key: {"fast": 3, "alike": True}}, {key: []}, [key]):
        cache.write_text(json.dumps(content))
        assert load_model(str(folders("llama")), device="cpu").fast_paths == first.fast_paths
    cache.write_text(json.dumps({key: {"alike": False, "fast": ["last-layer"]}}))
    assert load_model(str(folders("llama")), device="cpu").fast_paths == {"last-layer"}
