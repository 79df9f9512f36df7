"""Words of labels for a model that lists answers, and whose tokenizer is not known."""

from pathlib import Path

import numpy as np
import pytest

from pfes.contract import Batch, Floats
from pfes.models.text.pieces import Pieces
from pfes.searches.model_words import answered_words
from pfes.tasks import load_task
from tests.stand_in import StandIn

LISTED = [" the", " Enter", " enter", " tech", " techno", " Refund", " bill"]


class Listing(StandIn):
    """Lists the same answers for every text."""

    tokens_of_a_piece = 1.3

    def __init__(self) -> None:
        self.tokenizer = Pieces()

    def likely_answers(
        self, prompt: Floats, batch: Batch, count: int, in_parts: bool = False
    ) -> tuple[list[int], Floats]:
        return self.tokenizer.learn(LISTED), np.zeros((len(batch), 2 + len(LISTED)), np.float32)


@pytest.mark.parametrize(
    ("names", "wanted"),
    [
        (["refund", "entertainment"], ["Refund", "Enter"]),  # as it is spelled; what it begins with
        (["technology", "technical"], ["techno", None]),  # "tech" begins both
        (["thesis", "other"], ["the", None]),
        (["bill", "billing"], [None, None]),
    ],
)
def test_words_are_what_answers_begin_with(
    task_file: Path, names: list[str], wanted: list[str | None]
) -> None:
    task = load_task(task_file, 4)
    words = dict(zip(task.spec.labels, names, strict=True))
    found = answered_words(Listing(), task, words, "{text}:")
    assert [found.get(label) for label in task.spec.labels] == wanted
