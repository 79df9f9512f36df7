"""In-context learning: put answered examples in front of the text, without a search."""

from dataclasses import replace

import numpy as np

from pfes.contract import Family
from pfes.errors import SettingError
from pfes.seeds import stream
from pfes.tasks.example import Example
from pfes.tasks.spec import MASK, TaskSpec
from pfes.tasks.task import Task

# a masked model's tokenizer drops line breaks; causal models read an empty line as a boundary
SEPARATOR: dict[Family, str] = {"masked": " ", "causal": "\n\n"}


def with_demonstrations(
    task: Task,
    family: Family,
    seed: int,
    per_label: int = 1,
    draw: int = 0,
    longest: int | None = None,
) -> Task:
    """Return the task with answered training examples in front of every text.

    There are `per_label` of each label; which ones and their order is drawn with `seed`, anew for
    each `draw`. Texts with more than `longest` characters are cut. The examples that are shown are
    no training examples any more: their answers could be copied.
    """
    rng = stream(seed, "demonstrations" if draw == 0 else f"demonstrations {draw}")
    chosen: list[int] = []
    for label, name in enumerate(task.spec.labels):
        members = [i for i, example in enumerate(task.train) if example.label == label]
        if len(members) < per_label:
            raise SettingError(
                "demonstrations",
                f"task {task.name!r}: label {name!r} has {len(members)} training examples, "
                f"{per_label} are to be shown",
            )
        chosen += [members[i] for i in _distinct(rng, len(members), per_label)]
    order = [chosen[i] for i in rng.permutation(len(chosen))]
    shown = tuple(_answered(task.spec, task.train[i], family, longest) for i in order)
    rest = tuple(example for i, example in enumerate(task.train) if i not in set(chosen))
    return replace(task, spec=task.spec.model_copy(update={"demonstrations": shown}), train=rest)


def _distinct(rng: np.random.Generator, members: int, count: int) -> list[int]:
    """Draw `count` of `members`."""
    if count == 1:
        return [int(rng.integers(members))]
    return [int(i) for i in rng.permutation(members)[:count]]


def _answered(spec: TaskSpec, example: Example, family: Family, longest: int | None) -> str:
    word = spec.verbalizers[spec.labels[example.label]].strip()
    fields = {
        name: text if longest is None else _cut(text, longest // len(example.fields))
        for name, text in example.fields.items()
    }
    filled = spec.template(family).format_map(fields | {MASK: word})
    answered = filled if family == "masked" else f"{filled} {word}"
    return answered + SEPARATOR[family]


def _cut(text: str, longest: int) -> str:
    """Cut a text to at most `longest` characters, between two words where there are any."""
    if len(text) <= longest:
        return text
    whole, _, part = text[: longest + 1].rpartition(" ")
    return whole or part[:longest]
