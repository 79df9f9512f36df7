"""What settings can be: their types, usual values, and the beginnings of names."""

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

DEFAULT_METHOD = "saes-id-cr"
DEFAULT_SHOTS = 16  # examples per class, as in the paper
ALL: Literal["all"] = "all"  # as shots: every example that is not held out
BETA = 1.0
RADIUS = 1e-4  # of ZO-SGD, in the paper
MAX_BATCH_TOKENS = 8192  # in one forward pass: bounds its memory
PATIENCE = 600.0  # seconds that a server may be away
SERVED = "vllm:"  # how the name of a served model begins, before its addresses
TEXT_ONLY = "openai:"  # the same where the server takes text, and no embeddings
KEY = "OPENAI_API_KEY"  # the environment variable with the key of such a server
TEXT = "text:"  # how an initial prompt given as text begins
WRITTEN_BY = "pfes"  # beside the settings in a run's config.json: the version that wrote them

Seed = Annotated[int, Field(ge=0)]
OwnSeed = Seed | Literal["run"]
Beta = Annotated[float, Field(ge=0, allow_inf_nan=False)]
StepSize = Annotated[float, Field(gt=0, allow_inf_nan=False)]

Shots = Annotated[int, Field(ge=1)] | Literal["all"]
Balance = Literal["equal", "most", "natural"]
Dtype = Literal["float32", "float16", "bfloat16", "float64"]
Schedule = Literal["constant", "linear", "cosine"]
OnStop = Literal["restart", "end"]
ReadingName = Literal["plain", "offset", "slope", "words", "auto"]
Select = Literal["metric", "loss"]
EQUAL: Balance = "equal"
RUNS: Literal["run"] = "run"  # as a seed: that of the run


def _counts(value: Any) -> Any:
    """Read numbers separated by commas, in rising order."""
    parts = value.split(",") if isinstance(value, str) else value
    parts = [parts] if isinstance(parts, int) else parts
    try:
        return tuple(sorted({int(part) for part in parts}))
    except (TypeError, ValueError):
        raise ValueError("give whole numbers, separated by commas") from None


EvaluationCounts = Annotated[tuple[Annotated[int, Field(ge=1)], ...], BeforeValidator(_counts)]


def balance_for(shots: object, balance: Balance | None = None) -> Balance:
    """Return how classes are balanced; if that is not given, as it goes with `shots`.

    Classes of all examples are as large as they are: to make them equal is a `ValueError`.
    """
    if shots != ALL:
        return balance or EQUAL
    if balance == EQUAL:
        raise ValueError("with all shots, classes are as large as they are: leave this setting out")
    return balance or "natural"


def is_served(model: str) -> bool:
    """Say whether a model's name is the address of a server."""
    return model.startswith((SERVED, TEXT_ONLY))


def takes_only_text(model: str) -> bool:
    """Say whether a model's name is the address of a server that takes text, and no embeddings."""
    return model.startswith(TEXT_ONLY)
