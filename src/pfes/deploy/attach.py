"""A plain transformers model that adds a found prompt to every text."""

from typing import Any

import torch

from pfes.contract import Floats, Placement
from pfes.errors import PfesError
from pfes.models.local.padded import place_prompt
from pfes.models.source import model_family


class PromptedModel(torch.nn.Module):
    """Returns the logits of texts as if each of them came with the prompt.

    Logits line up with `input_ids`: a mask is read where it stands, the next token at the text's
    last one. Padding may be on either side and changes nothing.
    """

    def __init__(
        self, model: Any, prompt: Floats, placement: Placement = "prefix", end: int = 0
    ) -> None:
        """`end` is how many tokens the template's end has, where the prompt stands before it."""
        super().__init__()
        self.model: Any = model
        self.family = model_family(model.config)
        self.placement = placement
        self.end = end if placement == "middle" and len(prompt) else 0
        weight = model.get_input_embeddings().weight
        if prompt.shape[1] != weight.shape[1]:
            raise PfesError(
                f"the prompt is {prompt.shape[1]} wide and the model's embedding {weight.shape[1]}"
            )
        soft = torch.from_numpy(prompt).to(weight.device, weight.dtype)
        self.prompt: torch.Tensor
        self.register_buffer("prompt", soft)

    def forward(
        self,
        input_ids: torch.Tensor,
        attention_mask: torch.Tensor | None = None,
        token_type_ids: torch.Tensor | None = None,
    ) -> Any:
        """Return the model's logits for texts that stand behind, or before, the prompt.

        Token types, which some tokenizers add, are all those of a first text, as in the search.
        """
        real = torch.ones_like(input_ids) if attention_mask is None else attention_mask.long()
        order = (1 - real).argsort(dim=1, stable=True)  # real tokens first, in their order
        sizes = real.sum(dim=1)
        ids = input_ids.gather(1, order)[:, : int(sizes.max())]
        length, longest = len(self.prompt), ids.shape[1]
        front = torch.full_like(sizes, self._specials)
        if self.placement != "prefix":
            front = sizes - self.end
        position = torch.arange(longest, device=ids.device).expand(len(ids), -1)
        if self.end:  # the prompt takes the place of the first token of the end
            behind = position + (position >= front[:, None])
            ids, sizes = ids.gather(1, behind.clamp(max=longest - 1)), sizes - 1
        source, mask = place_prompt(sizes, front, length, longest)
        text = self.model.get_input_embeddings()(ids)
        both = torch.cat([text, self.prompt.expand(len(ids), -1, -1)], dim=1)
        rows = torch.arange(len(ids), device=ids.device)[:, None]
        output = self.model(inputs_embeds=both[rows, source], attention_mask=mask.long())
        # where each token of the text is read, then back to where the caller has it
        read = position + length * (position >= front[:, None])
        if self.end:
            read = position + (length - 1) * (position >= front[:, None])
        elif self.placement != "prefix":
            read = torch.where(position == sizes[:, None] - 1, position + length, position)
        back = order.argsort(dim=1).clamp(max=longest - 1)
        return type(output)(
            logits=output.logits[rows, read.clamp(max=mask.shape[1] - 1)][rows, back]
        )

    @property
    def _specials(self) -> int:
        """How many tokens stand before the prompt: a masked model's first special one."""
        return 1 if self.family == "masked" else 0
