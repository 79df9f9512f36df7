"""Tasks as data: what a YAML file may say, and what is said back when it is wrong."""

import json
from pathlib import Path

import pytest
import yaml

from pfes.errors import PfesError
from pfes.tasks import builtin_tasks, load_task, read_spec
from pfes.tasks.spec import label_key

GLUE = {"mrpc", "qqp", "sst2", "rte", "cola", "qnli", "mnli"}


def test_built_in_tasks() -> None:
    assert set(builtin_tasks()) == GLUE | {"rotten-tomatoes", "trec", "dbpedia"}


@pytest.mark.parametrize("name", sorted(GLUE))
def test_glue_tasks_serve_both_families(name: str) -> None:
    spec, _ = read_spec(name)
    assert spec.name == name
    assert spec.dataset.config == name
    assert set(spec.templates) == {"masked", "causal"}


@pytest.mark.parametrize(
    ("name", "words", "metric", "fields"),
    [
        ("mrpc", {"0": "no", "1": "yes"}, "f1", ("sentence1", "sentence2")),
        ("qqp", {"0": "no", "1": "yes"}, "f1", ("question1", "question2")),
        ("sst2", {"0": "terrible", "1": "great"}, "accuracy", ("sentence",)),
        ("rte", {"0": "yes", "1": "no"}, "accuracy", ("sentence1", "sentence2")),
        ("cola", {"0": "no", "1": "yes"}, "matthews", ("sentence",)),
        ("qnli", {"0": "yes", "1": "no"}, "accuracy", ("question", "sentence")),
        ("mnli", {"0": "yes", "1": "maybe", "2": "no"}, "accuracy", ("premise", "hypothesis")),
    ],
)
def test_glue_words_and_metrics(name: str, words: dict, metric: str, fields: tuple) -> None:
    spec, _ = read_spec(name)
    assert (spec.verbalizers, spec.metric, spec.fields) == (words, metric, fields)


@pytest.mark.parametrize(
    ("value", "key"),
    [
        (1, "1"),
        (1.0, "1"),
        ("1", "1"),
        (" 1 ", "1"),
        (True, "true"),
        (False, "false"),
        (0.5, "0.5"),
    ],
)
def test_a_label_has_one_spelling(value: object, key: str) -> None:
    assert label_key(value) == key


GOOD = {
    "name": "films",
    "dataset": {"file": "films.csv"},
    "templates": {"causal": "Review: {text}\nSentiment:"},
    "verbalizers": {"bad": "terrible", "good": "great"},
}


def write(tmp_path: Path, **changes: object) -> Path:
    file = tmp_path / "task.yaml"
    content = {k: v for k, v in (GOOD | changes).items() if v is not None}
    file.write_text(yaml.safe_dump(content))
    return file


def test_a_good_file_is_read(tmp_path: Path) -> None:
    spec, base = read_spec(write(tmp_path))
    assert spec.labels == ("bad", "good")
    assert base == tmp_path


def test_braces_can_be_escaped(tmp_path: Path) -> None:
    spec, _ = read_spec(write(tmp_path, templates={"causal": "{{json}} {text} =>"}))
    assert spec.fields == ("text",)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"name": None}, "name"),
        ({"templates": {"causal": "Sentiment:"}}, "no placeholder"),
        ({"templates": {"masked": "{text} It was"}}, "exactly one {mask}, has 0"),
        ({"templates": {"masked": "{mask} {text} {mask}"}}, "exactly one {mask}, has 2"),
        ({"templates": {"causal": "{text} {mask}"}}, "causal models do not have"),
        ({"templates": {"causal": "{text"}}, "templates.causal"),
        ({"templates": {"causal": "{0} {text}"}}, "name of a column"),
        ({"templates": {"causal": "{text.x}"}}, "name of a column"),
        ({"templates": {"diffusion": "{text}"}}, "templates"),
        ({"templates": {}}, "templates"),
        ({"verbalizers": {"good": "great"}}, "verbalizers"),
        ({"verbalizers": {"good": "great", "bad": " "}}, "word is empty"),
        ({"dataset": {}}, "exactly one of"),
        ({"dataset": {"file": "a.csv", "hub": "b/c"}}, "exactly one of"),
        ({"dataset": {"file": "a.csv", "holdout": 1.5}}, "holdout"),
        ({"metric": "bleu"}, "metric"),
        ({"positive": "best"}, "positive"),
        ({"metric": "f1", "verbalizers": {1: "a", 2: "b", 3: "c"}}, "two labels"),
        ({"colour": "red"}, "colour"),
    ],
)
def test_a_wrong_file_is_one_line(tmp_path: Path, changes: dict, message: str) -> None:
    with pytest.raises(PfesError, match=".") as caught:
        read_spec(write(tmp_path, **changes))
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("a: [", "cannot be read"),
        ("- 1", "task file"),
        ("", "task file"),
        ("\x00", "cannot be read"),
    ],
)
def test_not_a_task_at_all(tmp_path: Path, content: str, message: str) -> None:
    file = tmp_path / "task.yaml"
    file.write_text(content)
    with pytest.raises(PfesError, match=message):
        read_spec(file)


def test_unknown_names_and_missing_files() -> None:
    with pytest.raises(PfesError, match="task: no 'sst3'.*sst2"):
        read_spec("sst3")
    with pytest.raises(PfesError, match="does not exist"):
        read_spec("nowhere.yaml")


def test_yaml_tags_run_nothing(tmp_path: Path) -> None:
    file = tmp_path / "task.yaml"
    file.write_text("!!python/object/apply:os.system ['touch gone-wrong']")
    with pytest.raises(PfesError, match="cannot be read"):
        read_spec(file)


def test_a_task_without_a_source_of_its_own_reads_a_given_folder(tmp_path: Path) -> None:
    with pytest.raises(
        PfesError, match="^data_dir: give the folder that has the examples of 'trec'"
    ):
        load_task("trec")
    labels = read_spec("trec")[0].labels
    for split in ("train", "test"):
        file = tmp_path / "trec" / f"{split}.jsonl"
        file.parent.mkdir(exist_ok=True)
        rows = [{"text": f"{split} {i}", "label": label} for label in labels for i in range(3)]
        file.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    task = load_task("trec", shots=1, data_dir=tmp_path)
    assert (len(task.train), len(task.test)) == (6, 18)
