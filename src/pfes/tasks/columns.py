"""Which column of a labelled file holds the label, and which ones hold the texts."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from pfes.errors import PfesError, SettingError
from pfes.tasks.data import Row, read_file
from pfes.tasks.spec import label_key

SCANNED = 20_000  # rows that are looked at
MOST_LABELS = 100
LABEL_NAMES = (
    "label", "labels", "class", "category", "target", "sentiment", "intent", "topic", "y", "tag",
)  # fmt: skip
WORDS_OF_A_TEXT = 3.0  # a column with fewer words in the mean is no text, unless there is no other
SECOND_TEXT = 0.2  # the second text of a pair has at least this part of the first one's words


@dataclass(frozen=True)
class Columns:
    """What the columns of a file are for."""

    label: str
    texts: tuple[str, ...]  # one, or two for a pair
    labels: dict[str, int]  # how often each occurs, in the order in which they first come
    rows: int  # that were looked at
    empty: int  # rows without a text or a label
    guessed: bool  # whether the label's column was guessed


def find_columns(path: Path, label: str | None = None, texts: Sequence[str] = ()) -> Columns:
    """Find the columns of a file; those that are given are checked."""
    rows = list(islice(read_file(path), SCANNED))
    if not rows:
        raise PfesError(f"{path} has no rows")
    names = [str(name) for name in rows[0]]
    for setting, wanted in (("label", [label] if label is not None else []), ("text", texts)):
        for name in wanted:
            if name not in names:
                raise SettingError(setting, f"{path} has no column {name!r}: {_listed(names)}")
    chosen = label if label is not None else _label_column(path, rows, names, texts)
    if chosen in texts:
        raise SettingError("text", f"{chosen!r} is the label's column")
    found = tuple(texts) or _text_columns(path, rows, [n for n in names if n != chosen])
    counts: Counter[str] = Counter()
    empty = 0
    for row in rows:
        value = row.get(chosen)
        complete = all(_text(row, name) for name in found)
        if value is None or not label_key(value) or not complete:
            empty += 1
            continue
        counts[label_key(value)] += 1
    _check_labels(path, chosen, counts, empty)
    return Columns(chosen, found, dict(counts), len(rows), empty, guessed=label is None)


def _check_labels(path: Path, label: str, counts: Counter[str], empty: int) -> None:
    if not counts:
        raise PfesError(f"{path}: none of its {empty} rows has both a text and a label")
    if len(counts) == 1:
        only = next(iter(counts))
        raise PfesError(
            f"{path}: column {label!r} has one label, {only!r}: at least two are needed"
        )
    if len(counts) > MOST_LABELS:
        raise SettingError(
            "label",
            f"column {label!r} of {path} has {len(counts)} different values, which is too many for "
            f"labels (at most {MOST_LABELS}): name another column",
        )


def _label_column(path: Path, rows: list[Row], names: list[str], texts: Sequence[str]) -> str:
    """Return the column that looks like labels: by its name, or by few and short values."""
    likely = []
    for place, name in enumerate(names):
        if name in texts:
            continue
        values = [label_key(row[name]) for row in rows if row.get(name) is not None]
        kinds = set(values)
        short = sum(len(value.split()) for value in values) <= WORDS_OF_A_TEXT * len(values)
        if 2 <= len(kinds) <= min(MOST_LABELS, max(2, len(values) // 2)) and short:
            named = name.strip().lower() in LABEL_NAMES
            likely.append((not named, len(kinds), place, name))
    if not likely:
        raise SettingError(
            "label", f"no column of {path} looks like labels: name it; {_listed(names)}"
        )
    return min(likely)[3]


def _text_columns(path: Path, rows: list[Row], names: list[str]) -> tuple[str, ...]:
    """Return the column with the most words, and a second one that also holds texts."""
    words = {name: sum(len(_text(row, name).split()) for row in rows) / len(rows) for name in names}
    if not any(words.values()):
        raise PfesError(f"{path} has no column with texts beside the label's: {_listed(names)}")
    first = max(words, key=lambda name: words[name])
    others = [
        name
        for name in names
        if name != first
        and words[name] >= max(WORDS_OF_A_TEXT, SECOND_TEXT * words[first])
        and len({_text(row, name) for row in rows}) > len(rows) / 10
    ]
    if not others:
        return (first,)
    second = max(others, key=lambda name: words[name])
    return tuple(name for name in names if name in (first, second))


def _text(row: Row, name: str) -> str:
    value = row.get(name)
    return "" if value is None else str(value).strip()


def _listed(names: Sequence[str]) -> str:
    return f"its columns are {', '.join(names)}"
