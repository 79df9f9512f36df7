"""Every method by name: optimizer × space × damping × loss. The paper at a glance."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from pfes.contract import Family
from pfes.errors import SettingError

PAPER = "the paper"


@dataclass(frozen=True)
class Default:
    """A setting's default for each family of models, and where it is from."""

    masked: float
    causal: float
    source: str

    def of(self, family: Family) -> float:
        return self.masked if family == "masked" else self.causal


def _both(value: float, source: str) -> Default:
    return Default(value, value, source)


# gives a full-space step the energy of BBT's at σ = 1
ALIGNED = _both(1 / math.sqrt(3), f"{PAPER}, appendix III-C: 1/√3, BBT's σ = 1 in the full space")
TABLED = f"{PAPER}: RoBERTa-Large's for masked models, OPT-6.7B's for causal ones"
RATE = f"{PAPER}, appendix I-A: ZO-SGD's learning rate"
UNIT = _both(1.0, f"{PAPER}: BBT's")
LENGTH = Default(50, 10, f"{PAPER}: RoBERTa-Large's for masked models, OPT-6.7B's for causal ones")

OptimizerName = Literal["one-plus-one", "saes", "wes", "cmaes", "zosgd", "bdpl", "rlprompt", "adam"]


@dataclass(frozen=True)
class Method:
    """A composition, never a class of its own; one without an optimizer does not search."""

    name: str
    summary: str
    optimizer: OptimizerName | None
    space: Literal["full", "subspace", "tokens"] | None
    damping: Literal["full", "intrinsic"] | None
    loss: Literal["ce", "ce+cr", "reward"]
    sigma0: Default | None  # for ZO-SGD, BDPL, RLPrompt and Adam: the learning rate
    prompt_length: Default = LENGTH
    shows_examples: bool = False
    chooses_start: bool = False

    @property
    def regularized(self) -> bool:
        return self.loss == "ce+cr"

    @property
    def needs_gradients(self) -> bool:
        """Whether this is no search, but the ceiling that a search is held against."""
        return self.optimizer == "adam"

    @property
    def takes_batches(self) -> bool:
        """Whether values are compared within a generation only, so that examples may change.

        (1+1)-ES compares a child with its parent, and RLPrompt returns the best prompt ever seen.
        """
        return self.optimizer not in (None, "one-plus-one", "rlprompt")


METHODS = {
    method.name: method
    for method in (
        Method("manual", "the template alone, no search", None, None, None, "ce", None),
        Method(
            "icl", "answered training examples of each label in front, no search",
            None, None, None, "ce", None, shows_examples=True,
        ),
        Method(
            "best-start", "the best of nothing, an instruction and examples in front, no search",
            None, None, None, "ce", None, chooses_start=True,
        ),
        Method(
            "one-plus-one", "(1+1)-ES in the full space, damped by its dimension; CE",
            "one-plus-one", "full", "full", "ce", ALIGNED,
        ),
        Method(
            "one-plus-one-id", "(1+1)-ES damped by the intrinsic dimension; CE",
            "one-plus-one", "full", "intrinsic", "ce", ALIGNED,
        ),
        Method(
            "one-plus-one-id-cr", "(1+1)-ES damped by the intrinsic dimension; CE + β·CR",
            "one-plus-one", "full", "intrinsic", "ce+cr", Default(1e-4, 1.0, TABLED),
        ),
        Method(
            "saes", "self-adaptive ES in the full space, damped by its dimension; CE",
            "saes", "full", "full", "ce", ALIGNED,
        ),
        Method(
            "saes-id", "self-adaptive ES damped by the intrinsic dimension; CE",
            "saes", "full", "intrinsic", "ce", ALIGNED,
        ),
        Method(
            "saes-id-cr", "self-adaptive ES damped by the intrinsic dimension; CE + β·CR",
            "saes", "full", "intrinsic", "ce+cr", Default(1e-2, 1.0, TABLED),
        ),
        Method(
            "wes-id", "ES in which every candidate counts, damped by the intrinsic dimension; CE",
            "wes", "full", "intrinsic", "ce", ALIGNED,
        ),
        Method(
            "wes-id-cr", "the same; CE + β·CR",
            "wes", "full", "intrinsic", "ce+cr", ALIGNED,
        ),
        Method(
            "bbt", "CMA-ES in a random subspace of the intrinsic dimension; CE",
            "cmaes", "subspace", None, "ce", UNIT,
        ),
        Method(
            "cmaes", "CMA-ES in the full space (small prompts only); CE",
            "cmaes", "full", None, "ce", UNIT,
        ),
        Method(
            "zosgd", "two-point zeroth-order SGD in the full space; CE",
            "zosgd", "full", None, "ce", _both(1e-2, RATE),
        ),
        Method(
            "zosgd-cr", "two-point zeroth-order SGD in the full space; CE + β·CR",
            "zosgd", "full", None, "ce+cr", _both(1e-2, RATE),
        ),
        Method(
            "bdpl", "policy gradient over candidate tokens; CE",
            "bdpl", "tokens", None, "ce", _both(1e-4, "BDPL's learning rate"),
            prompt_length=_both(10, "BDPL's"),
        ),
        Method(
            "rlprompt", "soft Q-learning of a policy that writes tokens; gap reward",
            "rlprompt", "tokens", None, "reward",
            _both(1e-3, "ours: RLPrompt's 5e-5 is for 12,000 steps, a budget here has hundreds"),
            prompt_length=_both(5, "RLPrompt's"),
        ),
        Method(
            "prompt-tuning", "no search but the ceiling: soft prompt tuning by gradients, Adam; CE",
            "adam", "full", None, "ce", _both(3e-2, "PEFT's guide to prompt tuning"),
        ),
    )
}  # fmt: skip

