"""The files of an export: the prompt, what a program needs to load it, and a card."""

import json
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal

import numpy as np

from pfes.config import PLACE
from pfes.errors import PfesError
from pfes.exports.card import card
from pfes.folder import replace_file
from pfes.models.client import is_served
from pfes.models.embedded import MODELS
from pfes.models.embedding import find_embedding
from pfes.models.load import load_config, load_tokenizer, model_family, model_source
from pfes.saved import ADAPTER, ADAPTER_KEY, SavedPrompt
from pfes.tasks.batch import added_behind, verbalizer_tokens
from pfes.tasks.spec import Family
from pfes.tensors import pack

Format = Literal["peft", "safetensors", "vllm"]
PROMPT = "prompt.safetensors"


def export(run: Path, kind: Format, out: Path, trust_remote_code: bool = False) -> list[Path]:
    """Write a run's prompt for other programs; return the files."""
    saved = SavedPrompt.load(run)
    if not len(saved.prompt):
        raise PfesError(f"{run} has no prompt to export: {saved.config.method} searches none")
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise PfesError(f"--out {out} is not an empty folder")
    base = _base(saved)
    config = load_config(base, trust_remote_code)
    family = model_family(config)
    _check(saved, kind, family)
    tokenizer = load_tokenizer(base, trust_remote_code)
    if family == "causal" and added_behind(tokenizer):
        raise PfesError(
            f"the tokenizer of {base} ends every text with a token of its own, behind which other "
            "programs would read: set add_eos_token to false in its tokenizer_config.json"
        )
    words = verbalizer_tokens(saved.spec, tokenizer)
    settings = saved.config.model_dump(exclude=set(PLACE), exclude_defaults=True)
    for name in ("model", "tokenizer"):  # a folder's name is then the same from everywhere
        if settings.get(name) and Path(settings[name]).is_dir() and settings[name] not in MODELS:
            settings[name] = str(Path(settings[name]).absolute())
    about: dict[str, Any] = {
        "model": saved.config.model,
        "placement": saved.placement,
        "task": saved.spec.model_dump(),
        "config": settings,
        "figures": saved.figures,
    }
    texts = {"README.md": card(saved, kind, family, _address(base), words)}
    prompt = np.ascontiguousarray(saved.prompt)
    if kind == "peft":
        texts["adapter_config.json"] = _adapter_config(saved, config, _address(base))
        tensors = {ADAPTER: pack({ADAPTER_KEY: prompt}, about)}
    else:
        if kind == "vllm":
            tensor, scale = find_embedding(base, trust_remote_code)
            about["embedding"] = {"tensor": tensor, "scale": scale}
            texts["client.py"] = files("pfes.exports").joinpath("vllm_client.py").read_text("utf-8")
        tensors = {PROMPT: pack({"prompt": prompt}, about)}
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise PfesError(f"--out {out}: {error.strerror}") from None
    contents = {name: text.encode() for name, text in texts.items()} | tensors
    for name, content in contents.items():
        replace_file(out / name, content)
    return [out / name for name in contents]


def _check(saved: SavedPrompt, kind: Format, family: Family) -> None:
    """Refuse what the target cannot hold, with the reason."""
    if family == "masked" and kind == "peft":
        raise PfesError(
            "--format peft: PEFT has no prompt tuning for masked language models and would ignore "
            "the prompt without a word; use --format safetensors"
        )
    if family == "masked" and kind == "vllm":
        raise PfesError("--format vllm: vLLM's completions serve causal models, not masked ones")
    if saved.placement == "suffix" and kind == "peft":
        raise PfesError(
            "--format peft: PEFT puts a prompt in front of the text, and this one was found behind "
            "it (--placement suffix); use --format safetensors or vllm"
        )


def _base(saved: SavedPrompt) -> str:
    """Return the name of the model itself, also where a server has it."""
    if is_served(saved.config.model):
        return str(saved.config.tokenizer)
    return saved.config.model


def _address(base: str) -> str:
    """Return what transformers loads the model by: a folder in full, or a Hub name."""
    if base in MODELS or Path(base).is_dir():
        return str(Path(model_source(base)).absolute())
    return base


def _adapter_config(saved: SavedPrompt, config: Any, base: str) -> str:
    length, width = saved.prompt.shape
    text = config.get_text_config()
    content = {
        "peft_type": "PROMPT_TUNING",
        "task_type": "CAUSAL_LM",
        "base_model_name_or_path": base,
        "inference_mode": True,
        "num_virtual_tokens": length,
        "token_dim": width,
        "num_transformer_submodules": 1,
        # prompt tuning does not use these two, but PEFT asks for them
        "num_attention_heads": getattr(text, "num_attention_heads", None) or 1,
        "num_layers": getattr(text, "num_hidden_layers", None) or 1,
        "prompt_tuning_init": "RANDOM",
    }
    return json.dumps(content, indent=2) + "\n"
