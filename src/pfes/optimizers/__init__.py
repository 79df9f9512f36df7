"""Ask/tell optimizers for any function, which need only numpy (CMA-ES also `cma`)."""

from pfes.optimizers.adam import Adam
from pfes.optimizers.base import Optimizer
from pfes.optimizers.cmaes import CMAES
from pfes.optimizers.one_plus_one import OnePlusOneES
from pfes.optimizers.saes import SAES
from pfes.optimizers.wes import WES
from pfes.optimizers.zosgd import ZOSGD

__all__ = ["CMAES", "SAES", "WES", "ZOSGD", "Adam", "OnePlusOneES", "Optimizer"]
