"""A Hugging Face model in this process, any architecture, unpatched."""

import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import torch

from pfes.config import MAX_BATCH_TOKENS
from pfes.contract import Batch, Family, Floats, Ints, LanguageModel, Texts
from pfes.errors import OutOfMemoryError, PfesError, SettingError
from pfes.models.local.batch_size import remembered_batch_tokens
from pfes.models.local.half_products import half_bytes, with_half_products
from pfes.models.local.padded import Pass
from pfes.models.local.paths import EvaluationPaths
from pfes.models.local.precision_trial import HALF, Trial, job_of, remembered_trial
from pfes.models.local.suffix import TOGETHER
from pfes.models.source import ModelSource
from pfes.system.devices import device_name, give_back_memory
from pfes.system.memory import available_memory, is_out_of_memory

OUT_OF_MEMORY = "the model ran out of memory: lower --max-batch-tokens, or use --dtype float16"
SMALLEST = 20_000_000  # weights of a model for which trying bfloat16 is worth the time
TRIED = 16  # examples on which bfloat16 is tried
BATCH_TOKENS = 2048  # of a pass, until measured: fast on a CPU


class LocalModel(LanguageModel):
    """A masked or causal language model that lives here.

    `module` and `tokenizer` are the plain Hugging Face objects. With a `source`, from which another
    process can load the same, its products may be tried in bfloat16; with `may_choose`, a search
    has them where they are faster. Its `paths` are tried here, unless they are known.
    """

    has_gradients = True

    def __init__(
        self,
        name: str,
        family: Family,
        module: Any,
        tokenizer: Any,
        max_batch_tokens: int = MAX_BATCH_TOKENS,
        source: ModelSource | None = None,
        may_choose: bool = False,
        paths: EvaluationPaths | None = None,
    ) -> None:
        self.name = name
        self.family = family
        self.module = module.eval().requires_grad_(False)
        self.tokenizer = tokenizer
        self.max_batch_tokens = max_batch_tokens
        self.batch_tokens = min(BATCH_TOKENS, max_batch_tokens)  # see `choose_batch_tokens`
        self._embedding = module.get_input_embeddings()
        self.width = int(self._embedding.weight.shape[1])
        self.max_length = _max_length(module, tokenizer)
        self.paths = paths or EvaluationPaths(module, family)
        self.fast_paths = self.paths.names
        self.parameters = sum(part.numel() for part in module.parameters())
        self.precision = str(self.dtype).removeprefix("torch.")
        # what is kept in inference mode cannot be differentiated: a batch has a copy for that
        self._copies: WeakKeyDictionary[Texts, Batch] = WeakKeyDictionary()
        self._source = source
        self._should_be_tried = may_choose and self.parameters >= SMALLEST
        self._half: LocalModel | None = None

    @property
    def device(self) -> torch.device:
        """Where inputs go."""
        return self._embedding.weight.device  # type: ignore[no-any-return]

    @property
    def dtype(self) -> torch.dtype:
        """The precision of the weights."""
        return self._embedding.weight.dtype  # type: ignore[no-any-return]

    @property
    def vocabulary(self) -> int:
        return min(len(self.tokenizer), int(self._embedding.weight.shape[0]))

    @torch.inference_mode()
    def embed(self, tokens: Sequence[int]) -> Floats:
        ids = torch.tensor(tokens, dtype=torch.long, device=self.device)
        return self._embedding(ids).float().cpu().numpy()  # type: ignore[no-any-return]

    @torch.inference_mode()
    def logprobs(self, prompts: Floats, batch: Batch) -> Floats:
        return self._answers(prompts, batch, ranks=False)[0]

    @torch.inference_mode()
    def ranks(self, prompts: Floats, batch: Batch) -> tuple[Floats, Ints | None]:
        return self._answers(prompts, batch, ranks=True)

    def _answers(self, prompts: Floats, batch: Batch, ranks: bool) -> tuple[Floats, Ints | None]:
        candidates, _, width = prompts.shape
        if width != self.width:
            raise ValueError(f"prompts are {width} wide, the model's embedding is {self.width}")
        shape = (candidates, len(batch), len(batch.words))
        logprobs = np.empty(shape, dtype=np.float32)
        positions = np.empty(shape, dtype=np.int64) if ranks else None
        words = torch.tensor(batch.words, device=self.device)
        soft = torch.as_tensor(prompts, device=self.device).to(self.dtype)
        try:
            for pairs, raw in self._passes(soft, batch):
                logits = raw.float()  # (pairs, vocabulary)
                chosen = logits[:, words]  # (pairs, words)
                logprobs[pairs] = (chosen - logits.logsumexp(-1, keepdim=True)).cpu().numpy()
                if positions is not None:
                    below = torch.searchsorted(logits.sort(-1).values, chosen, right=True)
                    positions[pairs] = (logits.shape[1] - below + 1).cpu().numpy()
        except (MemoryError, RuntimeError) as error:
            if is_out_of_memory(error):
                raise OutOfMemoryError(OUT_OF_MEMORY) from None
            raise
        return logprobs, positions

    def gradient(self, prompt: Floats, batch: Batch, slopes: Floats) -> Floats:
        if batch.texts not in self._copies:
            self._copies[batch.texts] = batch.take(range(len(batch)))
        work = replace(self._copies[batch.texts], words=batch.words)
        soft = torch.as_tensor(prompt[None], device=self.device).to(self.dtype).requires_grad_()
        words = torch.tensor(batch.words, device=self.device)
        weights = torch.as_tensor(slopes, device=self.device)
        try:
            with torch.enable_grad():
                # pass by pass, so that only one is in memory
                for (_, examples), raw in self._passes(soft, work):
                    logits = raw.float()  # (examples, vocabulary)
                    logprobs = logits[:, words] - logits.logsumexp(-1, keepdim=True)
                    weight = weights[torch.from_numpy(examples).to(self.device)]
                    logprobs.backward(weight)  # type: ignore[no-untyped-call]
        except (MemoryError, RuntimeError) as error:
            if is_out_of_memory(error):
                raise OutOfMemoryError(OUT_OF_MEMORY) from None
            raise
        assert soft.grad is not None
        return soft.grad[0].float().cpu().numpy()

    def choose_batch_tokens(self, prompt: Floats, batch: Batch, candidates: int) -> int:
        tokens = sum(len(row) for row in batch.token_ids)
        parts = (
            self.name, *self._devices(), self.precision, torch.get_num_threads(), torch.__version__,
            self.max_batch_tokens, batch.placement, len(prompt), len(batch), tokens, candidates,
        )  # fmt: skip
        everything = range(len(batch))
        before = self.batch_tokens
        try:
            return remembered_batch_tokens(
                " ".join(map(str, parts)),
                self.max_batch_tokens,
                # a copy of the batch: what is kept for a size goes with it
                lambda size: self._seconds(prompt, batch.take(everything), candidates, size),
            )
        finally:
            self.batch_tokens = before

    def _devices(self) -> list[str]:
        """Return what the model is on, by kind: a size is right for one kind of GPU."""
        devices = dict.fromkeys(parameter.device for parameter in self.module.parameters())
        return [device_name(device) for device in devices]

    def _seconds(self, prompt: Floats, batch: Batch, candidates: int, tokens: int) -> float:
        """Return the seconds that one candidate takes in passes of so many tokens."""
        give_back_memory()  # of the size before, which may not have fitted
        self.set_batch_tokens(tokens)
        row = len(prompt) + sum(len(row) for row in batch.token_ids)
        together = TOGETHER if batch.placement != "prefix" else max(1, tokens // row)
        prompts = np.repeat(prompt[None], min(candidates, together), axis=0)
        self.logprobs(prompt[None], batch)  # prepares what is kept for this size
        began = time.perf_counter()
        self.logprobs(prompts, batch)
        return (time.perf_counter() - began) / len(prompts)

    def set_batch_tokens(self, tokens: int | None) -> None:
        self.batch_tokens = tokens or min(BATCH_TOKENS, self.max_batch_tokens)

    def for_search(self, precision: str | None, prompt_length: int, batch: Batch) -> "LocalModel":
        """Return this model, or the one with products in bfloat16, after these were tried."""
        can = self._can_be_tried()
        chosen = precision is not None
        if precision == self.precision or not (chosen or (can and self._should_be_tried)):
            return self
        if not can or precision not in (None, HALF):
            super().for_search(precision, prompt_length, batch)
        if self._half is None:
            trial = self._trial(prompt_length, batch)
            if not chosen and not trial.worth:
                return self
            if not trial.works:
                message = f"{HALF} does not work on this machine: {trial.why}; use float32"
                raise SettingError("search_dtype", message)
            self._half = self.with_half_products()
        return self._half

    def with_half_products(self) -> "LocalModel":
        """Return the same model with the products of its layers in bfloat16."""
        module = with_half_products(self.module, torch.bfloat16)
        paths = EvaluationPaths(module, self.family, self.paths.tried)  # the same architecture
        half = LocalModel(
            self.name, self.family, module, self.tokenizer, self.max_batch_tokens, paths=paths
        )
        half.precision = HALF
        half.batch_tokens = self.batch_tokens
        return half

    def _can_be_tried(self) -> bool:
        """Say whether another process can load this model, and whether both fit into memory."""
        if self._source is None or self.device.type != "cpu" or self.dtype != torch.float32:
            return False
        half = half_bytes(self.module)  # here; in the other process, three times as much
        return self._half is not None or available_memory() > 4 * half

    def _trial(self, prompt_length: int, batch: Batch) -> Trial:
        some = batch.take(range(min(len(batch), TRIED)))
        threads = torch.get_num_threads()
        tokens = min(self.batch_tokens, self.max_batch_tokens)
        job = job_of(self._source, some, prompt_length, threads, tokens)
        key = (self.name, self.parameters, batch.placement, threads, torch.__version__)
        return remembered_trial(" ".join(map(str, key)), job)

    def plain_passes(self, soft: torch.Tensor, batch: Batch) -> Iterator[Pass]:
        """Evaluate prompts by the plain path, which gradients can follow."""
        return self.paths.plain(soft, batch, min(self.batch_tokens, self.max_batch_tokens))

    def _passes(self, soft: torch.Tensor, batch: Batch) -> Iterator[Pass]:
        tokens = min(self.batch_tokens, self.max_batch_tokens)
        return self.paths.passes(soft, batch, tokens)


def _max_length(module: Any, tokenizer: Any) -> int:
    """Return how many tokens the model takes: by its positions and by its tokenizer."""
    limits = [tokenizer.model_max_length]  # a huge number where the tokenizer sets none
    positions = getattr(module.config.get_text_config(), "max_position_embeddings", None)
    if positions is not None:
        # RoBERTa counts positions from its padding index on, and so has fewer than it says
        offsets = [
            part.padding_idx + 1
            for name, part in module.named_modules()
            if name.endswith("position_embeddings")
            and getattr(part, "padding_idx", None) is not None
        ]
        limits.append(positions - (offsets[0] if offsets else 0))
    limit = min(limits)
    if limit < 1:
        raise PfesError("the model's configuration leaves no room for a single token")
    return int(limit)
