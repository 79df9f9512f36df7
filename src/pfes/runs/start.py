"""Starting a run or continuing one: the way in for the command line and for Python."""

from collections.abc import Generator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Unpack

from pfes.config import DEFAULT_METHOD, RunConfig, Settings, location_settings, make_config
from pfes.contract import LanguageModel
from pfes.errors import SettingError
from pfes.methods import get_method
from pfes.models.source import ModelSource
from pfes.runs.check import check_loading_settings, check_names, check_settings
from pfes.runs.folder import RunFolder
from pfes.runs.result import Result
from pfes.runs.run import Event, run
from pfes.runs.saved import SavedRun
from pfes.system.stages import result_of
from pfes.tasks.task import Task


@dataclass(frozen=True)
class StartedRun:
    """A run that is about to start, to go on, or that has ended already."""

    config: RunConfig
    folder: RunFolder | None
    resume: bool
    ended: Result | None  # of a run that there is nothing more to do for
    model: LanguageModel | None
    task: Task | None
    source: ModelSource | None

    def events(self) -> Generator[Event, None, Result]:
        """Do what is left of the run; yield its steps and stages, and return its result."""
        if self.ended is not None:
            return self.ended
        return (
            yield from run(
                self.config,
                self.folder,
                resume=self.resume,
                model=self.model,
                task=self.task,
                source=self.source,
            )
        )


def start_run(
    settings: Mapping[str, Any],
    out: str | Path | None = None,
    *,
    resume: bool = False,
    model: LanguageModel | None = None,
    task: Task | None = None,
) -> StartedRun:
    """Check the settings of a run and make its folder, or find out how to continue in it.

    `settings` are only those that were given. A folder without a config holds no run yet: there is
    nothing to resume, so one starts. A loaded `model` or `task` is used instead of a name.
    """
    folder = None if out is None else RunFolder(out)
    if folder is not None and resume and folder.begun:
        saved = SavedRun(folder.path)
        config = _continued(saved, settings)
        ended = None
        if saved.finished:
            if task is not None and saved.has_task and task != saved.task:
                raise SettingError("task", f"{out} is a run on other examples than those given")
            ended = saved.result_with_prompt()
        return StartedRun(config, folder, True, ended, model, task, None)
    config = make_config(**settings)
    check_settings(config, settings.keys())
    if model is not None:
        check_loading_settings(settings)
    source = check_names(config, model=model is None, task=task is None)
    if folder is not None:
        folder.create()
    return StartedRun(config, folder, False, None, model, task, source)


def _is_the_papers(config: RunConfig, name: str, value: object) -> bool:
    """Say whether a config has the paper's step size, which is stored as a number."""
    sigma0 = get_method(config.method).sigma0
    own = () if sigma0 is None else (sigma0.masked, sigma0.causal)
    return name == "sigma0" and value == "paper" and config.sigma0 in own


def _continued(saved: SavedRun, settings: Mapping[str, Any]) -> RunConfig:
    """Return the config of a run to resume.

    Settings given again must agree with its own, but for where it takes place: a server may have
    moved, or got company.
    """
    config = saved.config
    given = make_config(**{"model": config.model, "task": config.task} | dict(settings))
    location = location_settings(config, given)
    for name in settings.keys() - location:
        kept, value = getattr(config, name), getattr(given, name)
        if value != kept and not _is_the_papers(config, name, value):
            message = f"this run has {kept!r}, not {value!r}; a resumed run keeps its settings"
            raise SettingError(name, message)
    moved = {name: getattr(given, name) for name in settings.keys() & location}
    return config.model_copy(update=moved)


def search(
    model: str | LanguageModel,
    task: str | Path | Task,
    method: str = DEFAULT_METHOD,
    *,
    out: str | Path | None = None,
    resume: bool = False,
    **settings: Unpack[Settings],
) -> Result:
    """Search a prompt and return what was found.

    `model` and `task` are names or loaded objects. The settings are those of `pfes search`, with
    underscores; those that are left out have the same defaults. With `out`, the run is saved there
    and can be resumed. A loaded task has its own shots, balance and seed: given here, they must
    agree.
    """
    given: dict[str, Any] = dict(settings)
    if isinstance(task, Task):
        for name in ("shots", "seed", "balance"):
            own = getattr(task, name)
            if given.setdefault(name, own) != own:
                raise SettingError(name, f"the task was made with {own}, not {given[name]}")
        for name in ("test_limit", "test_seed"):
            if given.pop(name, None) is not None:
                raise SettingError(name, "a loaded task has its own test examples")
    given |= {"method": method, "model": model if isinstance(model, str) else model.name}
    given["task"] = task.name if isinstance(task, Task) else str(task)
    started = start_run(
        given,
        out,
        resume=resume,
        model=None if isinstance(model, str) else model,
        task=task if isinstance(task, Task) else None,
    )
    return result_of(started.events())
