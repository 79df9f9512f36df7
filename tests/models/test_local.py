"""Every path through a model equals a plain forward pass, computed here on its own."""

from collections.abc import Iterator
from functools import cache

import numpy as np
import pytest
import torch

from pfes.contract import Batch, Placement
from pfes.errors import OutOfMemoryError, PfesError
from pfes.models.local.local_model import LocalModel
from pfes.models.local.packed import common_tokens
from pfes.models.local.padded import Pass, padded_passes
from pfes.models.local.paths import EvaluationPaths
from pfes.tasks.encode import encode, has_end
from pfes.tasks.example import Example
from pfes.tasks.spec import TaskSpec
from tests import tiny

TEXTS = [
    "a film",
    "a wonderful film , moving and funny , with great acting by all",
    "dull",
    "no wit , no charm , maybe the worst of the year and then some more",
]
SPEC = TaskSpec.model_validate(
    {
        "name": "films",
        "dataset": {"file": "none.csv"},
        "templates": {"masked": "{text} It was {mask}.", "causal": "Review: {text}\nSentiment:"},
        "verbalizers": {0: "terrible", 1: "great"},
    }
)
EXAMPLES = [Example({"text": text}, label=i % 2) for i, text in enumerate(TEXTS)]


@cache
def make(name: str) -> LocalModel:
    family = tiny.ARCHITECTURES[name][0]
    module = tiny.make_module(name)
    return LocalModel(name, family, module, tiny.make_tokenizer(family))  # type: ignore[arg-type]


def batch_of(model: LocalModel, placement: Placement = "prefix") -> Batch:
    room = model.max_length - 8
    return encode(SPEC, EXAMPLES, model.tokenizer, model.family, room, placement)


def by_pair(passes: Iterator[Pass]) -> dict[tuple[int, int], torch.Tensor]:
    """The log-probabilities of each pair of candidate and example, over the vocabulary."""
    found = {}
    for (candidates, examples), logits in passes:
        pairs = zip(candidates.tolist(), examples.tolist(), strict=True)
        found |= dict(zip(pairs, logits.log_softmax(-1), strict=True))
    return found


def prompts_for(model: LocalModel, candidates: int, length: int) -> np.ndarray:
    rng = np.random.default_rng(length)
    return rng.standard_normal((candidates, length, model.width), dtype=np.float32)


def reference(model: LocalModel, prompt: np.ndarray, batch: Batch) -> np.ndarray:
    """One example at a time, no padding, full logits, own concatenation."""
    words = model.tokenizer.convert_tokens_to_ids(["Ġterrible", "Ġgreat"])
    result = []
    for text in TEXTS:
        if model.family == "masked":
            ids = model.tokenizer(f"{text} It was <mask>.")["input_ids"]
            front, back = ids[:1], ids[1:]
            if batch.placement == "middle":  # in place of "It"
                cut = 1 + len(model.tokenizer(text, add_special_tokens=False)["input_ids"])
                front, back = ids[:cut], ids[cut + (len(prompt) > 0) :]
            answer = len(front) + len(prompt) + back.index(model.tokenizer.mask_token_id)
        else:
            ids = model.tokenizer(f"Review: {text}\nSentiment:")["input_ids"]
            front, back = ([], ids) if batch.placement == "prefix" else (ids, [])
            if batch.placement == "middle":  # in place of the line break behind the text
                cut = len(ids) - len(model.tokenizer("\nSentiment:", add_special_tokens=False)[0])
                front, back = ids[:cut], ids[cut + (len(prompt) > 0) :]
            answer = len(front) + len(prompt) + len(back) - 1
        embedding = model.module.get_input_embeddings()
        parts = [embedding(torch.tensor(front, dtype=torch.long)), torch.from_numpy(prompt)]
        parts.append(embedding(torch.tensor(back, dtype=torch.long)))
        with torch.no_grad():
            logits = model.module(inputs_embeds=torch.cat(parts)[None]).logits
        result.append(torch.log_softmax(logits[0, answer].double(), -1)[words].numpy())
    return np.array(result)


