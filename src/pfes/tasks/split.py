"""Choose which examples to train on, validate on and hold out; all are indices."""

from collections.abc import Sequence
from typing import get_args

import numpy as np
from numpy.typing import NDArray

from pfes.config import ALL, EQUAL, Balance, Shots, balance_for
from pfes.contract import Ints
from pfes.errors import SettingError
from pfes.seeds import stream

FIXED_SEED = 0  # the part that is held out does not depend on a run's seed


def few_shot(
    task_name: str,
    label_names: Sequence[str],
    labels: Ints,
    shots: Shots,
    seed: int,
    balance: Balance,
    usable: NDArray[np.bool_] | None = None,
) -> tuple[Ints, Ints]:
    """Draw training examples and other examples for validation.

    `balance` says how many of each class: `equal`, `shots` for each of the two; `most`, at most so
    many, and half of what a scarce class has; `natural`, as many in all, in the proportions of the
    data. If `shots` is all, half of each class is for each. Training has every class.

    `labels` are indices into `label_names`; the names are for the error message. Examples that are
    not `usable` are never drawn, and do not change in which order the others are.
    """
    rng = stream(seed, "few-shot")
    drawn = []
    for label in range(len(label_names)):
        members = np.flatnonzero(labels == label)
        members = members[rng.permutation(len(members))]
        drawn.append(members if usable is None else members[usable[members]])
    sizes = np.array([len(members) for members in drawn])
    try:
        for_train, for_validation = _parts(label_names, sizes, shots, balance)
    except SettingError as error:
        unusable = 0 if usable is None else len(usable) - int(usable.sum())
        why = f" ({unusable} texts are in the test data, too, and are left out)" if unusable else ""
        raise SettingError("shots", f"task {task_name!r}: {error.message}{why}") from None
    both = list(zip(drawn, for_train, for_train + for_validation, strict=True))
    train = np.concatenate([members[:start] for members, start, _ in both])
    return train, np.concatenate([members[start:end] for members, start, end in both])


def _parts(
    label_names: Sequence[str], sizes: Ints, shots: Shots, balance: Balance
) -> tuple[Ints, Ints]:
    """Return how many examples of each class to train on, and how many to validate on."""
    scarcest = int(sizes.argmin())
    count, total = int(sizes[scarcest]), int(sizes.sum())
    scarce = f"label {label_names[scarcest]!r} has {count} examples to draw from"
    if balance == EQUAL and not isinstance(shots, str):
        if count < 2 * shots:
            advice = f"use {count // 2} shots or add data" if count > 1 else "add data"
            needed = f"{2 * shots} are needed ({shots} to train on, {shots} to validate)"
            raise SettingError("shots", f"{scarce}, {needed}: {advice}")
        return np.full_like(sizes, shots), np.full_like(sizes, shots)
    if count == 0:
        raise SettingError("shots", f"{scarce}: add data")
    half, other_half = (sizes + 1) // 2, sizes // 2
    if not other_half.any():
        raise SettingError("shots", "each label has 1 example, none is left to validate: add data")
    if isinstance(shots, str):  # all
        return half, other_half
    if balance == "most":
        return np.minimum(half, shots), np.minimum(other_half, shots)
    wanted = shots * len(sizes)
    if total < 2 * wanted:
        fewer = total // (2 * len(sizes))
        advice = f"use {fewer} shots, all shots, or add data" if fewer else "use all shots"
        raise SettingError(
            "shots",
            f"there are {total} examples to draw from, {2 * wanted} are needed ({wanted} to train "
            f"on, {wanted} to validate): {advice}",
        )
    train = _in_proportion(wanted, sizes, least=1, most=sizes)
    return train, _in_proportion(wanted, sizes, least=0, most=sizes - train)


def _in_proportion(total: int, sizes: Ints, least: int, most: Ints) -> Ints:
    """Divide `total` in the proportions of `sizes`, each part between `least` and its `most`."""
    exact = total * sizes / sizes.sum()
    parts: Ints = np.clip(np.floor(exact).astype(np.int64), least, most)
    while (missing := total - int(parts.sum())) != 0:
        lag = np.where(parts < most if missing > 0 else parts > least, exact - parts, np.nan)
        parts[np.nanargmax(np.sign(missing) * lag)] += np.sign(missing)
    return parts


def checked_balance(shots: Shots, balance: Balance | None) -> Balance:
    """Return how classes are balanced, or say in one line why that or `shots` cannot be."""
    if shots != ALL and (isinstance(shots, str) or shots < 1):
        raise SettingError("shots", f"at least 1, or 'all', not {shots!r}")
    if balance is not None and balance not in get_args(Balance):
        raise SettingError("balance", f"one of {', '.join(get_args(Balance))}, not {balance!r}")
    try:
        return balance_for(shots, balance)
    except ValueError as error:
        raise SettingError("balance", error) from None


def label_shares(labels: Ints, count: int) -> tuple[float, ...]:
    """Return which part of the examples has each of `count` labels."""
    counted = np.bincount(labels, minlength=count) / len(labels)
    return tuple(float(share) for share in counted)


def hold_out(count: int, part: float) -> tuple[Ints, Ints]:
    """Split `count` examples into those to draw from and those held out, for every seed alike."""
    order = stream(FIXED_SEED, "hold-out").permutation(count)
    held_out = round(part * count)
    return np.sort(order[held_out:]), np.sort(order[:held_out])


def limit_test(held_out: Ints, limit: int | None, seed: int = 0) -> Ints:
    """Keep at most `limit` test examples, chosen at random."""
    if limit is None or limit >= len(held_out):
        return held_out
    order = stream(seed, "test-limit").permutation(len(held_out))[:limit]
    return held_out[np.sort(order)]
