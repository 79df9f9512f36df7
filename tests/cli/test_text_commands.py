"""The command line on a model that takes only text: from a file to a program that needs no pfes."""

import json
import runpy
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

import pfes
from tests.command import call
from tests.models.text_server import TextServer, serving_text

TEXTS = ["a great film", "dull and 'terrible' {really}", "no idea"]


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[TextServer]:
    monkeypatch.setenv("PFES_CACHE", str(tmp_path / "cache"))  # a port may come again
    with serving_text() as server:
        yield server


@pytest.fixture
def data(task_file: Path) -> Path:
    return task_file.with_name("films.csv")


@pytest.mark.parametrize("interface", ["completions", "chat", "named"])
def test_fit_predict_and_the_exported_program_agree(
    fake: TextServer, data: Path, tmp_path: Path, interface: str, folders: Callable[[str], Path]
) -> None:
    fake.interfaces = ("chat",) if interface == "chat" else ("completions",)
    fake.names_words = interface == "named"
    model = ["--model", f"openai:{fake.url}"]
    model += ["--tokenizer", str(folders("llama"))] if interface == "named" else []
    out, exported = tmp_path / "run", tmp_path / "export"
    begin = ["fit", data, "--label", "verdict", *model, "--out", out, "--word", "good=great"]
    small = ["--shots", "4", "--draws", "2", "--test-limit", "8", "--price-per-million", "1000"]
    done = call(*begin, "--word", "bad=terrible", *small)
    assert done.returncode == 0, done.stderr
    sizes = [line for line in done.stderr.splitlines() if "at the price given" in line]
    assert len(sizes) == 2  # of choosing, and of the run
    promised = sum(int(line.split(" requests")[0].split()[-1].replace(",", "")) for line in sizes)
    if interface != "named":  # which takes several requests for one answer
        assert len(fake.seen) <= promised + 2 <= 2 * len(fake.seen)
    assert "requests with" in done.stderr.splitlines()[-1]
    config = pfes.SavedRun(out).config
    assert (config.method, config.placement) == ("best-start", "prefix")
    start = pfes.SavedRun(out).result.start
    tried = {trial.name: trial.loss for trial in start.trials}
    assert {"nothing", "an instruction", "1 example per label, draw 2"} <= set(tried)
    assert tried[start.name] == min(tried.values())
    assert config.interface == fake.interfaces[0]
    wanted = pfes.Classifier.from_run(out).predict_proba(TEXTS)
    shown = call("predict", out, "--json", *(w for text in TEXTS for w in ("--text", text)))
    rows = [json.loads(line)["probabilities"] for line in shown.stdout.splitlines()]
    np.testing.assert_allclose([list(row.values()) for row in rows], wanted, atol=1e-6)
    done = call("export", out, "--format", "text", "--out", exported)
    assert done.returncode == 0, done.stderr
    program = runpy.run_path(str(exported / "answer.py"))
    answers = [program["answer"](text) for text in TEXTS]
    assert [list(answer) for answer in answers] == [["good", "bad"]] * 3
    np.testing.assert_allclose([list(a.values()) for a in answers], wanted, atol=1e-6)
    lines = (exported / "answer.py").read_text().splitlines()
    assert len([line for line in lines if line.strip()]) <= 36
    refused = call("export", out, "--format", "vllm", "--out", tmp_path / "other")
    assert refused.returncode == 2
    assert "use --format text" in refused.stderr


@pytest.mark.parametrize("interface", ["completions", "chat"])
@pytest.mark.parametrize("method", ["bdpl", "rlprompt"])
def test_a_search_over_words_is_repeated_for_nothing(
    fake: TextServer, task_file: Path, folders: Callable[[str], Path], method: str, interface: str
) -> None:
    policy = {"policy_model": str(folders("gpt2"))} if method == "rlprompt" else {}
    settings = policy | {
        "shots": 4, "budget": 12, "population": 6, "prompt_length": 2, "eval_every": 6,
        "test_limit": 8, "free": "none", "interface": interface,
    }  # fmt: skip
    first = pfes.search(f"openai:{fake.url}", task_file, method, **settings)
    sent = [body.get("prompt") or body["messages"][0]["content"] for body in fake.seen]
    assert first.text
    assert any(text.startswith(first.text.strip() + "\n") for text in sent)
    before = fake.asked
    again = pfes.search(f"openai:{fake.url}", task_file, method, **settings)
    assert fake.asked == before
    assert (again.text, again.test) == (first.text, first.test)
    assert len({json.dumps(body, sort_keys=True) for body in fake.seen}) == len(fake.seen)


def test_a_server_is_checked_and_answers_are_shown_and_cleared(
    fake: TextServer, task_file: Path
) -> None:
    done = call("serve-check", f"openai:{fake.url}", "--task", task_file)
    assert done.returncode == 0, done.stderr
    assert "interface: completions" in done.stdout
    assert "of the 20 likeliest words" in done.stdout
    assert "word 'great': answered for " in done.stdout
    assert "requests a second" in done.stdout
    assert "chat: also, with the 20 likeliest words" in done.stdout
    fake.max_logprobs, fake.interfaces = 5, ("chat",)
    done = call("serve-check", f"openai:{fake.url}")
    assert "interface: chat" in done.stdout
    assert "of the 5 likeliest words" in done.stdout
    count = len({json.dumps(body, sort_keys=True) for body in fake.seen})
    shown = call("cache").stdout
    assert f"{count + 2} answers" in shown  # and what the server was seen to do
    assert call("cache", "--clear").stdout.startswith("0 answers")
    for option in ("--interface=chat", "--key-variable=NAME", f"--task={task_file}"):
        refused = call("serve-check", fake.url, option)
        assert refused.returncode == 2
        assert "this is for openai:URL" in refused.stderr


def test_a_task_is_shown_as_a_chat(task_file: Path) -> None:
    shown = call("tasks", "check", task_file).stdout
    assert "chat: system: 'Answer with one word: terrible or great.'" in shown
    assert "chat: user: 'Review: " in shown
