"""`pfes predict`: use a saved prompt on texts of one's own."""

import json
from pathlib import Path
from typing import Annotated

import typer

from pfes.config import make_config
from pfes.errors import PfesError
from pfes.folder import RunFolder
from pfes.tasks import Example, TaskSpec
from pfes.tasks.data import read_file


def predict(
    folder: Annotated[Path, typer.Argument(help="run folder")],
    text: Annotated[
        list[str] | None,
        typer.Option("--text", help="a text; again for more (a pair task: its texts in turn)"),
    ] = None,
    file: Annotated[
        Path | None,
        typer.Option("--file", help="CSV, TSV, JSONL, Parquet, or .txt with a text per line"),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="print one JSON object a line")] = False,
) -> None:
    """Print the label of each text, with its probability among the labels."""
    from pfes.assemble import open_model
    from pfes.cli.progress import follow_scoring
    from pfes.saved import SavedPrompt, label_probabilities

    run = RunFolder(folder)
    saved = SavedPrompt.load(run)
    if (text is None) == (file is None):
        raise PfesError("give either --text or --file")
    examples = _from_texts(saved.spec, text) if text else _from_file(saved.spec, file)  # type: ignore[arg-type]
    model = open_model(make_config(**run.read_json(run.config)), saved.spec)
    score = follow_scoring(saved.score_steps(model, examples), len(examples), as_json)
    for example, row in zip(examples, label_probabilities(score.logprobs), strict=True):
        best = int(row.argmax())
        label = saved.spec.labels[best]
        if as_json:
            spread = dict(zip(saved.spec.labels, row.tolist(), strict=True))
            print(json.dumps({"label": label, "probabilities": spread, **example.fields}))
        else:
            words = saved.spec.verbalizers[label]
            print(f"{label}\t{words}\t{row[best]:.3f}\t{' | '.join(example.fields.values())}")


def _from_texts(spec: TaskSpec, texts: list[str]) -> list[Example]:
    names = spec.fields
    if len(texts) % len(names):
        raise PfesError(f"--text: this task takes {len(names)} texts each: {', '.join(names)}")
    groups = (texts[i : i + len(names)] for i in range(0, len(texts), len(names)))
    return [_example(spec, dict(zip(names, group, strict=True)), "--text") for group in groups]


def _from_file(spec: TaskSpec, path: Path) -> list[Example]:
    if path.suffix == ".txt":
        if len(spec.fields) != 1:
            raise PfesError(f"--file: a .txt file has one text a line, not {len(spec.fields)}")
        try:
            lines = path.read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise PfesError(f"--file {path}: {error}") from None
        rows = [{spec.fields[0]: line} for line in lines]
    else:
        rows = list(read_file(path))
    if not rows:
        raise PfesError(f"--file {path}: no texts in it")
    return [_example(spec, row, f"--file {path}, row {i}") for i, row in enumerate(rows, start=1)]


def _example(spec: TaskSpec, row: dict[str, str], place: str) -> Example:
    missing = [name for name in spec.fields if row.get(name) is None]
    if missing:
        raise PfesError(f"{place}: no {missing[0]!r}; its columns are {', '.join(map(str, row))}")
    fields = {name: str(row[name]) for name in spec.fields}
    if not any(value.strip() for value in fields.values()):
        raise PfesError(f"{place}: empty text")
    return Example(fields, label=0)  # the label of a text to predict is not read
