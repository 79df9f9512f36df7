"""`pfes fit` through a server: the choices of the model here, as far as the server answers."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pfes
from pfes.models.served import served_model
from pfes.runs.choose_task import Choices
from pfes.runs.fit import Given, start_fit
from pfes.runs.result import Result
from pfes.system.stages import result_of
from tests import tiny
from tests.models.server import FakeServer, serving

LINES = [  # none of these labels is one token, and two of them have no letters
    ("a wonderful film , moving and funny", "++"),
    ("great acting , great story", "++"),
    ("a dull mess without a single idea", "--"),
    ("terrible , simply terrible", "--"),
    ("good acting , dull story", "so so"),
    ("yes and no", "so so"),
]
SMALL: dict[str, Any] = {
    "budget": 40, "population": 4, "shots": 4, "eval_every": 12, "test_limit": 9, "free": "none",
}  # fmt: skip


@pytest.fixture
def data(tmp_path: Path) -> Path:
    rows = [f'"{text} , part {i}",{label}' for i in range(8) for text, label in LINES]
    (tmp_path / "films.csv").write_text("\n".join(["text,verdict", *rows]) + "\n")
    return tmp_path / "films.csv"


@pytest.fixture
def fake() -> Iterator[FakeServer]:
    with serving(tiny.make_module("llama"), ["tiny"]) as server:
        server.longest = 257  # as long as the model here, and the answer
        yield server


@pytest.fixture
def source(folders: Callable[[str], Path]) -> str:
    return str(folders("llama"))


def fit(data: Path, out: Path, **settings: Any) -> tuple[Choices, Result]:
    seen: list[Choices] = []
    events = start_fit(str(data), out, SMALL | settings, Given(label="verdict")).events()
    result = result_of(events, lambda e: seen.append(e) if isinstance(e, Choices) else None)
    return seen[0], result


def test_a_server_that_lists_enough_words_gives_the_same_choices(
    fake: FakeServer,
    source: str,
    data: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(served_model, "LISTED", 700)  # the whole vocabulary
    fake.max_logprobs = 700
    here, local = fit(data, tmp_path / "here", model=source, answer_words=100)
    address = {"model": f"vllm:{fake.url}", "tokenizer": source}
    there, served = fit(data, tmp_path / "there", answer_words=100, **address)
    assert {word.source for word in here.words} == {"the model's answers"}
    assert there.words == here.words
    assert [t.template for t in there.templates] == [t.template for t in here.templates]
    losses = [[t.loss for t in choices.templates] for choices in (here, there)]
    assert losses[1] == pytest.approx(losses[0], abs=1e-4)
    assert served.start is not None
    assert local.start is not None
    assert served.start.name == local.start.name
    assert len(served.start.trials) > 1
    assert served.start.sigma0 == pytest.approx(local.start.sigma0, rel=1e-3)
    assert served.fitted.words == local.fitted.words
    np.testing.assert_allclose(served.prompt, local.prompt, rtol=1e-3, atol=1e-3)
    assert served.test == local.test


@pytest.mark.parametrize("most", [20, 2])
def test_a_server_that_answers_for_few_words_gives_a_result(
    fake: FakeServer, source: str, data: Path, tmp_path: Path, most: int
) -> None:
    """Also one that answers for fewer words at a time than there are labels."""
    fake.max_logprobs = most
    out = tmp_path / "run"
    choices, result = fit(data, out, model=f"vllm:{fake.url}", tokenizer=source)
    assert len({word.token for word in choices.words}) == 3
    assert len(result.fitted.words) == max(0, most - 3)
    assert result.test > 0.5
    texts = [text for text, _ in LINES]
    local = pfes.Classifier.from_run(out, pfes.load_model(source))
    served = pfes.Classifier.from_run(out)
    np.testing.assert_allclose(served.predict_proba(texts), local.predict_proba(texts), atol=1e-3)
