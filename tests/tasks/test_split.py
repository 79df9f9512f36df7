"""Which examples are drawn: classes of unequal size, all examples, texts of the test."""

import json
from collections import Counter
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pfes.config import Balance, make_config
from pfes.errors import PfesError
from pfes.seeds import stream
from pfes.tasks import Task, load_task
from pfes.tasks.split import few_shot
from tests.command import call

SIZES = st.lists(st.integers(1, 40), min_size=2, max_size=6)
SEEDS = st.integers(0, 50)


def labels_of(sizes: list[int]) -> np.ndarray:
    labels = np.repeat(np.arange(len(sizes)), sizes)
    return stream(0, "test").permutation(labels)


def draw(sizes: list[int], shots: Any, seed: int, balance: Balance) -> tuple[Counter, Counter]:
    """Draw, check what holds for every kind of balance, and return how many there are of each."""
    names, labels = [f"class {i}" for i in range(len(sizes))], labels_of(sizes)
    train, validation = few_shot("t", names, labels, shots, seed, balance)
    again = few_shot("t", names, labels, shots, seed, balance)
    np.testing.assert_array_equal(train, again[0])
    np.testing.assert_array_equal(validation, again[1])
    drawn = [*train.tolist(), *validation.tolist()]
    assert len(set(drawn)) == len(drawn)
    assert set(labels[train]) == set(range(len(sizes)))
    return Counter(labels[train].tolist()), Counter(labels[validation].tolist())


@given(st.lists(st.integers(10, 30), min_size=2, max_size=5), st.integers(1, 5), SEEDS)
def test_equal_classes_are_the_first_of_a_permutation(
    sizes: list[int], shots: int, seed: int
) -> None:
    labels, rng = labels_of(sizes), stream(seed, "few-shot")
    drawn = []
    for label in range(len(sizes)):
        members = np.flatnonzero(labels == label)
        drawn.append(members[rng.permutation(len(members))[: 2 * shots]])
    names = [str(i) for i in range(len(sizes))]
    train, validation = few_shot("t", names, labels, shots, seed, "equal")
    np.testing.assert_array_equal(train, np.concatenate([part[:shots] for part in drawn]))
    np.testing.assert_array_equal(validation, np.concatenate([part[shots:] for part in drawn]))


