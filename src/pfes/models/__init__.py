"""Language models behind one contract: log-probabilities of the verbalizer words."""

from pfes.models.base import LanguageModel

__all__ = ["LanguageModel"]
