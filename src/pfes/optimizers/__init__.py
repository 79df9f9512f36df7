"""Evolution strategies with ask/tell, in numpy alone: usable on any function."""

from pfes.optimizers.base import Optimizer
from pfes.optimizers.one_plus_one import OnePlusOneES
from pfes.optimizers.saes import SAES

__all__ = ["SAES", "OnePlusOneES", "Optimizer"]
