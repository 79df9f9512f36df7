"""From text to tokens: answer positions, words of one token, and cutting in the text alone."""

import pytest
from tokenizers import processors

from pfes.errors import PfesError
from pfes.tasks.encode import encode, tokens_added_after, verbalizer_tokens
from pfes.tasks.example import Example
from pfes.tasks.spec import TaskSpec
from tests import tiny


def spec(masked: str = "{text} It was {mask}.", causal: str = "Review: {text}\nSentiment:", **more):
    return TaskSpec.model_validate(
        {
            "name": "t",
            "dataset": {"file": "x.csv"},
            "templates": {"masked": masked, "causal": causal},
            "verbalizers": {0: "terrible", 1: "great"},
        }
        | more
    )


MASKED, CAUSAL = tiny.make_tokenizer("masked"), tiny.make_tokenizer("causal")


def test_masked_answer_is_the_mask() -> None:
    batch = encode(spec(), [Example({"text": "a film"}, 1)], MASKED, "masked", 100)
    assert batch.token_ids[0][batch.answers[0]] == MASKED.mask_token_id
    assert MASKED.decode(batch.token_ids[0]) == "<s>a film It was <mask>.</s>"
    assert batch.labels.tolist() == [1]


def test_causal_answer_is_the_last_token() -> None:
    batch = encode(spec(), [Example({"text": "a film"}, 0)], CAUSAL, "causal", 100)
    assert batch.answers[0] == len(batch.token_ids[0]) - 1
    assert CAUSAL.decode(batch.token_ids[0]) == "Review: a film\nSentiment:"


def test_a_mask_in_the_text_is_not_the_answer() -> None:
    batch = encode(spec(), [Example({"text": "a <mask> film"}, 0)], MASKED, "masked", 100)
    assert batch.token_ids[0].count(MASKED.mask_token_id) == 1


def test_braces_in_the_text_stay() -> None:
    batch = encode(spec(), [Example({"text": "{text} {x}"}, 0)], CAUSAL, "causal", 100)
    assert "{text} {x}" in CAUSAL.decode(batch.token_ids[0])


@pytest.mark.parametrize("limit", [14, 20, 33])
@pytest.mark.parametrize("family", ["masked", "causal"])
def test_long_texts_are_cut_in_the_text_alone(family: str, limit: int) -> None:
    tokenizer = MASKED if family == "masked" else CAUSAL
    long = "a great film " * 200
    batch = encode(spec(), [Example({"text": long}, 0)], tokenizer, family, limit)  # type: ignore[arg-type]
    row = tokenizer.decode(batch.token_ids[0])
    assert limit - 3 <= len(batch.token_ids[0]) <= limit
    if family == "masked":
        assert row.endswith(" It was <mask>.</s>")
        assert batch.token_ids[0][batch.answers[0]] == tokenizer.mask_token_id
    else:
        assert row.startswith("Review: a")
        assert row.endswith("\nSentiment:")


def test_the_longer_text_of_a_pair_is_cut_first() -> None:
    pair = spec(masked="{a}? {mask}, {b}.", causal="{a} | {b} =")
    example = Example({"a": "short one", "b": "great film " * 100}, 0)
    batch = encode(pair, [example], CAUSAL, "causal", 30)
    text = CAUSAL.decode(batch.token_ids[0])
    assert text.startswith("short one | great")
    assert text.endswith(" =")


def test_a_template_that_does_not_fit_is_refused() -> None:
    with pytest.raises(PfesError, match="template alone"):
        encode(spec(), [Example({"text": "x" * 50}, 0)], CAUSAL, "causal", 3)


def test_words_have_their_leading_space() -> None:
    tokens = verbalizer_tokens(spec(), CAUSAL)
    assert CAUSAL.convert_ids_to_tokens(tokens) == ["Ġterrible", "Ġgreat"]


def test_a_word_without_a_spaced_token_is_taken_as_it_is() -> None:
    tokens = verbalizer_tokens(spec(verbalizers={0: "x", 1: "great"}), CAUSAL)
    assert CAUSAL.convert_ids_to_tokens(tokens)[0] == "x"


@pytest.mark.parametrize("word", ["unquestionably", "very great", "漢字"])
def test_a_word_of_several_tokens_is_named_with_them(word: str) -> None:
    with pytest.raises(PfesError) as caught:
        verbalizer_tokens(spec(verbalizers={0: word, 1: "great"}), CAUSAL)
    message = str(caught.value)
    assert repr(word) in message
    assert repr(CAUSAL.tokenize(" " + word)[0]) in message


def test_two_labels_with_one_word_are_refused() -> None:
    with pytest.raises(PfesError, match="same word"):
        verbalizer_tokens(spec(verbalizers={0: "great", 1: "great"}), CAUSAL)


def test_a_family_without_a_template_is_refused() -> None:
    only = TaskSpec.model_validate(
        {
            "name": "t",
            "dataset": {"file": "x.csv"},
            "templates": {"causal": "{text}"},
            "verbalizers": {0: "no", 1: "yes"},
        }
    )
    with pytest.raises(PfesError, match="templates.masked"):
        encode(only, [], MASKED, "masked", 10)


@pytest.mark.parametrize("text", ["\x00\x01", "🙂" * 300, "a" * 5000, "‮right to left", "\n\n"])
def test_odd_texts_are_encoded(text: str) -> None:
    for tokenizer, family in ((MASKED, "masked"), (CAUSAL, "causal")):
        batch = encode(spec(), [Example({"text": text}, 0)], tokenizer, family, 40)  # type: ignore[arg-type]
        assert 0 < len(batch.token_ids[0]) <= 40


@pytest.mark.parametrize(("bos", "front"), [(False, []), (True, [0])])
def test_an_end_that_the_tokenizer_adds_is_not_read(bos: bool, front: list[int]) -> None:
    plain, ending = tiny.make_tokenizer("causal", bos), tiny.make_tokenizer("causal", bos)
    ending.backend_tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>" if bos else "$A </s>", special_tokens=[("<s>", 0), ("</s>", 2)]
    )
    assert ending("a great film")["input_ids"][-1] == 2
    assert (tokens_added_after(plain), tokens_added_after(ending)) == (0, 1)
    examples = [Example({"text": "a great film"}, 1), Example({"text": "a mess"}, 0)]
    batches = [encode(spec(), examples, tokenizer, "causal", 50) for tokenizer in (plain, ending)]
    assert batches[0].token_ids == batches[1].token_ids
    assert batches[0].answers == batches[1].answers
    assert list(batches[0].token_ids[0][: len(front)]) == front
