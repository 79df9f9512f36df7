"""Words that stand for labels, one token each."""

from collections.abc import Sequence
from typing import Any

from pfes.tasks.encode import single_token

FEWEST_LETTERS = 3  # of a token that still reminds of the word it begins


def label_words(labels: Sequence[str], tokenizer: Any) -> dict[str, str]:
    """Return a word of one token for each label, as far as the labels' names give one.

    The name itself where it is one token, else its first token where that is most of a word and no
    other label has the same. Labels for which there is none are missing.
    """
    words: dict[str, str] = {}
    taken: set[int] = set()
    for label in labels:
        token = single_token(label, tokenizer)
        if token is not None and token not in taken:
            words[label] = label
            taken.add(token)
    for label in labels:
        if label in words:
            continue
        word = _first_token(label, tokenizer)
        token = None if word is None else single_token(word, tokenizer)
        if word is not None and token is not None and token not in taken:
            words[label] = word
            taken.add(token)
    return {label: words[label] for label in labels if label in words}


def _first_token(label: str, tokenizer: Any) -> str | None:
    """Return the text of a label's first token, unless that is only a letter or two, or a sign."""
    ids = tokenizer(" " + label.strip(), add_special_tokens=False)["input_ids"]
    word = tokenizer.decode(ids[:1]).strip() if ids else ""
    return word if len(word) >= FEWEST_LETTERS and word.isalnum() else None
