"""A model behind HTTP, against the same model here; every fault a server can have."""

import json
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from safetensors.torch import load_file, save_file

import pfes
from pfes.contract import Batch
from pfes.errors import PfesError
from pfes.models.served import client
from pfes.models.served.input_embedding import load_embedding
from pfes.models.served.served_model import ServedModel
from pfes.models.source import find_model
from pfes.searches.encoded import encode_for
from pfes.searches.read_answers import Reader
from pfes.tasks import Example, load_task
from tests import tiny
from tests.command import call as command
from tests.models import server as faults
from tests.models.server import FakeServer, serving
from tests.small_runs import small_settings

SMALL = small_settings(budget=36, prompt_length=2)
SECRET = "sk-a-very-secret-key"


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeServer]:
    monkeypatch.setattr(client, "FIRST_WAIT", 0.01)
    with serving(tiny.make_module("llama"), ["tiny"]) as server:
        yield server


@pytest.fixture
def source(folders: Callable[[str], Path]) -> str:
    return str(folders("llama"))


def connect(fake: FakeServer, source: str, **options: object) -> ServedModel:
    model = ServedModel(fake.url, tokenizer=source, **options)
    assert len(list(model.checks())) == 5
    return model


def prepare(
    model: ServedModel, task_file: Path, placement: str = "prefix"
) -> tuple[np.ndarray, Batch]:
    task = load_task(task_file, 6)
    batch = encode_for(model, task.spec, task.train, 3, placement)
    rng = np.random.default_rng(0)
    return rng.standard_normal((5, 3, model.width)).astype(np.float32), batch


@pytest.mark.parametrize("placement", ["prefix", "suffix", "middle"])
@pytest.mark.parametrize("in_flight", [1, 3])
def test_answers_equal_those_of_the_local_model(
    fake: FakeServer, source: str, task_file: Path, placement: str, in_flight: int
) -> None:
    model = connect(fake, source)
    model.in_flight = in_flight
    prompts, batch = prepare(model, task_file, placement)
    local = pfes.load_model(source)
    assert (model.width, model.vocabulary) == (local.width, local.vocabulary)
    np.testing.assert_array_equal(model.embed([3, 5]), local.embed([3, 5]))
    own, ranks = model.ranks(prompts, batch)
    assert ranks is None
    np.testing.assert_allclose(own, local.logprobs(prompts, batch), atol=1e-5)
    alone = model.logprobs(prompts[:, :0], batch)
    np.testing.assert_allclose(alone, local.logprobs(prompts[:, :0], batch), atol=1e-5)
    assert model.max_length == 127  # the server's without the answer, smaller than the tokenizer's


