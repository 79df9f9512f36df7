"""Saved runs, grouped by what they have in common but the seed."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from pfes.errors import PfesError
from pfes.folder import RunFolder
from pfes.result import Result
from pfes.run import read_result
from pfes.studies.plan import short_name


@dataclass(frozen=True)
class Group:
    """Runs of one model, task, method and β, a seed each."""

    model: str
    task: str
    label: str  # method, and β where it has one
    runs: tuple[tuple[RunFolder, Result], ...]


def read_groups(paths: Iterable[Path]) -> list[Group]:
    """Read finished runs, in the order given."""
    found: dict[tuple[str, str, str], list[tuple[RunFolder, Result]]] = {}
    for path in paths:
        folder = RunFolder(path)
        result = read_result(folder)
        if result is None:
            raise PfesError(f"{path} is not a finished run: it has no {folder.result.name}")
        tuned = "" if result.beta is None else f", β = {result.beta:g}"
        if result.config.get("beta") == "auto":
            tuned = ", β auto"
        key = (short_name(result.model), result.task, result.method + tuned)
        found.setdefault(key, []).append((folder, result))
    if not found:
        raise PfesError("no run given")
    return [Group(*key, tuple(runs)) for key, runs in found.items()]
