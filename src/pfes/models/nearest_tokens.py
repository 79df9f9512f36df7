"""The tokens nearest to a soft prompt."""

import numpy as np

from pfes.contract import Floats, LanguageModel

COUNT = 5
BLOCK = 8192  # tokens compared at once: bounds the memory


def nearest_tokens(
    model: LanguageModel, prompt: Floats, count: int = COUNT
) -> list[list[tuple[str, float]]]:
    """Return, for each soft token of `(length, width)`, the nearest tokens and their cosine."""
    if not len(prompt):
        return []
    soft = _directions(prompt)
    cosines = np.concatenate(
        [
            soft @ _directions(model.embed(range(start, min(start + BLOCK, model.vocabulary)))).T
            for start in range(0, model.vocabulary, BLOCK)
        ],
        axis=1,
    )  # (length, vocabulary)
    best = np.argsort(-cosines, axis=1, kind="stable")[:, :count]
    return [
        [(model.tokenizer.decode([int(token)]), round(float(row[token]), 4)) for token in tokens]
        for row, tokens in zip(cosines, best, strict=True)
    ]


def _directions(vectors: Floats) -> Floats:
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    return np.asarray(vectors / np.where(lengths > 0, lengths, 1), dtype=np.float32)
