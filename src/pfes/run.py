"""From a config to a finished run, and on from where one stopped."""

import contextlib
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import ValidationError

import pfes
from pfes.assemble import fit_batches, load_run_task, loss_of, make_search, open_model, resolve
from pfes.baselines.demonstrations import with_demonstrations
from pfes.clock import Clock
from pfes.config import AUTHOR, DEFAULT_METHOD, PLACE, RunConfig, make_config
from pfes.engines.ray_model import RayModel
from pfes.errors import PfesError
from pfes.finish import Found, Tested, finish
from pfes.folder import RunFolder
from pfes.halving import Halving
from pfes.loop import Search, Selection, Step
from pfes.methods import Method, get_method
from pfes.models.base import Floats, LanguageModel
from pfes.models.client import is_served
from pfes.models.local import BATCH_TOKENS, LocalModel
from pfes.objective import Loss, encode_for
from pfes.result import Result, Stage
from pfes.scoring import score
from pfes.spaces import Space
from pfes.tasks.spec import TaskSpec
from pfes.tasks.task import Task

Event = Step | Stage | Result


def run(
    config: RunConfig,
    folder: RunFolder | None = None,
    *,
    resume: bool = False,
    model: LanguageModel | None = None,
    task: Task | None = None,
    tested: Tested | None = None,
) -> Iterator[Event]:
    """Carry out a run; yield its steps and stages, and its `Result` last.

    With a folder, the state is saved there after every step, and `resume` continues from it.
    Runs of one model that share `tested` test what they have in common once.
    """
    get_method(config.method)
    with folder.held() if folder is not None else contextlib.nullcontext():
        yield from _run(config, folder, resume, model, task, {} if tested is None else tested)


def _run(
    config: RunConfig,
    folder: RunFolder | None,
    resume: bool,
    model: LanguageModel | None,
    task: Task | None,
    tested: Tested,
) -> Iterator[Event]:
    clock = Clock()
    if task is None:
        yield Stage("loading task")
        with clock.measure("data"):
            task = load_run_task(config)
    if model is not None:
        yield from _run_on(model, config, task, folder, resume, clock, tested)
        return
    yield Stage("loading model")
    with clock.measure("loading"):
        opened = open_model(config, task.spec)
    try:
        yield from _run_on(opened, config, task, folder, resume, clock, tested)
    finally:
        if isinstance(opened, RayModel):
            opened.close()


def read_config(folder: RunFolder) -> RunConfig:
    """Return the config of a run, also one of an older version.

    A stored consent to run a model's own code does not count: it must be given anew.
    """
    stored = folder.read_json(folder.config)
    author = stored.pop(AUTHOR, "an older version")
    try:
        return make_config(**stored | {"trust_remote_code": False})
    except (PfesError, TypeError) as error:
        raise PfesError(f"{folder.config}, written by pfes {author}: {error}") from None


def _run_on(
    model: LanguageModel,
    config: RunConfig,
    task: Task,
    folder: RunFolder | None,
    resume: bool,
    clock: Clock,
    tested: Tested,
) -> Iterator[Event]:
    method = get_method(config.method)
    config = resolve(config, method, model)
    if method.optimizer is None:
        if isinstance(model, LocalModel | RayModel):  # an earlier run may have set its own size
            model.batch_tokens = config.batch_tokens or BATCH_TOKENS
        _write_config(config, folder)
        found = _unsearched(config, method, model, task)
    else:
        with clock.measure("data"):
            search, space = make_search(config, method, model, task, clock)
        initial = space.prompts(search.start[None])[0]
        yield Stage("measuring batch size")
        with clock.measure("loading"):
            config = fit_batches(config, method, model, task, initial)
        _write_config(config, folder)
        yield from _steps(search, folder, resume, clock)
        found = _searched(method, search, space, initial, task.spec)
    yield from finish(config, model, task, found, folder, clock, tested)