# What each optimizer takes of a run's settings, beside σ0 and the prompt's length
SETTINGS: dict[OptimizerName, tuple[str, ...]] = {
    "one-plus-one": (),
    "saes": ("population", "parents"),
    "wes": ("population",),
    "cmaes": ("population", "on_stop"),
    "zosgd": ("radius", "schedule"),
    "bdpl": ("preset", "population", "candidate_tokens"),
    "rlprompt": ("preset", "population", "policy_model", "target_rate"),
    "adam": (),
}
# Settings with which the authors of a method run it, by the names of preset and method
PRESETS: dict[str, dict[str, dict[str, Any]]] = {
    "authors": {
        "bdpl": {
            "budget": 8000, "population": 20, "prompt_length": 10, "candidate_tokens": 200,
            "sigma0": 1e-4,
        },
        "rlprompt": {  # 12,000 steps of 16 prompts
            "budget": 192_000, "population": 16, "prompt_length": 5, "sigma0": 5e-5,
            "target_rate": 0.001, "policy_model": "distilbert/distilgpt2",
        },
    }
}  # fmt: skip
FEWEST_CANDIDATES: dict[OptimizerName, int] = {"wes": 2, "cmaes": 3, "bdpl": 2, "rlprompt": 2}


def get_method(name: str) -> Method:
    """Return a method by name."""
    if name not in METHODS:
        raise SettingError("method", f"no {name!r}; choose one of {', '.join(METHODS)}")
    return METHODS[name]


def no_gradients(method: Method, model: str) -> SettingError:
    """Return the error that a model cannot be differentiated."""
    message = f"{method.name} follows gradients, and {model} gives none: use a local model"
    return SettingError("method", f"{message} in this process, or a search")


def with_preset(settings: Mapping[str, Any], method: str) -> dict[str, Any]:
    """Return settings with those of their preset, if they name one; what they say overrides it."""
    preset = PRESETS.get(str(settings.get("preset")), {}).get(method, {})
    return preset | {k: v for k, v in settings.items() if v is not None or k not in preset}


def settings_of(method: Method) -> tuple[str, ...]:
    """Return the names of the settings that a method takes, beside those that all take."""
    if method.optimizer is None:
        shows = method.shows_examples or method.chooses_start
        return ("demonstrations", "draws") if shows else ()
    names = ["budget", "minutes", "stop_after", "prompt_length", "sigma0"]
    if method.damping == "intrinsic" or method.space == "subspace":
        names.append("intrinsic_dimension")
    if method.regularized:
        names.append("beta")
    names += SETTINGS[method.optimizer]
    if method.takes_batches:
        names.append("batch_examples")
    if method.space != "tokens":
        names += ("init", "init_seed", "demonstrations", "draws")
    if not method.needs_gradients:
        names.append("search_dtype")
    return (*names, "placement", "eval_every", "select", "checkpoint_seconds", "report_at")


# Every setting that some methods take and others do not
METHOD_SETTINGS = frozenset(name for method in METHODS.values() for name in settings_of(method))


def generation_size(method: Method, population: int) -> int:
    """Return how many candidates a method evaluates at a time."""
    return {"one-plus-one": 1, "zosgd": 2, "adam": 1}.get(str(method.optimizer), population)
