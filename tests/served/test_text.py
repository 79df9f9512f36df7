"""A real vLLM server used by text alone. Run with `make test-served`."""

import json
import os
import runpy
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from transformers import AutoTokenizer

import pfes
from benchmarks.vllm_server import VllmServer, server_python
from pfes.contract import Batch
from pfes.deploy.export import export
from pfes.models.source import find_model
from pfes.models.text import answer_store
from pfes.models.text.text_model import TextModel
from pfes.runs.fit import Given, start_fit
from pfes.searches.encoded import encode_for
from pfes.system.stages import result_of
from pfes.tasks import load_task
from pfes.tasks.demonstrations import with_demonstrations
from pfes.tasks.turns import messages

pytestmark = pytest.mark.served
MODEL, TASK = "smollm2-135m", "rotten-tomatoes"
TEXT_DATA = Path(os.environ.get("PFES_TEXT_DATA", Path(__file__).parents[3] / "shared/text"))


@pytest.fixture(scope="module")
def server() -> Iterator[VllmServer]:
    assert server_python() is not None, "needs the server's environment: make vllm"
    with VllmServer(MODEL, embeds=False) as running:
        yield running


@pytest.fixture(autouse=True)
def own_answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answer_store, "answers_file", lambda: tmp_path / "answers.sqlite")


@pytest.fixture(scope="module")
def local() -> pfes.LanguageModel:
    return pfes.load_model(MODEL)


def connect(server: VllmServer, **options: object) -> TextModel:
    model = TextModel(server.url, **options)
    list(model.checks())
    return model


@pytest.mark.parametrize("interface", ["completions", "chat"])
def test_listed_words_have_the_answers_of_the_model_here(
    server: VllmServer, local: pfes.LanguageModel, interface: str
) -> None:
    model = connect(server, interface=interface)
    assert model.offer.listed == 128
    task = with_demonstrations(load_task(TASK, 4), "causal", 0)
    batch = encode_for(model, task.spec, (*task.train, *task.validation), 0)
    assert len(batch) == 14
    nothing = np.empty((0, model.width), np.float32)
    tokens, values = model.likely_answers(nothing, batch, 300, in_parts=True)
    words = [model.tokenizer.decode([token]) for token in (*batch.words, *tokens)]
    tokenizer = AutoTokenizer.from_pretrained(find_model(MODEL).location)
    if interface == "chat":
        chats = [messages(written.turns) for written in batch.written]
        rows = [
            tokenizer.apply_chat_template(c, add_generation_prompt=True, return_dict=True)[
                "input_ids"
            ]
            for c in chats
        ]
    else:
        rows = [tokenizer(written.text)["input_ids"] for written in batch.written]
    spelled: dict[str, list[int]] = {}
    for token in range(len(tokenizer)):
        text = tokenizer.decode([token])
        spelled.setdefault(text.strip() if interface == "chat" else text, []).append(token)
    own = [i for i, word in enumerate(words) if word in spelled]
    assert len(own) > 0.9 * len(words)
    wanted = [token for i in own for token in spelled[words[i]]]
    ends = tuple(len(row) - 1 for row in rows)
    asked = Batch(tuple(map(tuple, rows)), ends, tuple(wanted), batch.labels)
    truth = local.logprobs(np.empty((1, 0, local.width), np.float32), asked)[0]
    columns = np.cumsum([0, *(len(spelled[words[i]]) for i in own)])
    best = np.stack([truth[:, a:b].max(axis=1) for a, b in pairwise(columns)], axis=1)
    lists = model.are_listed(nothing, batch.with_words(tokens))[:, own]
    assert 0.1 < lists.mean() < 0.9
    gaps = np.abs(values[:, own] - best)[lists]
    print(f"{interface}: {lists.sum()} listed words, at most {gaps.max():.1e} apart")
    assert gaps.max() < 1e-3
    assert (values[:, own] >= best - 1e-3)[~lists].all()


def test_a_run_has_the_figures_of_the_model_here(server: VllmServer) -> None:
    """Where every word is answered for, because the tokenizer is known and the server is vLLM."""
    settings = {"shots": 4, "test_limit": 24, "reading": "offset", "free": "none"}
    for method in ("manual", "icl", "best-start"):
        here = pfes.search(MODEL, TASK, method, **settings)
        there = pfes.search(f"openai:{server.url}", TASK, method, tokenizer=MODEL, **settings)
        assert (there.test, there.validation) == (here.test, here.validation)
        assert there.train_loss == pytest.approx(here.train_loss, abs=1e-3)
        assert there.text == here.text


@pytest.mark.parametrize("interface", ["completions", "chat"])
def test_fit_and_the_exported_program(
    server: VllmServer, tmp_path: Path, interface: str, capsys: pytest.CaptureFixture
) -> None:
    settings = {"model": f"openai:{server.url}", "interface": interface, "shots": 4, "draws": 2}
    fitted = start_fit(TASK, tmp_path / "run", settings | {"test_limit": 30}, Given())
    result = result_of(fitted.events())
    with capsys.disabled():
        print(f"\n{interface}: template {result.zero_shot:.3f}, found {result.test:.3f}")
    assert result.test > 0.5
    texts = ["a great film", "dull , and far too long", "it's a {film}"]
    wanted = pfes.Classifier.from_run(tmp_path / "run").predict_proba(texts)
    export(tmp_path / "run", "text", tmp_path / "export")
    answer = runpy.run_path(str(tmp_path / "export/answer.py"))["answer"]
    np.testing.assert_allclose([list(answer(t).values()) for t in texts], wanted, atol=1e-4)


@pytest.mark.parametrize("interface", ["completions", "chat"])
def test_fit_on_questions(
    server: VllmServer, tmp_path: Path, interface: str, capsys: pytest.CaptureFixture
) -> None:
    data = TEXT_DATA / "trec/train.jsonl"
    if not data.exists():
        pytest.skip(f"needs questions with labels in {data}, or PFES_TEXT_DATA")
    settings = {"model": f"openai:{server.url}", "interface": interface, "shots": 4, "draws": 2}
    settings |= {"test_limit": 40}
    fitted = start_fit(str(data), tmp_path / "run", settings, Given(label="label"))
    result = result_of(fitted.events())
    with capsys.disabled():
        print(f"\nquestions, {interface}: template {result.zero_shot:.3f}, found {result.test:.3f}")
    assert result.test > 1 / 6


@pytest.mark.parametrize("interface", ["completions", "chat"])
def test_a_search_over_words(server: VllmServer, tmp_path: Path, interface: str) -> None:
    settings = {
        "shots": 4, "budget": 20, "population": 10, "eval_every": 10, "test_limit": 16,
        "prompt_length": 5, "free": "none", "interface": interface,
    }  # fmt: skip
    out = tmp_path / "run"
    result = pfes.search(f"openai:{server.url}", TASK, "bdpl", out=out, **settings)
    assert result.evaluations == 20
    assert len(result.text.split()) <= 5
    again = pfes.search(f"openai:{server.url}", TASK, "bdpl", **settings)
    assert again.text == result.text
    assert again.test == result.test
    losses = [json.loads(line)["losses"] for line in (out / "history.jsonl").open()]
    assert np.isfinite(losses).all()
