"""Choose which examples to train on, validate on and hold out; all are indices."""

from collections.abc import Sequence

import numpy as np

from pfes.contract import Ints
from pfes.errors import SettingError
from pfes.seeds import stream

FIXED_SEED = 0  # the held-out examples do not depend on a run's seed


def few_shot(
    task_name: str, label_names: Sequence[str], labels: Ints, shots: int, seed: int
) -> tuple[Ints, Ints]:
    """Draw `shots` training and `shots` other validation examples of each class.

    `labels` are indices into `label_names`; the names are for the error message.
    """
    classes = [np.flatnonzero(labels == i) for i in range(len(label_names))]
    scarcest = min(range(len(classes)), key=lambda i: len(classes[i]))
    count = len(classes[scarcest])
    if count < 2 * shots:
        advice = f"use {count // 2} shots or add data" if count > 1 else "add data"
        raise SettingError(
            "shots",
            f"task {task_name!r}: label {label_names[scarcest]!r} has {count} examples to draw "
            f"from, {2 * shots} are needed ({shots} to train on, {shots} to validate): {advice}",
        )
    rng = stream(seed, "few-shot")
    train, validation = [], []
    for members in classes:
        drawn = members[rng.permutation(len(members))[: 2 * shots]]
        train.append(drawn[:shots])
        validation.append(drawn[shots:])
    return np.concatenate(train), np.concatenate(validation)


def label_shares(labels: Ints, count: int) -> tuple[float, ...]:
    """Return which part of the examples has each of `count` labels."""
    counted = np.bincount(labels, minlength=count) / len(labels)
    return tuple(float(share) for share in counted)


def hold_out(count: int, part: float) -> tuple[Ints, Ints]:
    """Split `count` examples into those to draw from and those held out, for every seed alike."""
    order = stream(FIXED_SEED, "hold-out").permutation(count)
    held_out = round(part * count)
    return np.sort(order[held_out:]), np.sort(order[:held_out])


def limit_test(held_out: Ints, limit: int | None) -> Ints:
    """Keep at most `limit` test examples, chosen at random but the same for every seed."""
    if limit is None or limit >= len(held_out):
        return held_out
    order = stream(FIXED_SEED, "test-limit").permutation(len(held_out))[:limit]
    return held_out[np.sort(order)]
