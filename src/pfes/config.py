"""The settings of a run: each declared once, with its default, its limits and its help."""

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from pfes.errors import PfesError
from pfes.models.base import DEFAULT_BATCH_TOKENS
from pfes.tasks.task import DEFAULT_SHOTS

DEFAULT_METHOD = "saes-id-cr"
INTRINSIC_DIMENSION = 500.0  # the paper's: above the bound it measures (≈ 250), and BBT's subspace


class RunConfig(BaseModel):
    """What a run is a function of. `None` means: chosen by method and model, see `resolve`."""

    model_config = ConfigDict(extra="forbid", frozen=True, protected_namespaces=())

    model: str = Field(description="embedded name, folder, or Hub name")
    task: str = Field(description="task name or YAML file")
    method: str = Field(DEFAULT_METHOD, description="see `pfes methods`")
    budget: int = Field(5000, ge=1, description="function evaluations to spend")
    prompt_length: int | None = Field(
        None, ge=1, description="soft tokens [50 masked, 10 causal, or the length of an init text]"
    )
    beta: float | None = Field(None, ge=0, description="weight of the confidence regulariser [1]")
    sigma0: float | None = Field(
        None, gt=0, allow_inf_nan=False, description="initial step size [by method and model]"
    )
    intrinsic_dimension: float = Field(
        INTRINSIC_DIMENSION,
        gt=0,
        description="damping dimension of the -id methods; BBT's space",
    )
    population: int = Field(20, ge=1, description="children per generation (SaES, CMA-ES)")
    parents: int | None = Field(
        None, ge=1, description="children that become parents (SaES) [a quarter]"
    )
    radius: float = Field(
        1e-4, gt=0, allow_inf_nan=False, description="distance of ZO-SGD's two points (the paper's)"
    )
    schedule: Literal["constant", "linear", "cosine"] = Field(
        "constant", description="of ZO-SGD's learning rate, which --sigma0 sets"
    )
    on_stop: Literal["restart", "end"] = Field(
        "restart", description="what CMA-ES does when one of its own stop rules fires"
    )
    init: str = Field("vocab", description="initial prompt: vocab, zeros, or text:…")
    shots: int = Field(
        DEFAULT_SHOTS, ge=1, description="training, and again validation, examples per class"
    )
    seed: int = Field(0, ge=0, description="of the split, the initial prompt and the search")
    eval_every: int = Field(100, ge=1, description="evaluations between two looks at validation")
    test_limit: int | None = Field(None, ge=1, description="use only so many test examples")
    data_dir: str | None = Field(None, description="folder with local copies, one per task")
    device: str | None = Field(None, description="such as cpu, cuda, cuda:1, mps [GPU, else CPU]")
    dtype: Literal["float32", "float16", "bfloat16", "float64"] | None = Field(
        None, description="precision [float32 on the CPU, else the checkpoint's own]"
    )
    device_map: str | None = Field(
        None, description="spread a large model over devices: auto (needs accelerate)"
    )
    trust_remote_code: bool = Field(False, description="run code that comes with the model")
    max_batch_tokens: int = Field(
        DEFAULT_BATCH_TOKENS, ge=1, description="tokens in one forward pass, at most"
    )


def make_config(**settings: Any) -> RunConfig:
    """Make a config, or say in one line which setting is wrong."""
    try:
        return RunConfig(**settings)
    except ValidationError as error:
        first = error.errors()[0]
        name = "--" + str(first["loc"][0]).replace("_", "-") if first["loc"] else "config"
        given = "" if first["type"] == "missing" else f", not {first['input']!r}"
        raise PfesError(f"{name}: {first['msg']}{given}") from None
