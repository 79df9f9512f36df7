"""Log a run's steps and result for TensorBoard."""

from collections.abc import Generator
from pathlib import Path

from pfes.errors import SettingError
from pfes.runs.result import Result
from pfes.runs.run import Event
from pfes.searches.loop import Step

FOLDER = "tensorboard"  # name of the log folder in the run folder
RESULT_FIELDS = ("zero_shot", "initial", "test", "gain", "validation", "train_loss", "probability")


def check_installed() -> None:
    """Raise an error that says what to install if TensorBoard is missing, before a run starts."""
    try:
        import torch.utils.tensorboard  # noqa: F401
    except ImportError:
        raise SettingError(
            "tensorboard", "tensorboard is not installed: pip install 'pfes[tensorboard]'"
        ) from None


def logged(events: Generator[Event, None, Result], folder: Path) -> Generator[Event, None, Result]:
    """Pass on a run's events and its result, and log them to `folder`.

    A resumed run continues the same curves: steps logged after its checkpoint are discarded.
    """
    from torch.utils.tensorboard import SummaryWriter

    writer = None
    try:
        while True:
            try:
                event = next(events)
            except StopIteration as end:
                writer = writer or SummaryWriter(str(folder))
                _log_result(writer, end.value)
                result: Result = end.value
                return result
            if isinstance(event, Step):
                if writer is None:
                    first = event.evaluations - len(event.losses) + 1
                    writer = SummaryWriter(str(folder), purge_step=first)
                _log_step(writer, event)
            yield event
    finally:
        events.close()
        if writer is not None:
            writer.close()


def _log_step(writer, step: Step) -> None:  # type: ignore[no-untyped-def]
    beta = "" if step.beta is None else f"/beta_{step.beta:g}"
    scalars = {"best": step.best_loss, "generation_mean": sum(step.losses) / len(step.losses)}
    for name, value in scalars.items():
        writer.add_scalar(f"loss{beta}/{name}", value, step.evaluations)
    writer.add_scalar(f"sigma{beta}", step.sigma, step.evaluations)
    if step.validation is not None:
        writer.add_scalar(f"validation{beta}/metric", step.validation.metric, step.evaluations)
        writer.add_scalar(f"validation{beta}/loss", step.validation.loss, step.evaluations)
    writer.flush()


def _log_result(writer, result: Result) -> None:  # type: ignore[no-untyped-def]
    for name in RESULT_FIELDS:
        writer.add_scalar(f"result/{name}", getattr(result, name), result.evaluations)
    writer.add_text("config", "\n".join(f"    {k}: {v}" for k, v in result.config.items()))
