"""A model loaded into this process."""

from typing import Any

from pfes.config import MAX_BATCH_TOKENS, RunConfig
from pfes.errors import SettingError, one_line
from pfes.models.local.local_model import LocalModel
from pfes.models.source import ModelSource, find_model
from pfes.system.devices import default_device
from pfes.tasks.encode import check_placement, verbalizer_tokens
from pfes.tasks.spec import TaskSpec


def load_model(
    name: str | ModelSource,
    *,
    device: str | None = None,
    dtype: str | None = None,
    device_map: str | None = None,
    trust_remote_code: bool = False,
    max_batch_tokens: int = MAX_BATCH_TOKENS,
) -> LocalModel:
    """Load a masked or causal language model by embedded name, folder or Hub name.

    `device` defaults to the first GPU, Apple's too, or the CPU. `dtype` defaults to float32 on the
    CPU and to the checkpoint's own elsewhere. Code that comes with a model runs only if asked for.
    """
    target = _device(device)
    precision = _dtype(dtype, target)
    source = find_model(name, trust_remote_code) if isinstance(name, str) else name
    options: dict[str, Any] = {"dtype": precision}
    if device_map is not None:
        options["device_map"] = device_map
    module = source.load_module(**options)
    if device_map is None:
        try:
            module = module.to(target)
        except (RuntimeError, AssertionError) as error:
            raise SettingError("device", f"{target}: {one_line(error, 200)}") from None
    return LocalModel(source.name, source.family, module, source.tokenizer, max_batch_tokens)


def open_local_model(
    config: RunConfig, spec: TaskSpec | None, source: ModelSource | None = None
) -> LocalModel:
    """Load a run's model; what its tokenizer and configuration rule out is said before."""
    if config.threads is not None:
        import torch

        torch.set_num_threads(config.threads)
    source = source or find_model(config.model, config.trust_remote_code)
    if spec is not None:
        verbalizer_tokens(spec, source.tokenizer)
        spec.template(source.family)
    check_placement(config.placement, source.family)
    model = load_model(
        source,
        device=config.device,
        dtype=config.dtype,
        device_map=config.device_map,
        max_batch_tokens=config.max_batch_tokens,
    )
    model.set_batch_tokens(config.batch_tokens)
    return model


def open_policy_model(config: RunConfig, model: object) -> LocalModel:
    """Return the language model that writes RLPrompt's prompts: the run's own if it is the same."""
    if config.policy_model == config.model and isinstance(model, LocalModel):
        policy = model
    else:
        policy = load_model(
            config.policy_model,
            device=config.device,
            trust_remote_code=config.trust_remote_code,
        )
    if policy.family != "causal":
        raise SettingError(
            "policy_model",
            f"{config.policy_model} is a masked model, which cannot write: choose a causal one",
        )
    return policy


def _device(device: str | None) -> Any:
    import torch

    try:
        return torch.device(device or default_device())
    except RuntimeError as error:
        raise SettingError("device", f"{device}: {one_line(error, 200)}") from None


def _dtype(dtype: str | None, device: Any) -> Any:
    import torch

    if dtype is None:
        return torch.float32 if device.type == "cpu" else "auto"
    names = {"float32", "float16", "bfloat16", "float64"}
    if dtype not in names:
        raise SettingError("dtype", f"{dtype}: choose one of {', '.join(sorted(names))}")
    return getattr(torch, dtype)
