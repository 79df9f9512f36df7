"""The tokens that BDPL chooses among."""

from pfes.searches.candidate_tokens import candidate_tokens
from pfes.tasks import Example
from tests import tiny


def test_candidates_are_telling_pairs_then_frequent_tokens() -> None:
    tokenizer = tiny.make_tokenizer("causal")
    texts = ["great film", "great film", "no no no wit", "dull film"]
    examples = [Example({"text": text}, 0) for text in texts]
    tokens = candidate_tokens(examples, tokenizer, 100)
    everything = [t for text in texts for t in tokenizer(" " + text)["input_ids"]]
    assert sorted(tokens) == sorted(set(everything))
    pair = tokenizer(" great film")["input_ids"]
    assert tokens[: len(pair)] == pair  # seen twice and nowhere apart
    assert candidate_tokens(examples, tokenizer, 3) == tokens[:3]
