"""`pfes search`: find a prompt for a model and a task."""

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from pfes.cli.options import with_settings
from pfes.cli.tables import show_profile, show_result
from pfes.config import AUTHOR, RunConfig
from pfes.errors import PfesError
from pfes.folder import RunFolder
from pfes.result import Result
from pfes.yaml_file import read_yaml

INTERRUPTED = 130  # the shell's code for a program stopped by Ctrl-C


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
        bool, typer.Option("--tensorboard", help="log to the folder tensorboard in --out")
    ] = False,
) -> None:
    """Search a prompt and leave it, with its history and result, in a run folder."""
    if config is not None:
        settings = read_settings(config) | settings
    result = run_and_show(settings, RunFolder(out), resume, as_json, tensorboard)
    if profile:
        show_profile(result)


def run_and_show(
    settings: dict[str, Any],
    folder: RunFolder,
    resume: bool,
    as_json: bool,
    tensorboard: bool = False,
) -> Result:
    """Run or resume a search with progress, print its result, and leave its figure."""
    from pfes.cli.progress import follow
    from pfes.run import finished, prepare, run
    from pfes.tensorboard import FOLDER, check_installed, logged

    if tensorboard:
        check_installed()
    config, resuming = prepare(settings, folder, resume)
    if resuming and (result := finished(folder)):
        show_result(result, folder, as_json)
        return result
    if not resuming:
        check_names(config)
        folder.create()
    events = run(config, folder, resume=resuming)
    if tensorboard:
        events = logged(events, folder.path / FOLDER)
    try:
        result = follow(events, config.budget, quiet=as_json)
    except KeyboardInterrupt:
        print(
            f"\nStopped. Continue with: pfes search --out {folder.path} --resume", file=sys.stderr
        )
        raise typer.Exit(INTERRUPTED) from None
    _draw(folder)
    show_result(result, folder, as_json)
    return result


def check_names(config: RunConfig) -> None:
    """Find a mistyped method, task or model before anything is made or loaded."""
    from pfes.methods import get_method
    from pfes.models.client import is_served
    from pfes.models.load import model_source
    from pfes.tasks import read_spec

    get_method(config.method)
    read_spec(config.task)
    if is_served(config.model):
        return
    model_source(config.model)
    for name in ("served_name", "tokenizer"):
        if getattr(config, name) is not None:
            raise PfesError(f"--{name.replace('_', '-')} is for served models: --model vllm:URL")


def _draw(folder: RunFolder) -> None:
    from pfes.figures import convergence

    history = folder.chosen_history()
    if history:  # a method that does not search leaves none
        convergence(history, folder.path / "convergence.png")


def read_settings(path: Path) -> dict[str, Any]:
    """Return the settings of a YAML or JSON file."""
    content = read_yaml(path, "--config")  # JSON is YAML, too
    if not isinstance(content, dict):
        raise PfesError(f"--config {path}: not a mapping of settings")
    if not all(isinstance(name, str) for name in content):
        raise PfesError(f"--config {path}: settings have names")
    content.pop(AUTHOR, None)  # a run's own config.json goes, too
    if content.get("trust_remote_code"):
        raise PfesError(f"--config {path}: --trust-remote-code is given on the command line alone")
    return content
