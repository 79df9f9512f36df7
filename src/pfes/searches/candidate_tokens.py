"""The tokens that BDPL chooses among."""

import math
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from pfes.tasks.example import Example

SEEN = 2  # times that a pair must occur: the information of a pair seen once is chance


def candidate_tokens(examples: Sequence[Example], tokenizer: Any, count: int) -> list[int]:
    """Return the most telling tokens of the training texts, at most `count`.

    First those of neighbouring pairs, by falling pointwise mutual information; then the most
    frequent ones. Training texts with fewer different tokens give fewer candidates.
    """
    texts = [
        tokenizer(" " + text.strip(), add_special_tokens=False)["input_ids"]
        for example in examples
        for text in example.fields.values()
    ]
    single = Counter(token for text in texts for token in text)
    pairs = Counter(pair for text in texts for pair in pairwise(text))
    total, neighbours = single.total(), pairs.total()

    def information(pair: tuple[int, int]) -> float:
        left, right = single[pair[0]] / total, single[pair[1]] / total
        return math.log(pairs[pair] / neighbours / (left * right))

    telling = sorted((pair for pair in pairs if pairs[pair] >= SEEN), key=information, reverse=True)
    by_pair = [token for pair in telling for token in pair]
    by_frequency = [token for token, _ in single.most_common()]
    return list(dict.fromkeys([*by_pair, *by_frequency]))[:count]
