"""RLPrompt (Deng and others, 2022): a small policy network on a frozen language model."""

import copy
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from pfes.optimizers.base import Floats, Optimizer, State

TOP = 256  # tokens that sampling chooses among, as in RLPrompt
HIDDEN = 2048  # width of the network's hidden layer, as in RLPrompt
TARGET_RATE = 0.1  # how far the target network follows; RLPrompt's 0.001 is for 12,000 steps
SMALL = 1e-4  # scale of the first weights, as in RLPrompt: the first policy is nearly uniform


class RLPrompt(Optimizer):
    """Writes prompts with a frozen causal language model whose last states pass a trained MLP.

    The values told are negative rewards; z-scored over the prompts of a generation, they train the
    network by soft Q-learning: path consistency over single steps and over whole prompts, against a
    slow copy of the network. Gradients touch this network alone. The current solution is the best
    prompt sampled so far, which is how RLPrompt reports its own.

    `module` and `tokenizer` are those of the policy's language model; candidates are its tokens.
    """

    dtype = np.int64

    def __init__(
        self,
        module: Any,
        tokenizer: Any,
        length: int = 5,
        learning_rate: float = 1e-3,
        population: int = 20,
        seed: int = 0,
    ) -> None:
        super().__init__(np.zeros(length), learning_rate, seed)
        self.population = population
        self._body = module.base_model
        self._head = module.get_output_embeddings()
        self._start = _first(tokenizer.bos_token_id, tokenizer.eos_token_id, 0)
        device, width = self._head.weight.device, self._head.weight.shape[1]
        barred = torch.zeros(self._head.weight.shape[0], dtype=torch.bool)
        barred[len(tokenizer) :] = True
        barred[list(tokenizer.all_special_ids)] = True
        self._barred = barred.to(device)
        self._top = min(TOP, int((~barred).sum()))
        self._policy = self._make_network(width).to(device)
        self._target = copy.deepcopy(self._policy)
        self._adam = torch.optim.Adam(self._policy.parameters(), learning_rate)
        self._states = torch.empty(0)  # (prompts, length, width) of the pending prompts
        self._mean = self._write(1, greedy=True)[0]
        self._best = self._mean.copy()

    def _make_network(self, width: int) -> torch.nn.Sequential:
        layers = torch.nn.Linear(width, HIDDEN), torch.nn.Linear(HIDDEN, width)
        for part in layers:
            rows, columns = part.weight.shape
            bound = SMALL * np.sqrt(6 / (rows + columns))
            drawn = self._rng.uniform(-bound, bound, (rows, columns)).astype(np.float32)
            with torch.no_grad():
                part.weight.copy_(torch.from_numpy(drawn))
                part.bias.zero_()
        return torch.nn.Sequential(layers[0], torch.nn.ReLU(), layers[1])

    def _values(self, network: torch.nn.Sequential, states: torch.Tensor) -> torch.Tensor:
        """Return Q(s, ·) over the vocabulary; tokens that a prompt must not have are at −inf."""
        logits = self._head(network(states).to(self._head.weight.dtype)).float()
        return logits.masked_fill(self._barred, -torch.inf)  # type: ignore[no-any-return]

    @torch.no_grad()
    def _write(self, prompts: int, greedy: bool = False) -> NDArray[np.int64]:
        """Write prompts token by token, and keep the states that led to each token."""
        device = self._barred.device
        tokens = torch.full((prompts, 1), self._start, device=device)
        states = []
        for _ in range(self._mean.size):
            # in full each time: a prompt is a handful of tokens
            states.append(self._body(input_ids=tokens).last_hidden_state[:, -1].float())
            top, places = self._values(self._policy, states[-1]).topk(1 if greedy else self._top)
            shares = top.cpu().double().softmax(-1).cumsum(-1).numpy()
            uniform = self._rng.random((prompts, 1))  # ~ U[0, 1)
            chosen = torch.from_numpy((shares[:, :-1] < uniform).sum(axis=1, keepdims=True))
            tokens = torch.cat([tokens, places.gather(1, chosen.to(device))], dim=1)
        self._states = torch.stack(states, dim=1)
        return tokens[:, 1:].cpu().numpy()

    def _sample(self) -> NDArray[np.int64]:  # type: ignore[override]
        return self._write(self.population)

    def _update(self, candidates: Floats, losses: NDArray[np.float64]) -> None:
        self._mean = self._best.copy()
        sound = np.flatnonzero(np.isfinite(losses))
        if len(sound) < 2 or np.ptp(losses[sound]) == 0:
            return
        rewards = -(losses[sound] - losses[sound].mean()) / losses[sound].std()
        index = torch.from_numpy(sound).to(self._barred.device)
        actions = torch.from_numpy(candidates).to(index.device)[index]
        reward = torch.from_numpy(rewards).float().to(index.device)
        with torch.enable_grad():
            loss = self._inconsistency(self._states[index], actions, reward)
            self._adam.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
        self._adam.step()
        with torch.no_grad():
            pairs = zip(self._target.parameters(), self._policy.parameters(), strict=True)
            for slow, fast in pairs:
                slow.lerp_(fast, TARGET_RATE)

    def _inconsistency(
        self, states: torch.Tensor, actions: torch.Tensor, reward: torch.Tensor
    ) -> torch.Tensor:
        """Return the mean squared violation of soft Q-learning's path consistency.

        The reward comes with the last token. With V(s) = log Σ_a exp Q(s, a) of the target network
        and log π of the trained one, V(s_t) + log π(a_t) should equal V(s_t+1), at the end the
        reward; and V(s_t) + Σ_{l ≥ t} log π(a_l) the reward.
        """
        values = self._values(self._policy, states)  # (prompts, length, vocabulary)
        logpi = values.log_softmax(-1).gather(2, actions[:, :, None])[:, :, 0]
        with torch.no_grad():
            worth = self._values(self._target, states).logsumexp(-1)  # (prompts, length)
            onward = torch.cat([worth[:, 1:], reward[:, None]], dim=1)
        to_end = logpi.flip(1).cumsum(1).flip(1)
        single = onward - worth - logpi
        whole = reward[:, None] - worth - to_end
        return 0.5 * (single.square().mean() + whole.square().mean())

    def state(self) -> State:
        moments = self._adam.state_dict()["state"]
        return super().state() | {
            "policy": _arrays(self._policy.state_dict()),
            "target": _arrays(self._target.state_dict()),
            "adam": {str(i): _arrays(moment) for i, moment in moments.items()},
        }

    def load_state(self, state: State) -> None:
        super().load_state(state)
        self._policy.load_state_dict(_tensors(state["policy"]))
        self._target.load_state_dict(_tensors(state["target"]))
        moments = {int(i): _tensors(moment) for i, moment in state["adam"].items()}
        self._adam.load_state_dict(self._adam.state_dict() | {"state": moments})


def _first(*tokens: int | None) -> int:
    return next(token for token in tokens if token is not None)


def _arrays(tensors: dict[str, torch.Tensor]) -> dict[str, Any]:
    """Dots in names become dashes: a checkpoint uses dots for nesting."""
    return {name.replace(".", "-"): t.detach().cpu().numpy().copy() for name, t in tensors.items()}


def _tensors(arrays: dict[str, Any]) -> dict[str, torch.Tensor]:
    return {name.replace("-", "."): torch.tensor(array) for name, array in arrays.items()}
