"""One run, from its config to its result."""

from collections.abc import Generator
from contextlib import nullcontext
from dataclasses import asdict

from pfes.config import RunConfig
from pfes.contract import Floats, LanguageModel
from pfes.errors import SettingError
from pfes.methods import generation_size, get_method
from pfes.models.open import open_model
from pfes.models.source import ModelSource
from pfes.models.text.spending import LimitReachedError
from pfes.runs.check import check_takes_text
from pfes.runs.context import RunContext, SearchOutcome, TestCache, write_prompt
from pfes.runs.earlier import EarlierPrompt, EarlierSelections
from pfes.runs.expected_requests import run_requests
from pfes.runs.folder import RunFolder
from pfes.runs.no_search import without_search
from pfes.runs.result import Result
from pfes.runs.saved import SavedRun
from pfes.runs.search_record import recorded
from pfes.runs.settle_start import settle_start, settling_sentences
from pfes.runs.testing import evaluate_outcome
from pfes.searches.beta_halving import BetaHalving
from pfes.searches.build import SearchParts, resolve
from pfes.searches.encoded import encode_for
from pfes.searches.loop import Search, Selection, Step
from pfes.searches.losses import Loss
from pfes.searches.starts import evenly
from pfes.searches.validation import Validation
from pfes.system.clock import Clock
from pfes.system.stages import Notice, Stage
from pfes.tasks.loader import load_run_task
from pfes.tasks.task import Task

Event = Step | Stage
LOOKED_AT = 16  # examples on which a model may try its precision


def run(
    config: RunConfig,
    folder: RunFolder | None = None,
    *,
    resume: bool = False,
    model: LanguageModel | None = None,
    task: Task | None = None,
    source: ModelSource | None = None,
    test_cache: TestCache | None = None,
) -> Generator[Event, None, Result]:
    """Do a run; yield its steps and stages, and return its result.

    With a folder, the state is saved there every few seconds, and `resume` continues from it. A
    model or task that is already loaded is used as it is; `source` spares looking for the model's
    name. Runs of one model that share a `test_cache` choose and test what they have in common once.
    """
    method = get_method(config.method)
    clock = Clock()
    with folder.locked() if folder is not None else nullcontext():
        if task is None or resume:
            yield Stage("loading task")
            with clock.measure("data"):
                task = _read_task(config, folder if resume else None, task)
        opened = model
        if opened is None:
            yield Stage("loading model")
            with clock.measure("loading"):
                opened = open_model(config, task.spec, source)
        try:
            _check_precision(config, opened)
            if not opened.takes_embeddings:
                check_takes_text(method, opened.name)
            stored = resume and folder is not None and folder.begun
            config = resolve(config, method, opened, task, stored)
            cache = {} if test_cache is None else test_cache
            context = RunContext(config, method, opened, task, folder, clock, cache)
            if opened.sent is not None:
                expected = run_requests(config, method, opened, task)
                yield Notice(f"This run sends {expected.sentence(config.price_per_million)}")
            if method.optimizer is None:
                outcome = yield from without_search(context)
            else:
                outcome = yield from _search(context, resume)
            result = yield from evaluate_outcome(context, outcome)
            if opened.sent is not None:
                yield Notice(f"In all, {opened.sent}")
            return result
        except LimitReachedError as error:
            if folder is not None and folder.files.prompt.exists():
                raise LimitReachedError(f"{error}; the best so far is in {folder.path}") from None
            raise
        finally:
            if model is None:
                opened.close()


def _read_task(config: RunConfig, folder: RunFolder | None, given: Task | None) -> Task:
    """Return the task of a run; a resumed run has its own in its folder."""
    if folder is None or not SavedRun(folder.path).has_task:
        return given or load_run_task(config)
    stored = SavedRun(folder.path).task
    if given is not None and given != stored:
        raise SettingError("task", f"{folder.path} is a run on other examples than those given")
    return stored


def _check_precision(config: RunConfig, model: LanguageModel) -> None:
    """Refuse to go on with other numbers than a run was begun with."""
    if config.dtype not in (None, "auto") and model.precision not in (None, config.dtype):
        raise SettingError(
            "dtype", f"this run has {config.dtype}, and the model was loaded in {model.precision}"
        )


