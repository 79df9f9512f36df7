"""The real thing: a vLLM server here with the embedded model. Run with `make test-served`."""

import json
import signal
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import pfes
from benchmarks.vllm_server import VllmServer, server_python
from pfes.deploy.export import export
from pfes.models.served.served_model import ServedModel
from pfes.models.source import find_model
from pfes.runs.choose_task import Choices
from pfes.runs.fit import Given, start_fit
from pfes.runs.saved import SavedRun
from pfes.searches.encoded import encode_for
from pfes.system.stages import result_of
from pfes.tasks import load_task
from tests.deploy.test_exports import ADDRESS, card_code, printed

pytestmark = pytest.mark.served
MODEL, TASK = "smollm2-135m", "rotten-tomatoes"
COMMAND = [sys.executable, "-c", "from pfes.cli import main; main()"]
ROUNDING = 1e-4  # between two losses that the server and the model here may order differently
SEARCH = {
    "method": "saes-id-cr", "budget": 200, "shots": 2, "prompt_length": 5, "sigma0": 0.1,
    "eval_every": 40, "test_limit": 16, "reading": "plain", "free": "none", "init": "vocab",
}  # fmt: skip


@pytest.fixture(scope="module")
def server() -> Iterator[VllmServer]:
    assert server_python() is not None, "needs the server's environment: make vllm"
    with VllmServer(MODEL) as running:
        yield running


@pytest.mark.parametrize("placement", ["prefix", "suffix", "middle"])
def test_parity_on_real_sentences(server: VllmServer, placement: str) -> None:
    served = ServedModel(server.url, MODEL, MODEL)
    assert len(list(served.checks())) == 5
    local = pfes.load_model(MODEL)
    task = load_task(TASK, 16)
    examples = (*task.train, *task.validation)
    assert len(examples) == 64
    batch = encode_for(served, task.spec, examples, 10, placement)
    rng = np.random.default_rng(0)
    starts = [served.embed(rng.integers(served.vocabulary, size=10).tolist()) for _ in range(4)]
    prompts = np.stack(starts) + rng.normal(0, 0.05, (4, 10, served.width)).astype(np.float32)
    own = served.logprobs(prompts, batch)
    np.testing.assert_allclose(own, local.logprobs(prompts, batch), atol=1e-3)


def search(model: str, out: Path, **settings: object) -> pfes.Result:
    return pfes.search(model, TASK, out=out, **SEARCH | settings)


def losses(out: Path) -> np.ndarray:
    lines = (out / "history.jsonl").read_text().splitlines()
    return np.array([json.loads(line)["losses"] for line in lines])


def first_tie(ours: np.ndarray, theirs: np.ndarray) -> int | None:
    """Return the generation in which both select other children; that must be a tie.

    From there on the two searches are different ones. None if they never part.
    """
    for number, (left, right) in enumerate(zip(ours, theirs, strict=True)):
        order = np.argsort(left, kind="stable")
        if set(order[:5]) != set(np.argsort(right, kind="stable")[:5]):
            gap = left[order[5]] - left[order[4]]
            assert gap < ROUNDING, f"generation {number}: other children, {gap:.2g} apart"
            return number
    return None


