"""What the README shows is what the program takes."""

import re
from pathlib import Path

import yaml

from pfes.cli.quickstart import SETTINGS
from pfes.config import make_config
from pfes.tasks import TaskSpec

README = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")


def test_the_task_in_the_readme_is_valid() -> None:
    (block,) = re.findall(r"```yaml\n(.*?)```", README, flags=re.DOTALL)
    assert TaskSpec.model_validate(yaml.safe_load(block)).fields == ("text",)


def test_the_strategy_in_the_readme_runs(capsys) -> None:
    blocks = re.findall(r"```python\n(.*?)```", README, flags=re.DOTALL)
    (block,) = [block for block in blocks if "SAES" in block]
    exec(block, {})
    best, sigma = map(float, capsys.readouterr().out.split())
    assert best < 20_000
    assert sigma > 0


def test_quickstart_settings_are_valid() -> None:
    assert make_config(**SETTINGS).budget % make_config(**SETTINGS).population == 0
