"""The files of an export: the prompt, what a program needs to load it, and a card."""

import json
from pathlib import Path
from typing import Any, Literal

import numpy as np

from pfes.config import LOCATION, is_served, takes_only_text
from pfes.deploy.card import card
from pfes.deploy.export_text import text_files
from pfes.deploy.prompt import ADAPTER, ADAPTER_KEY, READING_FILE, SavedPrompt
from pfes.errors import PfesError, SettingError
from pfes.models.embedded_models import MODELS
from pfes.models.source import ModelSource, find_model
from pfes.searches.reading import PLAIN
from pfes.system.files import make_folder, replace_file
from pfes.system.tensors import pack
from pfes.tasks.encode import tokens_added_after, verbalizer_tokens

Format = Literal["peft", "safetensors", "vllm", "text"]
PROMPT = "prompt.safetensors"


def export(run: Path, kind: Format, out: Path, trust_remote_code: bool = False) -> list[Path]:
    """Write a run's prompt for other programs; return the files."""
    saved = SavedPrompt.load(run)
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise SettingError("out", f"{out} is not an empty folder")
    if kind == "text":
        files = text_files(saved, trust_remote_code)
        return _write(out, {name: text.encode() for name, text in files.items()})
    if takes_only_text(saved.config.model):
        raise SettingError("format", f"{saved.config.model} takes only text: use --format text")
    if not len(saved.prompt):
        raise PfesError(f"{run} has no prompt to export: {saved.config.method} searches none")
    base = find_model(_base_name(saved), trust_remote_code)
    _check(saved, kind, base)
    words = verbalizer_tokens(saved.spec, base.tokenizer)
    about: dict[str, Any] = {
        "model": saved.config.model,
        "placement": saved.placement,
        "end": saved.end,
        "task": saved.spec.model_dump(),
        "config": _settings(saved),
        "figures": saved.figures,
    }
    address = _address(base)
    texts = {"README.md": card(saved, kind, base.family, address, words)}
    prompt = np.ascontiguousarray(saved.prompt)
    tensors = {}
    if saved.reading is not PLAIN:
        arrays = saved.reading.to_arrays(words)
        tensors[READING_FILE] = pack(arrays, {"rung": saved.reading.rung})
    if kind == "peft":
        texts["adapter_config.json"] = _adapter_config(saved, base.config, address)
        tensors[ADAPTER] = pack({ADAPTER_KEY: prompt}, about)
    else:
        tensors[PROMPT] = pack({"prompt": prompt}, about)
    return _write(out, {name: text.encode() for name, text in texts.items()} | tensors)


def _write(out: Path, contents: dict[str, bytes]) -> list[Path]:
    make_folder(out)
    for name, content in contents.items():
        replace_file(out / name, content)
    return [out / name for name in contents]


def _settings(saved: SavedPrompt) -> dict[str, Any]:
    """Return the run's settings, with folders named so that they are found from everywhere."""
    settings = saved.config.model_dump(exclude=set(LOCATION), exclude_defaults=True)
    for name in ("model", "tokenizer"):
        if settings.get(name) and Path(settings[name]).is_dir() and settings[name] not in MODELS:
            settings[name] = str(Path(settings[name]).absolute())
    return settings


def _check(saved: SavedPrompt, kind: Format, base: ModelSource) -> None:
    """Refuse what the target cannot hold, with the reason."""
    if base.family == "masked" and kind == "peft":
        raise SettingError(
            "format",
            "peft has no prompt tuning for masked language models and would ignore the prompt "
            "without a word; use --format safetensors",
        )
    if base.family == "masked" and kind == "vllm":
        raise SettingError("format", "vllm's completions serve causal models, not masked ones")
    if saved.placement != "prefix" and kind == "peft":
        raise SettingError(
            "format",
            "peft puts a prompt in front of the text, and this one was found behind it "
            f"(--placement {saved.placement}); use --format safetensors or vllm",
        )
    if base.family == "causal" and tokens_added_after(base.tokenizer):
        raise PfesError(
            f"the tokenizer of {base.name} ends every text with a token of its own, and other "
            "programs would read the answer behind it: set add_eos_token to false in its "
            "tokenizer_config.json"
        )


def _base_name(saved: SavedPrompt) -> str:
    """Return the name of the model itself, also where a server has it."""
    if is_served(saved.config.model):
        return str(saved.config.tokenizer)
    return saved.config.model


def _address(base: ModelSource) -> str:
    """Return what transformers loads the model by: a folder in full, or a Hub name."""
    if base.name in MODELS or Path(base.name).is_dir():
        return str(Path(base.location).absolute())
    return base.name


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