@pytest.fixture(scope="module")
def undisturbed(server: VllmServer, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("served") / "run"
    search(f"vllm:{server.url}", out, served_name=MODEL, tokenizer=MODEL)
    return out


def test_a_search_selects_the_same_children(undisturbed: Path, tmp_path: Path) -> None:
    local = search(MODEL, tmp_path / "run")
    tie = first_tie(losses(tmp_path / "run"), losses(undisturbed))
    if tie is not None:
        warnings.warn(f"parted by a tie in generation {tie}: rounding decided", stacklevel=1)
        return
    result = json.loads((undisturbed / "result.json").read_text())
    prompt = SavedRun(undisturbed).prompt
    np.testing.assert_allclose(prompt, local.prompt, rtol=1e-6, atol=1e-7)
    assert result["test"] == local.test
    assert result["rank"] is None


def test_a_killed_server_changes_nothing(
    server: VllmServer, undisturbed: Path, tmp_path: Path
) -> None:
    out = tmp_path / "run"
    found: list[pfes.Result] = []
    work = threading.Thread(
        target=lambda: found.append(
            search(f"vllm:{server.url}", out, served_name=MODEL, tokenizer=MODEL)
        )
    )
    work.start()
    for _ in range(3000):  # a third of the way
        if (out / "history.jsonl").exists() and len(losses(out)) >= 3:
            break
        time.sleep(0.1)
    server.stop(signal.SIGKILL)
    time.sleep(30)
    assert work.is_alive(), "the search waits"
    server.start()
    work.join(600)
    assert not work.is_alive()
    assert found, "the search ended with an error"
    tie = first_tie(losses(undisturbed), losses(out))
    if tie is not None:
        warnings.warn(f"parted by a tie in generation {tie}: rounding decided", stacklevel=1)
        return
    wanted = SavedRun(undisturbed).prompt
    np.testing.assert_allclose(found[0].prompt, wanted, rtol=1e-6, atol=1e-7)


def test_the_example_in_the_docs(server: VllmServer, undisturbed: Path, tmp_path: Path) -> None:
    text = (Path(__file__).parents[2] / "docs/serving.md").read_text(encoding="utf-8")
    code = text.split("```python\n")[1].split("```")[0]
    code = code.replace("http://127.0.0.1:8000/v1", server.url)
    code = code.replace("models/smollm2-135m", find_model(MODEL).location)
    code = code.replace("runs/served", str(undisturbed))
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert shown.returncode == 0, shown.stderr
    command = [*COMMAND, "predict", str(undisturbed), "--text", "a great film"]
    own = subprocess.run(command, capture_output=True, text=True)
    assert own.returncode == 0, own.stderr
    assert shown.stdout.strip() == own.stdout.split("\t")[0]


def test_a_reading_gives_the_same_probabilities_everywhere(
    server: VllmServer, tmp_path: Path
) -> None:
    """Here, by `pfes predict` through the server, and by the lines on the cards of two exports."""
    run = tmp_path / "run"
    settings = {"budget": 20, "shots": 8, "reading": "words", "eval_every": 20}
    result = search(MODEL, run, **settings)
    assert len(result.fitted.words) == 500
    examples = load_task(TASK, 8, test_limit=8).test
    texts = [example.fields["text"].replace("'", "") for example in examples]  # quoted on cards
    local = pfes.Classifier.from_run(run)
    wanted = local.predict_proba(texts)
    options = [word for text in texts for word in ("--text", text)]
    through = ["--model", f"vllm:{server.url}", "--served-name", MODEL]
    for extra in ([], through):
        command = [*COMMAND, "predict", str(run), "--json", *extra, *options]
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        answers = [json.loads(line)["probabilities"] for line in done.stdout.splitlines()]
        shown = [[answer[label] for label in local.classes_] for answer in answers]
        np.testing.assert_allclose(shown, wanted, atol=1e-4)
    for kind in ("peft", "vllm"):
        folder = tmp_path / kind
        export(run, kind, folder)
        for text, row in zip(texts[:4], wanted, strict=False):
            code = card_code(folder, text).replace(ADDRESS, server.url)
            code = code.replace(f'"model": {find_model(MODEL).location!r}', f'"model": {MODEL!r}')
            words = printed(code + "\nprint(*probabilities.values())")
            np.testing.assert_allclose([float(word) for word in words[-2:]], row, atol=1e-4)


def test_a_reading_is_fitted_through_the_server(server: VllmServer, tmp_path: Path) -> None:
    settings = {
        "method": "manual",
        "shots": 4,
        "reading": "auto",
        "test_limit": 16,
        "answer_words": 126,
    }
    served = {"served_name": MODEL, "tokenizer": MODEL}
    here, there = (
        pfes.search(model, TASK, **settings | more)
        for model, more in ((MODEL, {}), (f"vllm:{server.url}", served))
    )
    assert len(there.fitted.words) == 126  # and two labels: what one request answers for
    same = set(here.fitted.words) & set(there.fitted.words)
    assert len(same) > 115  # a word that no answer lists among its first ones is not known
    assert there.reading["loss"] == pytest.approx(here.reading["loss"], abs=0.01)
    assert there.test == pytest.approx(here.test, abs=0.07)  # one of 16


def test_fit_makes_the_choices_of_the_model_here(server: VllmServer, tmp_path: Path) -> None:
    problems = {
        "billing": ["I was charged twice", "refund my order", "the invoice is wrong"],
        "outage": ["nothing loads", "the app is down", "all requests time out"],
    }
    rows = [
        {"text": f"{text} since day {day}", "team": team}
        for day in range(10)
        for team, texts in problems.items()
        for text in texts
    ]
    data = tmp_path / "tickets.jsonl"
    data.write_text("".join(json.dumps(row) + "\n" for row in rows))
    settings = {"budget": 40, "shots": 8, "answer_words": 60, "test_limit": 12, "free": "none"}

    def fit(out: str, **model: str) -> tuple[Choices, pfes.Result]:
        seen: list[Choices] = []
        events = start_fit(
            str(data), tmp_path / out, settings | model, Given(label="team")
        ).events()
        result = result_of(events, lambda e: seen.append(e) if isinstance(e, Choices) else None)
        return seen[0], result

    here, local = fit("here", model=MODEL)
    there, served = fit("there", model=f"vllm:{server.url}", served_name=MODEL, tokenizer=MODEL)
    assert there.words == here.words
    assert [t.template for t in there.templates] == [t.template for t in here.templates]
    assert served.start is not None
    assert local.start is not None
    assert len(served.start.trials) > 1
    assert served.start.name == local.start.name
    assert served.start.sigma0 == pytest.approx(local.start.sigma0, rel=0.01)
    assert served.config["placement"] == "middle"
    texts = [row["text"] for row in rows[:12]]
    found = pfes.Classifier.from_run(tmp_path / "there")
    model = pfes.load_model(MODEL)
    same = pfes.Classifier.from_run(tmp_path / "there", model)
    np.testing.assert_allclose(found.predict_proba(texts), same.predict_proba(texts), atol=1e-3)
    assert (found.predict(texts) == [row["team"] for row in rows[:12]]).mean() > 0.7


def check(*arguments: str) -> str:
    command = [*COMMAND, "serve-check", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 2, done.stdout
    assert done.stderr.count("\n") == 1, done.stderr
    return done.stderr


def test_handshakes_that_fail(server: VllmServer, tmp_path: Path) -> None:
    from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=49152, hidden_size=64, num_hidden_layers=1, num_attention_heads=2,
        num_key_value_heads=2, intermediate_size=64,
    )  # fmt: skip
    LlamaForCausalLM(config).save_pretrained(tmp_path)
    AutoTokenizer.from_pretrained(find_model(MODEL).location).save_pretrained(tmp_path)
    assert "its embedding is 64 wide" in check(server.url, "--tokenizer", str(tmp_path))
    wrong = check(server.url, "--tokenizer", MODEL, "--served-name", "other")
    assert f"/v1 has {MODEL}" in wrong
    assert "nothing answers" in check("http://127.0.0.1:9/v1", "--tokenizer", MODEL)
    with VllmServer(MODEL, embeds=False) as plain:
        assert "--enable-prompt-embeds" in check(plain.url, "--tokenizer", MODEL)
