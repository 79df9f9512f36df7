"""From a config to a finished run: the one place that assembles task, model and optimizer."""

import os
import platform
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import ValidationError

from pfes.config import DEFAULT_METHOD, RunConfig, make_config
from pfes.errors import PfesError
from pfes.folder import RunFolder
from pfes.loop import Search, Step, Validation
from pfes.methods import METHODS, Method, get_method
from pfes.models.base import Floats, LanguageModel
from pfes.objective import (
    DEFAULT_PROMPT_LENGTH,
    TEXT,
    Doubles,
    Objective,
    text_room,
    text_tokens,
)
from pfes.optimizers import CMAES, SAES, ZOSGD, OnePlusOneES, Optimizer
from pfes.optimizers.cmaes import memory_needed
from pfes.result import Result
from pfes.scoring import Score, interval, score, score_steps
from pfes.seeds import stream
from pfes.spaces import FullSpace, RandomSubspace, Space
from pfes.tasks.batch import Batch, encode, verbalizer_tokens
from pfes.tasks.spec import TaskSpec
from pfes.tasks.task import Example, Task, load_task

DEFAULT_BETA = 1.0  # balanced; the paper's best in 8 of 14 cases, never its worst


@dataclass(frozen=True)
class Stage:
    """A part of a run other than the search itself, for whoever shows progress."""

    name: str
    done: int = 0
    total: int | None = None


Event = Step | Stage | Result


def run(
    config: RunConfig,
    folder: RunFolder | None = None,
    *,
    resume: bool = False,
    model: LanguageModel | None = None,
    task: Task | None = None,
) -> Iterator[Event]:
    """Carry out a run; yield its steps and stages, and its `Result` last.

    With a folder, the state is saved there after every step, and `resume` continues from it.
    """
    method = get_method(config.method)
    if task is None:
        yield Stage("loading task")
        task = load_run_task(config)
    if model is None:
        yield Stage("loading model")
        model = open_model(config, task.spec)
    config = resolve(config, method, model)
    objective = Objective(model, task, config.prompt_length, config.beta or 0.0)
    space = make_space(config, method, objective.initial_prompt(config.seed, config.init))
    search = _make_search(config, method, objective, space, task)
    if folder is not None:
        state = folder.load_checkpoint() if resume else None
        if state is not None:
            search.load_state(state)
        folder.write_json(folder.config, config.model_dump())
    for step in search.steps():
        if folder is not None:
            folder.append_history(asdict(step))
            folder.save_checkpoint(search.state())
        yield step
    yield from _finish(config, objective, space, task, search, folder)


def open_model(config: RunConfig, spec: TaskSpec) -> LanguageModel:
    """Load the model, but first its tokenizer alone, to check the task's words with."""
    from pfes.models.load import load_model, load_tokenizer

    verbalizer_tokens(spec, load_tokenizer(config.model, config.trust_remote_code))
    return load_model(
        config.model,
        device=config.device,
        dtype=config.dtype,
        device_map=config.device_map,
        trust_remote_code=config.trust_remote_code,
        max_batch_tokens=config.max_batch_tokens,
    )


