"""A small model in closed form: everything above the models can be tested without a real one."""

from collections.abc import Sequence

import numpy as np

from pfes.contract import Batch, Family, Floats, LanguageModel
from tests import tiny


class StandIn(LanguageModel):
    """Answers by the distance of the prompt's mean to a direction that each example has."""

    name = "stand-in"
    family: Family = "causal"
    tokenizer = tiny.make_tokenizer("causal")
    width = 6
    max_length = 200
    has_gradients = True

    @property
    def vocabulary(self) -> int:
        return 300

    def embed(self, tokens: Sequence[int]) -> Floats:
        rows = [np.random.default_rng(t).standard_normal(self.width) for t in tokens]
        return np.array(rows, dtype=np.float32).reshape(-1, self.width)

    def gradient(self, prompt: Floats, batch: Batch, slopes: Floats) -> Floats:
        words = np.array([-1, 1])  # how the logits of the two words move with the tilt
        shares = np.exp(self.logprobs(prompt[None], batch)[0])
        tilts = (slopes * (words - (shares * words).sum(axis=1, keepdims=True))).sum(axis=1)
        sides = 0.1 * self.points(batch)
        sides[:, 0] += np.sign(batch.labels - 0.5)
        mean = (tilts[:, None] * sides).sum(axis=0)
        return np.tile(mean / len(prompt), (len(prompt), 1)).astype(np.float32)

    def points(self, batch: Batch) -> Floats:
        return np.array([self.embed([sum(row)])[0] for row in batch.token_ids])

    def logprobs(self, prompts: Floats, batch: Batch) -> Floats:
        length = prompts.shape[1]
        mean = prompts.mean(axis=1) if length else np.zeros((len(prompts), self.width))
        points = self.points(batch)
        # a product of matrices would round by their shapes; this one does not
        likeness = (mean[:, None] * points[None]).sum(axis=-1)  # (candidates, examples)
        tilt = np.sign(batch.labels - 0.5)[None] * mean[:, :1] + likeness * 0.1
        logits = np.stack([-tilt, tilt, np.zeros_like(tilt)], axis=-1)  # two words and the rest
        logits -= np.logaddexp.reduce(logits, axis=-1, keepdims=True)
        return logits[..., :2].astype(np.float32)
