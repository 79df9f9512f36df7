"""`pfes evaluate`: score a saved prompt on the test set."""

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import numpy as np
import typer

if TYPE_CHECKING:
    from pfes.runs.saved import SavedRun
    from pfes.tasks import Task

Folder = Annotated[Path, typer.Argument(help="run folder")]
Trust = Annotated[
    bool, typer.Option("--trust-remote-code", help="run code that comes with the model")
]


def evaluate(
    folder: Folder,
    test_limit: Annotated[
        int | None, typer.Option(min=1, help="use at most this many test examples [as in the run]")
    ] = None,
    device: Annotated[str | None, typer.Option(help="such as cpu or cuda [as in the run]")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="print JSON only")] = False,
    trust_remote_code: Trust = False,
) -> None:
    """Print the metric, probability P and rank R of a run's prompt on the test set."""
    from pfes.cli.progress import follow_scoring
    from pfes.deploy.prompt import SavedPrompt
    from pfes.errors import PfesError
    from pfes.runs.saved import SavedRun
    from pfes.searches.scoring import interval, score_steps

    saved = SavedPrompt.load(folder)
    task = run_task(SavedRun(folder), test_limit)
    if not task.test:
        raise PfesError(f"{folder} has no test examples, as none were held out for this run")
    device = device or saved.config.device
    model = saved.open_model(device=device, trust_remote_code=trust_remote_code)
    batch = saved.encode(model, task.test)
    steps = score_steps(model, saved.spec, [(saved.prompt, saved.reading)], batch, ranks=True)
    score = follow_scoring(steps, len(task.test), as_json)[0]
    model.close()
    low, high = interval(score)
    scores = {
        "metric": task.spec.metric,
        "value": score.metric,
        "interval": [low, high],
        "auc": score.auc,
        "probability": score.probability,
        "rank": score.rank,
        "test_examples": len(task.test),
    }
    if as_json:
        print(json.dumps(scores))
        return
    auc = "" if score.auc is None else f", AUC {score.auc:.4f}"
    print(f"{task.spec.metric} {score.metric:.4f} (95 % interval {low:.4f} – {high:.4f}){auc}")
    rank = "not shown by the server" if score.rank is None else f"{score.rank:.2f}"
    print(f"P {score.probability:.4f}  R {rank}  on {len(task.test)} test examples")


def run_task(run: "SavedRun", test_limit: int | None) -> "Task":
    """Return a run's task with `test_limit` test examples, read again if the run had fewer."""
    from pfes.tasks.loader import load_run_task
    from pfes.tasks.split import limit_test

    task = run.task
    if test_limit is None:
        return task
    limited = run.config.test_limit is not None and task.spec.dataset is not None
    if test_limit > len(task.test) and limited:
        return load_run_task(run.config.model_copy(update={"test_limit": test_limit}))
    chosen = limit_test(np.arange(len(task.test)), test_limit, run.config.limit_seed)
    return replace(task, test=tuple(task.test[i] for i in chosen.tolist()))
