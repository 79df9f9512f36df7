"""RLPrompt (Deng and others, 2022): a small policy network on top of a frozen language model."""

import copy
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from pfes.optimizers.base import Floats, Optimizer, State
from pfes.optimizers.torch_state import arrays, tensors

TOP = 256  # tokens are sampled from this many of the best, as in RLPrompt
HIDDEN = 2048  # width of the network's hidden layer, as in RLPrompt
INITIAL_SCALE = 1e-4  # of the weights, as in RLPrompt: the first policy is nearly uniform


class RLPrompt(Optimizer):
    """Writes prompts with a frozen causal language model and a trained MLP before its output layer.

    The values told are negative rewards; z-scored over the prompts of a generation, they train the
    network by soft Q-learning: path consistency over single steps and over whole prompts, with a
    slow copy of the network as the target. Only this network is trained. The current solution is
    the best prompt sampled so far, as in RLPrompt.

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
        target_rate: float = 0.1,
    ) -> None:
        super().__init__(np.zeros(length), learning_rate, seed)
        self.population = population
        self.target_rate = target_rate  # step of the target network to the policy
        self._body = module.base_model
        self._head = module.get_output_embeddings()
        self._start = _first(tokenizer.bos_token_id, tokenizer.eos_token_id, 0)
        device, width = self._head.weight.device, self._head.weight.shape[1]
        forbidden = torch.zeros(self._head.weight.shape[0], dtype=torch.bool)
        forbidden[len(tokenizer) :] = True
        forbidden[list(tokenizer.all_special_ids)] = True
        self._forbidden = forbidden.to(device)
        self._top = min(TOP, int((~forbidden).sum()))
        self._policy = self._make_network(width).to(device)
        self._target = copy.deepcopy(self._policy)
        self._adam = torch.optim.Adam(self._policy.parameters(), learning_rate)
        self._states = torch.empty(0)  # (prompts, length, width) of the pending prompts
        self._solution = self._write(1, greedy=True)[0]
        self._best = self._solution.copy()

    def _make_network(self, width: int) -> torch.nn.Sequential:
        layers = torch.nn.Linear(width, HIDDEN), torch.nn.Linear(HIDDEN, width)
        for part in layers:
            rows, columns = part.weight.shape
            bound = INITIAL_SCALE * np.sqrt(6 / (rows + columns))
            drawn = self._rng.uniform(-bound, bound, (rows, columns)).astype(np.float32)
            with torch.no_grad():
                part.weight.copy_(torch.from_numpy(drawn))
                part.bias.zero_()
        return torch.nn.Sequential(layers[0], torch.nn.ReLU(), layers[1])

    def _values(self, network: torch.nn.Sequential, states: torch.Tensor) -> torch.Tensor:
        """Return Q(s, ·) over the vocabulary, −inf for tokens that a prompt must not have."""
        logits = self._head(network(states).to(self._head.weight.dtype)).float()
        return logits.masked_fill(self._forbidden, -torch.inf)  # type: ignore[no-any-return]

    @torch.no_grad()
    def _write(self, prompts: int, greedy: bool = False) -> NDArray[np.int64]:
        """Write prompts token by token, and store the states from which each token was chosen."""
        device = self._forbidden.device
        tokens = torch.full((prompts, 1), self._start, device=device)
        states = []
        for _ in range(self._solution.size):
            # without a cache, as a prompt has only a few tokens
            states.append(self._body(input_ids=tokens).last_hidden_state[:, -1].float())
            values = self._values(self._policy, states[-1])  # (prompts, vocabulary)
            top_values, top_tokens = values.topk(1 if greedy else self._top)
            cumulative = top_values.cpu().double().softmax(-1).cumsum(-1).numpy()
            uniform = self._rng.random((prompts, 1))  # ~ U[0, 1)
            chosen = torch.from_numpy((cumulative[:, :-1] < uniform).sum(axis=1, keepdims=True))
            tokens = torch.cat([tokens, top_tokens.gather(1, chosen.to(device))], dim=1)
        self._states = torch.stack(states, dim=1)
        return tokens[:, 1:].cpu().numpy()

    def _sample(self) -> NDArray[np.int64]:  # type: ignore[override]
        return self._write(self.population)

    def _update(self, candidates: Floats, losses: NDArray[np.float64]) -> None:
        self._solution = self._best.copy()
        finite = np.flatnonzero(np.isfinite(losses))
        if len(finite) < 2 or np.ptp(losses[finite]) == 0:
            return
        rewards = -(losses[finite] - losses[finite].mean()) / losses[finite].std()
        index = torch.from_numpy(finite).to(self._forbidden.device)
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
                slow.lerp_(fast, self.target_rate)

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
            state_values = self._values(self._target, states).logsumexp(-1)  # (prompts, length)
            next_values = torch.cat([state_values[:, 1:], reward[:, None]], dim=1)
        to_end = logpi.flip(1).cumsum(1).flip(1)
        single = next_values - state_values - logpi
        whole = reward[:, None] - state_values - to_end
        return 0.5 * (single.square().mean() + whole.square().mean())

    def state(self) -> State:
        moments = self._adam.state_dict()["state"]
        return super().state() | {
            "policy": arrays(self._policy.state_dict()),
            "target": arrays(self._target.state_dict()),
            "adam": {str(i): arrays(moment) for i, moment in moments.items()},
        }

    def load_state(self, state: State) -> None:
        super().load_state(state)
        self._policy.load_state_dict(tensors(state["policy"]))
        self._target.load_state_dict(tensors(state["target"]))
        moments = {int(i): tensors(moment) for i, moment in state["adam"].items()}
        self._adam.load_state_dict(self._adam.state_dict() | {"state": moments})


def _first(*tokens: int | None) -> int:
    return next(token for token in tokens if token is not None)
