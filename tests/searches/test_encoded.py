"""A task's examples as a model takes them: each part encoded once, with room for the prompt."""

from dataclasses import replace
from pathlib import Path

import pytest

from pfes.errors import PfesError
from pfes.searches.encoded import EncodedTask, encode_for
from pfes.tasks import load_task
from pfes.tasks.demonstrations import with_demonstrations
from tests.stand_in import StandIn


def test_each_part_is_encoded_once(task_file: Path) -> None:
    task = load_task(task_file, shots=4)
    encoded = EncodedTask(StandIn(), task, 5)
    for name in ("train", "validation", "test"):
        batch = getattr(encoded, name)
        assert batch is getattr(encoded, name)  # models keep work by batch
        alone = encode_for(encoded.model, task.spec, getattr(task, name), 5)
        assert batch.token_ids == alone.token_ids
        assert batch.labels.tolist() == [example.label for example in getattr(task, name)]


def test_a_task_without_a_test_has_an_empty_batch(task_file: Path) -> None:
    task = replace(load_task(task_file, shots=4), test=())
    assert len(EncodedTask(StandIn(), task, 5).test) == 0


def test_demonstrations_stand_in_front_of_every_text(task_file: Path) -> None:
    task = load_task(task_file, shots=4)
    in_front = with_demonstrations(task, "causal", seed=0)
    plain, shown = (EncodedTask(StandIn(), own, 5).test for own in (task, in_front))
    for short, long in zip(plain.token_ids, shown.token_ids, strict=True):
        assert len(long) > len(short)
        assert long[-len(short) + 1 :] == short[1:]


def test_texts_are_cut_to_the_room_that_a_prompt_leaves(task_file: Path) -> None:
    task = load_task(task_file, shots=4)
    model = StandIn()
    for length in (0, 180):
        batch = EncodedTask(model, task, length).train
        assert max(map(len, batch.token_ids)) + length <= model.max_length
    with pytest.raises(PfesError, match="stand-in takes 200 in all"):
        _ = EncodedTask(model, task, 200).train
