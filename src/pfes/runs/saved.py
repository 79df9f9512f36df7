"""Reading a run folder. Nothing here writes, and nothing here needs torch."""

from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import ValidationError

from pfes.config import WRITTEN_BY, RunConfig, read_config
from pfes.contract import Floats
from pfes.errors import PfesError
from pfes.runs.checkpoint import read_checkpoint
from pfes.runs.result import Result
from pfes.runs.run_files import RunFiles
from pfes.searches.reading import PLAIN, READING, Reading
from pfes.system.files import read_json, read_json_lines
from pfes.system.tensors import Arrays, unpack
from pfes.tasks.spec import TaskSpec
from pfes.tasks.task import Task

History = list[dict[str, Any]]


class SavedRun:
    """A run folder, read: each part when it is first asked for.

    Examples:
        >>> run = SavedRun("runs/tickets")  # doctest: +SKIP
        >>> run.result.test, run.prompt.shape  # doctest: +SKIP
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.files = RunFiles(path)

    def __repr__(self) -> str:
        return f"SavedRun({str(self.path)!r})"

    @cached_property
    def config(self) -> RunConfig:
        """The settings of the run, all of them resolved."""
        stored = self._json(self.files.config)
        author = stored.pop(WRITTEN_BY, "of an unknown version")
        try:
            return read_config(stored)
        except (PfesError, TypeError) as error:
            raise PfesError(f"{self.files.config}, written by pfes {author}: {error}") from None

    @cached_property
    def task(self) -> Task:
        """The task with all its examples, as the run had it."""
        content = self._json(self.files.task)
        try:
            return Task.from_json(content)
        except ValueError:
            raise PfesError(f"{self.files.task} does not hold a task") from None

    @property
    def choices(self) -> dict[str, Any] | None:
        """What `pfes fit` found out about its data: columns, words, templates."""
        return self._json(self.files.choices) if self.files.choices.exists() else None

    @property
    def start(self) -> dict[str, Any] | None:
        """What was settled before the search, as far as it is: see `Result.start`."""
        return self._json(self.files.start) if self.files.start.exists() else None

    @property
    def has_task(self) -> bool:
        return self.files.task.exists()

    @property
    def begun(self) -> bool:
        """Whether there is a run to read or to go on with."""
        return self.files.config.exists()

    @property
    def finished(self) -> bool:
        """Whether the run has ended."""
        return self.files.result.exists()

    @cached_property
    def result(self) -> Result:
        """The figures of a run that has ended; its prompt is in `prompt`."""
        if not self.finished:
            self._json(self.files.config)  # says so where there is no run at all
            raise PfesError(
                f"{self.path} has no result yet: continue its run with pfes search "
                f"--out {self.path} --resume"
            )
        try:
            return Result(**self._json(self.files.result))
        except (ValidationError, TypeError):
            raise PfesError(f"{self.files.result} is not a result of pfes") from None

    def result_with_prompt(self) -> Result:
        """The result as the search returned it: with its prompt, and how that is used."""
        prompt, about = self.read_prompt()
        spec = TaskSpec.model_validate(about["task"])
        update = {"prompt": prompt, "spec": spec, "fitted": about["reading"]}
        update |= {"end": about.get("end", 0), "words": tuple(about.get("words", ()))}
        return self.result.model_copy(update=update)

    @cached_property
    def history(self) -> History:
        """The steps of the search, as recorded so far."""
        return read_json_lines(self.files.history)

    @property
    def chosen_history(self) -> History:
        """The steps of a finished search; where it tried several β, those of the one it chose.

        Losses under different β cannot be compared.
        """
        tried = self.history and self.history[0]["beta"] is not None
        return steps_with_beta(self.history, self.result.beta) if tried else self.history

    @cached_property
    def prompt(self) -> Floats:
        """The prompt that was found, `(length, width)`."""
        return self.read_prompt()[0]

    def read_prompt(self) -> tuple[Floats, dict[str, Any]]:
        """Return the prompt and what was stored with it: model, placement, task."""
        if not self.path.is_dir():
            raise PfesError(f"{self.path} does not exist")
        if not self.files.prompt.exists():
            raise PfesError(f"{self.path} has no prompt yet: continue its run with --resume")
        return read_prompt_file(self.files.prompt, "prompt")

    @cached_property
    def answers(self) -> list[dict[str, Any]]:
        """What was answered to each test example, before and after."""
        return read_json_lines(self.files.answers)

    @property
    def checkpoint(self) -> dict[str, Any] | None:
        """The state of the search at its last sound checkpoint."""
        checkpoint = read_checkpoint(self.files)
        return None if checkpoint is None else checkpoint.state

    def _json(self, path: Path) -> dict[str, Any]:
        try:
            return read_json(path)
        except FileNotFoundError:
            raise PfesError(f"{self.path} holds no run: it has no {path.name}") from None


def steps_with_beta(history: History, beta: float | None) -> History:
    """Return the steps under one β; where only one was tried, steps name none."""
    return [line for line in history if line["beta"] in (None, beta)]


def _reading(arrays: Arrays, about: dict[str, Any], path: Path) -> Reading:
    rung = about.get("reading")
    if rung is None:
        return PLAIN
    named = {name.removeprefix(READING): array for name, array in arrays.items()}
    try:
        return Reading.from_arrays(named, rung)
    except ValueError as error:
        raise PfesError(f"{path}: {error}") from None


def read_prompt_file(path: Path, key: str) -> tuple[Floats, dict[str, Any]]:
    """Read a prompt `(length, width)` and what it was stored with from a safetensors file.

    Its reading is under `reading`.
    """
    arrays, about = unpack(path)
    about["reading"] = _reading(arrays, about, path)
    prompt = arrays.get(key)
    if prompt is None or prompt.ndim != 2:
        raise PfesError(f"{path} does not hold a prompt")
    return prompt.astype(np.float32), about