def test_only_the_embedding_is_read(
    folders: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From a single file and from shards; the other shards need not even be there."""
    for name in tiny.CAUSAL:
        folder = folders(name)
        wanted = pfes.load_model(str(folder)).embed(range(600))
        np.testing.assert_array_equal(load_embedding(find_model(str(folder)))[:600], wanted)
        tensors = load_file(folder / "model.safetensors")
        sharded = tmp_path / name
        sharded.mkdir()
        (sharded / "config.json").write_bytes((folder / "config.json").read_bytes())
        key = next(k for k in tensors if tensors[k].shape[:1] == (700,) and "lm_head" not in k)
        save_file({key: tensors[key]}, sharded / "a.safetensors")
        places = {k: "a.safetensors" if k == key else "gone.safetensors" for k in tensors}
        index = {"metadata": {}, "weight_map": places}
        (sharded / "model.safetensors.index.json").write_text(json.dumps(index))
        np.testing.assert_array_equal(load_embedding(find_model(str(sharded)))[:600], wanted)


def test_an_embedding_that_is_not_there_is_one_line(
    folders: Callable[[str], Path], tmp_path: Path
) -> None:
    (tmp_path / "config.json").write_bytes((folders("llama") / "config.json").read_bytes())
    with pytest.raises(PfesError, match="no safetensors file"):
        load_embedding(find_model(str(tmp_path)))
    (tmp_path / "model.safetensors").write_bytes(b"no tensors")
    with pytest.raises(PfesError, match="cannot be read"):
        load_embedding(find_model(str(tmp_path)))
    with pytest.raises(PfesError, match="is a masked model"):
        load_embedding(find_model(str(folders("bert"))))


FAULTS = {
    "drop": [faults.drop],
    "500 twice": [faults.status(500), faults.status(503)],
    "429": [faults.status(429, **{"Retry-After": "0.02"})],
    "truncated": [faults.truncated],
    "delay": [faults.delay],
    "fewer choices": [faults.changed(faults.fewer)],
    "a word missing": [faults.changed(faults.without_a_word)],
    "another order": [faults.changed(faults.shuffled)],
}


@pytest.mark.parametrize("name", FAULTS)
def test_faults_that_pass_change_no_answer(
    fake: FakeServer, source: str, task_file: Path, name: str
) -> None:
    model = connect(fake, source)
    prompts, batch = prepare(model, task_file)
    wanted = model.logprobs(prompts, batch)
    before = fake.asked
    fake.faults.extend(FAULTS[name])
    np.testing.assert_allclose(model.logprobs(prompts, batch), wanted, atol=1e-6)
    assert not fake.faults
    again = 0 if name in ("delay", "another order") else len(FAULTS[name])
    assert fake.asked - before == 2 + again  # 60 sequences are two requests


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        (faults.status(400), "refuses (400): fault 400"),
        (faults.status(404), "refuses (404): fault 404"),
        (faults.status(422), "refuses (422): fault 422"),
    ],
)
def test_a_refused_request_is_sent_once(
    fake: FakeServer, source: str, task_file: Path, fault: faults.Fault, words: str
) -> None:
    model = connect(fake, source)
    prompts, batch = prepare(model, task_file)
    before = fake.asked
    fake.faults.append(fault)
    with pytest.raises(PfesError) as caught:
        model.logprobs(prompts[:1], batch)
    assert words in str(caught.value)
    assert fake.asked == before + 1


@pytest.mark.parametrize(
    ("change", "words"),
    [(faults.fewer, "answers to"), (faults.without_a_word, "no log-probability of token")],
)
def test_an_answer_that_is_always_wrong_ends_the_run(
    fake: FakeServer, source: str, task_file: Path, change: Callable, words: str
) -> None:
    model = connect(fake, source)
    prompts, batch = prepare(model, task_file)
    fake.faults.extend([faults.changed(change)] * 9)
    with pytest.raises(PfesError, match=words):
        model.logprobs(prompts[:1], batch)


def test_an_answer_that_is_not_a_number_becomes_nan(
    fake: FakeServer, source: str, task_file: Path
) -> None:
    model = connect(fake, source)
    prompts, batch = prepare(model, task_file)
    fake.faults.append(faults.changed(faults.not_a_number))
    values = model.logprobs(prompts, batch)
    assert np.isnan(values[0, 0]).all()
    assert np.isfinite(values[1:]).all()


def test_a_server_that_stays_away_ends_the_run(
    fake: FakeServer, source: str, task_file: Path
) -> None:
    model = connect(fake, source, patience=0.2)
    prompts, batch = prepare(model, task_file)
    fake.faults.extend([faults.status(503)] * 500)
    with pytest.raises(PfesError, match=r"did not answer for .* s \(status 503\).*--resume"):
        model.logprobs(prompts[:1], batch)


def test_the_key_is_sent_and_shown_nowhere(
    fake: FakeServer, source: str, task_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake.key = SECRET
    with pytest.raises(PfesError, match=r"401: set PFES_API_KEY"):
        connect(fake, source)
    monkeypatch.setenv("PFES_API_KEY", "sk-another")
    with pytest.raises(PfesError) as caught:
        connect(fake, source)
    assert "sk-another" not in str(caught.value)
    monkeypatch.setenv("PFES_API_KEY", SECRET)
    out = tmp_path / "run"
    result = pfes.search(f"vllm:{fake.url}", task_file, out=out, tokenizer=source, **SMALL)
    assert SECRET not in repr(result)
    for file in out.rglob("*"):
        assert SECRET.encode() not in file.read_bytes()


def test_a_key_with_a_line_break_is_shown_nowhere(
    fake: FakeServer, source: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake.key = SECRET
    monkeypatch.setenv("PFES_API_KEY", f"{SECRET}\r\n")
    connect(fake, source)
    monkeypatch.setenv("PFES_API_KEY", f"{SECRET}\x01x")
    with pytest.raises(PfesError, match="PFES_API_KEY has characters that no key has") as caught:
        connect(fake, source)
    assert SECRET not in str(caught.value)


def test_requests_that_fail_together_count_once() -> None:
    server = client.Server("http://127.0.0.1:9/v1")
    trouble = client.TryAgainError("reset")
    for _ in range(8):
        server.rest(trouble, sent=0.0)
    assert server.rests_until - time.monotonic() <= 1.5 * client.FIRST_WAIT


def test_a_search_over_http_equals_one_in_this_process(
    fake: FakeServer, source: str, task_file: Path, tmp_path: Path
) -> None:
    # faults on the way change nothing
    fake.faults.extend([faults.delay] * 9 + [faults.drop, faults.status(500), faults.truncated])
    served = pfes.search(
        f"vllm:{fake.url}", task_file, out=tmp_path / "run", tokenizer=source, **SMALL
    )
    local = pfes.search(source, task_file, **SMALL)
    np.testing.assert_array_equal(served.prompt, local.prompt)
    assert (served.test, served.zero_shot) == (local.test, local.zero_shot)
    assert served.rank is None
    assert local.rank is not None
    assert served.train_loss == pytest.approx(local.train_loss, rel=1e-5)
    assert not fake.faults


def test_several_servers_take_turns_and_stand_in_for_each_other(
    fake: FakeServer, source: str, task_file: Path, tmp_path: Path
) -> None:
    local = pfes.search(source, task_file, **SMALL)
    with serving(tiny.make_module("llama"), ["tiny"]) as second:
        both = f"vllm:{fake.url},{second.url}"
        served = pfes.search(both, task_file, tokenizer=source, **SMALL)
        np.testing.assert_array_equal(served.prompt, local.prompt)
        assert abs(fake.asked - second.asked) <= 4  # handshakes, and what begins a search

        before = second.asked
        second.faults.extend([faults.none] * 8 + [faults.drop] * 10_000)  # then gone for good
        served = pfes.search(both, task_file, tokenizer=source, out=tmp_path / "run", **SMALL)
        np.testing.assert_array_equal(served.prompt, local.prompt)
        assert second.asked > before + 8


def test_predict_and_evaluate_go_through_the_server(
    fake: FakeServer, source: str, task_file: Path, tmp_path: Path
) -> None:
    out = tmp_path / "run"
    pfes.search(f"vllm:{fake.url}", task_file, out=out, tokenizer=source, **SMALL)
    before = fake.asked
    done = command("evaluate", str(out))
    assert done.returncode == 0, done.stderr
    assert "R not shown by the server" in done.stdout
    done = command("predict", str(out), "--text", "a great film")
    assert done.returncode == 0, done.stderr
    assert fake.asked > before


def test_every_failed_handshake_is_one_line(
    fake: FakeServer, source: str, folders: Callable[[str], Path], tmp_path: Path, task_file: Path
) -> None:
    def check(*arguments: str, url: str = fake.url) -> str:
        done = command("serve-check", url, *arguments)
        assert done.returncode == 2, done.stdout
        assert done.stderr.count("\n") == 1, done.stderr
        return done.stderr

    good = command("serve-check", fake.url, "--tokenizer", source)
    assert good.returncode == 0, good.stderr
    assert "ready for pfes search" in good.stdout
    assert "/v1 has tiny" in check("--tokenizer", source, "--served-name", "other")
    narrow = check("--tokenizer", str(folders("opt-350m")))
    assert "its embedding is 16 wide, and the served model's is not" in narrow
    another = check("--tokenizer", str(folders("opt")))
    assert "is not that of tiny" in another
    nothing = check("--tokenizer", source, url="http://127.0.0.1:9/v1")
    assert "nothing answers" in nothing
    assert "--enable-prompt-embeds" in nothing
    assert "ends with /v1" in check("--tokenizer", source, url=fake.url.removesuffix("/v1"))
    fake.embeds = False
    assert "start the server with --enable-prompt-embeds" in check("--tokenizer", source)
    run = ["--task", str(task_file), "--out", str(tmp_path / "x"), "--model", f"vllm:{fake.url}"]
    done = command("search", *run)
    assert done.returncode == 2
    assert "--tokenizer" in done.stderr
    done = command("search", *run, "--tokenizer", source)
    assert "start the server with --enable-prompt-embeds" in done.stderr


def test_a_long_text_leaves_room_for_the_answer(
    fake: FakeServer, source: str, task_file: Path
) -> None:
    model = connect(fake, source)
    spec = load_task(task_file, 4).spec
    batch = encode_for(model, spec, [Example({"text": "great film " * 200}, 0)], 3, "prefix")
    assert len(batch.token_ids[0]) + 3 in (126, 127)
    assert np.isfinite(model.logprobs(np.ones((1, 3, model.width), np.float32), batch)).all()


def test_no_request_is_sent_after_stop(fake: FakeServer, source: str) -> None:
    model = connect(fake, source)
    asked = fake.asked
    model.client.stop()
    with pytest.raises(PfesError, match="the request was given up"):
        model.client.post("/completions", {})
    assert fake.asked == asked


def test_waiting_threads_do_not_keep_the_process_alive() -> None:
    code = """
        import time
        from pfes.models.served.daemon_pool import DaemonPool
        pool = DaemonPool(2)
        assert pool.submit(max, 3, 5).result() == 5
        assert isinstance(pool.submit(int, "x").exception(), ValueError)
        waiting = [pool.submit(time.sleep, 600) for _ in range(3)]
        assert waiting[2].cancel()
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], timeout=100)
    assert done.returncode == 0


