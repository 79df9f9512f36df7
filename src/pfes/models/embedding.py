"""A model's input embedding alone: one tensor out of its files, never the model."""

import json
from pathlib import Path

from pfes.errors import PfesError
from pfes.models.base import Floats
from pfes.models.load import load_config, model_family, model_source
from pfes.tasks.spec import one_line

SINGLE = "model.safetensors"
INDEX = "model.safetensors.index.json"


def load_embedding(name: str, trust_remote_code: bool = False) -> Floats:
    """Read the input embedding `(vocabulary, width)` of a model by embedded, folder or Hub name."""
    from safetensors import SafetensorError, safe_open

    wanted, scale = _tensor_name(name, trust_remote_code)
    source = model_source(name)
    try:
        file, key = _find(source, wanted)
        with safe_open(file, framework="pt") as tensors:  # numpy has no bfloat16
            embedding: Floats = (tensors.get_tensor(key).float() * scale).numpy()
    except (OSError, SafetensorError, ValueError) as error:
        raise PfesError(f"the embedding of {name!r} cannot be read: {one_line(error)}") from None
    return embedding


def find_embedding(name: str, trust_remote_code: bool = False) -> tuple[str, float]:
    """Return the name of the embedding's tensor in a model's files, and what it is scaled by."""
    wanted, scale = _tensor_name(name, trust_remote_code)
    return _find(model_source(name), wanted)[1], scale


def _tensor_name(name: str, trust_remote_code: bool) -> tuple[str, float]:
    """Return what the tensor is called and scaled by, from the architecture without weights."""
    import torch
    from transformers import AutoModelForCausalLM

    config = load_config(name, trust_remote_code)
    if model_family(config) != "causal":
        raise PfesError(f"{name!r} is a masked model: vLLM's completions serve causal ones")
    try:
        with torch.device("meta"):
            module = AutoModelForCausalLM.from_config(config, trust_remote_code=trust_remote_code)
    except Exception as error:  # whatever an architecture raises
        raise PfesError(f"{name!r} is not a causal model: {one_line(error)[:200]}") from None
    embedding = module.get_input_embeddings()
    own = next(path for path, part in module.named_modules() if part is embedding)
    return f"{own}.weight", float(getattr(embedding, "scalar_embed_scale", 1.0))


def _find(source: str, wanted: str) -> tuple[Path, str]:
    """Return the file that holds a tensor, and the tensor's name there."""
    index = _file(source, INDEX)
    if index is not None:
        places: dict[str, str] = json.loads(index.read_text(encoding="utf-8"))["weight_map"]
        key = _match(list(places), wanted, source)
        file = _file(source, places[key])
    else:
        file = _file(source, SINGLE)
        key = wanted if file is None else _match(_names(file), wanted, source)
    if file is None:
        raise PfesError(f"{source} has no safetensors file to read the embedding from")
    return file, key


def _match(names: list[str], wanted: str, source: str) -> str:
    """Find a tensor by its name; a file may call it with or without the model's own prefix."""
    last = wanted.rpartition(".model.")[2] if ".model." in wanted else wanted
    tail = last.partition(".")[2] or last
    for candidate in (wanted, *(n for n in names if n.endswith(f".{tail}") or n == tail)):
        if candidate in names:
            return candidate
    raise PfesError(f"{source} has no tensor {wanted}: is it a whole model?")


def _names(file: Path) -> list[str]:
    from safetensors import safe_open

    with safe_open(file, framework="pt") as tensors:
        return list(tensors.keys())


def _file(source: str, name: str) -> Path | None:
    """Return a file of a folder or of a Hub repository, downloaded alone; None if it has none."""
    if Path(source).is_dir():
        path = Path(source) / name
        return path if path.exists() else None
    import huggingface_hub
    from huggingface_hub.errors import EntryNotFoundError

    try:
        return Path(huggingface_hub.hf_hub_download(source, name))
    except EntryNotFoundError:
        return None
