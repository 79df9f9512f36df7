"""A model's input embedding alone: one tensor out of its files, never the model."""

import json
from pathlib import Path

from pfes.contract import Floats
from pfes.errors import PfesError, one_line
from pfes.models.source import ModelSource

SINGLE = "model.safetensors"
INDEX = "model.safetensors.index.json"


def load_embedding(source: ModelSource) -> Floats:
    """Read the input embedding `(vocabulary, width)` of a model, alone."""
    from safetensors import SafetensorError, safe_open

    wanted, scale = _tensor_name(source)
    try:
        file, key = _find(source.location, wanted)
        with safe_open(file, framework="pt") as tensors:  # numpy has no bfloat16
            embedding: Floats = (tensors.get_tensor(key).float() * scale).numpy()
    except (OSError, SafetensorError, ValueError) as error:
        if isinstance(error, PfesError):
            raise
        message = f"the embedding of {source.name!r} cannot be read: {one_line(error)}"
        raise PfesError(message) from None
    return embedding


def _tensor_name(source: ModelSource) -> tuple[str, float]:
    """Return what the tensor is called and scaled by, from the architecture without weights."""
    import torch
    from transformers import AutoModelForCausalLM

    if source.family != "causal":
        raise PfesError(f"{source.name!r} is a masked model: vLLM's completions serve causal ones")
    try:
        with torch.device("meta"):
            module = AutoModelForCausalLM.from_config(
                source.config, trust_remote_code=source.trust_remote_code
            )
    except Exception as error:  # whatever an architecture raises
        raise PfesError(f"{source.name!r} is not a causal model: {one_line(error, 200)}") from None
    embedding = module.get_input_embeddings()
    own = next(path for path, part in module.named_modules() if part is embedding)
    return f"{own}.weight", float(getattr(embedding, "scalar_embed_scale", 1.0))


def _find(location: str, wanted: str) -> tuple[Path, str]:
    """Return the file that holds a tensor, and the tensor's name there."""
    index = _file(location, INDEX)
    if index is not None:
        files: dict[str, str] = json.loads(index.read_text(encoding="utf-8"))["weight_map"]
        key = _match(list(files), wanted, location)
        file = _file(location, files[key])
    else:
        file = _file(location, SINGLE)
        key = wanted if file is None else _match(_names(file), wanted, location)
    if file is None:
        raise PfesError(f"{location} has no safetensors file to read the embedding from")
    return file, key


def _match(names: list[str], wanted: str, location: str) -> str:
    """Find a tensor by its name; a file may call it with or without the model's own prefix."""
    last = wanted.rpartition(".model.")[2] if ".model." in wanted else wanted
    tail = last.partition(".")[2] or last
    for candidate in (wanted, *(n for n in names if n.endswith(f".{tail}") or n == tail)):
        if candidate in names:
            return candidate
    raise PfesError(f"{location} has no tensor {wanted}: is it a whole model?")


def _names(file: Path) -> list[str]:
    from safetensors import safe_open

    with safe_open(file, framework="pt") as tensors:
        return list(tensors.keys())


def _file(location: str, name: str) -> Path | None:
    """Return a file of a folder or of a Hub repository, downloaded alone; None if it has none."""
    if Path(location).is_dir():
        path = Path(location) / name
        return path if path.exists() else None
    import huggingface_hub
    from huggingface_hub.errors import EntryNotFoundError

    try:
        return Path(huggingface_hub.hf_hub_download(location, name))
    except EntryNotFoundError:
        return None
