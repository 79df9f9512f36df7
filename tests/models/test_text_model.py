"""A model behind an API of text, against the same model here; every fault a service can have."""

import math
from collections.abc import Callable, Iterator
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import pfes
from pfes.contract import Batch
from pfes.errors import PfesError
from pfes.models.served import client
from pfes.models.text.answer_store import AnswerStore
from pfes.models.text.pace import Pace
from pfes.models.text.pieces import Pieces
from pfes.models.text.text_model import TextModel
from pfes.models.text.wire import LEAST, bound
from pfes.searches.encoded import encode_for
from pfes.tasks import load_task
from pfes.tasks.demonstrations import with_demonstrations
from pfes.tasks.turns import messages
from tests import tiny
from tests.command import call as command
from tests.models.text_server import TextServer, chat_text, serving_text

TOKENIZER = tiny.make_tokenizer("causal")


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[TextServer]:
    monkeypatch.setenv("PFES_CACHE", str(tmp_path / "cache"))  # a port may come again
    monkeypatch.setattr(client, "FIRST_WAIT", 0.01)
    with serving_text() as server:
        yield server


@pytest.fixture
def local(folders: Callable[[str], Path]) -> pfes.LanguageModel:
    return pfes.load_model(str(folders("llama")))


@pytest.fixture
def connect(fake: TextServer, tmp_path: Path) -> Callable[..., TextModel]:
    def connected(store: str = "answers", **options: object) -> TextModel:
        model = TextModel(fake.url, store=AnswerStore(tmp_path / store), **options)
        list(model.checks())
        return model

    return connected


def prepare(model: pfes.LanguageModel, task_file: Path, shown: bool = False) -> Batch:
    task = load_task(task_file, 6)
    task = with_demonstrations(task, "causal", 0) if shown else task
    return encode_for(model, task.spec, task.train, 0)


def nothing(model: pfes.LanguageModel) -> np.ndarray:
    return np.empty((1, 0, model.width), np.float32)


def real_answers(local: pfes.LanguageModel, texts: list[str], words: tuple[int, ...]) -> np.ndarray:
    """Return the local model's log-probabilities behind texts."""
    rows = tuple(tuple(TOKENIZER(text)["input_ids"]) for text in texts)
    ends = tuple(len(row) - 1 for row in rows)
    batch = Batch(rows, ends, words, np.zeros(len(rows), np.int64))
    return local.logprobs(nothing(local), batch)[0]


@pytest.mark.parametrize(
    ("interface", "known"), [("completions", True), ("completions", False), ("chat", False)]
)
def test_listed_words_have_the_models_own_answers(
    connect: Callable[..., TextModel],
    local: pfes.LanguageModel,
    task_file: Path,
    interface: str,
    known: bool,
) -> None:
    """Words that are not listed have no less than the model says, and the same for all of a row."""
    model = connect(interface=interface, tokenizer=local.name if known else None)
    batch = prepare(model, task_file, shown=True)
    tokens, values = model.likely_answers(nothing(model)[0], batch, 30, in_parts=True)
    words = [model.tokenizer.decode([token]) for token in (*batch.words, *tokens)]
    assert len(words) > 15
    spelled: dict[str, list[int]] = {}  # a chat's words are those of tokens with and without spaces
    for token in range(len(TOKENIZER)):
        text = TOKENIZER.decode([token])
        spelled.setdefault(text.strip() if interface == "chat" else text, []).append(token)
    assert set(words) <= spelled.keys()
    if interface == "chat":
        texts = [chat_text(messages(written.turns)) for written in batch.written]
        assert texts[0].startswith("Answer with one word: terrible or great.\nQ: Review: ")
        assert texts[0].count("\nA: ") == 2
    else:
        texts = [written.text for written in batch.written]
    everything = real_answers(local, texts, tuple(range(len(TOKENIZER))))
    truth = np.stack([everything[:, spelled[word]].max(axis=1) for word in words], axis=1)
    least = np.sort(everything, axis=1)[:, [-20]]  # the least likely word of each list
    listed = truth >= least
    assert 0.05 < listed.mean() < 0.95
    np.testing.assert_allclose(values[listed], truth[listed], atol=1e-5)
    assert (values[~listed] >= truth[~listed]).all()
    floors = [set(row[~mask]) for row, mask in zip(values, listed, strict=True)]
    assert {len(floor) for floor in floors} <= {0, 1}


def test_named_words_have_the_models_own_answers(
    fake: TextServer,
    connect: Callable[..., TextModel],
    local: pfes.LanguageModel,
    task_file: Path,
) -> None:
    fake.names_words = True
    model = connect(tokenizer=local.name)
    assert model.offer.names
    batch = prepare(model, task_file)
    tokens, values = model.likely_answers(nothing(model)[0], batch, 200)
    own = prepare(local, task_file)
    ids = [TOKENIZER(model.tokenizer.decode([t]))["input_ids"][0] for t in tokens]
    assert 20 < len(tokens) <= 200
    wanted = local.logprobs(nothing(local), own.with_words(ids))[0]
    np.testing.assert_allclose(values, wanted, atol=1e-5)


