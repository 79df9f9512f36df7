"""Making a config: from settings that were given, or that were stored by an earlier session."""

from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from pfes.config.run_config import RunConfig
from pfes.config.values import is_served, takes_only_text
from pfes.errors import SettingError

# How runs were before there was such a setting, or such a default
FORMER: dict[str, Any] = {
    "reading": "plain", "init": "vocab", "sigma0": "paper", "dtype": "float32",
}  # fmt: skip

# Settings that say where a run takes place, not what it is: they may change when it is resumed
LOCATION = frozenset(
    (
        "device", "device_map", "data_dir", "patience", "engine", "workers", "gpus_per_worker",
        "threads", "trust_remote_code", "checkpoint_seconds", "key_variable", "max_requests",
        "max_tokens", "price_per_million",
    )
)  # fmt: skip

# The location of whoever uses a finished run: one process, here
THIS_PROCESS: dict[str, Any] = {
    "engine": "serial", "workers": None, "threads": None, "max_requests": None, "max_tokens": None,
}  # fmt: skip


def location_settings(config: RunConfig, other: RunConfig) -> frozenset[str]:
    """Return the settings that may differ between two sessions of one run.

    The address of a served model is one of them: a server may have moved, or got company.
    """
    served = is_served(config.model) and is_served(other.model)
    served = served and takes_only_text(config.model) == takes_only_text(other.model)
    return LOCATION | {"model"} if served else LOCATION


def make_config(**settings: Any) -> RunConfig:
    """Make a config, or say in one line which setting is wrong."""
    try:
        return RunConfig(**settings)
    except ValidationError as error:
        first = error.errors()[0]
        name = str(first["loc"][0]) if first["loc"] else "config"
        messages = {
            "missing": "this setting is missing",
            "extra_forbidden": "there is no such setting",
            "string_pattern_mismatch": f"choose serial, ray or ray:ADDRESS, not {first['input']!r}",
        }
        own = first["msg"].removeprefix("Value error, ")
        shown = own if first["type"] == "value_error" else f"{own}, not {first['input']!r}"
        raise SettingError(name, messages.get(first["type"], shown)) from None


def read_config(stored: Mapping[str, Any]) -> RunConfig:
    """Make a config from settings that were stored, perhaps by an earlier version.

    A stored consent to run a model's own code does not count: it must be given again.
    """
    return make_config(**FORMER | dict(stored) | {"trust_remote_code": False})
