"""Work as generators: signs of progress are shown, and what was made is returned."""

from collections.abc import Iterator

import pytest

from pfes.system.stages import Stage, result_of


def work() -> Iterator[Stage]:
    yield Stage("reading")
    yield Stage("counting", done=1, total=2)
    return "made"


def test_the_result_is_what_the_work_returns() -> None:
    shown: list[Stage] = []
    assert result_of(work(), shown.append) == "made"
    assert [stage.name for stage in shown] == ["reading", "counting"]
    assert result_of(work()) == "made"


def test_an_error_of_the_work_is_the_callers() -> None:
    def broken() -> Iterator[Stage]:
        yield Stage("reading")
        raise RuntimeError("broken")

    with pytest.raises(RuntimeError, match="broken"):
        result_of(broken())
