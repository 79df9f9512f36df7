"""Whatever is in a file, reading it works or ends with one line that says what is wrong."""

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pfes.config import RunConfig, make_config
from pfes.deploy.prompt import SavedPrompt
from pfes.errors import PfesError
from pfes.runs.folder import RunFolder
from pfes.runs.saved import SavedRun
from pfes.studies.plan import plan_runs, read_study_spec
from pfes.system.files import replace_json
from pfes.tasks import load_task
from pfes.tasks.spec import TaskSpec, read_spec
from tests.conftest import TASK
from tests.fuzz.conftest import Cases

many = settings(
    max_examples=400,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
plain = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20)
nested = st.recursive(
    plain,
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4)
    ),
    max_leaves=12,
)
# bytes of an edit: where (as a part of the file), how many bytes go, and what takes their place
edits = st.lists(
    st.tuples(st.floats(0, 1), st.integers(0, 12), st.binary(max_size=12)), min_size=1, max_size=4
)


def edited(content: bytes, changes: list[tuple[float, int, bytes]]) -> bytes:
    for where, gone, instead in changes:
        start = round(where * len(content))
        content = content[:start] + instead + content[start + gone :]
    return content


def clean(work: Callable[[], Any]) -> Any:
    """Do something that may fail in one line alone."""
    found = message = None
    try:
        found = work()
    except PfesError as error:
        message = str(error)
    assert message is None or (message and message.isprintable())
    return found


def replaced(valid: dict[str, Any]) -> st.SearchStrategy[dict[str, Any]]:
    """A valid mapping in which some values are anything, or gone, and some keys are more."""
    changes = st.dictionaries(st.sampled_from([*valid]) | st.text(max_size=8), nested, max_size=3)
    gone = st.sets(st.sampled_from([*valid]), max_size=2)
    return st.builds(
        lambda more, less: {k: v for k, v in (valid | more).items() if k not in less}, changes, gone
    )


VALID_TASK = yaml.safe_load(TASK)
VALID_STUDY = {
    "name": "s", "models": ["m"], "tasks": ["sst2"], "seeds": [0], "title": "t",
    "defaults": {"budget": 3}, "rows": [{"method": "bbt"}, {"method": "saes", "label": "x"}],
    "where": [{"task": "sst2", "sigma0": 1.0}],
}  # fmt: skip


@many
@given(content=st.binary(max_size=200) | st.text(max_size=200).map(str.encode))
def test_any_bytes_as_a_task(place: Path, cases: Cases, content: bytes) -> None:
    (place / "task.yaml").write_bytes(content)
    clean(lambda: read_spec(place / "task.yaml"))
    cases.count += 1


@many
@given(content=replaced(VALID_TASK))
def test_any_values_in_a_task(place: Path, cases: Cases, content: dict[str, Any]) -> None:
    (place / "task.yaml").write_text(yaml.safe_dump(content), encoding="utf-8")
    (place / "films.csv").write_text("text,verdict\na,good\nb,bad\n" * 3)
    found = clean(lambda: read_spec(place / "task.yaml"))
    if found is not None:
        assert isinstance(found[0], TaskSpec)
        clean(lambda: load_task(place / "task.yaml", 1))
    cases.count += 1


@many
@given(
    tag=st.sampled_from(
        ["bool", "int", "float", "timestamp", "binary", "set", "omap", "pairs", "x"]
    ),
    value=st.text(max_size=12) | nested.map(json.dumps),
)
def test_any_tag_in_a_task(place: Path, cases: Cases, tag: str, value: str) -> None:
    (place / "task.yaml").write_text(f"name: !!{tag} {value}\n", encoding="utf-8")
    clean(lambda: read_spec(place / "task.yaml"))
    cases.count += 1


@many
@given(changes=edits)
def test_a_damaged_task(place: Path, cases: Cases, changes: list[Any]) -> None:
    (place / "task.yaml").write_bytes(edited(TASK.encode(), changes))
    clean(lambda: read_spec(place / "task.yaml"))
    cases.count += 1


@many
@given(content=replaced(VALID_STUDY))
def test_any_values_in_a_study(place: Path, cases: Cases, content: dict[str, Any]) -> None:
    (place / "study.yaml").write_text(yaml.safe_dump(content), encoding="utf-8")
    spec = clean(lambda: read_study_spec(place / "study.yaml"))
    if spec is not None:
        for run in clean(lambda: plan_runs(spec, {})) or []:
            assert Path(run.folder).name == run.folder  # no way out of the folder of runs
            assert run.folder not in (".", "..")
    cases.count += 1