@pytest.mark.parametrize("most", [20, 500])
def test_a_reading_takes_the_words_that_a_server_answers_for(
    fake: FakeServer, source: str, task_file: Path, most: int, caplog: pytest.LogCaptureFixture
) -> None:
    fake.max_logprobs = most
    model, local = connect(fake, source), pfes.load_model(source)
    prompts, batch = prepare(model, task_file)
    words = model.likely_answers(prompts[0], batch, 30)[0]
    assert ("answers for 20 words at a time" in caplog.text) == (most == 20)
    assert 5 <= len(words) <= min(30, most - 2)
    assert not set(words) & set(batch.words)
    same = 3 if most == 500 else 1  # a short list leaves out some answers to some texts
    assert words[:same] == local.likely_answers(prompts[0], batch, 30)[0][:same]
    reading = Reader("words", 30).fit(model, prompts[0], batch)
    more = batch.with_words(reading.words)
    answers = [reading.log_probabilities(m.logprobs(prompts[:1], more)[0]) for m in (model, local)]
    np.testing.assert_allclose(answers[0], answers[1], atol=1e-4)


@pytest.mark.parametrize("most", [20, 500])
def test_more_words_than_a_server_answers_for_are_asked_in_parts(
    fake: FakeServer, source: str, task_file: Path, most: int
) -> None:
    fake.max_logprobs = most
    model, local = connect(fake, source), pfes.load_model(source)
    prompts, batch = prepare(model, task_file)
    many = batch.with_words([token for token in range(200) if token not in batch.words])
    np.testing.assert_allclose(
        model.logprobs(prompts[:1], many), local.logprobs(prompts[:1], many), atol=1e-4
    )


