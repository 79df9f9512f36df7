"""What it costs to ask for the many words of a reading beside those of the labels."""

from collections.abc import Iterator

from benchmarks.evaluation import REPEATS, causal_model, objective, prompt
from benchmarks.plain import largest_difference
from benchmarks.timing import Row, in_turns

WORDS = 500


def words_of_a_reading() -> Iterator[Row]:
    model, soft, few = causal_model(), prompt(50), objective(50).batch
    many = few.with_words([token for token in range(WORDS + 10) if token not in few.words][:WORDS])
    with_many, with_few = in_turns(
        REPEATS,
        lambda: model.logprobs(soft[None], many),
        lambda: model.logprobs(soft[None], few),
    )
    own = model.logprobs(soft[None], many)[..., : len(few.words)]
    yield Row(
        f"FE, l = 50, {WORDS} words beside the labels' own", "the labels' words alone",
        with_many / with_few, 1.02, "at most", f"{with_many:.3f} s, {with_few:.3f} s",
        largest_difference(own, model.logprobs(soft[None], few)), 1e-6,
    )  # fmt: skip
