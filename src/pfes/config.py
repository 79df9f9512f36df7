"""The settings of a run: each declared once, with its default, its limits and its help."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from pfes.errors import PfesError
from pfes.methods import PAPER
from pfes.models.base import MAX_BATCH_TOKENS
from pfes.models.client import PATIENCE
from pfes.tasks.batch import Placement
from pfes.tasks.task import DEFAULT_SHOTS

DEFAULT_METHOD = "saes-id-cr"
BETA = 1.0
AUTHOR = "pfes"  # beside the settings in a run's config.json: the version that wrote them
Beta = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class RunConfig(BaseModel):
    """What a run is a function of. `None` means: chosen by method and model, see `resolve`."""

    model_config = ConfigDict(extra="forbid", frozen=True, protected_namespaces=())

    model: str = Field(
        description="embedded name, folder, Hub name, or vllm:http://HOST:PORT/v1[,URL…]: vLLM"
    )
    served_name: str | None = Field(
        None, description="what a vLLM server calls its model [the only one it has]"
    )
    tokenizer: str | None = Field(
        None, description="folder or Hub name of a served model's tokenizer and input embedding"
    )
    patience: float = Field(
        PATIENCE,
        gt=0,
        allow_inf_nan=False,
        description="seconds that a server may be away before a run stops, saved",
    )
    task: str = Field(description="task name or YAML file")
    method: str = Field(DEFAULT_METHOD, description="see `pfes methods`")
    budget: int = Field(
        5000,
        ge=1,
        description="function evaluations to spend",
        json_schema_extra={"source": PAPER},
    )
    prompt_length: int | None = Field(
        None, ge=1, description="tokens of the prompt [by method and model, or an init text's]"
    )
    beta: Beta | Literal["auto"] | None = Field(
        None,
        description=f"weight of the confidence regulariser, or auto: chosen on validation [{BETA}]",
        json_schema_extra={"source": "ours: balanced; the paper's best in 8 of its 14 cases"},
    )
    sigma0: float | None = Field(
        None, gt=0, allow_inf_nan=False, description="initial step size [by method and model]"
    )
    intrinsic_dimension: float = Field(
        500.0,
        gt=0,
        allow_inf_nan=False,
        description="damping dimension of the -id methods; BBT's space",
        json_schema_extra={"source": f"{PAPER}: above the bound it measures (≈ 250); BBT's"},
    )
    population: int = Field(
        20,
        ge=1,
        description="candidates per generation (SaES, CMA-ES, BDPL, RLPrompt)",
        json_schema_extra={"source": "BBT's, and BDPL's"},
    )
    parents: int | None = Field(
        None,
        ge=1,
        description="children that become parents (SaES) [a quarter]",
        json_schema_extra={"source": "ours: a quarter of the population"},
    )
    radius: float = Field(
        1e-4,
        gt=0,
        allow_inf_nan=False,
        description="distance of ZO-SGD's two points",
        json_schema_extra={"source": f"{PAPER}, appendix I-A"},
    )
    schedule: Literal["constant", "linear", "cosine"] = Field(
        "constant",
        description="of ZO-SGD's learning rate, which --sigma0 sets",
        json_schema_extra={"source": "ours: the paper names none"},
    )
    on_stop: Literal["restart", "end"] = Field(
        "restart",
        description="what CMA-ES does when one of its own stop rules fires",
        json_schema_extra={"source": "ours: so that every method spends its budget"},
    )
    candidate_tokens: int = Field(
        200,
        ge=2,
        description="tokens that BDPL chooses among",
        json_schema_extra={"source": "BDPL's"},
    )
    policy_model: str = Field(
        "smollm2-135m",
        description="causal model that writes RLPrompt's prompts",
        json_schema_extra={"source": "ours: the embedded model"},
    )
    init: str = Field(
        "vocab",
        description="initial prompt: vocab, zeros, or text:…",
        json_schema_extra={"source": f"{PAPER}: tokens drawn from the vocabulary"},
    )
    placement: Placement = Field(
        "prefix",
        description="of the prompt: prefix, or suffix (causal models): behind the text",
        json_schema_extra={"source": PAPER},
    )
    shots: int = Field(
        DEFAULT_SHOTS,
        ge=1,
        description="training, and again validation, examples per class",
        json_schema_extra={"source": PAPER},
    )
    seed: int = Field(0, ge=0, description="of the split, the initial prompt and the search")
    eval_every: int = Field(
        100,
        ge=1,
        description="evaluations between two looks at validation",
        json_schema_extra={"source": "ours: fifty looks in the paper's budget"},
    )
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
        MAX_BATCH_TOKENS, ge=1, description="tokens in one forward pass, at most"
    )
    batch_tokens: int | None = Field(
        None, ge=1, description="tokens in one forward pass [measured: what is fastest here]"
    )
    engine: str = Field(
        "serial",
        pattern=r"^(serial|ray(:.+)?)$",
        description="where candidates are evaluated: serial, ray, or ray:ADDRESS of a cluster",
    )
    workers: int | None = Field(
        None, ge=1, description="Ray workers, each with the model [as many as there is room for]"
    )
    gpus_per_worker: float = Field(
        0.0, ge=0, allow_inf_nan=False, description="GPUs of a Ray worker; may be a part"
    )
    threads: int | None = Field(
        None, ge=1, description="CPU threads of the model [all, or a Ray worker's share]"
    )
    block: int | None = Field(
        None, ge=1, description="candidates evaluated in one call [a whole generation]"
    )
    early_rejection: bool = Field(
        False, description="stop evaluating what cannot be selected; decides nothing otherwise"
    )


# Where a run takes place, not what it is: may be another when it is resumed
PLACE = frozenset(
    (
        "device", "data_dir", "patience", "engine", "workers", "gpus_per_worker", "threads",
        "trust_remote_code",
    )
)  # fmt: skip


# A run's place in one process here, for whoever uses what was found somewhere else
HERE: dict[str, Any] = {"engine": "serial", "workers": None, "threads": None}


def make_config(**settings: Any) -> RunConfig:
    """Make a config, or say in one line which setting is wrong."""
    try:
        return RunConfig(**settings)
    except ValidationError as error:
        first = error.errors()[0]
        name = "--" + str(first["loc"][0]).replace("_", "-") if first["loc"] else "config"
        given = "" if first["type"] == "missing" else f", not {first['input']!r}"
        raise PfesError(f"{name}: {first['msg']}{given}") from None


def source_of(name: str) -> tuple[str, str]:
    """Return a setting's default as shown to a user, and where it is from."""
    field = RunConfig.model_fields[name]
    extra = field.json_schema_extra
    assert isinstance(extra, dict), f"{name} does not name its source"
    default = field.get_default()
    if default is None:  # the description then ends with what takes its place, in brackets
        default = str(field.description).rpartition("[")[2].rstrip("]")
    shown = f"{default:g}" if isinstance(default, float) else str(default)
    return shown, str(extra["source"])
