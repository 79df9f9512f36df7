"""Tasks made in Python, without any file: of strings, pairs, mappings and data frames."""

import json
from collections import Counter
from typing import Any

import numpy as np
import pandas as pd
import pytest

from pfes.errors import PfesError
from pfes.tasks import Task

TEXTS = [f"film {i}" for i in range(40)]
LABELS = ["bad", "good"] * 20
WORDS = {"bad": "terrible", "good": "great"}
ONE, TWO = "{text} It was", "{premise} So {hypothesis}?"


def number(example: Any) -> int:
    """The place that a text had in what was given."""
    return int(next(iter(example.fields.values())).split()[1])


def make(texts: Any = TEXTS, labels: Any = LABELS, **settings: Any) -> Task:
    return Task.from_examples(texts, labels, **{"template": ONE, "verbalizers": WORDS} | settings)


def test_strings_make_a_task() -> None:
    task = make(shots=5, name="films")
    assert (task.name, task.shots, task.seed) == ("films", 5, 0)
    assert task.spec.verbalizers == WORDS
    assert task.spec.templates == {"causal": ONE}
    assert task.spec.dataset is None
    parts = (task.train, task.validation, task.test)
    assert [len(part) for part in parts] == [10, 10, 8]
    for part in parts[:2]:
        assert Counter(example.label for example in part) == {0: 5, 1: 5}
    numbers = [number(example) for part in parts for example in part]
    assert len(set(numbers)) == len(numbers)  # no text is in two parts
    for part in parts:
        for example in part:
            assert example.fields == {"text": TEXTS[number(example)]}
            assert task.spec.labels[example.label] == LABELS[number(example)]


def test_the_seed_draws_the_examples_and_leaves_the_test_alone() -> None:
    first, again, other = (make(shots=5, seed=seed) for seed in (0, 0, 1))
    assert first == again
    assert first.train != other.train
    assert first.test == other.test


@pytest.mark.parametrize(
    "texts",
    [
        [(f"a {i}", f"b {i}") for i in range(40)],
        [[f"a {i}", f"b {i}"] for i in range(40)],
        [{"hypothesis": f"b {i}", "premise": f"a {i}", "other": 3} for i in range(40)],
        np.array([[f"a {i}", f"b {i}"] for i in range(40)]),
        pd.DataFrame({"hypothesis": [f"b {i}" for i in range(40)],
                      "premise": [f"a {i}" for i in range(40)], "other": 3}),
    ],
    ids=["pairs", "lists", "mappings", "array", "frame"],
)  # fmt: skip
def test_several_fields_are_given_in_order_or_by_name(texts: Any) -> None:
    task = make(texts, template=TWO, shots=4)
    assert task.spec.fields == ("premise", "hypothesis")
    for example in (*task.train, *task.validation, *task.test):
        place = number(example)
        assert example.fields == {"premise": f"a {place}", "hypothesis": f"b {place}"}
        assert task.spec.labels[example.label] == LABELS[place]


def test_a_column_of_a_frame_is_a_list_of_strings() -> None:
    frame = pd.DataFrame({"review": TEXTS, "stars": LABELS})
    assert make(frame["review"], frame["stars"], shots=4) == make(shots=4)
    assert make(np.array(TEXTS), np.array(LABELS), shots=4) == make(shots=4)
    assert make(iter(TEXTS), iter(LABELS), shots=4) == make(shots=4)


def test_a_frame_names_its_label() -> None:
    frame = pd.DataFrame({"text": TEXTS, "stars": LABELS})
    task = Task.from_frame(frame, "stars", template=ONE, verbalizers=WORDS, shots=4)
    assert task.spec.label == "stars"
    same = make(shots=4)
    assert (task.train, task.validation, task.test) == (same.train, same.validation, same.test)
    with pytest.raises(PfesError, match="no column 'verdict'; the columns are text, stars"):
        Task.from_frame(frame, "verdict", template=ONE)


def test_without_words_the_labels_stand_for_themselves() -> None:
    task = make(verbalizers=None, labels=["yes", "no"] * 20, shots=4)
    assert task.spec.verbalizers == {"no": "no", "yes": "yes"}
    numbers = make(verbalizers=None, labels=[1, 0] * 20, shots=4)
    assert numbers.spec.verbalizers == {"0": "0", "1": "1"}


@pytest.mark.parametrize("labels", [[0, 1] * 20, [0.0, 1.0] * 20, np.array(["0", "1"] * 20)])
def test_labels_of_any_type(labels: Any) -> None:
    task = make(labels=labels, verbalizers={0: "terrible", 1: "great"}, shots=4)
    assert task.spec.labels == ("0", "1")
    assert all(example.label == number(example) % 2 for example in task.train)


