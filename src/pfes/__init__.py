"""Search continuous prompts for language models you can only query.

Everything here loads when first used, so that importing the package costs next to nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pfes.analysis.dimension import intrinsic_dimension as intrinsic_dimension
    from pfes.contract import LanguageModel as LanguageModel
    from pfes.deploy.classifier import Classifier as Classifier
    from pfes.deploy.prompt import load_prompt as load_prompt
    from pfes.errors import PfesError as PfesError
    from pfes.models.local.load import load_model as load_model
    from pfes.optimizers import CMAES as CMAES
    from pfes.optimizers import SAES as SAES
    from pfes.optimizers import WES as WES
    from pfes.optimizers import ZOSGD as ZOSGD
    from pfes.optimizers import OnePlusOneES as OnePlusOneES
    from pfes.optimizers import Optimizer as Optimizer
    from pfes.runs.result import Result as Result
    from pfes.runs.saved import SavedRun as SavedRun
    from pfes.runs.start import search as search
    from pfes.searches.objective import Objective as Objective
    from pfes.studies.study import read_study as read_study
    from pfes.studies.study import run_study as run_study
    from pfes.tasks import Task as Task
    from pfes.tasks import TaskSpec as TaskSpec
    from pfes.tasks import load_task as load_task

_HOMES = {
    "CMAES": "pfes.optimizers",
    "SAES": "pfes.optimizers",
    "WES": "pfes.optimizers",
    "ZOSGD": "pfes.optimizers",
    "Classifier": "pfes.deploy.classifier",
    "LanguageModel": "pfes.contract",
    "Objective": "pfes.searches.objective",
    "OnePlusOneES": "pfes.optimizers",
    "Optimizer": "pfes.optimizers",
    "PfesError": "pfes.errors",
    "Result": "pfes.runs.result",
    "SavedRun": "pfes.runs.saved",
    "Task": "pfes.tasks",
    "TaskSpec": "pfes.tasks",
    "intrinsic_dimension": "pfes.analysis.dimension",
    "load_model": "pfes.models.local.load",
    "load_prompt": "pfes.deploy.prompt",
    "load_task": "pfes.tasks",
    "read_study": "pfes.studies.study",
    "run_study": "pfes.studies.study",
    "search": "pfes.runs.start",
}

__all__ = sorted(_HOMES)
__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
