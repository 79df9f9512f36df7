"""From a model's name to the model: embedded, a folder, or the Hugging Face Hub."""

from pathlib import Path
from typing import Any

from pfes.errors import PfesError
from pfes.models.bars import quiet_in_logs
from pfes.models.base import MAX_BATCH_TOKENS
from pfes.models.embedded import MODELS, embedded_model
from pfes.models.local import LocalModel
from pfes.tasks.data import HUB_TIMEOUT
from pfes.tasks.spec import Family, one_line


def load_tokenizer(name: str, trust_remote_code: bool = False) -> Any:
    """Load a model's tokenizer alone: enough to check a task before any weights are read."""
    from transformers import AutoTokenizer

    return _from_pretrained(AutoTokenizer, name, trust_remote_code=trust_remote_code)


def load_config(name: str, trust_remote_code: bool = False) -> Any:
    """Load a model's configuration alone."""
    from transformers import AutoConfig

    return _from_pretrained(AutoConfig, name, trust_remote_code=trust_remote_code)


def load_model(
    name: str,
    *,
    device: str | None = None,
    dtype: str | None = None,
    device_map: str | None = None,
    trust_remote_code: bool = False,
    max_batch_tokens: int = MAX_BATCH_TOKENS,
) -> LocalModel:
    """Load a masked or causal language model by embedded name, folder or Hub name.

    `device` defaults to the first GPU, or the CPU. `dtype` defaults to float32 on the CPU and to
    the checkpoint's own elsewhere. Code that comes with a model runs only if asked for.
    """
    import transformers

    config = load_config(name, trust_remote_code)
    family = model_family(config)
    where = _device(device)
    auto = {
        "masked": transformers.AutoModelForMaskedLM,
        "causal": transformers.AutoModelForCausalLM,
    }[family]
    options: dict[str, Any] = {"trust_remote_code": trust_remote_code, "config": config}
    options["dtype"] = _dtype(dtype, where)
    if device_map is not None:
        options["device_map"] = device_map
    module, about = _from_pretrained(auto, name, **options, output_loading_info=True)
    if missing := sorted(about["missing_keys"]):
        raise PfesError(
            f"model {name!r} has no weights for {missing[0]} and {len(missing) - 1} others: it is "
            f"not a {family} language model, or its files are not whole"
        )
    if device_map is None:
        try:
            module = module.to(where)
        except (RuntimeError, AssertionError) as error:
            raise PfesError(f"device {where}: {one_line(error)[:200]}") from None
    tokenizer = load_tokenizer(name, trust_remote_code)
    return LocalModel(name, family, module, tokenizer, max_batch_tokens)


def model_family(config: Any) -> Family:
    """Say whether a configuration is that of a masked or of a causal language model."""
    import transformers

    for architecture in config.architectures or ():
        if architecture.endswith(("ForMaskedLM", "ForPreTraining")):
            return "masked"
        if architecture.endswith("WithLMHeadModel"):  # XLM and Flaubert can be either
            return "causal" if config.causal else "masked"
        if architecture.endswith(("ForCausalLM", "LMHeadModel")):
            return "causal"
    if type(config) in transformers.MODEL_FOR_MASKED_LM_MAPPING:
        return "masked"  # most masked architectures have a causal class too; the reverse is rare
    if type(config) in transformers.MODEL_FOR_CAUSAL_LM_MAPPING:
        return "causal"
    raise PfesError(
        f"model type {config.model_type!r} is neither a masked nor a causal language model"
    )


def _from_pretrained(auto: Any, name: str, **options: Any) -> Any:
    source = model_source(name)
    quiet_in_logs()
    try:
        return auto.from_pretrained(source, **options)
    except Exception as error:  # a damaged folder raises whatever its reader raises
        raise PfesError(f"model {name!r} cannot be loaded: {one_line(error)[:300]}") from None


def model_source(name: str) -> str:
    """Return the folder or Hub name to load from, or say at once that there is none."""
    if name in MODELS:
        return str(embedded_model(name))
    if name and Path(name).is_dir():
        return name
    import huggingface_hub
    from huggingface_hub.errors import RepositoryNotFoundError

    unknown = (
        f"unknown model {name!r}: neither an embedded model ({', '.join(MODELS)}) nor a folder, "
    )
    try:
        if huggingface_hub.try_to_load_from_cache(name, "config.json") is None:
            huggingface_hub.HfApi().model_info(name, timeout=HUB_TIMEOUT)
    except (RepositoryNotFoundError, ValueError):
        raise PfesError(unknown + "and the Hub has none of that name") from None
    except Exception as error:  # whichever network library the Hub's client uses
        raise PfesError(unknown + f"and the Hub did not answer ({one_line(error)[:120]})") from None
    return name


def _device(device: str | None) -> Any:
    import torch

    try:
        return torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
    except RuntimeError as error:
        raise PfesError(f"--device {device}: {one_line(error)[:200]}") from None


def _dtype(dtype: str | None, device: Any) -> Any:
    import torch

    if dtype is None:
        return torch.float32 if device.type == "cpu" else "auto"
    names = {"float32", "float16", "bfloat16", "float64"}
    if dtype not in names:
        raise PfesError(f"--dtype {dtype}: choose one of {', '.join(sorted(names))}")
    return getattr(torch, dtype)
