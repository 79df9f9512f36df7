"""A run's steps and result as TensorBoard events."""

from collections.abc import Iterator
from pathlib import Path

from pfes.errors import PfesError
from pfes.loop import Step
from pfes.result import Result
from pfes.run import Event

FOLDER = "tensorboard"  # in the run folder
FIGURES = ("zero_shot", "initial", "test", "gain", "validation", "train_loss", "probability")


def check_installed() -> None:
    """Say what to install, before anything is run, where TensorBoard is missing."""
    try:
        import torch.utils.tensorboard  # noqa: F401
    except ImportError:
        raise PfesError(
            "--tensorboard needs the package tensorboard: pip install 'pfes[tensorboard]'"
        ) from None


def logged(events: Iterator[Event], folder: Path) -> Iterator[Event]:
    """Yield a run's events and write them to `folder` on the way.

    A resumed run continues the same curves: what was logged beyond its checkpoint is purged.
    """
    from torch.utils.tensorboard import SummaryWriter

    writer = None
    try:
        for event in events:
            if isinstance(event, Step):
                if writer is None:
                    first = event.evaluations - len(event.losses) + 1
                    writer = SummaryWriter(str(folder), purge_step=first)
                _log_step(writer, event)
            elif isinstance(event, Result):
                writer = writer or SummaryWriter(str(folder))
                _log_result(writer, event)
            yield event
    finally:
        if writer is not None:
            writer.close()


def _log_step(writer, step: Step) -> None:  # type: ignore[no-untyped-def]
    tried = "" if step.beta is None else f"/beta_{step.beta:g}"
    scalars = {"best": step.best_loss, "generation_mean": sum(step.losses) / len(step.losses)}
    for name, value in scalars.items():
        writer.add_scalar(f"loss{tried}/{name}", value, step.evaluations)
    writer.add_scalar(f"sigma{tried}", step.sigma, step.evaluations)
    if step.validation is not None:
        writer.add_scalar(f"validation{tried}/metric", step.validation.metric, step.evaluations)
        writer.add_scalar(f"validation{tried}/loss", step.validation.loss, step.evaluations)
    writer.flush()


def _log_result(writer, result: Result) -> None:  # type: ignore[no-untyped-def]
    for name in FIGURES:
        writer.add_scalar(f"result/{name}", getattr(result, name), result.evaluations)
    writer.add_text("config", "\n".join(f"    {k}: {v}" for k, v in result.config.items()))
