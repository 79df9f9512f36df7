"""Reading YAML: nothing but data, and no word but true and false is a truth value."""

import re
from pathlib import Path
from typing import Any

import yaml

from pfes.errors import PfesError, one_line


class _Loader(yaml.SafeLoader):
    """YAML 1.1 reads yes, no, on and off as truth values; here they are words, as in YAML 1.2."""


_BOOL = "tag:yaml.org,2002:bool"
_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != _BOOL]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_Loader.add_implicit_resolver(
    _BOOL, re.compile(r"^(?:true|True|TRUE|false|False|FALSE)$"), [*"tTfF"]
)


ODD = (AttributeError, TypeError)  # what PyYAML raises for a tag whose value is not of its kind


def read_yaml(path: Path, what: str) -> Any:
    """Return the content of a YAML file; `what` names it in an error."""
    try:
        return yaml.load(path.read_text(encoding="utf-8-sig"), _Loader)
    except FileNotFoundError:
        raise PfesError(f"{what} {path} does not exist") from None
    except (OSError, ValueError, RecursionError, yaml.YAMLError, LookupError, *ODD) as error:
        raise PfesError(f"{what} {path} cannot be read: {one_line(error)}") from None
