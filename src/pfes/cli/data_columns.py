"""The columns of labelled data: options that name them, and what was found."""

from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from pfes.tasks.columns import Columns
    from pfes.tasks.task import Task

LabelColumn = Annotated[
    str | None, typer.Option("--label", help="column of the labels [the one that looks like it]")
]
TextColumns = Annotated[
    list[str] | None,
    typer.Option("--text", help="column of the texts; twice for a pair [those with most words]"),
]


def show_columns(columns: "Columns") -> None:
    """Print which columns hold the label and the texts, and which rows are of no use."""
    guessed = " (guessed: --label names another)" if columns.guessed else ""
    print(f"Label: column {columns.label!r}{guessed}, {len(columns.labels)} labels")
    print(f"Text: {' and '.join(f'column {name!r}' for name in columns.texts)}")
    if columns.empty:
        print(f"{columns.empty} of {columns.rows} rows have no text or no label: left out")


def dropped_sentence(task: "Task") -> str:
    """Say how many examples are of no use because the test has their texts, too."""
    return f"{task.dropped} examples are not drawn: their texts are in the test data, too"
