"""A task with its examples."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from pydantic import ValidationError

from pfes.config import DEFAULT_SHOTS
from pfes.contract import Family
from pfes.errors import PfesError, SettingError
from pfes.tasks.example import Example, text_fields
from pfes.tasks.spec import MASK, TaskSpec, label_key, placeholders, validation_message
from pfes.tasks.split import few_shot, hold_out

HOLDOUT = 0.2  # part of the examples held out for the test


@dataclass(frozen=True)
class Task:
    """A task with a few labelled examples to search with, and held-out ones to test with."""

    spec: TaskSpec
    train: tuple[Example, ...]
    validation: tuple[Example, ...]
    test: tuple[Example, ...]  # may be empty; then there is no test
    shots: int
    seed: int

    @property
    def name(self) -> str:
        return self.spec.name

    @classmethod
    def from_examples(
        cls,
        texts: Any,
        labels: Iterable[Any],
        *,
        template: str | Mapping[Family, str],
        verbalizers: Mapping[Any, str] | None = None,
        name: str = "task",
        shots: int = DEFAULT_SHOTS,
        seed: int = 0,
        holdout: float = HOLDOUT,
        **spec: Any,
    ) -> "Task":
        """Make a task from labelled texts, without a file.

        `texts` are strings; if the template has several placeholders, sequences in their order,
        mappings, or a DataFrame. A template with `{mask}` is for masked models, one without is for
        causal models; give both as a mapping. `verbalizers` maps labels to words; by default the
        labels themselves are the words. The part `holdout` of the examples is held out for the
        test; of the others, `shots` per class are used for training and as many for validation.
        `spec` holds other fields of `TaskSpec`, such as `metric`.
        """
        given = list(labels)
        missing = next(
            (i for i, label in enumerate(given) if label is None or label != label), None
        )
        if missing is not None:
            raise PfesError(f"label {missing} is missing")
        if shots < 1:
            raise SettingError("shots", f"at least 1, not {shots}")
        keys = [label_key(label) for label in given]
        words = (
            {label: label for label in sorted(set(keys))} if verbalizers is None else verbalizers
        )
        try:
            task_spec = TaskSpec(
                name=name, templates=_templates(template), verbalizers=dict(words), **spec
            )
        except ValidationError as error:
            raise PfesError(f"task {name!r}: {validation_message(error)}") from None
        fields = text_fields(texts, task_spec.fields)
        if len(fields) != len(keys):
            raise PfesError(
                f"{len(fields)} texts but {len(keys)} labels: give one label for each text"
            )
        index = {label: i for i, label in enumerate(task_spec.labels)}
        unknown = next((key for key in keys if key not in index), None)
        if unknown is not None:
            known = ", ".join(index)
            raise PfesError(f"label {unknown!r} has no verbalizer; those with one are {known}")
        if not 0 <= holdout < 1:
            raise SettingError("holdout", f"at least 0 and less than 1, not {holdout}")
        empty = next((i for i, f in enumerate(fields) if not any(map(str.strip, f.values()))), None)
        if empty is not None:
            raise PfesError(f"text {empty} is empty")
        examples = [Example(f, index[key]) for f, key in zip(fields, keys, strict=True)]
        pool, held_out = hold_out(len(examples), holdout)
        label_indices = np.array([examples[i].label for i in pool.tolist()], dtype=np.int64)
        train, validation = few_shot(name, task_spec.labels, label_indices, shots, seed)
        splits = [
            tuple(examples[i] for i in indices.tolist())
            for indices in (pool[train], pool[validation], held_out)
        ]
        return cls(task_spec, splits[0], splits[1], splits[2], shots, seed)

    @classmethod
    def from_frame(cls, frame: Any, label: str, **settings: Any) -> "Task":
        """Make a task from a DataFrame; `label` is the column that holds the labels.

        `settings` are those of `from_examples`; the template's placeholders are column names.
        """
        if label not in frame.columns:
            columns = ", ".join(map(str, frame.columns))
            raise PfesError(f"label: no column {label!r}; the columns are {columns}")
        return cls.from_examples(frame, frame[label], label=label, **settings)

    def to_json(self) -> dict[str, Any]:
        """Return the task, with all examples, as values for JSON."""
        splits = {name: getattr(self, name) for name in ("train", "validation", "test")}
        return {
            "spec": self.spec.model_dump(mode="json"),
            "shots": self.shots,
            "seed": self.seed,
            **{name: [asdict(example) for example in part] for name, part in splits.items()},
        }

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> "Task":
        """Make a task from what `to_json` returned; missing or wrong content is a `ValueError`."""
        try:
            spec = TaskSpec.model_validate(content["spec"])
            train, validation, test = (
                _examples(content[name]) for name in ("train", "validation", "test")
            )
            return cls(spec, train, validation, test, int(content["shots"]), int(content["seed"]))
        except (KeyError, TypeError) as error:
            raise ValueError(f"not a task: {error}") from None


def _examples(content: Sequence[Mapping[str, Any]]) -> tuple[Example, ...]:
    return tuple(Example(dict(item["fields"]), int(item["label"])) for item in content)


def _templates(template: str | Mapping[Family, str]) -> dict[Family, str]:
    if isinstance(template, Mapping):
        return dict(template)
    try:
        masked = MASK in placeholders(template)
    except ValueError:
        masked = False  # the check of the spec will say what is wrong
    return {"masked" if masked else "causal": template}
