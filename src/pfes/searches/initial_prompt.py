"""The prompt that a search starts from."""

import numpy as np

from pfes.config import TEXT
from pfes.contract import Floats, LanguageModel
from pfes.errors import SettingError
from pfes.seeds import stream


def initial_prompt(model: LanguageModel, length: int, seed: int, init: str) -> Floats:
    """Return an initial prompt, `(length, width)`; a text is repeated or cut to the length."""
    if init == "zeros":
        return np.zeros((length, model.width), dtype=np.float32)
    if init == "vocab":
        tokens = stream(seed, "initial-prompt").integers(model.vocabulary, size=length)
        return model.embed(tokens.tolist())
    return model.embed(np.resize(text_tokens(model, init), length).tolist())


def text_tokens(model: LanguageModel, init: str) -> list[int]:
    """Return the tokens of an initial prompt given as `text:…`."""
    if not init.startswith(TEXT):
        raise SettingError("init", f"{init!r}: choose auto, vocab, zeros or text:…")
    tokens = model.tokenizer(init.removeprefix(TEXT), add_special_tokens=False)["input_ids"]
    if not tokens:
        raise SettingError("init", "the text after text: has no tokens")
    return list(tokens)
