"""Text as pieces that can be put together again: what tokens are where only text is sent."""

import re
from collections.abc import Iterable, Sequence
from hashlib import blake2b
from itertools import pairwise
from typing import Any

WORD = re.compile(r"\s?\w{1,24}|\s?[^\w\s]{1,24}|\s+")
BYTES = 7  # of a piece's number: it fits into 64 bits with its sign


class Pieces:
    """Has the parts of a tokenizer that pfes uses; a piece's number depends on its text alone.

    With a tokenizer, a piece is the text of one of its tokens, else it is a word with the space
    before it. The numbers mean the same in every process, but only pieces that this one has seen,
    or was told of with `learn`, can be decoded.
    """

    unk_token_id = mask_token = mask_token_id = None

    def __init__(self, tokenizer: Any = None, spaced: bool = True) -> None:
        known = getattr(tokenizer, "is_fast", False)  # others do not say where their tokens end
        self._tokenizer: Any = tokenizer if known else None
        self.spaced = spaced  # whether an answer follows a space: not in a chat
        self._texts: dict[int, str] = {}
        self._numbers: dict[str, int] = {}

    def __call__(self, text: str, **_: Any) -> dict[str, list[int]]:
        return {"input_ids": self.learn(self.tokenize(text))}

    def tokenize(self, text: str) -> list[str]:
        """Cut a text into pieces; joined, they are the text."""
        if self._tokenizer is None:
            return WORD.findall(text)
        encoded = self._tokenizer(
            text, add_special_tokens=False, return_offsets_mapping=True, verbose=False
        )
        ends = {int(end) for _, end in encoded["offset_mapping"]}
        edges = sorted(ends | {0, len(text)})
        return [text[start:end] for start, end in pairwise(edges)]

    def learn(self, texts: Iterable[str]) -> list[int]:
        """Return the numbers of pieces."""
        numbers = []
        for text in texts:
            number = self._numbers.get(text)
            if number is None:
                number = int.from_bytes(blake2b(text.encode(), digest_size=BYTES).digest())
                self._numbers[text], self._texts[number] = number, text
            numbers.append(number)
        return numbers

    def decode(self, pieces: Sequence[int]) -> str:
        """Return the text of pieces."""
        return "".join(self._texts[int(piece)] for piece in pieces)

    def token(self, piece: int) -> int | None:
        """Return the one token of the real tokenizer that a piece is, if it is one."""
        if self._tokenizer is None:
            return None
        text = self._texts[piece]
        ids = self._tokenizer(text, add_special_tokens=False)["input_ids"]
        return int(ids[0]) if len(ids) == 1 and self._tokenizer.decode(ids) == text else None

    def get_vocab(self) -> dict[str, int]:
        """Return nothing: no list has all pieces, so texts of other models are cut anew."""
        return {}
