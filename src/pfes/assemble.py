"""The parts of a run, made from its config: task, model, space, optimizer, search."""

import math

import numpy as np

from pfes.baselines.vocabulary import candidate_tokens
from pfes.clock import Clock
from pfes.config import BETA, RunConfig
from pfes.early import EarlyRejection
from pfes.engines.ray_model import RayModel
from pfes.errors import PfesError
from pfes.halving import WINNERS_SHARE, Halving
from pfes.loop import Search, Validation
from pfes.memory import available_memory
from pfes.methods import METHODS, Method
from pfes.models.base import Floats, LanguageModel
from pfes.models.calibrate import calibrate
from pfes.models.client import PREFIX, is_served
from pfes.models.load import load_model, load_tokenizer
from pfes.models.local import LocalModel
from pfes.models.served import ServedModel
from pfes.objective import (
    TEXT,
    Evaluation,
    Loss,
    Objective,
    encode_for,
    initial_prompt,
    text_tokens,
)
from pfes.optimizers import CMAES, SAES, ZOSGD, OnePlusOneES, Optimizer
from pfes.optimizers.cmaes import memory_needed
from pfes.scoring import score
from pfes.seeds import stream
from pfes.spaces import FullSpace, RandomSubspace, Space, TokenSpace
from pfes.tasks.batch import verbalizer_tokens
from pfes.tasks.spec import TaskSpec
from pfes.tasks.task import Task, load_task

REJECTING = ("one-plus-one", "saes")  # optimizers that only compare values
FOREIGN_TOKENS = 4  # of the model, at most, for each token of another vocabulary


def load_run_task(config: RunConfig) -> Task:
    """Load the task of a run, with the run's own split."""
    return load_task(
        config.task,
        config.shots,
        config.seed,
        data_dir=config.data_dir,
        test_limit=config.test_limit,
    )


def open_model(config: RunConfig, spec: TaskSpec) -> LanguageModel:
    """Load the model, but first its tokenizer alone, to check the task's words with."""
    if is_served(config.model):
        return _connect(config, spec)
    if config.engine != "serial":
        return RayModel(config, spec)
    if config.threads is not None:
        import torch

        torch.set_num_threads(config.threads)
    verbalizer_tokens(spec, load_tokenizer(config.model, config.trust_remote_code))
    model = load_model(
        config.model,
        device=config.device,
        dtype=config.dtype,
        device_map=config.device_map,
        trust_remote_code=config.trust_remote_code,
        max_batch_tokens=config.max_batch_tokens,
    )
    model.batch_tokens = config.batch_tokens or model.batch_tokens
    return model