def _write_config(config: RunConfig, folder: RunFolder | None) -> None:
    if folder is not None:
        folder.write_json(folder.config, {AUTHOR: pfes.__version__} | config.model_dump())


def _steps(
    search: Search | Halving, folder: RunFolder | None, resume: bool, clock: Clock
) -> Iterator[Step]:
    if folder is not None and resume:
        state = folder.load_checkpoint()
        if state is not None:
            search.load_state(state["search"])
            for part, seconds in state["profile"].items():
                clock.add(part, seconds)
    for step in search.steps():
        if folder is not None:
            with clock.measure("disk"):
                folder.append_history(asdict(step))
                state = {"search": search.state(), "profile": dict(clock.seconds)}
                folder.save_checkpoint(state)
        yield step


def _unsearched(config: RunConfig, method: Method, model: LanguageModel, task: Task) -> Found:
    """Return what a method without a search uses: the template, perhaps with demonstrations."""
    spec = task.spec
    if method.demonstrations:
        spec = with_demonstrations(task, model.family, config.seed)
    empty = np.empty((0, model.width), dtype=np.float32)
    batch = encode_for(model, spec, task.validation, 0)
    figures: dict[str, Any] = {
        "validation": score(model, spec, empty, batch).metric,
        "evaluations": 0,
        "stopped": None,
        "selected_at": 0,
        "seconds_per_evaluation": None,
        "beta": None,
        "beta_trials": [],
        "text": "".join(spec.demonstrations) or None,
    }
    return Found(spec, empty, None, Loss(), figures)


def _searched(
    method: Method,
    search: Search | Halving,
    space: Space,
    initial: Floats,
    spec: TaskSpec,
) -> Found:
    selection = search.selection
    assert isinstance(selection, Selection)
    figures = {
        "validation": selection.validation.metric,
        "evaluations": search.evaluations,
        "stopped": search.stopped,
        "selected_at": selection.evaluations,
        "seconds_per_evaluation": search.seconds / search.evaluations,
        "beta": search.beta,
        "beta_trials": search.trials,
        "text": space.text(selection.solution),
    }
    prompt = space.prompts(selection.solution[None])[0]
    return Found(spec, prompt, initial, loss_of(method, search.beta), figures)


def prepare(
    settings: dict[str, Any], folder: RunFolder | None, resume: bool
) -> tuple[RunConfig, bool]:
    """Return the config of a run to start or to resume, and which of the two it is.

    A folder without a config holds no run yet: there is nothing to resume, so one starts. Settings
    given again for a run to resume must agree with its own, but for where it takes place: a server
    may have moved, or got company.
    """
    if folder is None or not (resume and folder.config.exists()):
        return make_config(**settings), False
    config = read_config(folder)
    given = make_config(**{"model": config.model, "task": config.task} | settings)
    place = place_of(config, given)
    for name in settings.keys() - place:
        kept, value = getattr(config, name), getattr(given, name)
        if value != kept:
            raise PfesError(
                f"--{name.replace('_', '-')}: this run has {kept!r}, not {value!r}; "
                "a resumed run keeps its settings"
            )
    moved = {name: getattr(given, name) for name in settings.keys() & place}
    return config.model_copy(update=moved), True


def place_of(config: RunConfig, given: RunConfig) -> frozenset[str]:
    """Return the settings that say where a run takes place: of a served model, its address too."""
    served = is_served(config.model) and is_served(given.model)
    return PLACE | {"model"} if served else PLACE


def finished(folder: RunFolder) -> Result | None:
    """Return the result of a run that has ended, with its prompt."""
    result = read_result(folder)
    if result is None:
        return None
    return result.model_copy(update={"prompt": folder.load_prompt()[0]})


def read_result(folder: RunFolder) -> Result | None:
    """Return the figures of a run that has ended; they are there even where its prompt is not."""
    if not folder.result.exists():
        return None
    try:
        return Result(**folder.read_json(folder.result))
    except (ValidationError, TypeError):
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
