"""Saved runs, grouped by all that they have in common but the seed."""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pfes.config import PLACE
from pfes.errors import PfesError
from pfes.folder import RunFolder
from pfes.models.client import is_served
from pfes.result import Result
from pfes.run import read_result
from pfes.studies.plan import model_name

# beside the place: settings that a group may differ in, or that it is named by anyhow
ASIDE = {"task", "method", "beta", "seed", "batch_tokens", "max_batch_tokens"}


@dataclass(frozen=True)
class Group:
    """Runs of one model, task, method and β, with the same other settings; a seed each."""

    model: str
    task: str
    label: str  # method, β where it has one, and in what it differs from a group like it
    settings: dict[str, Any]  # the other ones
    runs: tuple[tuple[RunFolder, Result], ...]


def read_groups(paths: Iterable[Path]) -> list[Group]:
    """Read finished runs, in the order given."""
    found: dict[str, Group] = {}
    for path in paths:
        folder = RunFolder(path)
        result = read_result(folder)
        if result is None:
            raise PfesError(f"{path} is not a finished run: it has no {folder.result.name}")
        served = result.config.get("served_name")
        name = (model_name(result.model, served), result.task, _label(result))
        aside = PLACE | ASIDE | ({"model"} if is_served(result.model) else set())
        settings = {k: v for k, v in result.config.items() if k not in aside}
        key = json.dumps([name, settings], sort_keys=True)
        earlier = found[key].runs if key in found else ()
        for other, known in earlier:
            if known.seed == result.seed:
                raise PfesError(f"{other.path} and {path} are the same run, of the same seed")
        found[key] = Group(*name, settings, (*earlier, (folder, result)))
    if not found:
        raise PfesError("no run given")
    return [_told_apart(group, found.values()) for group in found.values()]


def _label(result: Result) -> str:
    if result.config.get("beta") == "auto":
        return f"{result.method}, β auto"
    return result.method + ("" if result.beta is None else f", β = {result.beta:g}")


def _told_apart(group: Group, groups: Iterable[Group]) -> Group:
    """Return the group with what sets it apart in its label, where another has the same one."""
    name = (group.model, group.task, group.label)
    alike = [other.settings for other in groups if (other.model, other.task, other.label) == name]
    differing = [
        f", {setting} = {value}"
        for setting, value in group.settings.items()
        if any(other.get(setting) != value for other in alike)
    ]
    return Group(*name[:2], group.label + "".join(differing), group.settings, group.runs)
