"""`pfes search`: search a prompt for a model and a task."""

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from pfes.cli.options import with_settings
from pfes.cli.results import show_profile, show_result
from pfes.config import FORMER, WRITTEN_BY, make_config
from pfes.errors import SettingError
from pfes.methods import METHOD_SETTINGS, get_method, settings_of
from pfes.runs.result import Result
from pfes.system.yaml_file import read_yaml

INTERRUPTED = 130  # exit code of a program stopped by Ctrl-C, as shells have it


@with_settings()
def search(
    settings: dict[str, Any],
    out: Annotated[Path, typer.Option("--out", help="run folder to write")],
    resume: Annotated[bool, typer.Option("--resume", help="continue the run in --out")] = False,
    config: Annotated[
        Path | None, typer.Option("--config", help="YAML file of settings; options override it")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="print the result as JSON only")] = False,
    profile: Annotated[bool, typer.Option("--profile", help="print where the time went")] = False,
    tensorboard: Annotated[
        bool, typer.Option("--tensorboard", help="also log to the folder tensorboard in --out")
    ] = False,
) -> None:
    """Search a prompt and save it, with its history and result, in a run folder."""
    if config is not None:
        settings = read_settings(config, settings.get("method")) | settings
    result = run_and_show(settings, out, resume, as_json, tensorboard)
    if profile:
        show_profile(result)


def run_and_show(
    settings: dict[str, Any],
    out: Path,
    resume: bool,
    as_json: bool,
    tensorboard: bool = False,
) -> Result:
    """Start or resume a search, show its progress, and print its result."""
    from pfes.cli.progress import follow
    from pfes.reporting.tensorboard import FOLDER, check_installed, logged
    from pfes.runs.start import start_run

    if tensorboard:
        check_installed()
    started = start_run(settings, out, resume=resume)
    events = started.events()
    if tensorboard and started.ended is None:
        events = logged(events, out / FOLDER)
    try:
        result = follow(events, started.config.budget, as_json, started.config.minutes)
    except KeyboardInterrupt:
        print(f"\nStopped. Continue with: pfes search --out {out} --resume", file=sys.stderr)
        raise typer.Exit(INTERRUPTED) from None
    show_result(result, out, as_json)
    return result


def read_settings(path: Path, method: str | None = None) -> dict[str, Any]:
    """Return the settings of a YAML or JSON file; `method` stands over the file's own."""
    content: dict[str, Any] = read_yaml(path, "--config")  # YAML includes JSON
    if not isinstance(content, dict):
        raise SettingError("config", f"{path} is not a mapping of settings")
    if not all(isinstance(name, str) for name in content):
        raise SettingError("config", f"{path}: the name of a setting must be text")
    if WRITTEN_BY in content:  # the config.json of a run, which has every setting
        content = given_settings(content | ({} if method is None else {"method": method}))
    if content.get("trust_remote_code"):
        raise SettingError(
            "config", f"{path}: --trust-remote-code cannot be set in a file; give it as an option"
        )
    return content


def given_settings(stored: dict[str, Any]) -> dict[str, Any]:
    """Return the settings of a run's config.json that its method uses and that are not defaults.

    The file has all the others, too; they would be refused as settings that the method does not
    use.
    """
    aside = {WRITTEN_BY, "trust_remote_code"}  # consent is given anew each time
    stored = FORMER | {name: value for name, value in stored.items() if name not in aside}
    config = make_config(**stored)
    unused = METHOD_SETTINGS - set(settings_of(get_method(config.method)))
    names = config.model_dump(exclude_defaults=True, exclude=set(unused))
    return {name: stored[name] for name in names}
