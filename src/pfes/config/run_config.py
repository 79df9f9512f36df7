"""The settings of a run: each declared once, with its default, its limits and its help."""

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationInfo, field_validator, model_validator

from pfes.config.values import (
    BETA,
    DEFAULT_METHOD,
    DEFAULT_SHOTS,
    EQUAL,
    KEY,
    MAX_BATCH_TOKENS,
    PATIENCE,
    RADIUS,
    RUNS,
    TEXT,
    Balance,
    Beta,
    Dtype,
    EvaluationCounts,
    OnStop,
    OwnSeed,
    ReadingName,
    Schedule,
    Select,
    Shots,
    StepSize,
    balance_for,
    is_served,
)
from pfes.contract import Interface, Placement
from pfes.methods import PAPER, with_preset


class RunConfig(BaseModel):
    """What a run is a function of. `None` means: chosen by method and model, see `resolve`."""

    model_config = ConfigDict(extra="forbid", frozen=True, protected_namespaces=())

    model: str = Field(
        description="embedded name, folder, Hub name, vllm:http://HOST:PORT/v1[,URL…]: vLLM, or "
        "openai:URL: any server that takes text"
    )
    served_name: str | None = Field(
        None, description="what a server calls its model [the only one it has]"
    )
    tokenizer: str | None = Field(
        None,
        description="folder or Hub name of a served model's tokenizer and input embedding "
        "[openai: texts are cut into words]",
    )
    interface: Interface | Literal["auto"] = Field(
        "auto", description="of an openai: server: completions, chat, or auto: the first that works"
    )
    key_variable: str | None = Field(
        None, description=f"environment variable with the key of an openai: server [{KEY}]"
    )
    max_requests: int | None = Field(
        None, ge=1, description="requests that a session may send to an openai: server [no limit]"
    )
    max_tokens: int | None = Field(
        None, ge=1, description="tokens that a session may send to an openai: server [no limit]"
    )
    price_per_million: float | None = Field(
        None,
        gt=0,
        allow_inf_nan=False,
        description="of an openai: server's tokens, to say what a run will cost",
    )
    patience: float = Field(
        PATIENCE,
        gt=0,
        allow_inf_nan=False,
        description="seconds that a server may be away before a run stops, saved",
    )
    task: str = Field(description="task name or YAML file")
    method: str = Field(DEFAULT_METHOD, description="see `pfes methods`")
    preset: Literal["authors"] | None = Field(
        None,
        description="authors: bdpl or rlprompt with the settings and the budget of its authors, "
        "except what is set here [none of them]",
        json_schema_extra={"source": "ours: the budget of the other methods"},
    )
    budget: int = Field(
        5000,
        ge=1,
        description="function evaluations to spend",
        json_schema_extra={"source": PAPER},
    )
    minutes: float | None = Field(
        None,
        gt=0,
        allow_inf_nan=False,
        description="end the search when it and the choice of its start took so long [no limit]",
        json_schema_extra={"source": "ours: the budget alone decides"},
    )
    stop_after: int | None = Field(
        None,
        ge=1,
        description="end the search when so many evaluations found nothing better [never]",
        json_schema_extra={"source": "ours: the budget alone decides"},
    )
    prompt_length: int | None = Field(
        None, ge=1, description="tokens of the prompt [by method and model, or an init text's]"
    )
    beta: Beta | Literal["auto"] | None = Field(
        None,
        description=f"weight of the confidence regulariser, or auto: chosen on validation [{BETA}]",
        json_schema_extra={"source": "ours: balanced; the paper's best in 8 of its 14 cases"},
    )
    sigma0: StepSize | Literal["auto", "paper"] | None = Field(
        None,
        description="initial step size, or auto: by how far one step changes the answers, or "
        "paper: the method's own in the paper [auto; bdpl, rlprompt: their own]",
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
        description="candidates per generation (SaES, WES, CMA-ES, BDPL, RLPrompt)",
        json_schema_extra={"source": "BBT's, and BDPL's"},
    )
    parents: int | None = Field(
        None,
        ge=1,
        description="children that become parents (SaES) [a quarter]",
        json_schema_extra={"source": "ours: a quarter of the population"},
    )
    batch_examples: int | None = Field(
        None,
        ge=1,
        description="training examples drawn for each generation [all; of many, 16 per label]",
        json_schema_extra={
            "source": "ours: the paper's 16 per label, at least 64; all, up to twice as many"
        },
    )
    radius: float | None = Field(
        None,
        gt=0,
        allow_inf_nan=False,
        description=f"distance of ZO-SGD's two points [with --sigma0 auto, found; else {RADIUS}]",
        json_schema_extra={"source": f"{PAPER}, appendix I-A, or measured: docs/defaults.md"},
    )
    schedule: Schedule = Field(
        "constant",
        description="of ZO-SGD's learning rate, which --sigma0 sets",
        json_schema_extra={"source": "ours: the paper names none"},
    )
    on_stop: OnStop = Field(
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
        json_schema_extra={"source": "ours: the embedded model; RLPrompt's is distilgpt2"},
    )
    target_rate: float = Field(
        0.1,
        gt=0,
        le=1,
        description="step of RLPrompt's target network towards its policy",
        json_schema_extra={
            "source": "ours: RLPrompt's 0.001 is for 12,000 steps, a budget here has hundreds"
        },
    )
    init: str = Field(
        "auto",
        description="initial prompt: vocab, zeros, text:…, or auto: the best free start, with an "
        "instruction or examples in front, by cross-validated loss",
        json_schema_extra={"source": "ours, measured: docs/defaults.md; the paper's is vocab"},
    )
    placement: Placement = Field(
        "prefix",
        description="of the prompt: prefix, or middle: between the text and the template's end, in "
        "place of its first token, or (causal models) suffix: behind the text",
        json_schema_extra={"source": PAPER},
    )
    reading: ReadingName = Field(
        "auto",
        description="from words to labels: plain, offset, slope, words, or auto: cross-validated",
        json_schema_extra={"source": "ours, measured: docs/reading.md; the paper's is plain"},
    )
    answer_words: int = Field(
        500,
        ge=0,
        description="further words that a reading takes into account",
        json_schema_extra={"source": "ours, measured: docs/reading.md"},
    )
    unlabelled: str | None = Field(
        None, description="file of further texts without labels, for the offsets of a reading"
    )
    prior: str = Field(
        "uniform",
        description="how often labels occur in use: uniform, train (as in the data), a=0.7,b=0.3",
        json_schema_extra={"source": "ours: as many examples of each label are drawn"},
    )
    demonstrations: int | None = Field(
        None,
        ge=0,
        description="answered examples of each label in front of every text "
        "[icl: 1; --init auto: what is best of none, 1 and 2]",
        json_schema_extra={"source": "ours: one of each label, or measured"},
    )
    draws: int | None = Field(
        None,
        ge=1,
        description="draws of such examples to try; the best by cross-validated loss is kept "
        "[icl: 1; --init auto: 6]",
        json_schema_extra={"source": "ours: the first draw as it comes, or measured"},
    )
    free: Literal["all", "none"] = Field(
        "all", description="test what costs no search, too: all of it, or none but the template"
    )
    shots: Shots = Field(
        DEFAULT_SHOTS,
        description="training, and again validation, examples per class; all: half of them to each",
        json_schema_extra={"source": PAPER},
    )
    balance: Balance = Field(
        EQUAL,
        description="of the classes: equal, most (what a scarce one has), natural (as in the data)",
        json_schema_extra={"source": PAPER},
    )
    seed: int = Field(0, ge=0, description="of the split, the initial prompt and the search")
    init_seed: OwnSeed = Field(
        RUNS,
        description="of the initial prompt's random tokens: a number, or run: that of the run",
        json_schema_extra={"source": "ours: starts differ between seeds; docs/paper.md"},
    )
    test_seed: OwnSeed = Field(
        0,
        description="of the choice of --test-limit: a number for every run alike, or run: its own",
    )
    eval_every: int = Field(
        100,
        ge=1,
        description="evaluations between two looks at validation",
        json_schema_extra={"source": "ours: fifty looks in the paper's budget"},
    )
    select: Select | None = Field(
        None,
        description="what a search returns, by validation: metric: the best one, or loss: the "
        "lowest cross-entropy that is clearly below the start's [loss; plain reading: metric]",
        json_schema_extra={"source": "ours, measured: docs/methods.md; the paper's is metric"},
    )
    checkpoint_seconds: float = Field(
        5.0,
        ge=0,
        allow_inf_nan=False,
        description="seconds between two checkpoints of a search; 0: one after every step",
        json_schema_extra={"source": "ours: what a kill may lose, at most"},
    )
    report_at: EvaluationCounts = Field(
        (),
        description="also test what was selected by these evaluations, comma-separated [none]",
        json_schema_extra={"source": "ours: what a search comes to is at its end"},
    )
    test_limit: int | None = Field(None, ge=1, description="use only so many test examples")
    data_dir: str | None = Field(None, description="folder with local copies, one per task")
    device: str | None = Field(None, description="such as cpu, cuda, cuda:1, mps [GPU, else CPU]")
    dtype: Dtype | Literal["auto"] | None = Field(
        None,
        description="precision, or auto: on a CPU float32, and bfloat16 while searching where it "
        "is tried to be faster; else the checkpoint's own [auto]",
    )
    search_dtype: Dtype | None = Field(
        None,
        description="precision of a model's products while searching [by --dtype]",
        json_schema_extra={"source": "ours, measured: docs/performance.md"},
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
    gpus_per_worker: float | None = Field(
        None,
        ge=0,
        allow_inf_nan=False,
        description="GPUs of a Ray worker; may be a part [1 if Ray has any, else 0]",
    )
    threads: int | None = Field(
        None, ge=1, description="CPU threads of the model [all, or a Ray worker's share]"
    )
    block: int | None = Field(
        None,
        ge=1,
        description="candidates evaluated in one call [a generation; with --minutes, a fifth]",
    )

    @property
    def start_seed(self) -> int:
        """The seed of the initial prompt."""
        return self.seed if self.init_seed == RUNS else self.init_seed

    @property
    def limit_seed(self) -> int:
        """The seed of the choice of test examples."""
        return self.seed if self.test_seed == RUNS else self.test_seed

    @model_validator(mode="before")
    @classmethod
    def _with_preset(cls, settings: Any) -> Any:
        if not isinstance(settings, Mapping):
            return settings
        return with_preset(settings, str(settings.get("method", DEFAULT_METHOD)))

    @field_validator("key_variable")
    @classmethod
    def _a_name(cls, name: str | None) -> str | None:
        if name is not None and not name.isidentifier():  # it may be the key itself: not shown
            raise ValueError("give the name of an environment variable, never the key itself")
        return name

    @field_validator("model")
    @classmethod
    def _no_secrets(cls, model: str) -> str:
        if is_served(model) and "@" in model:
            raise ValueError(f"an address holds no password: put the key into {KEY}")
        return model

    @model_validator(mode="before")
    @classmethod
    def _all_as_they_are(cls, settings: Any) -> Any:
        if isinstance(settings, Mapping) and "balance" not in settings and "shots" in settings:
            return {**settings, "balance": balance_for(settings["shots"])}
        return settings

    @field_validator("balance")
    @classmethod
    def _fits_shots(cls, balance: Balance, info: ValidationInfo) -> Balance:
        return balance_for(info.data.get("shots"), balance)

    @field_validator("init")
    @classmethod
    def _known_start(cls, init: str) -> str:
        if init in ("auto", "vocab", "zeros"):
            return init
        if not init.startswith(TEXT):
            raise ValueError("choose auto, vocab, zeros or text:…")
        if init == TEXT:
            raise ValueError("the text after text: is empty")
        return init


def source_of(name: str) -> tuple[str, str]:
    """Return a setting's default as shown to a user, and where it is from."""
    field = RunConfig.model_fields[name]
    extra = field.json_schema_extra
    assert isinstance(extra, dict), f"{name} does not name its source"
    default = field.get_default()
    if default is None:  # the description then ends with what takes its place, in brackets
        default = str(field.description).rpartition("[")[2].rstrip("]")
    return shown_value(default), str(extra["source"])


def shown_value(value: object) -> str:
    """Return a setting's value as shown to a user."""
    return f"{value:g}" if isinstance(value, float) else str(value)
