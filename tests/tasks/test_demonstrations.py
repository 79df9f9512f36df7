"""In-context learning: one answered example per label, cut from the oldest text on."""

from pathlib import Path

import pytest

from pfes.errors import SettingError
from pfes.tasks import load_task
from pfes.tasks.demonstrations import with_demonstrations
from pfes.tasks.encode import encode
from tests import tiny


@pytest.mark.parametrize("family", ["causal", "masked"])
def test_one_answered_example_per_label(task_file: Path, family: str) -> None:
    task = load_task(task_file, shots=4)
    spec = with_demonstrations(task, family, seed=0).spec
    assert len(spec.demonstrations) == 2
    words = {"causal": "Sentiment: {}", "masked": "It was {}."}[family]
    for word in ("great", "terrible"):
        assert sum(words.format(word) in shown for shown in spec.demonstrations) == 1
    texts = {example.fields["text"] for example in task.train}
    assert all(any(text in shown for text in texts) for shown in spec.demonstrations)


def test_seeds_choose_examples_and_order(task_file: Path) -> None:
    task = load_task(task_file, shots=8)
    shown = {with_demonstrations(task, "causal", seed).spec.demonstrations for seed in range(8)}
    assert len(shown) > 4
    assert {"great" in demonstrations[0] for demonstrations in shown} == {True, False}
    assert with_demonstrations(task, "causal", 3) == with_demonstrations(task, "causal", 3)


@pytest.mark.parametrize("family", ["causal", "masked"])
@pytest.mark.parametrize("limit", [200, 60, 40, 30])
def test_the_oldest_text_is_cut_first(task_file: Path, family: str, limit: int) -> None:
    task = load_task(task_file, shots=4)
    tokenizer = tiny.make_tokenizer(family)
    spec = with_demonstrations(task, family, seed=0).spec
    plain = encode(task.spec, task.test, tokenizer, family, 1000)
    whole = encode(spec, task.test, tokenizer, family, 1000)
    batch = encode(spec, task.test, tokenizer, family, limit)
    front = 1 if family == "masked" else 0
    for row, full, alone in zip(batch.token_ids, whole.token_ids, plain.token_ids, strict=True):
        assert len(row) <= limit
        if len(full) <= limit:
            assert row == full
        elif len(alone) + 8 <= limit:
            # what is left is the end of the whole; its first word may be cut
            assert len(row) > limit - 8
            assert row[front + 3 :] == full[len(full) - len(row) + front + 3 :]
    if family == "masked":
        for row, answer in zip(batch.token_ids, batch.answers, strict=True):
            assert row[answer] == tokenizer.mask_token_id


def test_examples_that_are_shown_are_no_training_examples(task_file: Path) -> None:
    task = load_task(task_file, shots=4)
    shown = with_demonstrations(task, "causal", seed=0, per_label=3)
    assert len(shown.spec.demonstrations) == 6
    assert len(shown.train) == 2
    for example in shown.train:
        assert not any(example.fields["text"] in text for text in shown.spec.demonstrations)
    assert (shown.validation, shown.test) == (task.validation, task.test)
    with pytest.raises(SettingError, match="has 4 training examples, 5 are to be shown"):
        with_demonstrations(task, "causal", seed=0, per_label=5)


def test_each_draw_shows_others(task_file: Path) -> None:
    task = load_task(task_file, shots=8)
    drawn = [with_demonstrations(task, "causal", 0, 2, draw) for draw in range(6)]
    assert len({shown.spec.demonstrations for shown in drawn}) > 4
    assert drawn[3] == with_demonstrations(task, "causal", 0, 2, 3)