@pytest.mark.parametrize(
    ("template", "families"),
    [
        (ONE, {"causal"}),
        ("{text} It was {mask}.", {"masked"}),
        ({"causal": ONE, "masked": "{text} It was {mask}."}, {"causal", "masked"}),
    ],
)
def test_a_mask_makes_a_template_for_masked_models(template: Any, families: set[str]) -> None:
    task = make(template=template, shots=4)
    assert set(task.spec.templates) == families
    assert task.spec.fields == ("text",)


def test_other_fields_of_the_spec_can_be_given() -> None:
    spec = make(shots=4, metric="f1", positive="bad", description="of films").spec
    assert (spec.metric, spec.positive, spec.description) == ("f1", "bad", "of films")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"texts": "a film"}, "texts must be a list"),
        ({"texts": [("a", "b")] * 40}, "a text has 2 parts, but this task needs 1: text"),
        ({"template": TWO}, "a text has 1 parts, but this task needs 2: premise, hypothesis"),
        ({"texts": [{"title": "a"}] * 40}, "a text has 0 parts, but this task needs 1: text"),
        ({"texts": [{"text": None}] * 40}, "a text has 0 parts"),
        ({"texts": pd.DataFrame({"text": [np.nan] * 40})}, "a text has 0 parts"),
        ({"texts": [3] * 40}, "a text must be a string, a mapping or a sequence, not 3"),
        ({"texts": TEXTS[:-1]}, "39 texts but 40 labels"),
        (
            {"labels": ["bad", "fair"] * 20},
            "label 'fair' has no verbalizer; those with one are bad, good",
        ),
        ({"labels": ["bad"] * 38 + ["good"] * 2, "holdout": 0.0}, "label 'good' has 2 examples"),
        ({"shots": 11}, "task 'task': label '"),
        ({"verbalizers": {"bad": "terrible"}}, "task 'task': verbalizers"),
        ({"verbalizers": None, "labels": ["bad"] * 40}, "task 'task': verbalizers"),
        ({"template": "no text"}, "no placeholder for the text"),
        ({"template": "{text"}, "templates.causal"),
        ({"template": "{text} {mask} {mask}"}, "exactly one {mask}"),
        ({"metric": "bleu"}, "task 'task': metric"),
        ({"colour": "red"}, "task 'task': colour"),
    ],
)
def test_mistakes_are_one_line(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(PfesError) as caught:
        make(**{"shots": 5} | settings)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_without_a_holdout_nothing_is_tested() -> None:
    task = make(holdout=0, shots=10)
    assert task.test == ()
    assert len(task.train) == len(task.validation) == 20
    assert {number(example) for example in (*task.train, *task.validation)} == set(range(40))


@pytest.mark.parametrize("holdout", [0.0, 0.2])
def test_a_task_survives_json(holdout: float) -> None:
    texts = [f'film {i} "quoted", ünïcode 漢字\n' for i in range(40)]
    task = make(texts, shots=3, seed=2, holdout=holdout, metric="matthews", name="films")
    stored = json.loads(json.dumps(task.to_json(), allow_nan=False))
    assert Task.from_json(stored) == task


@pytest.mark.parametrize(
    "change",
    [
        {"spec": None},
        {"spec": {"name": "films"}},
        {"train": None},
        {"train": [{"fields": {"text": "a"}}]},
        {"train": [3]},
        {"test": [{"fields": None, "label": 0}]},
        {"shots": "many"},
        {"seed": None},
    ],
)
def test_wrong_json_is_a_value_error(change: dict[str, Any]) -> None:
    stored = make(shots=3).to_json()
    with pytest.raises(ValueError, match="."):
        Task.from_json(stored | change)
    for name in change:
        del stored[name]
    with pytest.raises(ValueError, match=f"not a task: '{next(iter(change))}'"):
        Task.from_json(stored)


@pytest.mark.parametrize("holdout", [-0.1, 1.0, 2])
def test_a_part_to_hold_out_is_between_0_and_1(holdout: float) -> None:
    with pytest.raises(PfesError, match="^holdout: at least 0 and less than 1"):
        make(holdout=holdout)


@pytest.mark.parametrize("kind", [np.bool_, np.int64, np.float32, bool])
def test_labels_of_numpy_are_those_of_python(kind: Any) -> None:
    labels = [kind(label == "good") for label in LABELS]
    words = {labels[0].item() if hasattr(labels[0], "item") else labels[0]: "a"}
    words[labels[1].item() if hasattr(labels[1], "item") else labels[1]] = "b"
    task = make(labels=labels, verbalizers=words, shots=5)
    assert len(task.train) == 10


@pytest.mark.parametrize("label", [None, float("nan")])
def test_a_missing_label_is_refused(label: Any) -> None:
    with pytest.raises(PfesError, match="label 3 is missing"):
        make(labels=[*LABELS[:3], label, *LABELS[4:]])


def test_shots_are_at_least_one() -> None:
    with pytest.raises(PfesError, match="^shots: at least 1"):
        make(shots=0)