def test_whether_a_word_is_listed_is_an_answer(
    fake: TextServer, connect: Callable[..., TextModel], task_file: Path
) -> None:
    fake.max_logprobs = 5
    model = connect()
    batch = prepare(model, task_file)
    tokens, values = model.likely_answers(nothing(model)[0], batch, 30)
    names = [model.tokenizer.decode([token]) for token in tokens]
    signs = [name for name in names if name.endswith(" (listed)")]
    assert signs
    columns = dict(zip(names, values[:, 2:].T, strict=True))
    for sign in signs:
        word = sign.removesuffix(" (listed)")
        listed = [word in row for row in lists(fake, batch)]
        assert columns[sign].tolist() == [0.0 if there else -1.0 for there in listed]
        assert 0 < sum(listed) < len(listed)


def lists(fake: TextServer, batch: Batch) -> list[dict[str, float]]:
    body = {"model": "tiny", "max_tokens": 1, "temperature": 0, "logprobs": 5}
    answers = [fake.complete(body | {"prompt": w.text})[1] for w in batch.written]
    return [answer["choices"][0]["logprobs"]["top_logprobs"][0] for answer in answers]


@given(st.lists(st.floats(0.001, 1), min_size=1, max_size=20), st.floats(0, 1))
def test_a_bound_is_no_less_than_any_word_that_is_not_listed(
    weights: list[float], part: float
) -> None:
    """The list is the head of some distribution; every word of its tail has at most the bound."""
    shares = np.sort(np.array([*weights, *(w * part for w in weights)]))[::-1]
    shares /= shares.sum()
    head, tail = shares[: len(weights)], shares[len(weights) :]
    listed = {str(i): math.log(share) for i, share in enumerate(head) if share > 0}
    most = bound(listed)
    assert most <= min(listed.values())
    assert (tail <= np.exp(most) + 1e-12).all() or most == math.log(LEAST)


@given(st.text())
def test_pieces_put_together_are_the_text(text: str) -> None:
    for pieces in (Pieces(), Pieces(TOKENIZER)):
        numbers = pieces(text)["input_ids"]
        assert pieces.decode(numbers) == text
        again = type(pieces)()
        again.learn(pieces.tokenize(text))
        assert again.decode(numbers) == text  # numbers mean the same in every process


def test_pieces_are_the_tokens_of_a_tokenizer_that_is_known() -> None:
    text = "Review: a wonderful film , negative\nSentiment: great"
    ids = TOKENIZER(text)["input_ids"]
    assert Pieces(TOKENIZER).tokenize(text) == [TOKENIZER.decode([token]) for token in ids]


def test_a_prompt_is_spelled_in_bytes(
    fake: TextServer, connect: Callable[..., TextModel], task_file: Path
) -> None:
    for interface in ("completions", "chat"):
        model = connect(interface=interface)
        batch = prepare(model, task_file).take([0])
        pieces = model.tokenizer(" größer ☃")["input_ids"]
        spelled = model.embed(pieces)
        assert spelled.shape == (len(pieces), model.width)
        model.logprobs(spelled[None], batch)
        sent = fake.seen[-1]
        if interface == "chat":
            told, *_, asked = batch.written[0].turns
            first, *_, last = sent["messages"]
            assert first == {"role": "system", "content": f"größer ☃\n{told}"}
            assert last == {"role": "user", "content": asked}
        else:
            assert sent["prompt"] == f"größer ☃\n{batch.written[0].text}"


def test_a_method_that_moves_embeddings_says_which_do_not(
    fake: TextServer, task_file: Path, tmp_path: Path, connect: Callable[..., TextModel]
) -> None:
    out = tmp_path / "run"
    done = command("search", "--model", f"openai:{fake.url}", "--task", task_file, "--out", out)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "saes-id-cr moves embeddings" in done.stderr
    assert "manual, icl, best-start, bdpl, rlprompt can" in done.stderr
    assert fake.asked == 0
    with pytest.raises(PfesError, match="bbt moves embeddings"):
        pfes.search(connect(), task_file, "bbt")
    with pytest.raises(PfesError, match="has its prompt in front"):
        pfes.search(f"openai:{fake.url}", task_file, "bdpl", placement="suffix")


def test_the_best_pace_is_found_and_429_slows_down() -> None:
    now = [0.0]
    pace = Pace(most=16)
    with mock.patch("time.perf_counter", side_effect=lambda: now[0]):
        pace.restart()
        for _ in range(400):  # a server that answers four at once as fast as one
            now[0] += 1 / min(pace.at_once, 4)
            pace.answered(0)
        assert pace.at_once == 4
        pace.restart()
        for _ in range(400):  # now it answers eight at once
            now[0] += 1 / min(pace.at_once, 8)
            pace.answered(0)
        assert pace.at_once == 8
        pace.answered(3)
        assert pace.at_once == 4
        pace.restart()
        pace.answered(4)
        assert pace.at_once == 2
        for _ in range(100):
            pace.answered(4)
        assert pace.at_once == 2


def test_answers_are_kept_within_a_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PFES_ANSWERS_MB", "0.2")
    store = AnswerStore(tmp_path / "answers")
    for number in range(5000):
        store.put(["request", number], {"word": -float(number), "more": "x" * 200})
    assert 0 < store.bytes < 1e6
    assert 0 < store.count < 5000
    assert store.get(["request", 4999]) == {"word": -4999.0, "more": "x" * 200}
    assert store.get(["request", 0]) is None
    store.clear()
    assert store.count == 0
    (tmp_path / "damaged").write_bytes(b"no database" * 100)
    with pytest.raises(PfesError, match="remove it"):
        AnswerStore(tmp_path / "damaged")
