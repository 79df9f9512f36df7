"""Words that stand for labels, one token each."""

from collections.abc import Sequence
from typing import Any

from pfes.tasks.encode import single_token

FEWEST_LETTERS = 3  # of a token that still reminds of the word it begins


def label_words(labels: Sequence[str], tokenizer: Any) -> dict[str, str]:
    """Return a word of one token for each label, as far as the labels' names give one.

    The name itself where it is one token, else its first token where that is most of a word, else a
    further word of the name, else the first token however short; each only where no other label has
    the same. Labels for which there is none are missing.
    """
    words: dict[str, str] = {}
    taken: set[int] = set()
    for candidates_of in (lambda label: [label], lambda label: _parts(label, tokenizer)):
        for label in labels:
            for word in candidates_of(label) if label not in words else ():
                token = single_token(word, tokenizer)
                if token is not None and token not in taken:
                    words[label] = word
                    taken.add(token)
                    break
    return {label: words[label] for label in labels if label in words}


def _parts(label: str, tokenizer: Any) -> list[str]:
    """Return words that a name is made of, the best first: its first token, then whole words."""
    ids = tokenizer(" " + label.strip(), add_special_tokens=False)["input_ids"]
    first = tokenizer.decode(ids[:1]).strip() if ids else ""
    parts = [first, *label.split()[1:]]
    usable = [part for part in parts if any(letter.isalnum() for letter in part)]
    return sorted(usable, key=lambda part: len(part) < FEWEST_LETTERS)