def resolve(config: RunConfig, method: Method, model: LanguageModel) -> RunConfig:
    """Fill in what depends on the method and the model, so that the config says it all."""
    if method.optimizer is None:
        return config
    assert method.sigma0 is not None
    length, beta = config.prompt_length, config.beta
    if length is None and method.space != "tokens" and config.init.startswith(TEXT):
        length = len(text_tokens(model, config.init))
    if not method.regularized:
        if beta:
            others = ", ".join(m.name for m in METHODS.values() if m.regularized)
            raise PfesError(f"--beta: {method.name} has no regulariser; {others} do")
        beta = None
    if config.early_rejection and method.optimizer not in REJECTING:
        raise PfesError(f"--early-rejection: {method.name} needs every value whole")
    return config.model_copy(
        update={
            "prompt_length": length or int(method.prompt_length.of(model.family)),
            "beta": BETA if method.regularized and beta is None else beta,
            "sigma0": config.sigma0 or method.sigma0.of(model.family),
            "parents": config.parents or max(1, config.population // 4),
        }
    )


def _connect(config: RunConfig, spec: TaskSpec) -> ServedModel:
    """Reach a served model, and go through all that a search needs of its server."""
    model = ServedModel(
        config.model.removeprefix(PREFIX),
        config.served_name,
        config.tokenizer,
        config.patience,
        config.trust_remote_code,
    )
    verbalizer_tokens(spec, model.tokenizer)
    for _ in model.checks():
        pass
    return model


def fit_batches(
    config: RunConfig, method: Method, model: LanguageModel, task: Task, prompt: Floats
) -> RunConfig:
    """Set how many tokens a forward pass has: the config's figure, or measured and put there.

    Of a served model, measure how many requests it likes at once; nothing depends on that.
    """
    if not isinstance(model, LocalModel | ServedModel | RayModel):
        return config
    together = {"one-plus-one": 1, "zosgd": 2}.get(str(method.optimizer), config.population)
    # a batch of its own: what a model keeps for each size that is tried goes with it
    batch = encode_for(model, task.spec, task.train, len(prompt), config.placement)
    if isinstance(model, ServedModel):
        model.tune(prompt, batch, together)
        return config
    if config.batch_tokens is None:
        if isinstance(model, RayModel):
            tokens = model.calibrate(prompt, batch, together)
        else:
            tokens = calibrate(model, prompt, batch, min(together, config.block or together))
        config = config.model_copy(update={"batch_tokens": tokens})
    assert config.batch_tokens is not None
    model.batch_tokens = config.batch_tokens
    return config


def loss_of(method: Method, beta: float | None) -> Loss:
    """Return what a method minimises, with the regulariser's weight where it has one."""
    return Loss(beta or 0.0, rewarded=method.loss == "reward")


def make_search(
    config: RunConfig, method: Method, model: LanguageModel, task: Task, clock: Clock
) -> tuple[Search | Halving, Space]:
    """Make the search of a resolved config, and the space that it moves in."""
    parts = _Parts(config, method, model, task, clock)
    if config.beta == "auto":
        return Halving(parts.search, config.budget), parts.space
    return parts.search(config.beta), parts.space


class _Parts:
    """What the searches of a run share."""

    def __init__(
        self,
        config: RunConfig,
        method: Method,
        model: LanguageModel,
        task: Task,
        clock: Clock,
    ) -> None:
        assert config.prompt_length is not None
        assert config.sigma0 is not None
        self.config, self.method, self.model, self.task = config, method, model, task
        self.clock = clock
        self.length, self.sigma0 = config.prompt_length, config.sigma0
        self.seed = int(stream(config.seed, "optimizer").integers(2**32))
        self.policy = self._open_policy() if method.optimizer == "rlprompt" else None
        self.space = self._make_space()
        longest = self.space.longest if isinstance(self.space, TokenSpace) else self.length
        placement = config.placement
        self.objective = Objective(model, task, longest, placement=placement)
        self.validation = encode_for(model, task.spec, task.validation, longest, placement)

    def search(self, beta: float | None) -> Search:
        """Make the search with one weight of the regulariser."""
        loss = loss_of(self.method, beta)

        space: Space = self.space

        config, optimizer = self.config, self._make_optimizer()
        if config.early_rejection:
            start = space.prompts(optimizer.mean[None])[0]
            early = EarlyRejection(self.objective, loss, start)

        def evaluate(candidates: Floats) -> Evaluation:
            prompts = space.prompts(candidates)
            if config.early_rejection:
                return early(prompts, optimizer.bar)
            size = config.block or len(prompts)
            parts = (prompts[start : start + size] for start in range(0, len(prompts), size))
            values = [self.objective.values(part, loss) for part in parts]
            return Evaluation(np.concatenate(values))

        def validate(solution: Floats) -> Validation:
            prompt = space.prompts(solution[None])[0]
            found = score(self.model, self.task.spec, prompt, self.validation)
            losses = [found.loss(kind) for kind in (loss, Loss())]
            return Validation(found.metric, *(v if np.isfinite(v) else np.inf for v in losses))

        return Search(
            optimizer, evaluate, validate, config.budget, config.eval_every, self.clock, beta
        )

    def _make_space(self) -> FullSpace | RandomSubspace | TokenSpace:
        config, model = self.config, self.model
        if self.method.space == "tokens":
            own, other = model.tokenizer, self.policy.tokenizer if self.policy else model.tokenizer
            foreign = other.get_vocab() != own.get_vocab()
            longest = self.length * (FOREIGN_TOKENS if foreign else 1)
            return TokenSpace(model, other.decode, foreign, longest)
        origin = initial_prompt(model, self.length, config.seed, config.init)
        if self.method.space == "subspace":
            dimension = round(config.intrinsic_dimension)
            if dimension < 1:
                raise PfesError(f"--intrinsic-dimension: {self.method.name} needs at least 1")
            return RandomSubspace(origin, dimension, config.seed)
        return FullSpace(origin)

    def _make_optimizer(self) -> Optimizer:
        if isinstance(self.space, TokenSpace):
            return self._make_token_optimizer()
        config, method, x0 = self.config, self.method, self.space.start
        dimension = config.intrinsic_dimension if method.damping == "intrinsic" else None
        if method.optimizer == "one-plus-one":
            return OnePlusOneES(x0, self.sigma0, dimension, self.seed)
        if method.optimizer == "zosgd":
            budget = config.budget * (WINNERS_SHARE if config.beta == "auto" else 1)
            steps = math.ceil(budget / 2)
            return ZOSGD(x0, self.sigma0, config.radius, config.schedule, steps, self.seed)
        if method.optimizer == "cmaes":
            _check_memory(x0.size)
            try:
                return CMAES(x0, self.sigma0, config.population, config.on_stop, self.seed)
            except ValueError as error:
                raise PfesError(f"--population: {error}") from None
        try:
            return SAES(x0, self.sigma0, config.population, config.parents, dimension, self.seed)
        except ValueError as error:
            raise PfesError(f"--parents: {error}") from None

    def _make_token_optimizer(self) -> Optimizer:
        population = self.config.population
        if population < 2:
            raise PfesError(f"--population: {self.method.name} needs at least 2, not {population}")
        if self.policy is not None:
            from pfes.baselines.rlprompt import RLPrompt

            return RLPrompt(
                self.policy.module, self.policy.tokenizer,
                self.length, self.sigma0, population, self.seed,
            )  # fmt: skip
        from pfes.baselines.bdpl import BDPL

        count = self.config.candidate_tokens
        tokens = candidate_tokens(self.task.train, self.model.tokenizer, count)
        return BDPL(tokens, self.length, self.sigma0, population, self.seed)

    def _open_policy(self) -> LocalModel:
        """Return the language model that writes prompts: the task's own where it is the same."""
        config = self.config
        policy = self.model
        if config.policy_model != config.model or not isinstance(policy, LocalModel):
            policy = load_model(
                config.policy_model,
                device=config.device,
                trust_remote_code=config.trust_remote_code,
            )
        if policy.family != "causal":
            raise PfesError(
                f"--policy-model {config.policy_model}: a masked model cannot write text; "
                "choose a causal one"
            )
        return policy


def _check_memory(dimension: int) -> None:
    """Refuse in advance a CMA-ES that would not fit in memory."""
    needed, there = memory_needed(dimension), available_memory()
    if needed > there:
        raise PfesError(
            f"CMA-ES in {dimension:,} dimensions needs about {needed / 1e9:.1f} GB of memory and "
            f"{there / 1e9:.1f} GB are free: lower --prompt-length, or use bbt or saes"
        )
