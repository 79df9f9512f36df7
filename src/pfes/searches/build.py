"""A search made from a run's config: its space, its optimizer, what it evaluates and validates."""

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from pfes.config import BETA, RADIUS, TEXT, RunConfig, Select, is_served
from pfes.contract import Batch, Family, Floats, Ints, LanguageModel
from pfes.methods import Method, generation_size, no_gradients, settings_of
from pfes.optimizers import Adam, Optimizer
from pfes.searches.batches import draw_batch, usual_batch
from pfes.searches.beta_halving import BetaHalving
from pfes.searches.encoded import EncodedTask
from pfes.searches.initial_prompt import initial_prompt, text_tokens
from pfes.searches.log_space import Doubles
from pfes.searches.loop import Search
from pfes.searches.losses import After, Loss
from pfes.searches.make_optimizer import make_optimizer, make_token_optimizer
from pfes.searches.objective import prompt_values, value_and_gradient
from pfes.searches.read_answers import Reader, search_reader
from pfes.searches.reading import PLAIN, Reading
from pfes.searches.scoring import metric_value, score
from pfes.searches.spaces import FullSpace, RandomSubspace, TokenSpace
from pfes.searches.starts import DRAWS
from pfes.searches.step_size import is_auto
from pfes.searches.validation import Validation, steps_ahead
from pfes.system.clock import Clock
from pfes.tasks.instruction import instruction
from pfes.tasks.spec import TaskSpec
from pfes.tasks.task import Task

LOOKS_AT_THE_CLOCK = 5  # in a generation, where time is limited
FOREIGN_TOKENS = 4  # of the model, at most, for each token of another vocabulary


