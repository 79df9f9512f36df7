"""Small runs: one set of settings for every test that needs a run to look at."""

from collections.abc import Generator
from pathlib import Path
from typing import Any

from pfes.contract import LanguageModel
from pfes.methods import METHOD_SETTINGS, get_method, settings_of
from pfes.runs.result import Result
from pfes.runs.run import Event
from pfes.runs.start import start_run
from pfes.system.stages import result_of
from tests.stand_in import StandIn

SMALL: dict[str, Any] = {
    "method": "saes-id-cr", "shots": 4, "budget": 24, "population": 6, "prompt_length": 3,
    "sigma0": 0.3, "eval_every": 12, "test_limit": 12, "free": "none",
    "reading": "plain", "init": "vocab",
}  # fmt: skip


def study_defaults(**changes: Any) -> dict[str, Any]:
    """Return the settings of small runs as defaults of a study, whose rows name their methods."""
    return {name: value for name, value in (SMALL | changes).items() if name != "method"}


def small_settings(**changes: Any) -> dict[str, Any]:
    """Return settings of a small run, without those that its method does not take."""
    settings = SMALL | changes
    unused = METHOD_SETTINGS - set(settings_of(get_method(settings["method"])))
    return {name: value for name, value in settings.items() if name not in unused}


def search_command(model: object, task: object, out: object, /, **changes: Any) -> list[str]:
    """Return the words of a `pfes search` command for a small run."""
    settings = {"model": model, "task": task, "out": out} | small_settings(**changes)
    pairs = [(f"--{name.replace('_', '-')}", str(value)) for name, value in settings.items()]
    return ["search", *(word for pair in pairs for word in pair)]


def begin(
    task: Path,
    out: Path,
    *,
    model: LanguageModel | None = None,
    resume: bool = False,
    **changes: Any,
) -> Generator[Event, None, Result]:
    """Begin a small run, or go on with it, on a stand-in for a model."""
    settings = {"model": "stand-in", "task": str(task)} | small_settings(**changes)
    return start_run(settings, out, resume=resume, model=model or StandIn()).events()


def finish(task: Path, out: Path, **changes: Any) -> Result:
    """Do a small run to its end."""
    return result_of(begin(task, out, **changes))
