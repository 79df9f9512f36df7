"""RLPrompt: its policy learns, its losses are those of soft Q-learning, its state continues."""

import numpy as np
import torch

from pfes.optimizers.rlprompt import RLPrompt
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


def make_network(arrays: dict[str, np.ndarray]) -> torch.nn.Sequential:
    """A policy network from an optimizer's state."""
    wide, narrow = arrays["0-weight"].shape
    network = torch.nn.Sequential(
        torch.nn.Linear(narrow, wide), torch.nn.ReLU(), torch.nn.Linear(wide, narrow)
    )
    tensors = {name.replace("-", "."): torch.tensor(array) for name, array in arrays.items()}
    network.load_state_dict(tensors)
    return network


def soft_q_learning_loss(
    state: dict, tokens: np.ndarray, rewards: np.ndarray
) -> tuple[torch.nn.Sequential, torch.Tensor]:
    """The loss by its definition, prompt by prompt and token by token, and the policy."""
    module = tiny.make_module("llama").requires_grad_(False)
    policy, target = make_network(state["policy"]), make_network(state["target"])
    allowed = [t for t in range(len(TOKENIZER)) if t not in TOKENIZER.all_special_ids]

    def values(network: torch.nn.Sequential, before: list[int]) -> torch.Tensor:
        """Q of every token of the vocabulary, behind some tokens."""
        ids = torch.tensor([[TOKENIZER.bos_token_id, *before]])
        hidden = module.base_model(input_ids=ids).last_hidden_state[0, -1]
        logits = module.get_output_embeddings()(network(hidden))
        known = torch.full_like(logits, -torch.inf)
        known[allowed] = logits[allowed]
        return known

    total: torch.Tensor = torch.zeros(())
    for row, reward in zip(tokens.tolist(), rewards.tolist(), strict=True):
        log_policy, worth = [], []
        for t, token in enumerate(row):
            q = values(policy, row[:t])
            log_policy.append(q[token] - q.logsumexp(0))
            with torch.no_grad():
                worth.append(values(target, row[:t]).logsumexp(0))
        for t in range(len(row)):
            onward = worth[t + 1] if t + 1 < len(row) else reward
            total = total + (onward - worth[t] - log_policy[t]) ** 2
            total = total + (reward - worth[t] - sum(log_policy[t:])) ** 2
    return policy, total / tokens.size / 2


def test_a_step_follows_soft_q_learning() -> None:
    """One step of Adam on the loss by its definition, from the optimizer's own state."""
    rate = 0.01
    search = make(learning_rate=rate)
    for _ in range(3):  # so that policy and target differ
        search.tell((search.ask() % 3).sum(axis=1))
    state, tokens = search.state(), search.ask()
    assert len(np.unique(tokens)) > 10
    losses = (tokens % 5).sum(axis=1).astype(np.float64)
    rewards = -(losses - losses.mean()) / losses.std()
    policy, loss = soft_q_learning_loss(state, tokens, rewards)
    adam = torch.optim.Adam(policy.parameters(), rate)
    moments = {
        int(i): {name: torch.tensor(array) for name, array in moment.items()}
        for i, moment in state["adam"].items()
    }
    adam.load_state_dict(adam.state_dict() | {"state": moments})
    loss.backward()
    adam.step()
    search.tell(losses)
    after = search.state()
    for name, tensor in policy.state_dict().items():
        key = name.replace(".", "-")
        before = state["policy"][key]
        moved = after["policy"][key] - before
        assert np.abs(moved).max() > rate / 10
        np.testing.assert_allclose(moved, tensor.numpy() - before, atol=rate / 1000)
        # the target follows a part of the way
        target = (1 - 0.1) * state["target"][key] + 0.1 * after["policy"][key]
        np.testing.assert_allclose(after["target"][key], target, atol=1e-6)


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
