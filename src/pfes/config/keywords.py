"""The settings of a run as keyword arguments."""

from collections.abc import Sequence
from typing import Literal, TypedDict

from pfes.config.values import Balance, Dtype, OnStop, ReadingName, Schedule, Select
from pfes.contract import Interface, Placement


class Settings(TypedDict, total=False):
    """The settings of `RunConfig` as keyword arguments, for editors and type checkers."""

    served_name: str | None
    tokenizer: str | None
    interface: Interface | Literal["auto"]
    key_variable: str | None
    max_requests: int | None
    max_tokens: int | None
    price_per_million: float | None
    patience: float
    preset: Literal["authors"] | None
    budget: int
    minutes: float | None
    stop_after: int | None
    prompt_length: int | None
    beta: float | Literal["auto"] | None
    sigma0: float | Literal["auto", "paper"] | None
    intrinsic_dimension: float
    population: int
    parents: int | None
    batch_examples: int | None
    radius: float | None
    schedule: Schedule
    on_stop: OnStop
    candidate_tokens: int
    policy_model: str
    target_rate: float
    init: str
    placement: Placement
    reading: ReadingName
    answer_words: int
    unlabelled: str | None
    prior: str
    demonstrations: int | None
    draws: int | None
    free: Literal["all", "none"]
    shots: int | Literal["all"]
    balance: Balance
    seed: int
    init_seed: int | Literal["run"]
    test_seed: int | Literal["run"]
    eval_every: int
    select: Select | None
    checkpoint_seconds: float
    report_at: int | str | Sequence[int]
    test_limit: int | None
    data_dir: str | None
    device: str | None
    dtype: Dtype | Literal["auto"] | None
    search_dtype: Dtype | None
    device_map: str | None
    trust_remote_code: bool
    max_batch_tokens: int
    batch_tokens: int | None
    engine: str
    workers: int | None
    gpus_per_worker: float | None
    threads: int | None
    block: int | None
