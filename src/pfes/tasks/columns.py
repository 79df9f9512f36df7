"""Which column of a labelled file holds the label, and which ones hold the texts."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path

from pfes.errors import PfesError, SettingError
from pfes.tasks.data import Row, delimiter_of, read_file
from pfes.tasks.example import is_missing
from pfes.tasks.file_check import other_separator
from pfes.tasks.spec import label_key

SCANNED = 20_000  # rows that are looked at to find the columns; labels are counted in all rows
MOST_ROWS = 1_000_000
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
    rows: int  # of the file
    empty: int  # rows without a text or a label
    guessed: bool  # whether the label's column was guessed


def find_columns(path: Path, label: str | None = None, texts: Sequence[str] = ()) -> Columns:
    """Find the columns of a file; those that are given are checked."""
    further = read_file(path)
    rows = list(islice(further, SCANNED))
    if not rows:
        raise PfesError(
            f"{path} has no rows: it needs a line with the names of the columns, and a row for "
            "each example"
        )
    names = [str(name) for name in rows[0]]
    separator = other_separator(names[0], delimiter_of(path)) if len(names) == 1 else None
    if separator is not None:
        raise PfesError(f"{path} has one column: {separator}")
    for setting, wanted in (("label", [label] if label is not None else []), ("text", texts)):
        for name in wanted:
            if name not in names:
                raise SettingError(setting, f"{path} has no column {name!r}: {_listed(names)}")
    chosen = label if label is not None else _label_column(path, rows, names, texts)
    if chosen in texts:
        raise SettingError("text", f"{chosen!r} is the label's column")
    found = tuple(texts) or _text_columns(path, rows, [n for n in names if n != chosen])
    counts, empty = _count_labels(path, chain(rows, further), chosen, found)
    if not counts:
        raise PfesError(f"{path}: none of its {empty} rows has both a text and a label: fill in")
    if len(counts) == 1:
        only = next(iter(counts))
        raise PfesError(
            f"{path}: column {chosen!r} has one label, {only!r}: at least two are needed; add rows "
            "with others, or name another column with --label"
        )
    total = counts.total() + empty
    return Columns(chosen, found, dict(counts), total, empty, guessed=label is None)


def _count_labels(
    path: Path, rows: Iterator[Row], label: str, texts: Sequence[str]
) -> tuple[Counter[str], int]:
    """Return how often each label occurs, and how many rows have no label or no text."""
    counts: Counter[str] = Counter()
    empty = 0
    for number, row in enumerate(rows, start=1):
        if number > MOST_ROWS:
            raise PfesError(
                f"{path} has more than {MOST_ROWS:,} rows: take a part of it; a few hundred rows "
                "of each label are enough"
            )
        if any(is_missing(row.get(name)) for name in (label, *texts)):
            empty += 1
            continue
        counts[label_key(row[label])] += 1
        if len(counts) > MOST_LABELS:
            raise SettingError(
                "label",
                f"column {label!r} of {path} has more than {MOST_LABELS} different values, which "
                "is too many for labels: name another column",
            )
    return counts, empty


def _label_column(path: Path, rows: list[Row], names: list[str], texts: Sequence[str]) -> str:
    """Return the column that looks like labels: by its name, or by few and short values."""
    likely, uniform = [], []
    for place, name in enumerate(names):
        if name in texts:
            continue
        values = [label_key(row[name]) for row in rows if row.get(name) is not None]
        kinds = set(values)
        named = name.strip().lower() in LABEL_NAMES
        short = sum(len(value.split()) for value in values) <= WORDS_OF_A_TEXT * len(values)
        if 2 <= len(kinds) <= min(MOST_LABELS, max(2, len(values) // 2)) and short:
            likely.append((not named, len(kinds), place, name))
        elif len(kinds) == 1 and named:
            uniform.append(name)
    if not likely and uniform:
        return uniform[0]  # the label's column by its name: that it has one label is said later
    if not likely:
        raise SettingError(
            "label",
            f"no column of {path} looks like labels, with few and short values: name it; "
            f"{_listed(names)}",
        )
    return min(likely)[3]


def _text_columns(path: Path, rows: list[Row], names: list[str]) -> tuple[str, ...]:
    """Return the column with the most words, and a second one that also holds texts."""
    words = {name: sum(len(_text(row, name).split()) for row in rows) / len(rows) for name in names}
    if not any(words.values()):
        raise PfesError(
            f"{path} has no column with texts beside the label's: fill one in; "
            f"{_listed(names) if names else 'it has no other column'}"
        )
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
