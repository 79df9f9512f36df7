"""From a model's name to its files: embedded, a folder, or the Hugging Face Hub."""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from pfes.contract import Family
from pfes.errors import PfesError, SettingError, one_line
from pfes.models.embedded_models import MODELS, embedded_model
from pfes.models.progress_bars import quiet_in_logs
from pfes.system.downloads import HUB_TIMEOUT


@dataclass(frozen=True)
class ModelSource:
    """Where a model comes from; its parts are loaded when first used, once each."""

    name: str
    trust_remote_code: bool = False

    @cached_property
    def location(self) -> str:
        """The folder or Hub name to load from; an embedded model is downloaded here."""
        return str(embedded_model(self.name)) if self.name in MODELS else self.name

    @cached_property
    def config(self) -> Any:
        """The model's configuration."""
        from transformers import AutoConfig

        return self._load(AutoConfig)

    @cached_property
    def tokenizer(self) -> Any:
        """The model's tokenizer: enough to check a task before any weights are read."""
        from transformers import AutoTokenizer

        return self._load(AutoTokenizer)

    @cached_property
    def family(self) -> Family:
        """Whether this is a masked or a causal language model."""
        return model_family(self.config)

    def load_module(self, **options: Any) -> Any:
        """Load the model itself; `options` are those of transformers' `from_pretrained`."""
        import transformers

        auto = {
            "masked": transformers.AutoModelForMaskedLM,
            "causal": transformers.AutoModelForCausalLM,
        }[self.family]
        module, about = self._load(auto, config=self.config, output_loading_info=True, **options)
        if missing := sorted(about["missing_keys"]):
            raise PfesError(
                f"model {self.name!r} has no weights for {missing[0]} and {len(missing) - 1} "
                f"others: it is not a {self.family} language model, or its files are incomplete"
            )
        return module

    def _load(self, auto: Any, **options: Any) -> Any:
        location = self.location
        quiet_in_logs()
        try:
            return auto.from_pretrained(
                location, trust_remote_code=self.trust_remote_code, **options
            )
        except Exception as error:  # a damaged folder raises whatever its reader raises
            raise PfesError(f"model {self.name!r} cannot be loaded: {one_line(error)}") from None


def find_model(name: str, trust_remote_code: bool = False) -> ModelSource:
    """Return the source of a model, or say at once that there is none of that name.

    Nothing is downloaded here.
    """
    source = ModelSource(name, trust_remote_code)
    if name in MODELS or (name and Path(name).is_dir()):
        return source
    import huggingface_hub
    from huggingface_hub.errors import RepositoryNotFoundError

    unknown = (
        f"no {name!r}: it is neither an embedded model ({', '.join(MODELS)}) nor a folder, and "
    )
    try:
        if huggingface_hub.try_to_load_from_cache(name, "config.json") is None:
            huggingface_hub.HfApi().model_info(name, timeout=HUB_TIMEOUT)
    except (RepositoryNotFoundError, ValueError):
        raise SettingError("model", unknown + "the Hub has none of that name") from None
    except Exception as error:  # whichever network library the Hub's client uses
        answer = f"the Hub did not answer ({one_line(error, 120)})"
        raise SettingError("model", unknown + answer) from None
    return source


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
