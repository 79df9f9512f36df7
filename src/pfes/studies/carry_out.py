"""Carrying out the runs of a study: what is finished stays, what was begun goes on."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from pfes.assemble import open_model
from pfes.config import PLACE, RunConfig
from pfes.errors import PfesError
from pfes.finish import Tested
from pfes.folder import RunFolder
from pfes.models.base import LanguageModel
from pfes.result import Result
from pfes.run import Event, read_config, run
from pfes.studies.plan import PlannedRun
from pfes.studies.store import open_store
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
    model: LanguageModel | None = None
    loaded = ""
    tested: Tested = {}
    store = open_store(out)
    for number in range(len(plan)) if numbers is None else numbers:
        planned = plan[number]
        try:
            ended = store.result(planned.folder)
            if ended is not None:
                yield RunEvent(number, ended)
                continue
            if model is None or loaded != _needs(planned.config):
                model, loaded, tested = _open(planned.config), _needs(planned.config), {}
            folder = store.open(planned.folder)
            begun = folder.config.exists()
            # a run that was begun has its config resolved: it goes on with that, wherever it is
            config = _begun(folder, planned) if begun else planned.config
            for event in run(config, folder, resume=begun, model=model, tested=tested):
                store.keep(folder, now=isinstance(event, Result))
                yield RunEvent(number, event)
        except PfesError as error:
            yield RunEvent(number, error)


def _begun(folder: RunFolder, planned: PlannedRun) -> RunConfig:
    place = {name: getattr(planned.config, name) for name in PLACE}
    return read_config(folder).model_copy(update=place)


def _open(config: RunConfig) -> LanguageModel:
    return open_model(config, read_spec(config.task)[0])


def _needs(config: RunConfig) -> str:
    """Return what a loaded model depends on."""
    names = (
        "model", "served_name", "tokenizer", "patience", "device", "dtype", "device_map",
        "trust_remote_code", "max_batch_tokens", "engine", "workers", "threads",
    )  # fmt: skip
    return repr([getattr(config, name) for name in names])
