"""From examples to token ids: fill the template, find the answer position, cut what is too long."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from pfes.errors import PfesError
from pfes.tasks.spec import MASK, Family, TaskSpec, placeholders
from pfes.tasks.task import Example

PROBE = "a"  # some text
Placement = Literal["prefix", "suffix"]  # of the prompt: in front of the text, or behind it


@dataclass(frozen=True, eq=False)
class Batch:
    """Examples as a model takes them: all that `LanguageModel.logprobs` needs beside the prompts.

    `answers` are positions in `token_ids` as they stand here, before a prompt is put in.
    """

    token_ids: tuple[tuple[int, ...], ...]  # one row per example, with special tokens
    answers: tuple[int, ...]  # where each row's answer is read
    words: tuple[int, ...]  # token of each label's verbalizer word
    labels: NDArray[np.int64]  # (examples,)
    placement: Placement = "prefix"

    def take(self, examples: Sequence[int] | NDArray[np.int64]) -> "Batch":
        """Return some of the examples, in the order given."""
        index = list(map(int, examples))
        return replace(
            self,
            token_ids=tuple(self.token_ids[i] for i in index),
            answers=tuple(self.answers[i] for i in index),
            labels=self.labels[index],
        )

    def __len__(self) -> int:
        return len(self.token_ids)


def encode(
    spec: TaskSpec,
    examples: Sequence[Example],
    tokenizer: Any,
    family: Family,
    max_tokens: int,
    placement: Placement = "prefix",
) -> Batch:
    """Fill the template with each example and tokenise it to at most `max_tokens` tokens."""
    if placement == "suffix" and family == "masked":
        raise PfesError("--placement suffix: a masked model reads at its mask; use prefix")
    template = spec.template(family)
    words = verbalizer_tokens(spec, tokenizer)
    mask = tokenizer.mask_token if family == "masked" else None
    if family == "masked" and mask is None:
        raise PfesError("this tokenizer has no mask token, so it is not one of a masked model")

    behind = added_behind(tokenizer) if family == "causal" else 0

    def tokens(text: str) -> tuple[int, ...]:
        ids = tokenizer(text)["input_ids"]
        return tuple(ids[: len(ids) - behind])

    shown = _plain("".join(spec.demonstrations), mask)
    rows, answers = [], []
    for example in examples:
        fields = {name: _plain(text, mask) for name, text in example.fields.items()}
        row = _fit(template, fields, shown, mask, tokens, max_tokens)
        rows.append(row)
        answers.append(len(row) - 1 if mask is None else row.index(tokenizer.mask_token_id))
    labels = np.array([example.label for example in examples], dtype=np.int64)
    return Batch(tuple(rows), tuple(answers), words, labels, placement)


def added_behind(tokenizer: Any) -> int:
    """Return how many tokens a tokenizer puts behind a text: an end, where an answer is wanted."""
    own = tokenizer(PROBE, add_special_tokens=False)["input_ids"]
    whole = tokenizer(PROBE)["input_ids"]
    places = (i for i in range(len(whole)) if whole[i : i + len(own)] == own)
    return len(whole) - len(own) - next(places, len(whole) - len(own))


def _plain(text: str, mask: str | None) -> str:
    """Take the mask token out of a text, which would otherwise be read as the answer position."""
    return text if mask is None else text.replace(mask, " ")


def _fit(
    template: str,
    fields: dict[str, str],
    shown: str,
    mask: str | None,
    tokens: Callable[[str], tuple[int, ...]],
    limit: int,
) -> tuple[int, ...]:
    """Return the tokens of the demonstrations and the filled template, at most `limit`.

    Where they are too many, the demonstrations are cut at their front, and only when none is left
    the longest texts at their end.
    """

    def filled(length: int, kept: int = 0) -> tuple[int, ...]:
        cut = {name: text[:length] for name, text in fields.items()}
        return tokens(shown[len(shown) - kept :] + template.format_map(cut | {MASK: mask}))

    longest = max(len(fields[name]) for name in placeholders(template) if name != MASK)
    row = filled(longest, len(shown))
    if len(row) <= limit:
        return row
    if len(filled(longest)) <= limit:
        return _most(lambda kept: filled(longest, kept), len(shown), limit)
    shortest = filled(0)
    if len(shortest) > limit:
        raise PfesError(
            f"the template alone has {len(shortest)} tokens and the model takes {limit} "
            "beside the prompt: shorten the template or the prompt (--prompt-length)"
        )
    return _most(filled, longest, limit)


def _most(row_of: Callable[[int], tuple[int, ...]], too_many: int, limit: int) -> tuple[int, ...]:
    """Return the row of the most characters that has at most `limit` tokens, by bisection."""
    low, high = 0, too_many  # row_of(low) fits, row_of(high) does not
    best = row_of(low)
    while high - low > 1:
        middle = (low + high) // 2
        row = row_of(middle)
        if len(row) <= limit:
            low, best = middle, row
        else:
            high = middle
    return best


def verbalizer_tokens(spec: TaskSpec, tokenizer: Any) -> tuple[int, ...]:
    """Return each label's word as one token: with a leading space where there is such a token."""
    found: dict[int, str] = {}
    for label, word in spec.verbalizers.items():
        token = _single_token(word.strip(), tokenizer)
        if token is None:
            pieces = tokenizer.tokenize(" " + word.strip())
            raise PfesError(
                f"task {spec.name!r}: the word {word!r} of label {label!r} is not one token here "
                f"but {len(pieces)} ({' '.join(map(repr, pieces))}): choose another word"
            )
        if token in found:
            raise PfesError(
                f"task {spec.name!r}: labels {found[token]!r} and {label!r} have the same word "
                f"{word!r}"
            )
        found[token] = label
    return tuple(found)


def _single_token(word: str, tokenizer: Any) -> int | None:
    for text in (" " + word, word):
        ids = tokenizer(text, add_special_tokens=False)["input_ids"]
        if len(ids) == 1 and ids[0] != tokenizer.unk_token_id:
            return int(ids[0])
    return None
