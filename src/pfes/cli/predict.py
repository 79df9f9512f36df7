"""`pfes predict`: use a saved prompt on texts of one's own."""

import json
import sys
from collections.abc import Iterator
from contextlib import nullcontext
from itertools import chain, islice
from pathlib import Path
from typing import Annotated, Any

import typer

from pfes.cli.evaluate import Trust
from pfes.errors import PfesError, printable
from pfes.tasks import Example, TaskSpec
from pfes.tasks.data import Row, RowWriter, read_file
from pfes.tasks.task import as_text


def predict(
    folder: Annotated[Path, typer.Argument(help="run folder, or an export")],
    text: Annotated[
        list[str] | None,
        typer.Option("--text", help="a text; again for more (a pair task: its texts in turn)"),
    ] = None,
    file: Annotated[
        Path | None,
        typer.Option("--file", help="CSV, TSV, JSONL, Parquet, or .txt with a text per line"),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", help="CSV, TSV or JSONL file to write, or replace: the rows and their labels"
        ),
    ] = None,
    device: Annotated[str | None, typer.Option(help="such as cpu, cuda [GPU, else CPU]")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="print one JSON object a line")] = False,
    trust_remote_code: Trust = False,
) -> None:
    """Label each text, with the labels' probabilities among themselves.

    Files are read and written row by row, however long they are. A row without text is left
    without a label.
    """
    from pfes.classifier import Classifier
    from pfes.cli.progress import counting
    from pfes.saved import SavedPrompt

    if (text is None) == (file is None):
        raise PfesError("give either --text or --file")
    spec = SavedPrompt.load(folder).spec
    rows = _from_texts(spec, text) if text else read_texts(spec, file)  # type: ignore[arg-type]
    first = next(rows, None)
    if first is None:
        raise PfesError(f"--file {file}: no texts in it")
    if out is not None and file is not None and out.resolve() == file.resolve():
        raise PfesError(f"--out {out} is the file that is read")
    own = {"predicted", "probabilities", *(f"p_{label}" for label in spec.labels)}
    clash = own & first[0].keys()
    if out is not None and clash:
        raise PfesError(f"--file {file} has a column {clash.pop()!r}, which --out would lose")
    writing = nullcontext(None) if out is None else RowWriter(out)
    if sys.stderr.isatty():
        print("loading model", file=sys.stderr)
    place: dict[str, Any] = {"device": device, "trust_remote_code": trust_remote_code}
    classifier = Classifier.from_run(folder, **place)
    unlabelled = 0
    # what is printed is progress enough; and a bar would take the lines for its own
    with writing as writer, counting("texts", quiet=out is None) as count:
        for row, example, probabilities in _labelled(classifier, chain([first], rows)):
            unlabelled += probabilities is None
            if writer is not None:
                writer.write(_as_row(spec, row, probabilities, nested=writer.nested))
            else:
                _print(spec, example, probabilities, as_json)
            count()
    if unlabelled:
        print(f"{unlabelled} rows have no text, and no label", file=sys.stderr)


Labelled = tuple[Row, Example, list[float] | None]


def _labelled(classifier: Any, rows: Iterator[tuple[Row, Example]]) -> Iterator[Labelled]:
    from pfes.classifier import CHUNK

    while chunk := list(islice(rows, CHUNK)):
        full = [example for _, example in chunk if not _empty(example)]
        found = iter(classifier.probabilities(full).tolist() if full else [])
        for row, example in chunk:
            yield row, example, None if _empty(example) else next(found)


def _empty(example: Example) -> bool:
    return not any(value.strip() for value in example.fields.values())


def _best(spec: TaskSpec, probabilities: list[float]) -> str:
    return spec.labels[max(range(len(probabilities)), key=probabilities.__getitem__)]


def _as_row(spec: TaskSpec, row: Row, probabilities: list[float] | None, nested: bool) -> Row:
    """Return a row of the file with its label; probabilities are columns, or an object in JSONL."""
    values: list[float | None] = [None] * len(spec.labels)
    if probabilities is not None:
        values = [*probabilities]
    label = None if probabilities is None else _best(spec, probabilities)
    if nested:
        spread = dict(zip(spec.labels, values, strict=True))
        return row | {"predicted": label, "probabilities": spread}
    columns = {f"p_{name}": value for name, value in zip(spec.labels, values, strict=True)}
    return row | {"predicted": label, **columns}


def _print(
    spec: TaskSpec, example: Example, probabilities: list[float] | None, as_json: bool
) -> None:
    if probabilities is None:
        label, words, best = None, "", 0.0
    else:
        label = _best(spec, probabilities)
        words, best = spec.verbalizers[label], max(probabilities)
    if as_json:
        spread = dict(zip(spec.labels, probabilities or [], strict=False))
        print(json.dumps({"label": label, "probabilities": spread, **example.fields}))
    else:
        text = printable(" | ".join(example.fields.values()))
        print(f"{label}\t{words}\t{best:.3f}\t{text}")


def _from_texts(spec: TaskSpec, texts: list[str]) -> Iterator[tuple[Row, Example]]:
    names = spec.fields
    if len(texts) % len(names):
        raise PfesError(f"--text: this task takes {len(names)} texts each: {', '.join(names)}")
    for start in range(0, len(texts), len(names)):
        row = dict(zip(names, texts[start : start + len(names)], strict=True))
        example = _example(spec, row, "--text")
        if _empty(example):
            raise PfesError("--text: empty text")
        yield row, example


def read_texts(spec: TaskSpec, path: Path) -> Iterator[tuple[Row, Example]]:
    """Yield the rows of a file with their texts."""
    rows = _read_lines(spec, path) if path.suffix == ".txt" else read_file(path)
    for number, row in enumerate(rows, start=1):
        yield row, _example(spec, row, f"--file {path}, row {number}")


def _read_lines(spec: TaskSpec, path: Path) -> Iterator[Row]:
    if len(spec.fields) != 1:
        raise PfesError(f"--file: a .txt file has one text a line, not {len(spec.fields)}")
    try:
        with path.open(encoding="utf-8-sig") as file:
            for line in file:
                yield {spec.fields[0]: line.rstrip("\r\n")}
    except (OSError, UnicodeDecodeError) as error:
        raise PfesError(f"--file {path}: {error}") from None


def _example(spec: TaskSpec, row: Row, place: str) -> Example:
    missing = [name for name in spec.fields if name not in row]
    if missing:
        raise PfesError(f"{place}: no {missing[0]!r}; its columns are {', '.join(map(str, row))}")
    whole = all(row[name] is not None for name in spec.fields)  # of half a pair there is no label
    fields = {name: as_text(row[name]) if whole else "" for name in spec.fields}
    return Example(fields, label=0)  # the label of a text to predict is not read
