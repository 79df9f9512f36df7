"""Runs with a reading: the same answers everywhere, and a search that is paid for ranking."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import pfes
from pfes.contract import Batch
from pfes.deploy.export import export
from pfes.models.local.load import load_model
from pfes.searches.loop import Step
from tests import tiny
from tests.command import call
from tests.deploy.test_exports import ADDRESS, card_code, printed
from tests.models.server import serving
from tests.small_runs import begin, finish, small_settings
from tests.stand_in import StandIn

TEXTS = ["a fine film", "bad", "a long , long and winding story", "great !"]
READINGS = ["offset", "slope", "words", "auto"]


def words_of(reading: str) -> dict[str, int]:
    """Return how many words a reading of a tiny model takes, where it takes any."""
    return {"answer_words": 20} if reading in ("words", "auto") else {}


@pytest.fixture
def model(folders: Callable[[str], Path]) -> pfes.LanguageModel:
    return load_model(str(folders("llama")))


@pytest.mark.parametrize("method", ["manual", "icl", "saes-id-cr", "bbt", "bdpl"])
@pytest.mark.parametrize("reading", READINGS)
def test_every_command_reads_alike(
    folders: Callable[[str], Path], task_file: Path, tmp_path: Path, method: str, reading: str
) -> None:
    out = tmp_path / "run"
    settings = {"method": method, "reading": reading} | words_of(reading)
    model = load_model(str(folders("llama")))
    result = finish(task_file, out, model=model, **settings)
    assert result.reading["rung"] in ([reading] if reading != "auto" else [*READINGS, "mixed"])
    file = out / "config.json"
    stored = json.loads(file.read_text()) | {"model": str(folders("llama"))}
    file.write_text(json.dumps(stored))
    shown = json.loads(call("evaluate", out, "--json").stdout)
    assert shown["value"] == pytest.approx(result.test)
    answers = pfes.SavedRun(out).answers
    texts = [answer["fields"]["text"] for answer in answers]
    classifier = pfes.Classifier.from_run(out, model)
    wanted = [[answer["found"][str(label)] for label in classifier.classes_] for answer in answers]
    if result.reading["rung"] != "plain":
        np.testing.assert_allclose(classifier.predict_proba(texts), wanted, atol=1e-4)
    lines = call("predict", out, "--text", texts[0], "--json").stdout
    probabilities = json.loads(lines)["probabilities"].values()
    np.testing.assert_allclose(
        list(probabilities), classifier.predict_proba(texts[:1])[0], atol=1e-4
    )


@pytest.mark.parametrize("kind", ["peft", "safetensors", "vllm"])
@pytest.mark.parametrize("reading", ["offset", "words"])
def test_an_export_has_its_reading(
    folders: Callable[[str], Path], task_file: Path, tmp_path: Path, kind: str, reading: str
) -> None:
    run, out = tmp_path / "run", tmp_path / "export"
    settings = small_settings(reading=reading, sigma0=0.5, **words_of(reading))
    pfes.search(str(folders("llama")), task_file, out=run, **settings)
    export(run, kind, out)
    classifier = pfes.Classifier.from_run(run)
    exported = pfes.Classifier.from_run(out)
    wanted = classifier.predict_proba(TEXTS)
    np.testing.assert_allclose(exported.predict_proba(TEXTS), wanted, atol=1e-5)
    with serving(tiny.make_module("llama"), [str(folders("llama"))]) as server:
        server.max_logprobs = 500
        for text, row in zip(TEXTS, wanted, strict=True):
            code = card_code(out, text).replace(ADDRESS, server.url)
            words = printed(code + "\nprint(*probabilities.values())")
            assert words[0] == classifier.classes_[row.argmax()]
            np.testing.assert_allclose([float(w) for w in words[1:]], row, atol=1e-4)


class Tilted(StandIn):
    """The same model, but one that likes the first label's word far better."""

    def logprobs(self, prompts: np.ndarray, batch: Batch) -> np.ndarray:
        return super().logprobs(prompts, batch) + np.array([4.0, -3.0], dtype=np.float32)


@pytest.mark.parametrize("method", ["saes-id", "one-plus-one-id", "bbt"])
def test_a_constant_for_each_label_changes_no_search(
    task_file: Path, tmp_path: Path, method: str
) -> None:
    results = [
        finish(
            task_file, tmp_path / type(model).__name__, model=model, method=method, reading="offset"
        )
        for model in (StandIn(), Tilted())
    ]
    np.testing.assert_allclose(results[0].prompt, results[1].prompt, atol=1e-5)
    assert results[0].test == results[1].test
    assert results[0].train_loss == pytest.approx(results[1].train_loss, abs=1e-5)


def test_a_run_with_a_reading_is_resumed_bit_for_bit(
    model: pfes.LanguageModel, task_file: Path, tmp_path: Path
) -> None:
    changes = {"reading": "auto", "answer_words": 20, "model": model}
    finish(task_file, tmp_path / "whole", **changes)
    events = begin(task_file, tmp_path / "cut", **changes)
    for event in events:
        if isinstance(event, Step):
            break
    events.close()
    finish(task_file, tmp_path / "cut", resume=True, **changes)
    files = [(tmp_path / name / "prompt.safetensors").read_bytes() for name in ("whole", "cut")]
    assert files[0] == files[1]


def test_the_most_telling_words_are_named(
    model: pfes.LanguageModel, task_file: Path, tmp_path: Path
) -> None:
    changes = {"method": "manual", "reading": "words", "answer_words": 20}
    result = finish(task_file, tmp_path / "run", model=model, **changes)
    assert result.reading["telling"].keys() == {"bad", "good"}
    assert all(len(words) == 10 for words in result.reading["telling"].values())
    assert 0 <= result.auc <= 1
    shown = call("search", "--out", tmp_path / "run", "--resume").stdout
    assert "Reading: words " in shown
    assert shown.count("  good: ") == 1