@pytest.mark.parametrize("length", [0, 1, 7])
@pytest.mark.parametrize("max_tokens", [1, 64, 4096])
@pytest.mark.parametrize("name", tiny.ARCHITECTURES)
def test_logprobs_equal_a_plain_forward_pass(name: str, max_tokens: int, length: int) -> None:
    model = make(name)
    model.batch_tokens = max_tokens  # from every pair alone to all in one pass
    batch = batch_of(model)
    prompts = prompts_for(model, 3, length)
    found = model.logprobs(prompts, batch)
    assert found.shape == (3, len(TEXTS), 2)
    assert found.dtype == np.float32
    for candidate, prompt in zip(found, prompts, strict=True):
        np.testing.assert_allclose(candidate, reference(model, prompt, batch), atol=1e-5)


@pytest.mark.parametrize("length", [0, 1, 7])
@pytest.mark.parametrize("max_tokens", [1, 20, 4096])
@pytest.mark.parametrize(
    ("name", "placement"),
    [(name, "suffix") for name in tiny.CAUSAL] + [(name, "middle") for name in tiny.ARCHITECTURES],
)
def test_a_prompt_behind_the_text(
    name: str, placement: Placement, max_tokens: int, length: int
) -> None:
    model = make(name)
    model.batch_tokens = max_tokens
    batch = batch_of(model, placement)
    for _ in range(2):  # the second time from the keys and values that were kept
        prompts = prompts_for(model, 3, length)
        found = model.logprobs(prompts, batch)
        for candidate, prompt in zip(found, prompts, strict=True):
            np.testing.assert_allclose(candidate, reference(model, prompt, batch), atol=1e-5)