ROWS = b'text,verdict\n"a film, seen twice",good\nbad film,bad\n' * 6
LINES = b'{"text": "a film", "verdict": "good"}\n{"text": "b", "verdict": "bad"}\n' * 6


def good_data(suffix: str) -> bytes:
    if suffix == ".parquet":
        rows = [json.loads(line) for line in LINES.splitlines()]
        buffer = io.BytesIO()
        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), buffer)
        return buffer.getvalue()
    if suffix == ".jsonl":
        return LINES
    return ROWS.replace(b",", b"\t") if suffix == ".tsv" else ROWS


@pytest.mark.parametrize("suffix", [".csv", ".tsv", ".jsonl", ".parquet"])
@many
@given(content=st.binary(max_size=300), changes=edits, valid=st.booleans())
def test_any_bytes_as_data(
    place: Path, cases: Cases, suffix: str, content: bytes, changes: list[Any], valid: bool
) -> None:
    (place / f"films{suffix}").write_bytes(edited(good_data(suffix), changes) if valid else content)
    (place / "data.yaml").write_text(TASK.replace("films.csv", f"films{suffix}"))
    clean(lambda: load_task(place / "data.yaml", 1))
    cases.count += 1


@many
@given(
    rows=st.lists(st.dictionaries(st.sampled_from(["text", "verdict", "x"]), nested), max_size=9)
)
def test_any_rows_as_data(place: Path, cases: Cases, rows: list[dict[str, Any]]) -> None:
    (place / "films.jsonl").write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    (place / "data.yaml").write_text(TASK.replace("films.csv", "films.jsonl"))
    clean(lambda: load_task(place / "data.yaml", 1))
    cases.count += 1


CONFIG = make_config(model="m", task="sst2").model_dump()


@many
@given(content=replaced(CONFIG) | nested)
def test_any_values_in_a_run_config(place: Path, cases: Cases, content: Any) -> None:
    saved = SavedRun(place)
    saved.files.config.write_text(json.dumps(content), encoding="utf-8")
    config = clean(lambda: saved.config)
    assert config is None or isinstance(config, RunConfig)
    assert config is None or not config.trust_remote_code
    cases.count += 1


@many
@given(content=st.binary(max_size=100), changes=edits, valid=st.booleans())
def test_any_bytes_as_config_and_result(
    place: Path, cases: Cases, content: bytes, changes: list[Any], valid: bool
) -> None:
    saved = SavedRun(place)
    good = json.dumps(CONFIG).encode()
    files = saved.files
    for path in (files.config, files.task, files.result, files.history, files.answers):
        path.write_bytes(edited(good, changes) if valid else content)
    for name in ("config", "task", "result", "history", "answers"):
        clean(lambda name=name: getattr(saved, name))
    cases.count += 1


@many
@given(changes=edits, before=st.booleans(), history=st.booleans())
def test_a_damaged_checkpoint(
    place: Path, cases: Cases, changes: list[Any], before: bool, history: bool
) -> None:
    """What is loaded is one of the two states that were saved, whole, or nothing."""
    folder = RunFolder(place / "checkpoint")
    folder.path.mkdir(exist_ok=True)
    for path in folder.path.iterdir():
        path.unlink()
    for n in range(2):
        folder.append_history({"n": n})
        folder.save_checkpoint({"n": n, "in": {"x": np.arange(4.0) + n}})
    files = folder.files
    targets = [files.checkpoint]
    targets += [files.previous_checkpoint] * before + [files.history] * history
    for path in targets:
        path.write_bytes(edited(path.read_bytes(), changes))
    state = clean(RunFolder(folder.path).rewind)
    if state is not None:
        assert state["n"] in (0, 1)
        np.testing.assert_array_equal(state["in"]["x"], np.arange(4.0) + state["n"])
        assert [line["n"] for line in SavedRun(folder.path).history] == list(range(state["n"] + 1))
    cases.count += 1


@many
@given(changes=edits, random=st.none() | st.binary(max_size=200))
def test_a_damaged_prompt(
    place: Path, cases: Cases, changes: list[Any], random: bytes | None
) -> None:
    folder = RunFolder(place / "prompt")
    folder.path.mkdir(exist_ok=True)
    replace_json(folder.files.config, CONFIG)
    prompt = np.arange(12, dtype=np.float32).reshape(3, 4)
    folder.write_prompt(prompt, {"model": "m", "placement": "prefix", "task": VALID_TASK})
    good = folder.files.prompt.read_bytes()
    folder.files.prompt.write_bytes(edited(good, changes) if random is None else random)
    found = clean(lambda: SavedPrompt.load(folder.path))
    if found is not None:
        np.testing.assert_array_equal(found.prompt, prompt)
    cases.count += 1
