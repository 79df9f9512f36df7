"""Command-line options, made from the settings that the run config declares."""

import inspect
from collections.abc import Callable, Collection
from typing import Any

import typer

from pfes.config import RunConfig
from pfes.errors import SettingError

Command = Callable[..., None]
ALL = tuple(RunConfig.model_fields)


def with_settings(names: Collection[str] = ALL) -> Callable[[Command], Command]:
    """Replace a command's `settings` parameter by an option for each of the named settings.

    An option that is not given is not in `settings`, so that a config file's value or the config's
    default applies.
    """
    return lambda command: _wrap(command, names)


def _wrap(command: Command, names: Collection[str]) -> Command:
    signature = inspect.signature(command)

    def wrapped(**arguments: Any) -> None:
        given = {k: v for k, v in arguments.items() if k in names and v is not None}
        rest = {k: v for k, v in arguments.items() if k not in names}
        command(settings=given, **rest)

    other_parameters = [
        p.replace(kind=inspect.Parameter.KEYWORD_ONLY)
        for p in signature.parameters.values()
        if p.name != "settings"
    ]
    parameters = [*_options(names), *other_parameters]
    wrapped.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    wrapped.__annotations__ = {p.name: p.annotation for p in parameters}
    wrapped.__name__ = command.__name__
    wrapped.__doc__ = command.__doc__
    return wrapped


def _options(names: Collection[str]) -> list[inspect.Parameter]:
    return [
        inspect.Parameter(
            name,
            inspect.Parameter.KEYWORD_ONLY,
            default=typer.Option(None, f"--{name.replace('_', '-')}", help=setting_help(name)),
            annotation=_plain_type(RunConfig.model_fields[name].annotation) | None,
        )
        for name in names
    ]


def _plain_type(annotation: Any) -> Any:
    """Return int, float, bool or str, the types typer knows; the config checks the exact type."""
    for kind in (bool, int, float):
        if annotation in (kind, kind | None):
            return kind
    return str


def setting_help(name: str) -> str:
    """Return a setting's help: what it is and, in brackets, its default."""
    field = RunConfig.model_fields[name]
    default = field.get_default()
    has_default = not field.is_required() and default is not None and default is not False
    return f"{field.description} [{default}]" if has_default else str(field.description)


def comma_parts(option: str, text: str) -> list[str]:
    """Return the parts of a comma-separated list, without repetitions; at least one is needed."""
    parts = list(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))
    if not parts:
        raise SettingError(option, f"{text!r} is empty; give at least one value")
    return parts
