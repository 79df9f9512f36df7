"""The optimizer of a run, made from its config."""

import math
from typing import Any

from pfes.config import RunConfig
from pfes.contract import LanguageModel
from pfes.errors import PfesError
from pfes.methods import Method
from pfes.optimizers import CMAES, SAES, WES, ZOSGD, Adam, OnePlusOneES, Optimizer
from pfes.optimizers.adam import RATES
from pfes.optimizers.cmaes import memory_needed
from pfes.searches.beta_halving import WINNERS_SHARE
from pfes.searches.candidate_tokens import candidate_tokens
from pfes.searches.spaces import FullSpace, RandomSubspace
from pfes.seeds import stream
from pfes.system.memory import available_memory
from pfes.tasks.task import Task


def make_optimizer(
    config: RunConfig, method: Method, space: FullSpace | RandomSubspace
) -> Optimizer:
    """Make the optimizer of a resolved config whose vectors are prompts or their coordinates."""
    assert isinstance(config.sigma0, float)
    seed, x0 = _seed(config), space.start
    dimension = config.intrinsic_dimension if method.damping == "intrinsic" else None
    if method.optimizer == "one-plus-one":
        return OnePlusOneES(x0, config.sigma0, dimension, seed)
    if method.optimizer == "saes":
        return SAES(x0, config.sigma0, config.population, config.parents, dimension, seed)
    if method.optimizer == "wes":
        return WES(x0, config.sigma0, config.population, dimension, seed)
    if method.optimizer == "zosgd":
        budget = config.budget * (WINNERS_SHARE if config.beta == "auto" else 1)
        steps = math.ceil(budget / 2)
        assert config.radius is not None  # it is settled
        return ZOSGD(x0, config.sigma0, config.radius, config.schedule, steps, seed)
    if method.optimizer == "adam":
        steps = math.ceil(config.budget / Adam.cost / len(RATES))
        return Adam(x0, config.sigma0, steps)
    _check_memory(x0.size)
    return CMAES(x0, config.sigma0, config.population, config.on_stop, seed)


def make_token_optimizer(
    config: RunConfig, task: Task, model: LanguageModel, policy: Any
) -> Optimizer:
    """Make the optimizer of a resolved config that searches tokens; RLPrompt has a policy."""
    assert isinstance(config.sigma0, float)
    assert config.prompt_length is not None
    settings = (config.prompt_length, config.sigma0, config.population, _seed(config))
    if policy is not None:
        from pfes.optimizers.rlprompt import RLPrompt

        return RLPrompt(policy.module, policy.tokenizer, *settings, config.target_rate)
    from pfes.optimizers.bdpl import BDPL

    tokens = candidate_tokens(task.train, model.tokenizer, config.candidate_tokens)
    return BDPL(tokens, *settings)


def _seed(config: RunConfig) -> int:
    return int(stream(config.seed, "optimizer").integers(2**32))


def _check_memory(dimension: int) -> None:
    """Refuse in advance a CMA-ES that would not fit in memory."""
    needed, free = memory_needed(dimension), available_memory()
    if needed > free:
        raise PfesError(
            f"CMA-ES in {dimension:,} dimensions needs about {needed / 1e9:.1f} GB of memory and "
            f"{free / 1e9:.1f} GB are free: lower --prompt-length, or use bbt or saes"
        )