def test_lists_of_answers_come_in_few_requests_and_survive_faults(
    fake: FakeServer, source: str, task_file: Path
) -> None:
    fake.max_logprobs = 128
    model = connect(fake, source)
    prompts, batch = prepare(model, task_file)
    tokens, wanted = model.likely_answers(prompts[0], batch, 300)
    assert len(tokens) == 126
    before = fake.asked
    fake.faults.extend([faults.changed(faults.fewer), faults.drop, faults.changed(faults.shuffled)])
    again, answers = model.likely_answers(prompts[0], batch, 300)
    assert again == tokens
    np.testing.assert_allclose(answers, wanted, atol=1e-6)
    assert fake.asked - before == 2 + 2  # a list and the answers, and what was asked again
    more, answers = model.likely_answers(prompts[0], batch, 300, in_parts=True)
    assert more[:126] == tokens
    assert 126 < len(more) <= 300
    assert answers.shape == (len(batch), 2 + len(more))


def test_a_server_that_answers_for_no_word_is_one_line(fake: FakeServer, source: str) -> None:
    fake.max_logprobs = 0
    done = command("serve-check", fake.url, "--tokenizer", source)
    assert done.returncode == 2
    assert "max allowed: 0" in done.stderr
    assert done.stderr.count("\n") == 1
