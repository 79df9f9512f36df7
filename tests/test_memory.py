"""How much memory there is, as Linux says it and elsewhere."""

from pathlib import Path

import pytest

from pfes import memory


def test_what_can_be_given_up_counts_as_free(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "meminfo"
    file.write_text("MemTotal: 24 kB\nMemFree:  2 kB\nMemAvailable:    18 kB\n")
    monkeypatch.setattr(memory, "MEMORY", file)
    assert memory.available_memory() == 18 * 1024
    monkeypatch.setattr(memory, "MEMORY", tmp_path / "nothing")
    assert memory.available_memory() == memory.UNKNOWN
