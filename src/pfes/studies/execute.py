"""Do the runs of a study: finished runs are skipped, interrupted ones continue."""

import gc
from collections.abc import Generator, Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

from pfes.config import RunConfig, location_settings
from pfes.contract import LanguageModel
from pfes.errors import PfesError
from pfes.models.open import open_model
from pfes.runs.check import check_names
from pfes.runs.context import TestCache
from pfes.runs.folder import RunFolder
from pfes.runs.result import Result
from pfes.runs.run import Event, run
from pfes.runs.saved import SavedRun
from pfes.studies.plan import PlannedRun
from pfes.studies.store import FolderStore, open_store
from pfes.tasks.spec import read_spec

MODEL_SETTINGS = (  # runs that agree in these can share a loaded model
    "model", "served_name", "tokenizer", "patience", "device", "dtype", "device_map",
    "trust_remote_code", "max_batch_tokens", "engine", "workers", "threads", "gpus_per_worker",
)  # fmt: skip


@dataclass(frozen=True)
class RunEvent:
    """An event, result or error of one run of a study."""

    number: int  # the run's index in the plan
    event: Event | Result | PfesError  # an error ends that run, not the study


def check_plan(plan: list[PlannedRun], store: FolderStore) -> None:
    """Check the tasks and models of all unfinished runs; each name is looked up once."""
    checked = set()
    for planned in plan:
        config = planned.config
        if store.finished(planned.folder):
            continue
        for name in ("task", "model"):
            key = (name, getattr(config, name), config.trust_remote_code)
            if key not in checked:
                checked.add(key)
                check_names(config, task=name == "task", model=name == "model")


def execute_runs(
    plan: list[PlannedRun], out: str | Path, numbers: Iterable[int] | None = None
) -> Generator[RunEvent, None, None]:
    """Do the runs that are not finished, one after the other; runs in a row share a loaded model.

    `out` is a folder, or an address that fsspec knows. `numbers` are the indices in the plan of
    the runs to do; by default, all. If this is closed, the run in progress is saved where it is.
    """
    loaded = _LoadedModel()
    store = open_store(out)
    try:
        for number in range(len(plan)) if numbers is None else numbers:
            yield from _execute_run(number, plan[number], store, loaded)
    finally:
        loaded.close()


def _execute_run(
    number: int, planned: PlannedRun, store: FolderStore, loaded: "_LoadedModel"
) -> Iterator[RunEvent]:
    try:
        result = store.result(planned.folder)
        if result is not None:
            yield RunEvent(number, result)
            return
        loaded.switch(planned.config)
        folder = store.open(planned.folder)
        begun = folder.begun
        # an interrupted run continues with its stored config, in which all defaults are filled in
        config = begun_config(folder, planned.config) if begun else planned.config
        cache = loaded.score_cache
        events = run(config, folder, resume=begun, model=loaded.model, test_cache=cache)
        with _kept(store, folder), closing(events):
            while True:
                try:
                    event = next(events)
                except StopIteration as end:
                    store.keep(folder, now=True)
                    yield RunEvent(number, end.value)
                    return
                store.keep(folder)
                yield RunEvent(number, event)
    except PfesError as error:
        error.__traceback__ = error.__context__ = (
            None  # their frames would keep the model in memory
        )
        yield RunEvent(number, error)


@contextmanager
def _kept(store: FolderStore, folder: RunFolder) -> Iterator[None]:
    """Keep what a run wrote last, also when it is stopped."""
    try:
        yield
    except (GeneratorExit, KeyboardInterrupt):
        store.keep(folder, now=True)
        raise


def begun_config(folder: RunFolder, here: RunConfig) -> RunConfig:
    """Return the stored config of a run, with the location settings (such as device) of `here`."""
    stored = SavedRun(folder.path).config
    location = location_settings(stored, here)
    return stored.model_copy(update={name: getattr(here, name) for name in location})


class _LoadedModel:
    """The model of the latest run and its cached test scores; one model in memory at a time."""

    def __init__(self) -> None:
        self.model: LanguageModel | None = None
        self.score_cache: TestCache = {}
        self._settings: list[object] = []

    def switch(self, config: RunConfig) -> None:
        """Load the model of a config, unless it is loaded already."""
        settings = [getattr(config, name) for name in MODEL_SETTINGS]
        if self.model is None or self._settings != settings:
            self.close()
            self.model = open_model(config, read_spec(config.task)[0])
            self._settings = settings

    def close(self) -> None:
        """Release the model and its memory."""
        if self.model is not None:
            self.model.close()
        self.model, self.score_cache = None, {}
        gc.collect()  # a module and its hooks refer to each other, so only the collector frees them
