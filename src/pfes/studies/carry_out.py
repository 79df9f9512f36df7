"""Carrying out the runs of a study: what is finished stays, what was begun goes on."""

import gc
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from pfes.assemble import open_model
from pfes.config import RunConfig
from pfes.engines.ray_model import RayModel
from pfes.errors import PfesError
from pfes.finish import Tested
from pfes.folder import RunFolder
from pfes.models.base import LanguageModel
from pfes.result import Result
from pfes.run import Event, place_of, read_config, run
from pfes.studies.plan import PlannedRun
from pfes.studies.store import FolderStore, open_store
from pfes.tasks.spec import read_spec


@dataclass(frozen=True)
class RunEvent:
    """Something that happened in one run of a study."""

    number: int  # place in the plan
    event: Event | PfesError  # an error ends that run, not the study


def carry_out(
    plan: list[PlannedRun], out: str | Path, numbers: Iterable[int] | None = None
) -> Iterator[RunEvent]:
    """Carry out what is not finished, one run after the other; a model stays loaded while used.

    `out` is a folder, or an address that fsspec knows.
    `numbers` are the runs to carry out, by their place in the plan; all unless given.
    """
    loaded = _Loaded()
    store = open_store(out)
    try:
        yield from _carry_out(plan, store, range(len(plan)) if numbers is None else numbers, loaded)
    finally:
        loaded.close()


def _carry_out(
    plan: list[PlannedRun], store: FolderStore, numbers: Iterable[int], loaded: "_Loaded"
) -> Iterator[RunEvent]:
    for number in numbers:
        planned = plan[number]
        try:
            ended = store.result(planned.folder)
            if ended is not None:
                yield RunEvent(number, ended)
                continue
            loaded.switch(planned.config)
            folder = store.open(planned.folder)
            begun = folder.config.exists()
            # a run that was begun has its config resolved: it goes on with that, wherever it is
            config = begun_config(folder, planned.config) if begun else planned.config
            for event in run(
                config, folder, resume=begun, model=loaded.model, tested=loaded.tested
            ):
                store.keep(folder, now=isinstance(event, Result))
                yield RunEvent(number, event)
        except PfesError as error:
            # without its traceback, whose frames would keep the model
            yield RunEvent(number, PfesError(error))


def begun_config(folder: RunFolder, here: RunConfig) -> RunConfig:
    """Return the config that a run was begun with, in the place that it has here."""
    stored = read_config(folder)
    return stored.model_copy(update={name: getattr(here, name) for name in place_of(stored, here)})


class _Loaded:
    """The model of the latest runs, with what they tested on it; never two in memory at once."""

    def __init__(self) -> None:
        self.model: LanguageModel | None = None
        self.tested: Tested = {}
        self._needs = ""

    def switch(self, config: RunConfig) -> None:
        """Load the model of a config, unless it is the one at hand."""
        if self.model is None or self._needs != _needs(config):
            self.close()
            self.model = open_model(config, read_spec(config.task)[0])
            self._needs = _needs(config)

    def close(self) -> None:
        """Let the model go."""
        if isinstance(self.model, RayModel):
            self.model.close()
        self.model, self.tested = None, {}
        gc.collect()  # a module and its hooks know each other


def _needs(config: RunConfig) -> str:
    """Return what a loaded model depends on."""
    names = (
        "model", "served_name", "tokenizer", "patience", "device", "dtype", "device_map",
        "trust_remote_code", "max_batch_tokens", "engine", "workers", "threads",
        "gpus_per_worker",
    )  # fmt: skip
    return repr([getattr(config, name) for name in names])
