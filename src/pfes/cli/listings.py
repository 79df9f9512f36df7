"""`pfes tasks`, `pfes models` and `pfes methods`: list what is available."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from pfes.cli.data_columns import LabelColumn, TextColumns, dropped_sentence, show_columns
from pfes.cli.options import with_settings

tasks = typer.Typer(help="List, show and check tasks.", invoke_without_command=True)
methods = typer.Typer(help="List and show methods.", invoke_without_command=True)


def print_table(title: str, columns: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> None:
    table = Table(title=title, title_justify="left")
    for i, column in enumerate(columns):
        table.add_column(column, no_wrap=i == 0)
    for row in rows:
        table.add_row(*row)
    Console().print(table)


@tasks.callback()
def list_tasks(context: typer.Context) -> None:
    """List the tasks that come with pfes."""
    from pfes.tasks import builtin_tasks, read_spec

    if context.invoked_subcommand is not None:
        return
    specs = [read_spec(name)[0] for name in builtin_tasks()]
    rows = [(s.name, s.description, ", ".join(s.verbalizers.values()), s.metric) for s in specs]
    print_table("Tasks; your own is a YAML file", ("name", "what", "words", "metric"), rows)


@tasks.command("show")
def show_task(name: Annotated[str, typer.Argument(help="task name or YAML file")]) -> None:
    """Print a task as YAML, as a starting point for your own."""
    import yaml

    from pfes.tasks import read_spec

    spec, _ = read_spec(name)
    content = spec.model_dump(exclude_defaults=True)
    print(yaml.safe_dump(content, sort_keys=False, allow_unicode=True), end="")


@tasks.command("new")
def new_task(
    file: Annotated[Path, typer.Argument(help="labelled CSV, TSV, JSONL or Parquet file")],
    label: LabelColumn = None,
    text: TextColumns = None,
    model: Annotated[
        str | None, typer.Option(help="choose words that are one token of this model")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="task file to write [beside the data, named after it]")
    ] = None,
) -> None:
    """Write a task file for labelled data: columns, template and words, to be edited."""
    from pfes.errors import SettingError
    from pfes.system.files import replace_file
    from pfes.tasks.columns import find_columns
    from pfes.tasks.draft import draft_task
    from pfes.tasks.label_words import label_words

    target = out or file.with_suffix(".yaml")
    if target.suffix not in (".yaml", ".yml"):
        raise SettingError("out", f"{target} must end in .yaml")
    if target.exists():
        raise SettingError("out", f"{target} exists: name another file, or remove it")
    columns = find_columns(file, label, text or ())
    words = dict.fromkeys(columns.labels, "")
    if model is not None:
        from pfes.models.source import find_model

        words |= label_words(list(columns.labels), find_model(model).tokenizer)
    draft = draft_task(file, columns, target.parent, {k: w or k for k, w in words.items()})
    show_columns(columns)
    missing = [name for name, word in words.items() if not word]
    if model is not None and missing:
        print(f"no word of one token for {', '.join(map(repr, missing))}: write one into the file")
    replace_file(target, draft.yaml().encode())
    print(f"wrote {target}: check it with pfes tasks check {target}")


@tasks.command("check")
@with_settings(("shots", "balance", "seed", "data_dir"))
def check_task(
    settings: dict[str, Any],
    file: Annotated[str, typer.Argument(help="task name or YAML file")],
    model: Annotated[
        str | None,
        typer.Option(help="also check that each verbalizer word is one token of this model"),
    ] = None,
) -> None:
    """Check a task and its data, and show one example as the model would read it."""
    from pfes.config import make_config
    from pfes.tasks.encode import verbalizer_tokens
    from pfes.tasks.loader import load_run_task
    from pfes.tasks.spec import MASK
    from pfes.tasks.turns import messages, turns

    task = load_run_task(make_config(model=model or "", task=file, **settings))
    if model is not None:
        from pfes.models.source import find_model

        tokens = verbalizer_tokens(task.spec, find_model(model).tokenizer)
    print(
        f"{task.name}: {len(task.train)} training, {len(task.validation)} validation, "
        f"{len(task.test)} test examples"
    )
    if task.dropped:
        print(dropped_sentence(task))
    example = task.train[0]
    label = task.spec.labels[example.label]
    for family, template in task.spec.templates.items():
        filled = template.format_map(example.fields | {MASK: "[MASK]"})
        print(f"{family}: {filled!r} → {task.spec.verbalizers[label]!r} (label {label})")
        if family == "causal":
            for message in messages(turns(task.spec, "".join(task.spec.demonstrations), filled)):
                print(f"chat: {message['role']}: {message['content']!r}")
    if model is None:
        print("The words were not checked against a tokenizer: add --model to do so")
    else:
        words = zip(task.spec.verbalizers.values(), tokens, strict=True)
        print("words, one token each: " + ", ".join(f"{word} ({token})" for word, token in words))


def models() -> None:
    """List the embedded models and how to name others."""
    from pfes.models.embedded_models import MODELS, embedded_model, is_cached

    rows = [
        (name, model.description, "here" if is_cached(name) else f"{model.file.megabytes} MB")
        for name, model in MODELS.items()
    ]
    print_table("Embedded models", ("name", "what", "download"), rows)
    for name in filter(is_cached, MODELS):
        print(f"{name} is in {embedded_model(name)}")
    print("Any other masked or causal language model: --model FOLDER or --model OWNER/NAME (Hub)")


@methods.callback()
def list_methods(context: typer.Context) -> None:
    """List the methods, one line each."""
    from pfes.methods import METHODS

    if context.invoked_subcommand is None:
        print_table("Methods", ("name", "what"), [(m.name, m.summary) for m in METHODS.values()])


@methods.command("show")
def show_method(name: Annotated[str, typer.Argument(help="method name")]) -> None:
    """Print what a method is made of, and its settings with their defaults and sources."""
    from pfes.config import shown_value, source_of
    from pfes.methods import PRESETS, get_method, settings_of

    method = get_method(name)
    print(f"{method.name}: {method.summary}")
    rows = []
    for setting in (*settings_of(method), "shots"):
        default = getattr(method, setting, None)
        if default is not None:
            values, source = (default.masked, default.causal), default.source
            shown = " masked, ".join(f"{v:.4g}" for v in dict.fromkeys(values))
            shown += " causal" if len(set(values)) > 1 else ""
            if setting == "sigma0" and method.space != "tokens":
                shown = f"auto; paper: {shown}"
                source = f"ours, measured: docs/defaults.md; {source}"
        else:
            shown, source = source_of(setting)
        rows.append((f"--{setting.replace('_', '-')}", shown, source))
    if rows:
        print_table("Defaults", ("setting", "default", "source"), rows)
    for preset, methods_settings in PRESETS.items():
        given = methods_settings.get(method.name, {})
        pairs = [(f"--{k.replace('_', '-')}", shown_value(v)) for k, v in given.items()]
        if pairs:
            print_table(f"--preset {preset}", ("setting", "value"), pairs)
