"""How often each label is expected where a prompt is used."""

import math
from collections.abc import Sequence

from pfes.errors import SettingError
from pfes.tasks.task import Task

UNIFORM, TRAIN = "uniform", "train"
TOLERANCE = 0.01  # by which given shares may miss 1


def expected_shares(prior: str, task: Task) -> tuple[float, ...]:
    """Return the share of each label that a prior expects: `uniform`, `train` or `a=0.7,b=0.3`."""
    labels = task.spec.labels
    if prior == TRAIN:
        if not task.shares:
            raise SettingError("prior", "it is not known how often each label occurs in the data")
        return task.shares
    return given_shares(prior, labels) or (1 / len(labels),) * len(labels)


def given_shares(prior: str, labels: Sequence[str]) -> tuple[float, ...] | None:
    """Return the shares that are written out, such as `a=0.7,b=0.3`; None where a name is given."""
    if prior in (UNIFORM, TRAIN):
        return None
    shares: dict[str, float] = {}
    for part in prior.split(","):
        label, equals, number = part.rpartition("=")
        label = label.strip()
        if not equals or label not in labels:
            known = ", ".join(labels)
            raise SettingError(
                "prior", f"{part!r}: write uniform, train or LABEL=SHARE,…; the labels are {known}"
            )
        try:
            shares[label] = float(number)
        except ValueError:
            raise SettingError("prior", f"{part!r}: {number!r} is not a number") from None
    missing = [label for label in labels if label not in shares]
    if missing:
        raise SettingError("prior", f"no share for label {missing[0]!r}")
    total = sum(shares.values())
    if not all(share > 0 for share in shares.values()) or not math.isclose(
        total, 1, abs_tol=TOLERANCE
    ):
        raise SettingError("prior", f"shares are positive and add up to 1, not to {total:g}")
    return tuple(shares[label] / total for label in labels)
