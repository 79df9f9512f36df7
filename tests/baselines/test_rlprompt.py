"""RLPrompt: its policy learns, its losses are those of soft Q-learning, its state continues."""

import numpy as np
import pytest
import torch

from pfes.baselines.rlprompt import RLPrompt
from pfes.objective import reward
from tests import tiny

TOKENIZER = tiny.make_tokenizer("causal")


def make(seed: int = 0, **options: object) -> RLPrompt:
    module = tiny.make_module("llama").requires_grad_(False)
    return RLPrompt(module, TOKENIZER, **{"length": 3, "population": 16, "seed": seed} | options)


def test_tokens_are_words_of_the_vocabulary() -> None:
    tokens = make().ask()
    assert tokens.shape == (16, 3)
    assert tokens.max() < len(TOKENIZER)
    assert not np.isin(tokens, TOKENIZER.all_special_ids).any()


def test_the_policy_learns_what_is_rewarded() -> None:
    head = tiny.make_module("llama").get_output_embeddings().weight.detach().numpy()
    worth = head @ np.random.default_rng(5).standard_normal(head.shape[1])
    worth = (worth - worth.mean()) / worth.std()
    early, late = [], []
    for seed in range(5):
        search = make(seed)
        means = []
        for _ in range(60):
            rewards = worth[search.ask()].sum(axis=1)
            means.append(rewards.mean())
            search.tell(-rewards)
        early.append(np.mean(means[:5]))
        late.append(np.mean(means[-10:]))
    assert np.median(late) > np.median(early) + 1  # in deviations of a token's worth


def test_the_consistency_loss_is_that_of_soft_q_learning() -> None:
    search = make(learning_rate=0.05)
    for _ in range(3):  # so that policy and target differ
        search.tell((search.ask() % 3).sum(axis=1))
    tokens = torch.from_numpy(search.ask())
    z = torch.linspace(-1, 1, len(tokens))
    with torch.no_grad():
        found = search._inconsistency(search._states, tokens, z)
        total, count = 0.0, tokens.numel()
        for k, row in enumerate(tokens.tolist()):
            q = search._values(search._policy, search._states[k])
            slow = search._values(search._target, search._states[k])
            logpi = [float(q[t, a] - q[t].logsumexp(0)) for t, a in enumerate(row)]
            worth = [float(slow[t].logsumexp(0)) for t in range(3)]
            for t in range(3):
                onward = worth[t + 1] if t < 2 else float(z[k])
                total += (onward - worth[t] - logpi[t]) ** 2
                total += (float(z[k]) - worth[t] - sum(logpi[t:])) ** 2
    assert float(found) == pytest.approx(total / count / 2, rel=1e-4)


def test_the_language_model_stays_frozen() -> None:
    module = tiny.make_module("llama").requires_grad_(False)
    before = [parameter.clone() for parameter in module.parameters()]
    search = RLPrompt(module, TOKENIZER, population=8)
    for _ in range(3):
        search.tell(search.ask().sum(axis=1))
    assert all(map(torch.equal, before, module.parameters()))


def test_a_loaded_state_continues_bit_for_bit() -> None:
    whole, parted = make(), make()
    for _ in range(2):
        whole.tell(whole.ask().sum(axis=1))
    parted.load_state(whole.state())
    for _ in range(3):
        np.testing.assert_array_equal(whole.ask(), parted.ask())
        whole.tell(whole.ask().sum(axis=1))
        parted.tell(parted.ask().sum(axis=1))


def test_the_reward_is_the_weighted_gap() -> None:
    shares = np.array([[[0.6, 0.3, 0.1], [0.6, 0.3, 0.1]]])
    found = reward(np.log(shares) - 2, np.array([0, 2]))  # any constant is divided out
    np.testing.assert_allclose(found, [[200 * 0.3, 180 * (0.1 - 0.6)]])
