"""The reading of a run: which further words it takes, and how it is fitted."""

from dataclasses import dataclass

from pfes.config import ReadingName
from pfes.contract import Batch, Floats, LanguageModel
from pfes.searches.choose_reading import LADDER, choose_reading
from pfes.searches.fit_reading import fit_reading
from pfes.searches.reading import PLAIN, Reading


@dataclass(frozen=True)
class Reader:
    """Fits readings of one kind to the answers that a model gives behind a prompt."""

    kind: ReadingName
    answer_words: int

    @property
    def is_plain(self) -> bool:
        return self.kind == "plain"

    def fit(self, model: LanguageModel, prompt: Floats, batch: Batch) -> Reading:
        """Fit a reading to the labelled examples of a batch."""
        if self.kind == "plain":
            return PLAIN
        if self.kind in ("offset", "slope"):
            return fit_reading(model.logprobs(prompt[None], batch)[0], batch.labels, self.kind)
        further = model.likely_tokens(prompt, batch, self.answer_words)
        logprobs = model.logprobs(prompt[None], batch.with_words(further))[0]
        trials = [t for t in LADDER if self.kind == "auto" or t[0] == "words"]
        return choose_reading(logprobs, batch.labels, tuple(further), trials)
