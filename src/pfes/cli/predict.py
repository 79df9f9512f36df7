"""`pfes predict`: label texts with a saved prompt."""

import json
import sys
from collections.abc import Iterator
from contextlib import nullcontext
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pfes.cli.evaluate import Trust
from pfes.errors import PfesError, SettingError, printable
from pfes.tasks import Example, TaskSpec
from pfes.tasks.data import Row, RowWriter
from pfes.tasks.texts import read_texts, unknown_example

if TYPE_CHECKING:
    from pfes.deploy.prompt import SavedPrompt


def predict(
    folder: Annotated[Path, typer.Argument(help="run folder, or folder of an export")],
    text: Annotated[
        list[str] | None,
        typer.Option(
            "--text", help="a text to label; repeat it for more (for pairs, give both in turn)"
        ),
    ] = None,
    file: Annotated[
        Path | None,
        typer.Option(
            "--file", help="CSV, TSV, JSONL or Parquet file, or .txt with one text per line"
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", help="CSV, TSV or JSONL file to write: the rows with their labels"),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(help="where the model is, such as vllm:URL [as in the run]"),
    ] = None,
    tokenizer: Annotated[
        str | None, typer.Option(help="tokenizer and input embedding of a served model")
    ] = None,
    served_name: Annotated[
        str | None, typer.Option(help="the model's name on its server [its only model]")
    ] = None,
    device: Annotated[
        str | None, typer.Option(help="such as cpu or cuda [a GPU if there is one]")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="print one JSON object per line")] = False,
    trust_remote_code: Trust = False,
) -> None:
    """Label each text, and give the probability of every label (they add up to 1).

    Files are read and written row by row, so they can be of any length. A row without text gets no
    label.
    """
    from pfes.cli.progress import counting
    from pfes.deploy.classifier import Classifier
    from pfes.deploy.prompt import SavedPrompt

    if (text is None) == (file is None):
        raise PfesError("give either --text or --file")
    saved = SavedPrompt.load(folder)
    spec = saved.spec
    address = _address(saved, model, tokenizer, served_name)
    rows = _from_texts(spec, text) if text else read_texts(spec, file, "file")  # type: ignore[arg-type]
    first = next(rows, None)
    if first is None:
        raise SettingError("file", f"{file} has no texts")
    if out is not None and file is not None and out.resolve() == file.resolve():
        raise SettingError("out", f"{out} is the file that is read: choose another name")
    added = {"predicted", "probabilities", *(f"p_{label}" for label in spec.labels)}
    clashes = added & first[0].keys()
    if out is not None and clashes:
        message = f"{file} has a column {clashes.pop()!r}, which --out would overwrite"
        raise SettingError("file", message)
    opened_out = nullcontext(None) if out is None else RowWriter(out)
    if sys.stderr.isatty():
        print("loading model", file=sys.stderr)
    opened_model = saved.open_model(device=device, trust_remote_code=trust_remote_code, **address)
    classifier = Classifier.from_prompt(saved, opened_model)
    unlabelled = 0
    # without --out the printed lines show the progress, and a counter would mix with them
    with opened_out as writer, counting("texts", quiet=out is None) as count:
        for row, example, probabilities in _labelled(classifier, chain([first], rows)):
            unlabelled += probabilities is None
            if writer is not None:
                writer.write(_as_row(spec, row, probabilities, nested=writer.nested))
            else:
                _print(spec, example, probabilities, as_json)
            count()
    opened_model.close()
    if unlabelled:
        print(f"{unlabelled} rows have no text and got no label", file=sys.stderr)


def _address(
    saved: "SavedPrompt", model: str | None, tokenizer: str | None, served_name: str | None
) -> dict[str, str | None]:
    """Return where the model is; a server's tokenizer is by default that of the run's model."""
    from pfes.config import is_served, takes_only_text

    if takes_only_text(model or saved.config.model):
        tokenizer = tokenizer or saved.config.tokenizer
    elif is_served(model or saved.config.model):
        if model is not None and tokenizer is None:
            tokenizer = saved.config.tokenizer or saved.config.model
    else:
        for name, value in (("tokenizer", tokenizer), ("served_name", served_name)):
            if value is not None:
                raise SettingError(name, "this is for a served model (--model vllm:URL)")
    return {"model": model, "tokenizer": tokenizer, "served_name": served_name}


Labelled = tuple[Row, Example, list[float] | None]


def _labelled(classifier: Any, rows: Iterator[tuple[Row, Example]]) -> Iterator[Labelled]:
    from pfes.deploy.classifier import CHUNK

    while chunk := list(islice(rows, CHUNK)):
        with_text = [example for _, example in chunk if not example.is_empty]
        probabilities = iter(classifier.probabilities(with_text).tolist() if with_text else [])
        for row, example in chunk:
            yield row, example, None if example.is_empty else next(probabilities)


def _best(spec: TaskSpec, probabilities: list[float]) -> str:
    return spec.labels[max(range(len(probabilities)), key=probabilities.__getitem__)]


def _as_row(spec: TaskSpec, row: Row, probabilities: list[float] | None, nested: bool) -> Row:
    """Return a row with its label and probabilities: columns, or one object if `nested` (JSONL)."""
    values: list[float | None] = [None] * len(spec.labels)
    if probabilities is not None:
        values = [*probabilities]
    label = None if probabilities is None else _best(spec, probabilities)
    if nested:
        by_label = dict(zip(spec.labels, values, strict=True))
        return row | {"predicted": label, "probabilities": by_label}
    columns = {f"p_{name}": value for name, value in zip(spec.labels, values, strict=True)}
    return row | {"predicted": label, **columns}


def _print(
    spec: TaskSpec, example: Example, probabilities: list[float] | None, as_json: bool
) -> None:
    if probabilities is None:
        label, word, probability = None, "", 0.0
    else:
        label = _best(spec, probabilities)
        word, probability = spec.verbalizers[label], max(probabilities)
    if as_json:
        by_label = dict(zip(spec.labels, probabilities or [], strict=False))
        print(json.dumps({"label": label, "probabilities": by_label, **example.fields}))
    else:
        text = printable(" | ".join(example.fields.values()))
        print(f"{label}\t{word}\t{probability:.3f}\t{text}")


def _from_texts(spec: TaskSpec, texts: list[str]) -> Iterator[tuple[Row, Example]]:
    names = spec.fields
    if len(texts) % len(names):
        raise SettingError(
            "text", f"this task needs {len(names)} texts per example: {', '.join(names)}"
        )
    for start in range(0, len(texts), len(names)):
        row = dict(zip(names, texts[start : start + len(names)], strict=True))
        example = unknown_example(spec, row, "--text")
        if example.is_empty:
            raise SettingError("text", "empty text")
        yield row, example