@pytest.mark.parametrize(("memory", "kept"), [(10**12, True), (0, False)])
def test_texts_are_kept_where_memory_allows(
    memory: int, kept: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = make("llama")
    model.batch_tokens = 4096
    monkeypatch.setattr("pfes.models.local.suffix.available_memory", lambda _: memory)
    batch = batch_of(model, "suffix")
    prompts = prompts_for(model, 1, 3)
    passes = []
    for _ in range(2):
        seen: list[int] = []
        hook = model.module.register_forward_hook(lambda *_: seen.append(1))  # noqa: B023
        found = model.logprobs(prompts, batch)[0]
        hook.remove()
        passes.append(len(seen))
        np.testing.assert_allclose(found, reference(model, prompts[0], batch), atol=1e-5)
    assert passes == ([2, 1] if kept else [2, 2])  # one for the texts, one for the prompt


def test_a_masked_model_takes_no_prompt_behind_its_answer() -> None:
    with pytest.raises(PfesError, match="placement: suffix is for causal models"):
        batch_of(make("roberta"), "suffix")


@pytest.mark.parametrize("name", ["llama", "roberta", "bert"])
def test_the_token_in_whose_place_a_prompt_stands_is_the_same_as_the_template(name: str) -> None:
    model = make(name)
    batch = batch_of(model, "middle")
    start = model.embed(batch.end[:1])[None]
    template = model.logprobs(start[:, :0], batch_of(model))
    np.testing.assert_allclose(model.logprobs(start, batch), template, atol=1e-5)
    np.testing.assert_allclose(model.logprobs(start[:, :0], batch), template, atol=1e-5)


@pytest.mark.parametrize(
    ("name", "template", "instead"),
    [
        ("llama", "Sentiment: {text}", "use suffix, or end it with a cue"),
        ("llama", "{text}:", "use suffix, or end it with a cue"),
        ("roberta", "It was {mask} : {text}", "use prefix, or have the mask behind the text"),
        ("roberta", "{text}{mask}", "use prefix, or have the mask behind the text"),
    ],
)
def test_the_middle_needs_a_template_with_an_end(name: str, template: str, instead: str) -> None:
    model = make(name)
    spec = SPEC.model_copy(update={"templates": {model.family: template}})
    assert not has_end(template, model.tokenizer, model.family)
    with pytest.raises(PfesError, match=f"too little behind its text: {instead}"):
        encode(spec, EXAMPLES, model.tokenizer, model.family, 100, "middle")


@pytest.mark.parametrize("name", tiny.ARCHITECTURES)
def test_several_candidates_equal_one_at_a_time(name: str) -> None:
    model = make(name)
    model.batch_tokens = 4096
    batch = batch_of(model)
    prompts = prompts_for(model, 4, 5)
    together = model.logprobs(prompts, batch)
    alone = np.concatenate([model.logprobs(prompt[None], batch) for prompt in prompts])
    np.testing.assert_allclose(together, alone, atol=1e-5)


@pytest.mark.parametrize("name", tiny.ARCHITECTURES)
def test_a_longer_row_in_the_same_pass_changes_nothing(name: str) -> None:
    model = make(name)
    model.batch_tokens = 4096
    prompts = prompts_for(model, 1, 3)
    batch = batch_of(model)
    for i in range(len(TEXTS)):
        single = Batch(
            batch.token_ids[i : i + 1],
            batch.answers[i : i + 1],
            batch.words,
            batch.labels[i : i + 1],
        )
        np.testing.assert_allclose(
            model.logprobs(prompts, single)[0, 0], model.logprobs(prompts, batch)[0, i], atol=1e-5
        )


@pytest.mark.parametrize(
    ("rows", "common"),
    [
        (((1, 2, 3), (1, 2, 4, 5)), 2),
        (((1, 2, 3), (1, 2, 3)), 2),  # the answer's own token stays with its example
        (((1, 2, 3),), 2),
        (((1,), (1, 2)), 0),
        (((4, 2), (1, 2)), 0),
    ],
)
def test_words_that_all_examples_begin_with_are_computed_once(
    rows: tuple[tuple[int, ...], ...], common: int
) -> None:
    answers = tuple(len(row) - 1 for row in rows)
    batch = Batch(rows, answers, (5, 6), np.zeros(len(rows), dtype=np.int64))
    model = make("llama")
    assert common_tokens(batch) == common
    soft = torch.from_numpy(prompts_for(model, 2, 3))
    with torch.inference_mode():
        found = by_pair(EvaluationPaths(model.module, "causal").passes(soft, batch, 64))
        plain = by_pair(padded_passes(model.module, "causal", soft, batch, 64))
    for pair in plain:
        np.testing.assert_allclose(found[pair], plain[pair], atol=1e-4)


LAST, ALL = {"last-layer"}, {"last-layer", "prefix", "suffix"}
PATHS = {
    "roberta": LAST, "bert": LAST, "albert": set(), "gemma2": LAST, "bloom": LAST,
    "opt": ALL, "opt-350m": ALL, "gpt2": ALL, "llama": ALL, "mistral": ALL,
}  # fmt: skip


@pytest.mark.parametrize("name", tiny.ARCHITECTURES)
def test_each_architecture_uses_the_fast_paths_that_it_can(name: str) -> None:
    assert make(name).fast_paths == PATHS[name]


@pytest.mark.parametrize("name", tiny.ARCHITECTURES)
def test_fast_paths_agree_with_the_plain_one(name: str) -> None:
    model = make(name)
    batch = batch_of(model)
    soft = torch.from_numpy(prompts_for(model, 2, 6))
    with torch.inference_mode():
        fast = by_pair(EvaluationPaths(model.module, model.family).passes(soft, batch, 64))
        plain = by_pair(padded_passes(model.module, model.family, soft, batch, 64))
    assert fast.keys() == plain.keys()
    for pair in plain:
        np.testing.assert_allclose(fast[pair], plain[pair], atol=1e-4)


def test_packing_leaves_the_module_as_it_was() -> None:
    model = make("llama")
    before = model.module.config._attn_implementation
    model.logprobs(prompts_for(model, 1, 2), batch_of(model))
    assert model.module.config._attn_implementation == before


@pytest.mark.parametrize(
    ("placement", "work"),
    [("prefix", "packed._make_layout"), ("suffix", "suffix.SuffixEvaluator._remember")],
)
def test_further_words_need_no_other_work(
    monkeypatch: pytest.MonkeyPatch, placement: Placement, work: str
) -> None:
    """A reading asks again and again for more words behind the same texts."""
    model = make("llama")
    batch = batch_of(model, placement)
    prompts, own = prompts_for(model, 2, 3), len(batch.words)
    before = model.logprobs(prompts, batch)
    monkeypatch.setattr(f"pfes.models.local.{work}", None)
    more = model.logprobs(prompts, batch.with_words([5, 7]))
    np.testing.assert_array_equal(more[..., :own], before)
    _, answers = model.likely_answers(prompts[0], batch, 4)
    np.testing.assert_allclose(answers[:, :own], before[0], atol=1e-5)
    with pytest.raises(TypeError):  # other texts are other work
        model.logprobs(prompts, batch.take([1, 0]))


@pytest.mark.parametrize("name", ["roberta", "llama", "bloom"])
def test_ranks_count_larger_logits(name: str) -> None:
    model = make(name)
    batch = batch_of(model)
    prompts = prompts_for(model, 2, 3)
    logprobs, ranks = model.ranks(prompts, batch)
    assert ranks is not None
    np.testing.assert_allclose(logprobs, model.logprobs(prompts, batch), atol=1e-6)
    ids = torch.tensor(batch.token_ids[2])[None]
    text = model.module.get_input_embeddings()(ids)
    front = 1 if model.family == "masked" else 0
    prompt = torch.from_numpy(prompts[1])[None]
    whole = torch.cat([text[:, :front], prompt, text[:, front:]], dim=1)
    answer = batch.answers[2] + 3
    with torch.no_grad():
        logits = model.module(inputs_embeds=whole).logits[0, answer]
    order = torch.argsort(logits, descending=True).tolist()
    assert ranks[1, 2].tolist() == [order.index(word) + 1 for word in batch.words]


@pytest.mark.parametrize("name", tiny.ARCHITECTURES)
def test_width_is_that_of_the_input_embedding(name: str) -> None:
    expected = {"albert": 16, "opt-350m": 16}.get(name, 32)
    model = make(name)
    assert model.width == expected
    assert model.embed([5, 6]).shape == (2, expected)


def test_roberta_has_fewer_places_than_positions() -> None:
    model = make("roberta")
    assert model.max_length == 256  # 258 positions, of which the first two are for padding
    ids = tuple(range(5, 5 + 256))
    batch = Batch((ids,), (3,), (7, 8), np.zeros(1, dtype=np.int64))
    assert np.isfinite(model.logprobs(np.zeros((1, 0, 32), np.float32), batch)).all()


def test_head_sees_answer_positions_only() -> None:
    model = make("llama")
    seen = []
    hook = model.module.lm_head.register_forward_hook(lambda m, a, out: seen.append(out.shape[:2]))
    model.logprobs(prompts_for(model, 2, 3), batch_of(model))
    hook.remove()
    assert seen == [(2, len(TEXTS))]


def test_no_parameter_asks_for_a_gradient() -> None:
    assert not any(p.requires_grad for p in make("bert").module.parameters())


def test_wrong_width_is_refused() -> None:
    model = make("llama")
    with pytest.raises(ValueError, match="31 wide"):
        model.logprobs(np.zeros((1, 2, 31), np.float32), batch_of(model))


@pytest.mark.parametrize(
    ("error", "expected", "message"),
    [
        (MemoryError(), OutOfMemoryError, "--max-batch-tokens"),
        (RuntimeError("CUDA out of memory. Tried to allocate 2 GiB"), OutOfMemoryError,
         "--max-batch-tokens"),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried"), OutOfMemoryError,
         "--max-batch-tokens"),
        (RuntimeError("shapes differ"), RuntimeError, "shapes differ"),
    ],
)  # fmt: skip
def test_too_little_memory_is_one_line(
    error: Exception, expected: type[Exception], message: str
) -> None:
    model = make("gpt2")

    def fail(*_: object) -> None:
        raise error

    hook = model.module.register_forward_pre_hook(fail)
    try:
        with pytest.raises(expected, match=message) as caught:
            model.logprobs(prompts_for(model, 1, 2), batch_of(model))
    finally:
        hook.remove()
    assert "\n" not in str(caught.value)