def resolve(
    config: RunConfig, method: Method, model: LanguageModel, task: Task, stored: bool = False
) -> RunConfig:
    """Fill in what depends on method, model and task, so that the config says it all.

    In a config that was `stored` by a begun run, no size of a batch means all examples.
    """
    spec = task.spec
    resolved: dict[str, Any] = {"dtype": model.precision}
    begun_before = stored and config.search_dtype is None  # there was such a setting
    if begun_before and "search_dtype" in settings_of(method):
        resolved["search_dtype"] = model.precision
    if model.interface is not None:
        resolved["interface"] = model.interface
    if method.shows_examples:
        resolved["demonstrations"] = config.demonstrations or 1
    chooses = method.chooses_start or (config.init == "auto" and method.optimizer is not None)
    if chooses or method.shows_examples or config.demonstrations or config.init == "auto":
        tried = DRAWS if chooses else 1
        resolved["draws"] = config.draws or tried
    if method.optimizer is not None:
        length = config.prompt_length
        usual = int(method.prompt_length.of(model.family))
        if length is None and method.space != "tokens":
            length = _init_length(config, model, spec, usual)
        beta = BETA if config.beta is None else config.beta
        resolved |= {
            "prompt_length": length or usual,
            "beta": beta if method.regularized else None,
            "sigma0": _step_size(config, method, model.family),
            "parents": config.parents or max(1, config.population // 4),
            "batch_examples": config.batch_examples if method.takes_batches else None,
            "block": config.block or _timed_block(config, method),
            "select": config.select or _select(config, stored),
        }
        if method.optimizer == "zosgd" and resolved["sigma0"] != "auto":
            resolved["radius"] = config.radius or RADIUS
        if method.takes_batches and config.batch_examples is None and not stored:
            resolved["batch_examples"] = usual_batch(len(task.train), len(spec.labels))
    return config.model_copy(update=resolved)


def _select(config: RunConfig, stored: bool) -> Select:
    """Return how solutions are selected; runs from before there was a choice went by the metric."""
    return "metric" if stored or config.reading == "plain" else "loss"


def _step_size(config: RunConfig, method: Method, family: Family) -> float | str:
    """Return the initial step size, or `auto` where it is to be found."""
    if isinstance(config.sigma0, float):
        return config.sigma0
    if is_auto(config.sigma0, method):
        return "auto"
    assert method.sigma0 is not None
    return method.sigma0.of(family)


def _timed_block(config: RunConfig, method: Method) -> int | None:
    """Return a part of a generation where only so many minutes may pass, else None: all of it.

    Servers and workers share out what they are given at once, so they always get a generation.
    """
    if config.minutes is None or config.engine != "serial" or is_served(config.model):
        return None
    return max(1, generation_size(method, config.population) // LOOKS_AT_THE_CLOCK)


def _init_length(config: RunConfig, model: LanguageModel, spec: TaskSpec, usual: int) -> int | None:
    """Return the length of the initial prompt, where that decides it."""
    if config.init.startswith(TEXT):
        return len(text_tokens(model, config.init))
    if config.init != "auto":
        return None
    if config.placement == "middle":
        return 1  # the token in whose place it stands: the start is then the template itself
    return min(usual, len(text_tokens(model, TEXT + instruction(spec, model.family))))


def loss_of(method: Method, beta: float | None, after: After) -> Loss:
    """Return what a method minimises, with the regulariser's weight where it has one."""
    return Loss(beta or 0.0, rewarded=method.loss == "reward", after=after)


@dataclass(frozen=True)
class Judged:
    """How a prompt's answers to some examples are read."""

    labels: Ints
    own_logprobs: Floats  # (examples, labels)
    metric: float
    entropies: Doubles  # (examples,)


@dataclass(frozen=True)
class SearchParts:
    """What the searches of a run share; `--beta auto` has several of them."""

    config: RunConfig  # resolved
    method: Method
    model: LanguageModel
    policy: Any  # RLPrompt's language model, else None
    space: FullSpace | RandomSubspace | TokenSpace
    examples: EncodedTask
    clock: Clock
    searching: LanguageModel | None = None  # answers for candidates; None: the model itself
    _last_read: dict[bytes, Reading] = field(default_factory=dict)
    _last_batch: dict[int, Batch] = field(default_factory=dict)
    _references: dict[bytes, Doubles] = field(default_factory=dict)

    @property
    def reader(self) -> Reader:
        return search_reader(self.config)

    def read(self, prompt: Floats) -> Reading:
        """Return the reading of a prompt, fitted to all labelled examples; the last one is kept."""
        if self.reader.is_plain:
            return PLAIN
        key = prompt.tobytes()
        if key not in self._last_read:
            reading = self.reader.fit(self.model, prompt, self.examples.labelled)
            self._last_read.clear()
            self._last_read[key] = reading
        return self._last_read[key]

    def validate(self, prompt: Floats, loss: Loss, start: Floats) -> Validation:
        """Judge a prompt on the validation examples, beside the one that a search starts with."""
        judged = self._on_validation(prompt)
        labels, own = judged.labels, judged.own_logprobs[None]
        losses = [float(kind(own, labels)[0]) for kind in (loss, Loss(after=loss.after))]
        losses = [value if np.isfinite(value) else np.inf for value in losses]
        by_metric = Validation(judged.metric, *losses)
        if self.config.select == "metric":
            return by_metric
        by_loss = replace(by_metric, read_entropy=float(judged.entropies.mean()))
        if not self.starts_free:
            return by_loss
        key = start.tobytes()
        if key not in self._references:
            same = prompt.shape == start.shape and key == prompt.tobytes()
            self._references[key] = (judged if same else self._on_validation(start)).entropies
        return replace(by_loss, ahead=steps_ahead(judged.entropies, self._references[key]))

    def _on_validation(self, prompt: Floats) -> "Judged":
        """Return how the validation examples are read.

        By readings that were fitted to all labelled examples but those which they then read: the
        result's reading is fitted to all of them, and one of the training examples alone is so much
        rougher that other prompts suit it.
        """
        spec, batch = self.examples.task.spec, self.examples.validation
        held_out = self.read(prompt).held_out
        if held_out is None:
            scored = score(self.model, spec, prompt, batch)
            return Judged(batch.labels, scored.own_logprobs, scored.metric, scored.entropies)
        held_out = held_out.of(slice(len(self.examples.train), None))
        metric = metric_value(spec, batch.labels, held_out.predicted)
        return Judged(batch.labels, held_out.own, metric, held_out.entropies(batch.labels))

    @property
    def starts_free(self) -> bool:
        """Whether the search starts from what is free, and not from a prompt drawn at random."""
        return self.config.init == "auto" and not isinstance(self.space, TokenSpace)

    def free_start(self, start: Floats) -> Floats:
        """Return the prompt that a search must beat: none where what is free is the start."""
        if self.starts_free:
            return np.empty((0, self.model.width), dtype=np.float32)
        return np.asarray(self.space.prompts(start[None])[0])

    def batch(self, spent: int = 0) -> Batch:
        """Return what the generation that begins after `spent` evaluations is evaluated on.

        The last one is kept, with what a model has prepared for it.
        """
        if spent not in self._last_batch:
            config = self.config
            batch = draw_batch(self.examples.train, config.batch_examples, config.seed, spent)
            self._last_batch.clear()
            self._last_batch[spent] = batch
        return self._last_batch[spent]

    def loss(self, beta: float | None) -> Loss:
        """Return what is minimised, with the regulariser's weight where there is one."""
        return loss_of(self.method, beta, after=self.reader.judged_after)

    def make_search(self) -> Search | BetaHalving:
        """Make the search, or with `--beta auto` the searches with several β."""
        config = self.config
        limits: dict[str, Any] = {"minutes": config.minutes, "stop_after": config.stop_after}
        if config.beta == "auto":
            return BetaHalving(self._search, config.budget, **limits)
        return self._search(config.beta, **limits)

    def _search(self, beta: float | None, **limits: Any) -> Search:
        config = self.config
        loss = self.loss(beta)

        def evaluate(candidates: Floats) -> tuple[Doubles, Doubles]:
            batch = self.batch(search.evaluations)  # the same for a whole generation
            prompts = self.space.prompts(candidates)
            if isinstance(optimizer, Adam):
                values, gradient = value_and_gradient(self.model, batch, prompts[0], loss)
                optimizer.follow(gradient.reshape(-1))
                return values
            return prompt_values(self.searching or self.model, batch, prompts, loss)

        def validate(solution: Floats) -> Validation:
            return self.validate(self.space.prompts(solution[None])[0], loss, reference)

        optimizer, clock = self._make_optimizer(), self.clock
        reference = self.free_start(optimizer.solution)
        spent = (config.budget, config.eval_every)
        limits["block"] = config.block
        search = Search(optimizer, evaluate, validate, *spent, clock, beta, **limits)
        return search

    def _make_optimizer(self) -> Optimizer:
        if isinstance(self.space, TokenSpace):
            task = self.examples.task
            return make_token_optimizer(self.config, task, self.model, self.policy)
        return make_optimizer(self.config, self.method, self.space)


def build_search(
    config: RunConfig, method: Method, model: LanguageModel, task: Task, clock: Clock
) -> SearchParts:
    """Return the parts of the search that a resolved config describes."""
    assert config.prompt_length is not None
    if method.needs_gradients and not model.has_gradients:
        raise no_gradients(method, model.name)
    policy = _open_policy(config, method, model)
    space: FullSpace | RandomSubspace | TokenSpace
    longest = config.prompt_length
    if method.space == "tokens":
        writer = model.tokenizer if policy is None else policy.tokenizer
        foreign = writer.get_vocab() != model.tokenizer.get_vocab()
        longest *= FOREIGN_TOKENS if foreign else 1
        space = TokenSpace(model, writer.decode, foreign, longest)
        examples = EncodedTask(model, task, longest, config.placement)
    else:
        examples = EncodedTask(model, task, longest, config.placement)
        origin = _origin(config, examples)
        if method.space == "subspace":
            space = RandomSubspace(origin, round(config.intrinsic_dimension), config.seed)
        else:
            space = FullSpace(origin)
    return SearchParts(config, method, model, policy, space, examples, clock)


def _origin(config: RunConfig, examples: EncodedTask) -> Floats:
    """Return the initial prompt of a search in a continuous space."""
    assert config.prompt_length is not None
    model, init = examples.model, config.init
    if init == "auto" and config.placement == "middle":
        return model.embed(examples.train.end[:1] * config.prompt_length)
    if init == "auto":
        init = TEXT + instruction(examples.task.spec, model.family)
    return initial_prompt(model, config.prompt_length, config.start_seed, init)


def _open_policy(config: RunConfig, method: Method, model: LanguageModel) -> Any:
    if method.optimizer != "rlprompt":
        return None
    from pfes.models.local.load import open_policy_model  # loads torch

    return open_policy_model(config, model)