@given(SIZES.filter(lambda sizes: max(sizes) > 1), st.integers(1, 12), SEEDS)
def test_most_takes_half_of_a_scarce_class(sizes: list[int], shots: int, seed: int) -> None:
    train, validation = draw(sizes, shots, seed, "most")
    for label, size in enumerate(sizes):
        assert train[label] == min(shots, size - size // 2)
        assert validation[label] == min(shots, size // 2)


@given(SIZES.filter(lambda sizes: max(sizes) > 1), st.integers(1, 6), SEEDS)
def test_natural_keeps_the_proportions(sizes: list[int], shots: int, seed: int) -> None:
    total = shots * len(sizes)
    if sum(sizes) < 2 * total:
        with pytest.raises(PfesError, match="to draw from, .* are needed"):
            draw(sizes, shots, seed, "natural")
        return
    train, validation = draw(sizes, shots, seed, "natural")
    assert train.total() == validation.total() == total
    exact = [total * size / sum(sizes) for size in sizes]
    # a part that must be one takes from the others, at most one for each such class
    slack = 1 + sum(part < 1 for part in exact)
    for label, part in enumerate(exact):
        assert abs(train[label] - max(part, 1)) <= slack
        assert abs(validation[label] - part) <= slack


@given(SIZES.filter(lambda sizes: max(sizes) > 1), SEEDS, st.sampled_from(["most", "natural"]))
def test_all_shots_are_all_examples(sizes: list[int], seed: int, balance: Balance) -> None:
    train, validation = draw(sizes, "all", seed, balance)
    assert (train + validation) == Counter(dict(enumerate(sizes)))
    assert all(0 <= train[label] - validation[label] <= 1 for label in range(len(sizes)))


@given(st.integers(0, 200), SEEDS)
def test_what_is_not_usable_is_skipped_in_order(left_out: int, seed: int) -> None:
    labels, names = labels_of([30, 30]), ["a", "b"]
    usable = np.ones(60, dtype=bool)
    usable[stream(left_out, "left out").permutation(60)[: left_out % 20]] = False
    every = few_shot("t", names, labels, "all", seed, "most")
    some = few_shot("t", names, labels, 5, seed, "equal", usable)
    for label in (0, 1):
        order = [i for part in every for i in part.tolist() if labels[i] == label]
        drawn = [i for part in some for i in part.tolist() if labels[i] == label]
        assert drawn == [i for i in order if usable[i]][:10]


@pytest.mark.parametrize(
    ("sizes", "shots", "balance", "message"),
    [
        ([9, 3], 2, "equal", "label 'b' has 3 examples to draw from, 4 are needed .*: use 1 shots"),
        ([9, 0], 2, "most", "label 'b' has 0 examples to draw from: add data"),
        ([9, 0], 2, "natural", "label 'b' has 0 examples"),
        ([1, 1], "all", "most", "none is left to validate"),
        ([9, 3], 4, "natural", "12 examples to draw from, 16 are needed .*: use 3 shots, all"),
    ],
)
def test_too_few_examples_are_one_line(
    sizes: list[int], shots: Any, balance: Balance, message: str
) -> None:
    with pytest.raises(PfesError, match=message):
        few_shot("t", ["a", "b"], labels_of(sizes), shots, 0, balance)


def tickets(**settings: Any) -> Task:
    labels = ["billing"] * 50 + ["outage"] * 7
    texts = [f"ticket {i}" for i in range(57)]
    return Task.from_examples(texts, labels, template="{text} =", **settings)


@pytest.mark.parametrize(
    "settings",
    [{"shots": "all"}, {"shots": 8, "balance": "most"}, {"shots": 8, "balance": "natural"}],
)
def test_a_task_of_unequal_classes_survives_json(settings: dict[str, Any]) -> None:
    task = tickets(**settings)
    assert (task.shots, task.balance) == (settings["shots"], settings.get("balance", "natural"))
    assert Task.from_json(json.loads(json.dumps(task.to_json()))) == task
    older = {k: v for k, v in task.to_json().items() if k not in ("balance", "dropped")}
    if task.shots != "all":
        assert Task.from_json(older).balance == "equal"


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"shots": "all", "balance": "equal"}, "^balance: with all shots"),
        ({"shots": "many"}, "^shots: at least 1, or 'all', not 'many'"),
        ({"balance": "fair"}, "^balance: one of equal, most, natural, not 'fair'"),
    ],
)
def test_wrong_settings_are_one_line(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(PfesError, match=message):
        tickets(**settings)


def test_the_settings_of_a_run_fit_together() -> None:
    names = {"model": "m", "task": "t"}
    assert make_config(**names).balance == "equal"
    everything = make_config(**names, shots="all")
    assert (everything.shots, everything.balance) == ("all", "natural")
    assert make_config(**everything.model_dump()) == everything
    assert make_config(**names, shots="12").shots == 12
    with pytest.raises(PfesError, match="^balance: with all shots"):
        make_config(**names, shots="all", balance="equal")
    for wrong in (0, "none"):
        with pytest.raises(PfesError, match="^shots: "):
            make_config(**names, shots=wrong)


def test_texts_of_the_test_are_not_drawn() -> None:
    texts = [f"Ticket  number {i // 2}" if i % 2 else f"ticket number {i // 2} " for i in range(80)]
    labels = [("billing", "outage")[i // 2 % 2] for i in range(80)]
    task = Task.from_examples(texts, labels, template="{text} =", shots="all")
    numbers = [
        {int(example.fields["text"].split()[2]) for example in part}
        for part in (task.train + task.validation, task.test)
    ]
    assert not numbers[0] & numbers[1]
    assert task.dropped == 64 - len(task.train) - len(task.validation) > 0
    assert Task.from_json(task.to_json()).dropped == task.dropped


def test_the_texts_of_a_test_file_are_not_drawn(task_file: Path) -> None:
    alone = load_task(task_file, shots="all")
    rows = [example.fields["text"] for example in alone.train[:6]]
    lines = [json.dumps({"text": f" {text.upper()}", "verdict": "good"}) for text in rows]
    (task_file.parent / "held-out.jsonl").write_text("\n".join(lines))
    spec = task_file.read_text().replace("films.csv", "films.csv, test_file: held-out.jsonl")
    task_file.write_text(spec)
    task = load_task(task_file, shots="all", test_limit=2)
    drawn = {example.fields["text"] for example in (*task.train, *task.validation)}
    assert not drawn & set(rows)
    assert (task.dropped, len(task.test)) == (6, 2)
    done = call("tasks", "check", task_file, "--shots", "all")
    assert done.returncode == 0, done.stderr
    assert "6 examples are not drawn: their texts are in the test data, too" in done.stdout


def test_the_check_of_a_task_takes_every_balance(task_file: Path) -> None:
    for balance in get_args(Balance):
        done = call("tasks", "check", task_file, "--shots", 2, "--balance", balance)
        assert done.returncode == 0, done.stderr
        assert "4 training, 4 validation" in done.stdout
    done = call("tasks", "check", task_file, "--shots", "all", "--balance", "equal")
    assert done.returncode == 2
    assert "--balance: with all shots" in done.stderr
