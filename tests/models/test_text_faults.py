"""Every fault that a service of text can have: nothing is paid twice, and no key is shown."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from email.utils import formatdate
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pfes
from pfes.deploy.export import export
from pfes.errors import PfesError
from pfes.models.served import client
from pfes.models.text.answer_store import AnswerStore, answers_file
from pfes.models.text.spending import LimitReachedError, Spending
from pfes.models.text.text_model import TextModel
from pfes.searches.encoded import encode_for
from pfes.tasks import load_task
from tests.command import call as command
from tests.models import server as faults
from tests.models.text_server import TextServer, serving_text

SECRET = "sk-a-very-secret-key"
BDPL: dict[str, Any] = {
    "method": "bdpl", "shots": 4, "budget": 24, "population": 6, "prompt_length": 3,
    "eval_every": 12, "test_limit": 12, "free": "none",
}  # fmt: skip


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[TextServer]:
    monkeypatch.setenv("PFES_CACHE", str(tmp_path / "cache"))  # a port may come again
    monkeypatch.setattr(client, "FIRST_WAIT", 0.01)
    with serving_text() as server:
        yield server


Asked = Callable[[], np.ndarray]


@pytest.fixture
def ask(
    fake: TextServer, task_file: Path, tmp_path: Path
) -> Callable[..., tuple[TextModel, Asked]]:
    """Return a function that connects, and returns the model and a way to ask it 12 questions."""

    def connected(store: str = "answers", **options: Any) -> tuple[TextModel, Asked]:
        model = TextModel(fake.url, store=AnswerStore(tmp_path / store), **options)
        list(model.checks())
        batch = encode_for(model, load_task(task_file, 6).spec, load_task(task_file, 6).train, 0)
        prompt = np.empty((1, 0, model.width), np.float32)
        return model, lambda: model.logprobs(prompt, batch)

    return connected


def without_logprobs(choices: list[dict[str, Any]]) -> None:
    choices[0]["logprobs"] = None


def not_a_number(choices: list[dict[str, Any]]) -> None:
    choices[0]["logprobs"]["top_logprobs"][0]["x"] = float("nan")


def slow_first(handler: faults.Handler, _: dict[str, Any]) -> bool:
    """Let an answer come after later ones."""
    time.sleep(0.3)
    return False


FAULTS: dict[str, tuple[list[faults.Fault], int]] = {  # and what is sent again
    "a storm of 429": ([faults.status(429, **{"Retry-After": "0.02"})] * 8, 8),
    "500 and 503": ([faults.status(500), faults.status(503)], 2),
    "dropped": ([faults.drop], 1),
    "truncated": ([faults.truncated], 1),
    "no log-probabilities": ([faults.changed(without_logprobs)], 1),
    "no number": ([faults.changed(not_a_number)], 1),
    "no answer": ([faults.changed(faults.fewer)], 1),
    "answers out of order": ([slow_first, faults.none, faults.none], 0),
}


@pytest.mark.parametrize("name", FAULTS)
def test_faults_that_pass_change_no_answer(
    fake: TextServer, ask: Callable[..., tuple[TextModel, Asked]], name: str
) -> None:
    _, first = ask()
    wanted = first()
    model, again = ask("another store")
    before, counted = fake.asked, model.service.spending.requests
    given, repeated = FAULTS[name]
    fake.faults.extend(given)
    np.testing.assert_array_equal(again(), wanted)
    assert not fake.faults
    assert fake.asked - before == 12 + repeated
    unpaid = repeated if name in ("a storm of 429", "500 and 503") else 0
    assert model.service.spending.requests - counted == 12 + repeated - unpaid
    before = fake.asked
    np.testing.assert_array_equal(again(), wanted)
    assert fake.asked == before  # every answer is kept


def test_the_same_text_is_asked_once(
    fake: TextServer, ask: Callable[..., tuple[TextModel, Asked]], task_file: Path
) -> None:
    model, _ = ask()
    task = load_task(task_file, 6)
    batch = encode_for(model, task.spec, task.train[:1] * 8, 0)
    before = fake.asked
    values = model.logprobs(np.empty((2, 0, model.width), np.float32), batch)
    assert fake.asked == before + 1
    assert np.ptp(values[..., 0]) == 0


@pytest.mark.parametrize("date", [True, False])
def test_a_server_says_how_long_it_is_left_alone(fake: TextServer, date: bool) -> None:
    later = formatdate(time.time() + 90, usegmt=True) if date else "90"
    fake.faults.append(faults.status(429, **{"Retry-After": later}))
    with pytest.raises(client.TryAgainError) as caught:
        client.Server(fake.url).post("/completions", b"{}")
    assert caught.value.wait is not None
    assert 0 < caught.value.wait <= 90


def test_a_server_that_hangs_is_given_up(
    fake: TextServer, ask: Callable[..., tuple[TextModel, Asked]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "ANSWER", 0.2)
    model, question = ask(patience=0.5)
    fake.faults.extend([faults.delay] * 500)
    with pytest.raises(PfesError, match=r"did not answer for .* --resume goes on"):
        question()
    fake.faults.clear()
    model.service.client.patience = 60
    assert np.isfinite(question()).all()


@pytest.mark.parametrize(
    ("options", "fault", "words"),
    [
        ({}, faults.changed(without_logprobs), "an answer without log-probabilities"),
        ({}, faults.status(403), "refuses (403: set OPENAI_API_KEY): fault 403"),
        ({"--served-name": "other"}, None, "/v1 has tiny"),
        ({"--interface": "chat"}, faults.status(404), "refuses (404): fault 404"),
        ({"--key-variable": SECRET}, None, "never the key itself"),
    ],
)
def test_every_failure_is_one_line(
    fake: TextServer, task_file: Path, tmp_path: Path, options: dict, fault: Any, words: str
) -> None:
    fake.max_logprobs = 128
    fake.faults.extend([fault] * 20 if fault else [])
    pairs = [word for pair in options.items() for word in pair]
    begin = ["search", "--method", "manual", "--model", f"openai:{fake.url}", "--task", task_file]
    done = command(*begin, "--out", tmp_path / "run", *pairs)
    assert done.returncode == 2
    assert words in done.stderr
    assert done.stderr.count("\n") == 1
    assert SECRET not in done.stderr
    assert fake.asked <= 6


def test_the_key_is_sent_and_found_nowhere(
    fake: TextServer, task_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake.key = SECRET
    model, out = f"openai:{fake.url}", tmp_path / "run"
    with pytest.raises(PfesError, match="401: set OPENAI_API_KEY"):
        pfes.search(model, task_file, out=out, **BDPL)
    monkeypatch.setenv("OPENAI_API_KEY", f"not-{SECRET}")
    with pytest.raises(PfesError) as caught:
        pfes.search(model, task_file, out=out, **BDPL)
    assert SECRET not in str(caught.value)
    monkeypatch.delenv("OPENAI_API_KEY")
    monkeypatch.setenv("ANOTHER_KEY", SECRET)
    result = pfes.search(model, task_file, out=out, key_variable="ANOTHER_KEY", **BDPL)
    assert SECRET not in repr(result)
    assert any(SECRET in str(headers) for headers in fake.headers_seen)
    export(out, "text", tmp_path / "export")
    page = command("report", out)
    assert page.returncode == 0, page.stderr
    left = [*tmp_path.rglob("*"), *answers_file().parent.glob("answers*")]
    assert len(left) > 15
    for file in left:
        assert not file.is_file() or SECRET.encode() not in file.read_bytes()
    with pytest.raises(PfesError, match="an address holds no password") as caught:
        pfes.search(f"openai:http://me:{SECRET}@host/v1", task_file, **BDPL)
    assert SECRET not in str(caught.value)


def test_a_limit_ends_a_session_and_the_next_one_pays_for_nothing_twice(
    fake: TextServer, task_file: Path, tmp_path: Path
) -> None:
    out, model = tmp_path / "run", f"openai:{fake.url}"
    with pytest.raises(LimitReachedError, match=r"--max-requests 120 is reached, 120 requests"):
        pfes.search(model, task_file, out=out, max_requests=120, **BDPL)
    assert len(fake.seen) == 120  # a refused one need not be paid
    kept = pfes.Classifier.from_run(out)  # the best so far
    assert kept.predict(["a great film"])[0] in ("good", "bad")
    limited = pfes.search(model, task_file, out=out, resume=True, max_requests=10_000, **BDPL)
    bodies = [json.dumps(body, sort_keys=True) for body in fake.seen]
    assert len(set(bodies)) == len(bodies)
    before = fake.asked
    whole = pfes.search(model, task_file, out=tmp_path / "whole", **BDPL)
    assert fake.asked == before  # a repeated run asks nothing
    np.testing.assert_array_equal(whole.prompt, limited.prompt)
    assert (whole.test, whole.validation) == (limited.test, limited.validation)
    spending = Spending(max_tokens=100)
    spending.used(100)
    with pytest.raises(LimitReachedError, match="--max-tokens 100 is reached"):
        spending.begin()


def test_a_killed_run_repeats_no_answered_request(
    fake: TextServer, task_file: Path, tmp_path: Path
) -> None:
    """Killed while requests hang: what was answered before is on disk."""
    out = tmp_path / "run"
    options = [f"--{name.replace('_', '-')}={value}" for name, value in BDPL.items()]
    line = ["search", "--model", f"openai:{fake.url}", "--task", task_file, "--out", out, *options]
    code = [sys.executable, "-c", "from pfes.cli import main; main()", *map(str, line)]
    fake.faults.extend([faults.none] * 70 + [hang] * 100)
    process = subprocess.Popen(code, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    for _ in range(1200):
        if len(fake.faults) < 100:
            break
        time.sleep(0.1)
    time.sleep(0.5)  # what was answered has arrived
    process.send_signal(signal.SIGKILL)
    process.wait(60)
    fake.faults.clear()
    answered = [json.dumps(body, sort_keys=True) for body in fake.seen]
    assert len(answered) > 60
    done = command(*line, "--resume")
    assert done.returncode == 0, done.stderr
    bodies = [json.dumps(body, sort_keys=True) for body in fake.seen]
    assert len(set(bodies)) == len(bodies)
    whole = pfes.search(f"openai:{fake.url}", task_file, **BDPL)
    np.testing.assert_array_equal(pfes.SavedRun(out).prompt, whole.prompt)
    assert os.path.exists(answers_file())


def hang(handler: faults.Handler, _: dict[str, Any]) -> bool:
    """Never answer: the client is killed."""
    handler.close_connection = True
    time.sleep(20)
    return True
