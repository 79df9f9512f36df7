"""Turn examples into token ids: fill the template, cut long texts, find the answer position."""

from collections.abc import Callable, Sequence
from string import Formatter
from typing import Any, NamedTuple

import numpy as np

from pfes.contract import Batch, Family, Placement, Written
from pfes.errors import PfesError, SettingError
from pfes.tasks.example import Example
from pfes.tasks.spec import MASK, TaskSpec, placeholders
from pfes.tasks.turns import turns

NEEDS_CAUSAL = "suffix is for causal models; use prefix or middle for a masked model"
CUE: dict[Family, str] = {
    "causal": "end it with a cue such as 'Label:'",
    "masked": "have the mask behind the text, after a word such as 'was'",
}
PROBE = "a"  # any text, to see which tokens a tokenizer adds to it
PROBES = (PROBE, "b.", "1", "word)")  # texts that end in different ways


def encode(
    spec: TaskSpec,
    examples: Sequence[Example],
    tokenizer: Any,
    family: Family,
    max_tokens: int,
    placement: Placement = "prefix",
    as_text: bool = False,
) -> Batch:
    """Fill the template with each example and tokenise it into at most `max_tokens` tokens.

    With `as_text`, the batch also has each example as text.
    """
    check_placement(placement, family)
    template = spec.template(family)
    words = verbalizer_tokens(spec, tokenizer)
    mask = tokenizer.mask_token if family == "masked" else None
    if family == "masked" and mask is None:
        raise PfesError("this tokenizer has no mask token, so its model is not a masked model")

    tokens = _tokens_by(tokenizer, family)
    demonstrations = _plain("".join(spec.demonstrations), mask)
    end = _end_tokens(template, tokenizer, family) if placement == "middle" else ()
    if placement == "middle" and not end:
        raise SettingError(
            "placement",
            f"middle puts the prompt before the end of the template, and {template!r} has too "
            f"little behind its text: use {without_end(family)}, or {CUE[family]}",
        )
    rows, answers, written = [], [], []
    for example in examples:
        fields = {name: _plain(text, mask) for name, text in example.fields.items()}
        filled = _fit(template, fields, demonstrations, mask, tokens, max_tokens)
        row = filled.tokens
        if as_text:
            shown = turns(spec, filled.shown, filled.text)
            written.append(Written(filled.shown + filled.text, shown))
        answer = None if mask is None else row.index(tokenizer.mask_token_id)
        if end:
            row = row[: len(row) - len(end)]
        rows.append(row)
        answers.append(len(row) - 1 if answer is None else answer)
    labels = np.array([example.label for example in examples], dtype=np.int64)
    texts = tuple(written)
    return Batch(tuple(rows), tuple(answers), words, labels, placement, end=end, written=texts)


def check_placement(placement: Placement, family: Family) -> None:
    """Refuse a placement that a family of models does not have."""
    if placement == "suffix" and family == "masked":
        raise SettingError("placement", NEEDS_CAUSAL)


def has_end(template: str, tokenizer: Any, family: Family) -> bool:
    """Say whether a template has enough behind its text for `middle`."""
    return bool(_end_tokens(template, tokenizer, family))


def without_end(family: Family) -> Placement:
    """Return the placement of choice where a template has no end to keep."""
    return "suffix" if family == "causal" else "prefix"


def _tokens_by(tokenizer: Any, family: Family) -> Callable[[str], tuple[int, ...]]:
    """Return a function from texts to tokens, without those behind which no answer can follow."""
    added = tokens_added_after(tokenizer) if family == "causal" else 0

    def tokens(text: str) -> tuple[int, ...]:
        ids = tokenizer(text, verbose=False)["input_ids"]  # long texts are cut here, without a word
        return tuple(ids[: len(ids) - added])

    return tokens


def _end_tokens(template: str, tokenizer: Any, family: Family) -> tuple[int, ...]:
    """Return the tokens of what a template has behind its last text, whatever that text is.

    There are none if there would be too few: one for a prompt to take the place of, and one behind.
    """
    tokens = _tokens_by(tokenizer, family)
    mask = tokenizer.mask_token if family == "masked" else None
    end = _behind_texts(template, mask)
    rows = [tokens(probe + end) for probe in PROBES]
    added = 0 if mask is None else tokens_added_after(tokenizer)
    texts = [len(tokens(probe)) - added for probe in PROBES]
    longest = min(len(row) - size for row, size in zip(rows, texts, strict=True))
    common = 0
    while common < longest and len({row[-common - 1] for row in rows}) == 1:
        common += 1
    end_tokens = rows[0][-common:] if common >= 2 else ()
    # a masked model's answer is read behind the prompt
    answered = mask is None or tokenizer.mask_token_id in end_tokens[1:]
    return end_tokens if answered else ()


