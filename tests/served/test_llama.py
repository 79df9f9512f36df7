"""llama.cpp's own server, with the embedded model. Run with `make test-served`."""

import runpy
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import pfes
from benchmarks.llama_server import LlamaServer, llama_python
from pfes.contract import Batch
from pfes.deploy.export import export
from pfes.models.text import answer_store
from pfes.models.text.text_model import TextModel
from pfes.runs.fit import Given, start_fit
from pfes.searches.encoded import encode_for
from pfes.system.stages import result_of
from pfes.tasks import load_task

pytestmark = pytest.mark.served
MODEL, TASK = "smollm2-135m", "rotten-tomatoes"
QUANTIZED = 0.3  # between log-probabilities: the model here has the same weights, as plain numbers


@pytest.fixture(scope="module")
def server() -> Iterator[LlamaServer]:
    assert llama_python() is not None, "needs the server's environment: make llama"
    with LlamaServer(MODEL) as running:
        yield running


@pytest.fixture(autouse=True)
def own_answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answer_store, "answers_file", lambda: tmp_path / "answers.sqlite")


def test_listed_words_are_near_those_of_the_model_here(server: LlamaServer) -> None:
    model, local = TextModel(server.url, tokenizer=MODEL), pfes.load_model(MODEL)
    list(model.checks())
    assert (model.offer.interface, model.offer.listed) == ("completions", 128)
    assert not model.offer.names
    task = load_task(TASK, 4)
    batch = encode_for(model, task.spec, task.train, 0)
    nothing = np.empty((0, model.width), np.float32)
    tokens, values = model.likely_answers(nothing, batch, 60, in_parts=True)
    pieces = [model.tokenizer.token(token) for token in (*batch.words, *tokens)]
    own = [i for i, piece in enumerate(pieces) if piece is not None]
    assert len(own) > 50
    there = encode_for(local, task.spec, task.train, 0)
    asked = Batch(there.token_ids, there.answers, tuple(pieces[i] for i in own), there.labels)
    truth = local.logprobs(np.empty((1, 0, local.width), np.float32), asked)[0]
    listed = model.are_listed(nothing, batch.with_words(tokens))[:, own]
    gaps = np.abs(values[:, own] - truth)[listed]
    assert np.median(gaps) < QUANTIZED
    assert (values[:, own] >= truth - 4 * QUANTIZED)[~listed].all()


@pytest.mark.parametrize("interface", ["completions", "chat"])
def test_fit_and_the_exported_program(
    server: LlamaServer, tmp_path: Path, interface: str, capsys: pytest.CaptureFixture
) -> None:
    settings = {"model": f"openai:{server.url}", "interface": interface, "shots": 4, "draws": 2}
    fitted = start_fit(TASK, tmp_path / "run", settings | {"test_limit": 30}, Given())
    result = result_of(fitted.events())
    with capsys.disabled():
        print(f"\n{interface}: template {result.zero_shot:.3f}, found {result.test:.3f}")
    texts = ["a great film", "dull , and far too long"]
    wanted = pfes.Classifier.from_run(tmp_path / "run").predict_proba(texts)
    export(tmp_path / "run", "text", tmp_path / "export")
    answer = runpy.run_path(str(tmp_path / "export/answer.py"))["answer"]
    np.testing.assert_allclose([list(answer(t).values()) for t in texts], wanted, atol=0.02)
