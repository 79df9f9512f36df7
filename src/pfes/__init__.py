"""Search continuous prompts for language models you can only query.

Everything here loads when first used, so that importing the package costs next to nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pfes.analysis.dimension import intrinsic_dimension as intrinsic_dimension
    from pfes.classifier import Classifier as Classifier
    from pfes.errors import PfesError as PfesError
    from pfes.models.load import load_model as load_model
    from pfes.objective import Objective as Objective
    from pfes.optimizers import CMAES as CMAES
    from pfes.optimizers import SAES as SAES
    from pfes.optimizers import ZOSGD as ZOSGD
    from pfes.optimizers import OnePlusOneES as OnePlusOneES
    from pfes.result import Result as Result
    from pfes.run import search as search
    from pfes.saved import load_prompt as load_prompt
    from pfes.tasks import Task as Task
    from pfes.tasks import load_task as load_task

_HOMES = {
    "CMAES": "pfes.optimizers",
    "SAES": "pfes.optimizers",
    "ZOSGD": "pfes.optimizers",
    "Classifier": "pfes.classifier",
    "Objective": "pfes.objective",
    "OnePlusOneES": "pfes.optimizers",
    "PfesError": "pfes.errors",
    "Result": "pfes.result",
    "Task": "pfes.tasks",
    "intrinsic_dimension": "pfes.analysis.dimension",
    "load_model": "pfes.models.load",
    "load_prompt": "pfes.saved",
    "load_task": "pfes.tasks",
    "search": "pfes.run",
}

__all__ = sorted(_HOMES)
__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
