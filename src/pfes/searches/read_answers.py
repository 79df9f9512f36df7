"""The reading of a run: which further words it takes, and how it is fitted."""

from dataclasses import dataclass

import numpy as np

from pfes.config import ReadingName, RunConfig
from pfes.contract import Batch, Floats, LanguageModel
from pfes.searches.choose_reading import LADDER, choose_reading
from pfes.searches.log_space import Doubles
from pfes.searches.losses import After
from pfes.searches.quick_readings import matching_offsets
from pfes.searches.reading import PLAIN, Reading
from pfes.tasks.prior import expected_shares
from pfes.tasks.task import Task


@dataclass(frozen=True)
class Reader:
    """Fits readings of one kind to the answers that a model gives behind a prompt."""

    kind: ReadingName
    answer_words: int
    shares: tuple[float, ...] | None = None  # of each label in use; None: as in the examples

    @property
    def is_plain(self) -> bool:
        return self.kind == "plain"

    @property
    def judged_after(self) -> After:
        """What each candidate of a search is judged after: what such a reading has at least."""
        return {"plain": "nothing", "offset": "offset"}.get(self.kind, "slope")  # type: ignore[return-value]

    def fit(
        self, model: LanguageModel, prompt: Floats, batch: Batch, unlabelled: Batch | None = None
    ) -> Reading:
        """Fit a reading to the labelled examples of a batch, and to texts without labels."""
        if self.kind == "plain" or not len(batch):
            return PLAIN
        further: list[int] = []
        if self.kind in ("words", "auto"):
            further, logprobs = model.likely_answers(prompt, batch, self.answer_words)
        else:
            logprobs = model.logprobs(prompt[None], batch)[0]
        trials = [trial for trial in LADDER if self.kind in ("auto", trial[0])]
        count = len(batch.words)
        examples = np.bincount(batch.labels, minlength=count) / len(batch)
        expected = examples if self.shares is None else np.array(self.shares)
        change = _log_ratio(expected, examples)
        center = None
        if unlabelled is not None and len(unlabelled):
            texts = model.logprobs(prompt[None], unlabelled)
            center = matching_offsets(texts, expected)[0] + change
        reading = choose_reading(logprobs, batch.labels, tuple(further), trials, center)
        return reading.shifted(change)


def _log_ratio(expected: Doubles, examples: Doubles) -> Doubles:
    """Return by how much each label is more frequent than among the examples, as a logarithm."""
    known = (expected > 0) & (examples > 0)
    ratio = np.divide(expected, examples, out=np.ones_like(expected), where=known)
    change = np.log(ratio)
    return np.where(np.abs(change) < 1e-9, 0.0, change)


def make_reader(config: RunConfig, task: Task) -> Reader:
    """Return the reader of a run's result."""
    shares = expected_shares(config.prior, task)
    return Reader(config.reading, config.answer_words, shares)


def search_reader(config: RunConfig) -> Reader:
    """Return the reader of a search: its examples, as they are, decide what is best."""
    return Reader(config.reading, config.answer_words)
