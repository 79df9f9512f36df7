"""Every method by name: optimizer × space × damping × loss. The paper at a glance."""

import math
from dataclasses import dataclass
from typing import Literal

from pfes.errors import PfesError
from pfes.tasks.spec import Family

ALIGNED = 1 / math.sqrt(3)  # gives a full-space step the energy of BBT's at σ = 1 (appendix III-C)

LEARNING_RATE = 1e-2  # ZO-SGD's (appendix I-A); it takes the place of σ0


@dataclass(frozen=True)
class Method:
    """A composition, never a class of its own."""

    name: str
    summary: str
    optimizer: Literal["one-plus-one", "saes", "cmaes", "zosgd"]
    damping: Literal["full", "intrinsic"]
    regularized: bool  # CE + β·CR instead of CE
    sigma0: dict[Family, float]  # the paper's: RoBERTa-Large for masked, OPT-6.7B for causal
    space: Literal["full", "subspace"] = "full"


def _both(sigma0: float) -> dict[Family, float]:
    return {"masked": sigma0, "causal": sigma0}


METHODS = {
    method.name: method
    for method in (
        Method(
            "one-plus-one",
            "(1+1)-ES in the full space, damped by its dimension; CE",
            "one-plus-one", "full", False, _both(ALIGNED),
        ),
        Method(
            "one-plus-one-id",
            "(1+1)-ES damped by the intrinsic dimension; CE",
            "one-plus-one", "intrinsic", False, _both(ALIGNED),
        ),
        Method(
            "one-plus-one-id-cr",
            "(1+1)-ES damped by the intrinsic dimension; CE + β·CR",
            "one-plus-one", "intrinsic", True, {"masked": 1e-4, "causal": 1.0},
        ),
        Method(
            "saes",
            "self-adaptive ES in the full space, damped by its dimension; CE",
            "saes", "full", False, _both(ALIGNED),
        ),
        Method(
            "saes-id",
            "self-adaptive ES damped by the intrinsic dimension; CE",
            "saes", "intrinsic", False, _both(ALIGNED),
        ),
        Method(
            "saes-id-cr",
            "self-adaptive ES damped by the intrinsic dimension; CE + β·CR",
            "saes", "intrinsic", True, {"masked": 1e-2, "causal": 1.0},
        ),
        Method(
            "bbt",
            "CMA-ES in a random subspace of the intrinsic dimension; CE",
            "cmaes", "intrinsic", False, _both(1.0), "subspace",
        ),
        Method(
            "cmaes",
            "CMA-ES in the full space (small prompts only); CE",
            "cmaes", "full", False, _both(1.0),
        ),
        Method(
            "zosgd",
            "two-point zeroth-order SGD in the full space; CE",
            "zosgd", "full", False, _both(LEARNING_RATE),
        ),
        Method(
            "zosgd-cr",
            "two-point zeroth-order SGD in the full space; CE + β·CR",
            "zosgd", "full", True, _both(LEARNING_RATE),
        ),
    )
}  # fmt: skip


def get_method(name: str) -> Method:
    """Return a method by name."""
    if name not in METHODS:
        raise PfesError(f"unknown method {name!r}: choose one of {', '.join(METHODS)}")
    return METHODS[name]