def _behind_texts(template: str, mask: str | None) -> str:
    """Return what stands behind the last text in a template, with the mask if it is there."""
    behind = ""
    for literal, name, _, _ in Formatter().parse(template):
        behind += literal
        if name == MASK:
            behind += mask or ""
        elif name is not None:
            behind = ""
    return behind


def tokens_added_after(tokenizer: Any) -> int:
    """Return how many tokens a tokenizer adds after a text, where the answer should follow."""
    bare = tokenizer(PROBE, add_special_tokens=False)["input_ids"]
    full = tokenizer(PROBE)["input_ids"]
    starts = (i for i in range(len(full)) if full[i : i + len(bare)] == bare)
    return len(full) - len(bare) - next(starts, len(full) - len(bare))


def _plain(text: str, mask: str | None) -> str:
    """Remove the mask token from a text, as it would be taken for the answer position."""
    return text if mask is None else text.replace(mask, " ")


class _Filled(NamedTuple):
    """A filled template with what is shown before it, and the tokens of both."""

    tokens: tuple[int, ...]
    shown: str
    text: str


def _fit(
    template: str,
    fields: dict[str, str],
    demonstrations: str,
    mask: str | None,
    tokens: Callable[[str], tuple[int, ...]],
    limit: int,
) -> _Filled:
    """Return the demonstrations and the filled template, of at most `limit` tokens.

    If there are too many, the demonstrations are cut from their front; if the template is too long
    even without them, the ends of the longest texts are cut.
    """

    def filled(length: int, characters: int = 0) -> _Filled:
        cut = {name: text[:length] for name, text in fields.items()}
        shown = demonstrations[len(demonstrations) - characters :]
        text = template.format_map(cut | {MASK: mask})
        return _Filled(tokens(shown + text), shown, text)

    longest = max(len(fields[name]) for name in placeholders(template) if name != MASK)
    row = filled(longest, len(demonstrations))
    if len(row.tokens) <= limit:
        return row
    if len(filled(longest).tokens) <= limit:
        return _longest_row(lambda count: filled(longest, count), len(demonstrations), limit)
    shortest = filled(0).tokens
    if len(shortest) > limit:
        raise PfesError(
            f"the template alone has {len(shortest)} tokens, but the model takes only {limit} "
            "besides the prompt: shorten the template or the prompt (--prompt-length)"
        )
    return _longest_row(filled, longest, limit)


def _longest_row(row_of: Callable[[int], _Filled], upper: int, limit: int) -> _Filled:
    """Return the row with the most characters among those with at most `limit` tokens.

    `row_of` makes a row from a number of characters; it is called by bisection.
    """
    low, high = 0, upper  # row_of(low) fits, row_of(high) does not
    best = row_of(low)
    while high - low > 1:
        middle = (low + high) // 2
        row = row_of(middle)
        if len(row.tokens) <= limit:
            low, best = middle, row
        else:
            high = middle
    return best


def verbalizer_tokens(spec: TaskSpec, tokenizer: Any) -> tuple[int, ...]:
    """Return the token of each label's word, with a leading space if that is a single token."""
    labels_by_token: dict[int, str] = {}
    for label, word in spec.verbalizers.items():
        token = single_token(word.strip(), tokenizer)
        if token is None:
            pieces = tokenizer.tokenize(" " + word.strip())
            raise PfesError(
                f"task {spec.name!r}: the word {word!r} of label {label!r} is not one token of "
                f"this model but {len(pieces)} ({' '.join(map(repr, pieces))}): choose another word"
            )
        if token in labels_by_token:
            raise PfesError(
                f"task {spec.name!r}: labels {labels_by_token[token]!r} and {label!r} have the "
                f"same word {word!r}: choose different words"
            )
        labels_by_token[token] = label
    return tuple(labels_by_token)


def single_token(word: str, tokenizer: Any) -> int | None:
    """Return the one token of a word, with a leading space if that is one; else None.

    A tokenizer whose answers never follow a space, as in a chat, says so with `spaced`.
    """
    for text in (" " + word, word) if getattr(tokenizer, "spaced", True) else (word,):
        ids = tokenizer(text, add_special_tokens=False)["input_ids"]
        if len(ids) == 1 and ids[0] != tokenizer.unk_token_id:
            return int(ids[0])
    return None
