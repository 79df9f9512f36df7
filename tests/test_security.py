"""Files from strangers: nothing in them runs, and nothing is written where they say."""

import json
import os
import pickle
import re
from collections.abc import Callable
from pathlib import Path

import pytest

import pfes
from pfes.cli.search import read_settings
from pfes.deploy.prompt import SavedPrompt
from pfes.errors import PfesError
from pfes.runs.folder import RunFolder
from pfes.runs.saved import SavedRun
from pfes.studies.plan import plan_runs, read_study_spec
from pfes.tasks import load_task
from pfes.tasks.spec import read_spec
from tests import tiny
from tests.small_runs import small_settings

SOURCE = Path(pfes.__file__).parent

# what would let data become code
FORBIDDEN = (
    r"\bimport (pickle|dill|marshal|shelve|joblib)\b",
    r"\bfrom (pickle|dill|marshal|shelve|joblib)\b",
    r"\btorch\.load\(",
    r"allow_pickle\s*=\s*True",
    r"yaml\.(unsafe_load|full_load|load_all)\b",
    r"\byaml\.(Unsafe|Full)?Loader\b",
    r"(?<![.\w])(eval|exec)\(",
    r"shell\s*=\s*True",
    r"\bos\.system\(",
    r"\bextractall\(",
)


def test_the_source_has_no_way_from_data_to_code() -> None:
    files = [*SOURCE.rglob("*.py")]
    assert len(files) > 80
    for file in files:
        text = file.read_text(encoding="utf-8")
        for pattern in FORBIDDEN:
            assert not re.search(pattern, text), f"{pattern} in {file.relative_to(SOURCE)}"


class Bomb:
    """Leaves a mark when unpickled."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[object, ...]:
        return os.mkdir, (str(self.mark),)


@pytest.fixture
def mark(tmp_path: Path) -> Path:
    return tmp_path / "mark"


def test_the_bomb_works(mark: Path) -> None:
    pickle.loads(pickle.dumps(Bomb(mark)))
    assert mark.exists()


@pytest.mark.parametrize("name", ["prompt.safetensors", "adapter_model.safetensors"])
def test_a_pickle_in_place_of_a_prompt(tmp_path: Path, mark: Path, name: str) -> None:
    (tmp_path / name).write_bytes(pickle.dumps(Bomb(mark)))
    with pytest.raises(PfesError, match=name):
        SavedPrompt.load(tmp_path)
    assert not mark.exists()


def test_a_pickle_in_place_of_a_checkpoint(tmp_path: Path, mark: Path) -> None:
    saved = SavedRun(tmp_path)
    saved.files.checkpoint.write_bytes(pickle.dumps(Bomb(mark)))
    with pytest.raises(PfesError, match="checkpoint"):
        _ = saved.checkpoint
    with pytest.raises(PfesError, match="checkpoint"):
        RunFolder(tmp_path).rewind()
    assert not mark.exists()


def test_a_pickle_in_place_of_weights(
    folders: Callable[[str], Path], tmp_path: Path, mark: Path
) -> None:
    folder = tiny.save_folder("llama", tmp_path / "model")
    (folder / "model.safetensors").unlink()
    (folder / "pytorch_model.bin").write_bytes(pickle.dumps({"model.norm.weight": Bomb(mark)}))
    with pytest.raises(PfesError, match="cannot be loaded"):
        pfes.load_model(str(folder))
    assert not mark.exists()


def test_an_object_in_yaml(tmp_path: Path, mark: Path) -> None:
    text = f"name: !!python/object/apply:os.mkdir ['{mark}']\n"
    for read in (read_spec, read_study_spec):
        (tmp_path / "x.yaml").write_text(text)
        with pytest.raises(PfesError, match="cannot be read"):
            read(tmp_path / "x.yaml")
    assert not mark.exists()


@pytest.fixture
def code_model(tmp_path: Path, mark: Path) -> Path:
    """A model folder that brings code of its own."""
    folder = tiny.save_folder("llama", tmp_path / "model")
    config = json.loads((folder / "config.json").read_text())
    config |= {"model_type": "mine", "auto_map": {"AutoConfig": "mine.Mine"}}
    (folder / "config.json").write_text(json.dumps(config))
    code = f"import os\nos.mkdir({str(mark)!r})\nclass Mine: pass\n"
    (folder / "mine.py").write_text(code)
    return folder


def test_a_models_own_code_does_not_run_unasked(
    code_model: Path, mark: Path, task_file: Path, tmp_path: Path
) -> None:
    with pytest.raises(PfesError, match="cannot be loaded"):
        pfes.search(str(code_model), task_file, **small_settings())
    assert not mark.exists()


def test_a_stored_consent_does_not_count(
    folders: Callable[[str], Path], code_model: Path, mark: Path, task_file: Path, tmp_path: Path
) -> None:
    """Neither in a run folder, nor in a study or a config file: only the flag does."""
    out = tmp_path / "run"
    pfes.search(str(folders("llama")), task_file, out=out, **small_settings())
    stored = json.loads((out / "config.json").read_text())
    stored |= {"model": str(code_model), "trust_remote_code": True}
    (out / "config.json").write_text(json.dumps(stored))
    assert not SavedRun(out).config.trust_remote_code
    with pytest.raises(PfesError):
        pfes.Classifier.from_run(out)
    study = tmp_path / "study.yaml"
    study.write_text(
        f"name: s\nmodels: ['{code_model}']\ntasks: ['{task_file}']\n"
        "defaults: {trust_remote_code: true}\nrows: [{method: manual}]\n"
    )
    with pytest.raises(PfesError, match="trust_remote_code: this cannot be set in a file"):
        plan_runs(read_study_spec(study), {})
    (tmp_path / "c.yaml").write_text("trust_remote_code: true\n")
    with pytest.raises(PfesError, match="--trust-remote-code cannot be set in a file"):
        read_settings(tmp_path / "c.yaml")
    assert not mark.exists()


@pytest.mark.parametrize("name", ["../../out", "/tmp/out", "a/b", "..", ".hidden", ""])
def test_the_name_of_a_study_cannot_be_a_path(tmp_path: Path, name: str) -> None:
    content = {"name": name, "models": ["m"], "tasks": ["sst2"], "rows": [{"method": "bbt"}]}
    (tmp_path / "s.yaml").write_text(json.dumps(content))
    with pytest.raises(PfesError, match="name"):
        read_study_spec(tmp_path / "s.yaml")


def test_run_folders_stay_inside_the_output_folder(tmp_path: Path, task_file: Path) -> None:
    (tmp_path / "s.yaml").write_text(
        "name: s\nmodels: ['../../etc/x', '/abs/y']\ntasks: ['../t.yaml', sst2]\n"
        "rows: [{method: bbt, label: '../../z'}]\n"
    )
    for run in plan_runs(read_study_spec(tmp_path / "s.yaml"), {}):
        assert (tmp_path / run.folder).resolve().parent == tmp_path.resolve()


def test_a_template_reaches_nothing_but_columns(task_file: Path) -> None:
    """Format strings can walk attributes; a placeholder here is the name of a column."""
    for bad in ("{text.__class__}", "{text[0]}", "{0}", "{text!r}", "{text:>9999999999}"):
        text = task_file.read_text().replace("{text} It was", bad + " It was")
        task_file.with_name("bad.yaml").write_text(text)
        with pytest.raises(PfesError, match="templates.masked"):
            load_task(task_file.with_name("bad.yaml"), 4)
