"""`pfes evaluate`: how good a saved prompt is on the test set."""

import json
from pathlib import Path
from typing import Annotated

import typer

from pfes.config import HERE
from pfes.folder import RunFolder

Folder = Annotated[Path, typer.Argument(help="run folder")]
Trust = Annotated[
    bool, typer.Option("--trust-remote-code", help="run code that comes with the model")
]


def evaluate(
    folder: Folder,
    test_limit: Annotated[
        int | None, typer.Option(min=1, help="use only so many test examples [as in the run]")
    ] = None,
    device: Annotated[str | None, typer.Option(help="such as cpu, cuda [the run's]")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="print JSON only")] = False,
    trust_remote_code: Trust = False,
) -> None:
    """Print metric, probability P and rank R of a run's prompt on the test set."""
    from pfes.assemble import load_run_task, open_model
    from pfes.cli.progress import follow_scoring
    from pfes.run import read_config
    from pfes.saved import SavedPrompt
    from pfes.scoring import interval, score_steps

    saved = SavedPrompt.load(folder)
    config = read_config(RunFolder(folder))
    here = HERE | {"trust_remote_code": trust_remote_code}
    given = {"test_limit": test_limit, "device": device}
    here |= {name: value for name, value in given.items() if value is not None}
    config = config.model_copy(update=here)
    task = load_run_task(config)
    model = open_model(config, task.spec)
    batch = saved.encode(model, task.test)
    steps = score_steps(model, saved.spec, saved.prompt, batch, ranks=True)
    score = follow_scoring(steps, len(task.test), as_json)
    low, high = interval(score)
    figures = {
        "metric": task.spec.metric,
        "value": score.metric,
        "interval": [low, high],
        "probability": score.probability,
        "rank": score.rank,
        "test_examples": len(task.test),
    }
    if as_json:
        print(json.dumps(figures))
        return
    print(f"{task.spec.metric} {score.metric:.4f} (95 % interval {low:.4f} – {high:.4f})")
    rank = "not shown by the server" if score.rank is None else f"{score.rank:.2f}"
    print(f"P {score.probability:.4f}  R {rank}  on {len(task.test)} test examples")