def _search(context: RunContext, resume: bool) -> Generator[Event, None, SearchOutcome]:
    searching = yield from _choose_precision(context)
    config, method, model, task = context.config, context.method, context.model, context.task
    parts, start = yield from settle_start(context, searching, resume)
    with context.timed("data"):
        search = parts.make_search()
        search.seconds_elsewhere = start.seconds
    initial = parts.space.prompts(search.start[None])[0]
    yield Stage("measuring batch size")
    with context.timed("loading"):
        if config.batch_tokens is None:
            together = generation_size(method, config.population)
            candidates = min(together, config.block or together)
            tokens = searching.choose_batch_tokens(initial, parts.batch(), candidates)
            context.settle(batch_tokens=tokens)
        for one in (model, searching):
            one.set_batch_tokens(context.config.batch_tokens)
    if context.folder is not None:
        context.folder.begin(context.config, task)
    earlier = EarlierSelections(config.report_at, start.evaluations)
    yield from _steps(context, parts, search, earlier, resume)
    assert isinstance(search.selection, Selection)
    loss = parts.loss(search.beta)
    free = None
    if config.init == "auto" and method.space != "tokens":
        began_as, initial = initial, context.no_prompt
        free = _free_start(context, parts, began_as, loss)

    def returned(selection: Selection) -> tuple[Selection, Floats]:
        """Return the start without a prompt, unless what was selected validates better."""
        if free is not None and not selection.validation.beats(free):
            return Selection(selection.solution, free, 0), context.no_prompt
        return selection, parts.space.prompts(selection.solution[None])[0]

    selection, prompt = returned(search.selection)
    batch = len(parts.batch())
    settled = settling_sentences(config, start, batch)
    fields = {
        "validation": selection.validation.metric,
        "evaluations": start.evaluations + search.evaluations,
        "sentence_evaluations": settled + search.evaluations * batch,
        "start": start,
        "stopped": search.stopped,
        "selected_at": selection.evaluations,
        "seconds_per_evaluation": search.seconds / search.evaluations,
        "beta": search.beta,
        "beta_trials": search.trials,
        "text": parts.space.text(selection.solution),
    }
    kept = earlier.kept
    before = tuple(EarlierPrompt(at, *returned(kept[at])) for at in config.report_at if at in kept)
    return SearchOutcome(prompt, initial, loss, parts.examples, fields, before)


def _choose_precision(context: RunContext) -> Generator[Stage, None, LanguageModel]:
    """Return the model that answers for candidates; the config says with which precision.

    All else, such as validation and the test, is answered by the run's own model.
    """
    config, model = context.config, context.model
    if context.method.needs_gradients:
        return model
    assert config.prompt_length is not None
    yield Stage("choosing the search's precision")
    with context.timed("loading"):
        some = evenly(context.task, LOOKED_AT)
        length, placement = config.prompt_length, config.placement
        batch = encode_for(model, context.task.spec, some, length, placement)
        searching = model.for_search(config.search_dtype, length, batch)
    context.settle(search_dtype=searching.precision)
    return searching


def _free_start(
    context: RunContext, parts: SearchParts, began_as: Floats, loss: Loss
) -> Validation | None:
    """Return how the start validates without a prompt.

    One token in the middle begins as the token in whose place it stands, which is that very start:
    then there is nothing to compare.
    """
    if context.config.placement == "middle" and len(began_as) == 1:
        return None
    with context.timed("validation"):
        return parts.validate(context.no_prompt, loss, context.no_prompt)


def _steps(
    context: RunContext,
    parts: SearchParts,
    search: Search | BetaHalving,
    earlier: EarlierSelections,
    resume: bool,
) -> Generator[Step, None, None]:
    """Search step by step, each of them in the history before it is shown.

    A better prompt is written as soon as it is found, with a checkpoint.
    """
    folder, clock = context.folder, context.clock
    if folder is None:
        for step in search.steps():
            earlier.see(search.evaluations, search.selection)
            yield step
        return
    state = folder.rewind() if resume else None
    if state is not None:
        search.load_state(state["search"])
        earlier.load_state(state.get("earlier", {}))
        for part, seconds in state["profile"].items():
            clock.add(part, seconds)
    written = search.selection
    with recorded(folder, context.config.checkpoint_seconds) as record:
        for step in search.steps():
            earlier.see(search.evaluations, search.selection)
            best = search.selection
            better = best is not None and (
                written is None or best.evaluations != written.evaluations
            )
            if best is not None and better:
                prompt = parts.space.prompts(best.solution[None])[0]
                with context.timed("validation"):
                    write_prompt(context, parts.examples, prompt, parts.read(prompt))
                written = best
            with context.timed("disk"):
                state = {"search": search.state(), "profile": dict(clock.seconds)}
                if earlier.at:
                    state["earlier"] = earlier.state()
                record.add(asdict(step), state, save=better)
            yield step