def resolve(config: RunConfig, method: Method, model: LanguageModel) -> RunConfig:
    """Fill in what depends on the method and the model, so that the config says it all."""
    length = config.prompt_length
    if length is None and config.init.startswith(TEXT):
        length = len(text_tokens(model, config.init))
    beta = config.beta
    if not method.regularized:
        if beta:
            others = ", ".join(m.name for m in METHODS.values() if m.regularized)
            raise PfesError(f"--beta: {method.name} has no regulariser; {others} do")
        beta = None
    return config.model_copy(
        update={
            "prompt_length": length or DEFAULT_PROMPT_LENGTH[model.family],
            "beta": DEFAULT_BETA if method.regularized and beta is None else beta,
            "sigma0": config.sigma0 or method.sigma0[model.family],
            "parents": config.parents or max(1, config.population // 4),
        }
    )


def load_run_task(config: RunConfig) -> Task:
    """Load the task of a run, with the run's own split."""
    return load_task(
        config.task,
        config.shots,
        config.seed,
        data_dir=config.data_dir,
        test_limit=config.test_limit,
    )


def make_optimizer(config: RunConfig, method: Method, x0: Floats) -> Optimizer:
    """Make a method's optimizer from a resolved config."""
    assert config.sigma0 is not None
    dimension = config.intrinsic_dimension if method.damping == "intrinsic" else None
    seed = int(stream(config.seed, "optimizer").integers(2**32))
    if method.optimizer == "one-plus-one":
        return OnePlusOneES(x0, config.sigma0, dimension, seed)
    if method.optimizer == "zosgd":
        steps = -(-config.budget // 2)
        return ZOSGD(x0, config.sigma0, config.radius, config.schedule, steps, seed)
    if method.optimizer == "cmaes":
        _check_memory(x0.size)
        return CMAES(x0, config.sigma0, config.population, config.on_stop, seed)
    try:
        return SAES(x0, config.sigma0, config.population, config.parents, dimension, seed)
    except ValueError as error:
        raise PfesError(f"--parents: {error}") from None


def make_space(config: RunConfig, method: Method, x0: Floats) -> Space:
    """Make the space that a method searches in."""
    if method.space == "full":
        return FullSpace(x0)
    return RandomSubspace(x0, round(config.intrinsic_dimension), config.seed)


def _check_memory(dimension: int) -> None:
    """Refuse in advance a CMA-ES that would not fit in memory."""
    needed, there = memory_needed(dimension), available_memory()
    if needed > there:
        raise PfesError(
            f"CMA-ES in {dimension:,} dimensions needs about {needed / 1e9:.1f} GB of memory and "
            f"{there / 1e9:.1f} GB are free: lower --prompt-length, or use bbt or saes"
        )


def available_memory() -> int:
    """Return the bytes of memory that are free for use."""
    return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def _make_search(
    config: RunConfig, method: Method, objective: Objective, space: Space, task: Task
) -> Search:
    validation = _encode(task, task.validation, objective)

    def evaluate(candidates: Floats) -> Doubles:
        return objective(space.expand(candidates))

    def validate(solution: Floats) -> Validation:
        prompt = objective.prompts(space.expand(solution[None]))[0]
        found = score(objective.model, task.spec, prompt, validation)
        loss = found.loss(objective.beta)
        return Validation(found.metric, loss if np.isfinite(loss) else np.inf)

    optimizer = make_optimizer(config, method, space.start)
    return Search(optimizer, evaluate, validate, config.budget, config.eval_every)


def _encode(task: Task, examples: tuple[Example, ...], objective: Objective) -> Batch:
    model = objective.model
    room = text_room(model, objective.prompt_length)
    return encode(task.spec, examples, model.tokenizer, model.family, room)


def _finish(
    config: RunConfig,
    objective: Objective,
    space: Space,
    task: Task,
    search: Search,
    folder: RunFolder | None,
) -> Iterator[Event]:
    """Read the test set, once, and write prompt and result."""
    assert search.selection is not None
    model = objective.model
    found = objective.prompts(space.expand(search.selection.solution[None]))[0]
    initial = objective.prompts(space.origin[None])[0]
    test = _encode(task, task.test, objective)
    empty = np.empty((0, model.width), dtype=np.float32)
    scores: dict[str, Score] = {}
    prompts = {"zero_shot": empty, "initial": initial, "test": found}
    titles = {"zero_shot": "zero-shot", "initial": "initial prompt", "test": "found prompt"}
    for name, prompt in prompts.items():
        for progress in score_steps(model, task.spec, prompt, test, ranks=name == "test"):
            if isinstance(progress, Score):
                scores[name] = progress
            else:
                yield Stage(f"testing {titles[name]}", progress, len(test))
    intervals = {name: interval(value) for name, value in scores.items()}
    intervals["gain"] = interval(scores["test"], scores["zero_shot"])
    losses = [
        score(model, task.spec, prompt, objective.batch).loss(objective.beta)
        for prompt in (found, initial)
    ]
    result = Result(
        method=config.method,
        model=config.model,
        task=task.name,
        seed=config.seed,
        metric=task.spec.metric,
        **{name: value.metric for name, value in scores.items()},
        validation=search.selection.validation.metric,
        intervals=intervals,
        gain=scores["test"].metric - scores["zero_shot"].metric,
        train_loss=losses[0],
        initial_train_loss=losses[1],
        evaluations=search.evaluations,
        stopped=search.optimizer.stopped,
        selected_at=search.selection.evaluations,
        seconds_per_evaluation=search.seconds / search.evaluations,
        probability=scores["test"].probability,
        rank=scores["test"].rank,
        test_examples=len(test),
        config=config.model_dump(),
        environment=environment(),
        prompt=found,
    )
    if folder is not None:
        folder.save_prompt(found, {"model": config.model, "task": task.spec.model_dump()})
        folder.write_json(folder.result, result.model_dump(mode="json"))
    yield result


def environment() -> dict[str, Any]:
    """Return what a run's bytes depend on beside its config."""
    import torch

    packages = ("pfes", "numpy", "torch", "transformers")
    return {name: version(name) for name in packages} | {
        "python": platform.python_version(),
        "machine": platform.machine(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
    }


def prepare(
    settings: dict[str, Any], folder: RunFolder | None, resume: bool
) -> tuple[RunConfig, bool]:
    """Return the config of a run to start or to resume, and which of the two it is.

    A folder without a config holds no run yet: there is nothing to resume, so one starts. Settings
    given again for a run to resume must agree with its own.
    """
    if folder is None or not (resume and folder.config.exists()):
        return make_config(**settings), False
    config = make_config(**folder.read_json(folder.config))
    for name, value in settings.items():
        kept = getattr(config, name)
        if value != kept:
            raise PfesError(
                f"--{name.replace('_', '-')}: this run has {kept!r}, not {value!r}; "
                "a resumed run keeps its settings"
            )
    return config, True


def finished(folder: RunFolder) -> Result | None:
    """Return the result of a run that has ended."""
    if not folder.result.exists():
        return None
    prompt, _ = folder.load_prompt()
    try:
        return Result(**folder.read_json(folder.result), prompt=prompt)
    except ValidationError:
        raise PfesError(f"{folder.result} is not a result of pfes") from None


def search(
    model: str | LanguageModel,
    task: str | Path | Task,
    method: str = DEFAULT_METHOD,
    *,
    out: str | Path | None = None,
    resume: bool = False,
    **settings: Any,
) -> Result:
    """Search a prompt and return what was found.

    `model` and `task` are names or loaded objects; `settings` are those of `pfes search`, with
    underscores. With `out`, the run is saved there and can be resumed.
    """
    if isinstance(task, Task):
        settings |= {"shots": task.shots, "seed": task.seed}
    settings["model"] = model if isinstance(model, str) else model.name
    settings["task"] = task.name if isinstance(task, Task) else str(task)
    folder = None if out is None else RunFolder(out)
    config, resuming = prepare(settings | {"method": method}, folder, resume)
    if folder is not None and resuming and (ended := finished(folder)):
        return ended
    if folder is not None and not resuming:
        folder.create()
    *_, result = run(
        config,
        folder,
        resume=resuming,
        model=None if isinstance(model, str) else model,
        task=task if isinstance(task, Task) else None,
    )
    assert isinstance(result, Result)
    return result
