"""A task with its examples."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
from pydantic import ValidationError

from pfes.config import ALL, DEFAULT_SHOTS, EQUAL, Balance, Shots
from pfes.contract import Family
from pfes.errors import PfesError, SettingError
from pfes.tasks.duplicates import not_among, text_hash
from pfes.tasks.example import UNKNOWN, Example, text_fields
from pfes.tasks.spec import MASK, TaskSpec, label_key, placeholders, validation_message
from pfes.tasks.split import checked_balance, few_shot, hold_out, label_shares

HOLDOUT = 0.2  # part of the examples held out for the test
SPLITS = ("train", "validation", "test", "unlabelled")


@dataclass(frozen=True)
class Task:
    """A task with a few labelled examples to search with, and held-out ones to test with."""

    spec: TaskSpec
    train: tuple[Example, ...]
    validation: tuple[Example, ...]
    test: tuple[Example, ...]  # may be empty; then there is no test
    shots: Shots
    seed: int
    # of each label in the data that the examples are drawn from; empty if not known
    shares: tuple[float, ...] = field(default=(), compare=False)
    unlabelled: tuple[Example, ...] = ()  # further texts, whose labels are not known
    balance: Balance = EQUAL
    # examples that were not drawn from because their texts are in the test, too
    dropped: int = field(default=0, compare=False)

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
        shots: Shots = DEFAULT_SHOTS,
        seed: int = 0,
        holdout: float = HOLDOUT,
        unlabelled: Any = (),
        balance: Balance | None = None,
        **spec: Any,
    ) -> "Task":
        """Make a task from labelled texts, without a file.

        `texts` are strings; if the template has several placeholders, sequences in their order,
        mappings, or a DataFrame. A template with `{mask}` is for masked models, one without is for
        causal models; give both as a mapping. `verbalizers` maps labels to words; by default the
        labels themselves are the words. The part `holdout` of the examples is held out for the
        test; of the others, `shots` per class are used for training and as many for validation.
        If `shots` is "all", half of each class is for each; `balance` says what is drawn where
        classes differ in size. Texts that are also held out are never drawn.
        `unlabelled` are further texts, from which a reading's offsets may learn.
        `spec` holds other fields of `TaskSpec`, such as `metric`.
        """
        given = list(labels)
        missing = next(
            (i for i, label in enumerate(given) if label is None or label != label), None
        )
        if missing is not None:
            raise PfesError(f"label {missing} is missing")
        balance = checked_balance(shots, balance)
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
        hashes = np.array([text_hash(f.values()) for f in fields], dtype=np.int64)
        usable = not_among(hashes[pool], hashes[held_out])
        train, validation = few_shot(
            name, task_spec.labels, label_indices, shots, seed, balance, usable
        )
        parts = {"train": pool[train], "validation": pool[validation], "test": held_out}
        splits: dict[str, Any] = {
            part: tuple(examples[i] for i in chosen.tolist()) for part, chosen in parts.items()
        }
        further = [Example(f, UNKNOWN) for f in text_fields(unlabelled, task_spec.fields)]
        splits["unlabelled"] = tuple(example for example in further if not example.is_empty)
        shares = label_shares(label_indices, len(task_spec.labels))
        splits |= {"balance": balance, "dropped": len(pool) - int(usable.sum())}
        return cls(task_spec, shots=shots, seed=seed, shares=shares, **splits)

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
        splits = {name: getattr(self, name) for name in SPLITS}
        return {
            "spec": self.spec.model_dump(mode="json"),
            "shots": self.shots,
            "seed": self.seed,
            "balance": self.balance,
            "dropped": self.dropped,
            "shares": list(self.shares),
            **{name: [asdict(example) for example in part] for name, part in splits.items()},
        }

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> "Task":
        """Make a task from what `to_json` returned; missing or wrong content is a `ValueError`."""
        try:
            spec = TaskSpec.model_validate(content["spec"])
            # what earlier versions did not store
            content = {"unlabelled": (), "balance": EQUAL, "dropped": 0, **content}
            splits: dict[str, Any] = {name: _examples(content[name]) for name in SPLITS}
            shares = tuple(float(share) for share in content.get("shares", ()))
            shots: Shots = ALL if content["shots"] == ALL else int(content["shots"])
            splits["balance"] = checked_balance(shots, content["balance"])
            splits["dropped"] = int(content["dropped"])
            return cls(spec, shots=shots, seed=int(content["seed"]), shares=shares, **splits)
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
