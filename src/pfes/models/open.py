"""The one door to a run's model: in this process, in Ray workers, or behind a server."""

from pfes.config import RunConfig, is_served, takes_only_text
from pfes.contract import LanguageModel
from pfes.models.source import ModelSource
from pfes.tasks.spec import TaskSpec


def open_model(
    config: RunConfig, spec: TaskSpec | None, source: ModelSource | None = None
) -> LanguageModel:
    """Open the model of a run, and check the task's words with its tokenizer, if there is a task.

    `source` spares looking for the model's name again.
    """
    if takes_only_text(config.model):
        from pfes.models.text.text_model import connect_text

        return connect_text(config, spec)
    if is_served(config.model):
        from pfes.models.served.served_model import connect

        return connect(config, spec)
    if config.engine != "serial":
        from pfes.models.ray.ray_model import RayModel

        return RayModel(config, spec, source)
    from pfes.models.local.load import open_local_model

    return open_local_model(config, spec, source)
