"""What costs no search, in every result; and the settings of what is free."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pfes
from pfes.errors import SettingError
from pfes.models.local.load import load_model
from pfes.runs.result import Result
from tests.command import call
from tests.small_runs import small_settings

FREE = [
    "constant", "template", "template + offset", "template + reading", "examples",
    "examples + offset", "examples + reading",
]  # fmt: skip


@pytest.fixture
def model(folders: Callable[[str], Path]) -> pfes.LanguageModel:
    return load_model(str(folders("llama")))


def searched(model: pfes.LanguageModel, task: Path, **changes: Any) -> Result:
    settings = small_settings(free="all", **changes)
    return pfes.search(model, task, **settings)


@pytest.mark.parametrize("reading", ["plain", "auto"])
@pytest.mark.parametrize("method", ["saes-id-cr", "bdpl", "manual", "icl"])
def test_every_result_has_what_is_free(
    model: pfes.LanguageModel, task_file: Path, method: str, reading: str
) -> None:
    result = searched(model, task_file, method=method, reading=reading)
    free = {answer.name: answer for answer in result.free}
    assert list(free) == FREE
    assert free["template"].test == result.zero_shot
    assert free["constant"].test == pytest.approx(0.5, abs=0.2)
    assert free["constant"].loss == pytest.approx(np.log(2))
    best = min(result.free, key=lambda answer: answer.loss)
    assert result.best_free == best.name
    assert result.over_free == pytest.approx(result.test - best.test)
    assert ("over_free" in result.intervals) == (method in ("saes-id-cr", "bdpl"))
    alone = {"manual": "template", "icl": "examples"}.get(method)
    if alone is not None:
        name = alone if reading == "plain" else f"{alone} + reading"
        assert free[name].test == result.test


def test_the_free_things_are_those_of_runs_of_their_own(
    model: pfes.LanguageModel, task_file: Path
) -> None:
    result = searched(model, task_file, reading="auto")
    free = {answer.name: answer for answer in result.free}
    for method, name in (("manual", "template"), ("icl", "examples")):
        for reading, suffix in (("plain", ""), ("auto", " + reading")):
            alone = pfes.search(model, task_file, **small_settings(method=method, reading=reading))
            assert free[name + suffix].test == alone.test
            assert free[name + suffix].auc == pytest.approx(alone.auc)


def test_the_best_start_alone_is_what_a_search_starts_from(
    model: pfes.LanguageModel, task_file: Path
) -> None:
    same = {"shots": 8, "draws": 2, "reading": "auto"}
    settings = small_settings(method="best-start", **same)
    settings = {name: value for name, value in settings.items() if name != "init"}
    alone = pfes.search(model, task_file, **settings)
    assert alone.start is not None
    tried = {trial.name: trial.loss for trial in alone.start.trials}
    assert tried[alone.start.name] == min(loss for loss in tried.values() if loss is not None)
    assert {"nothing", "an instruction", "1 example per label, draw 1"} <= set(tried)
    assert alone.evaluations == 0
    begun = small_settings(method="saes-id", init="auto", budget=300, eval_every=300, **same)
    begun |= {"free": "all", "stop_after": 1, "placement": "middle", "search_dtype": None}
    searched_from = pfes.search(model, task_file, **begun)
    assert searched_from.start.name == alone.start.name
    free = {answer.name: answer for answer in searched_from.free}
    name = "template" if alone.start.name == "nothing" else "start"
    assert free[f"{name} + reading"].test == alone.test


def test_the_table_ends_with_what_the_search_added(
    folders: Callable[[str], Path], task_file: Path, tmp_path: Path
) -> None:
    settings = small_settings(free="all", reading="auto")
    options = [f"--{name.replace('_', '-')}={value}" for name, value in settings.items()]
    names = ["--model", folders("llama"), "--task", task_file, "--out", tmp_path / "run"]
    done = call("search", *names, *options)
    assert done.returncode == 0, done.stderr
    lines = [line for line in done.stdout.splitlines() if line.startswith("│")]
    rows = [line.strip("│ ").split("│")[0].strip() for line in lines]
    assert rows[0].startswith("always ")
    assert [row.removesuffix(" (*)") for row in rows[1:]] == [
        "template alone", "template + offset", "template + reading", "examples in front",
        "examples + offset", "examples + reading",
        "initial prompt", "found prompt + reading",
        "found − template alone", "found − initial prompt", "found − the best that is free",
    ]  # fmt: skip
    stored = json.loads((tmp_path / "run/result.json").read_text())
    assert f"{stored['over_free']:+.4f}" in lines[-1]
    low, high = stored["intervals"]["over_free"]
    assert low <= stored["over_free"] <= high
    page = call("report", tmp_path / "run")
    assert page.returncode == 0, page.stderr
    text = (tmp_path / "run/report.html").read_text()
    for words in ("How answers are read", "Reliability", "Telling words", "to the best that is"):
        assert words in text


def test_the_best_of_several_draws_is_kept(model: pfes.LanguageModel, task_file: Path) -> None:
    def shown(**changes: Any) -> Result:
        return searched(model, task_file, method="icl", reading="slope", **changes)

    one, many = shown(), shown(draws=6)
    assert one.draw_losses == []
    assert len(many.draw_losses) == 6
    again = shown(draws=int(np.argmin(many.draw_losses)) + 1)
    assert again.text == many.text
    two = shown(demonstrations=2)
    assert two.text is not None
    assert two.text.count("Sentiment:") == 4


@pytest.mark.parametrize("method", ["manual", "bdpl"])
@pytest.mark.parametrize("name", ["draws", "demonstrations"])
def test_some_methods_show_no_examples(
    model: pfes.LanguageModel, task_file: Path, method: str, name: str
) -> None:
    with pytest.raises(SettingError, match=name):
        pfes.search(model, task_file, method, **{name: 2})


def test_a_search_may_have_examples_in_front(model: pfes.LanguageModel, task_file: Path) -> None:
    result = searched(model, task_file, demonstrations=2, init="vocab")
    assert result.spec is not None
    assert len(result.spec.demonstrations) == 4
    assert result.start is not None
    assert (result.start.name, result.start.trials) == ("2 examples per label, draw 1", [])
    best = searched(model, task_file, demonstrations=1, draws=3, init="vocab", budget=60)
    assert best.start is not None
    assert {trial.name for trial in best.start.trials} == {
        f"1 example per label, draw {i}" for i in (1, 2, 3)
    }
    lowest = min(best.start.trials, key=lambda trial: trial.loss or 0)
    assert best.start.name == lowest.name


def test_more_examples_than_there_are_leave_no_folder_behind(
    model: pfes.LanguageModel, task_file: Path, tmp_path: Path
) -> None:
    out = tmp_path / "run"
    settings = small_settings(method="icl", out=out)
    with pytest.raises(SettingError, match="4 training examples, 5 are to be shown"):
        pfes.search(model, task_file, **settings | {"demonstrations": 5})
    pfes.search(model, task_file, **settings)  # the folder can be used


def test_one_example_of_each_label_that_is_shown(
    model: pfes.LanguageModel, task_file: Path
) -> None:
    result = searched(model, task_file, method="icl", shots=1, reading="auto")
    assert np.isnan(result.train_loss)  # no training example is left
    assert result.reading["rung"] != "plain"


def test_a_prior_moves_answers_and_not_the_search(
    model: pfes.LanguageModel, task_file: Path
) -> None:
    def read(prior: str) -> Result:
        return searched(model, task_file, reading="offset", prior=prior)

    even, skewed = read("uniform"), read("bad=0.9,good=0.1")
    np.testing.assert_array_equal(even.prompt, skewed.prompt)
    assert even.validation == skewed.validation
    offsets = [result.reading["offsets"] for result in (even, skewed)]
    moved = {label: offsets[0][label] - offsets[1][label] for label in ("bad", "good")}
    assert moved["bad"] - moved["good"] == pytest.approx(np.log(9))
    with pytest.raises(SettingError, match="prior: 'ugly=1'"):
        read("ugly=1")
    with pytest.raises(SettingError, match="prior: --reading plain does not use it"):
        searched(model, task_file, prior="train")


def test_texts_without_labels_move_the_offsets(
    model: pfes.LanguageModel, task_file: Path, tmp_path: Path
) -> None:
    task = pfes.load_task(task_file, shots=4)
    texts = tmp_path / "texts.txt"
    lines = [example.fields["text"] for example in task.test] + ["", "another one"]
    texts.write_text("\n".join(lines))
    alone = searched(model, task_file, method="manual", reading="offset")
    helped = searched(model, task_file, method="manual", reading="offset", unlabelled=str(texts))
    assert helped.reading["offsets"] != alone.reading["offsets"]
    loaded = pfes.load_task(task_file, shots=4, unlabelled=texts)
    assert len(loaded.unlabelled) == len(lines) - 1  # the empty line is no text
    empty = tmp_path / "empty.csv"
    empty.write_text("text\n")
    with pytest.raises(SettingError, match="unlabelled: .*empty.csv has no texts"):
        searched(model, task_file, method="manual", reading="offset", unlabelled=str(empty))


def test_a_classifier_reads_as_its_search_did(model: pfes.LanguageModel) -> None:
    rng = np.random.default_rng(0)
    texts = [f"a {word} film {i}" for i in range(12) for word in ("bad", "great")]
    labels = ["no", "yes"] * 12
    settings = {"budget": 6, "population": 6, "prompt_length": 2, "answer_words": 20}
    classifier = pfes.Classifier(
        model, verbalizers={"no": "terrible", "yes": "great"}, reading="words", **settings
    ).fit(texts, labels)
    reading = classifier.result_.fitted
    assert reading.rung == "words"
    chosen = [texts[i] for i in rng.integers(24, size=5)]
    shown = classifier.predict_proba(chosen)
    saved = classifier.saved_
    assert saved.reading is reading
    plain = pfes.Classifier.from_prompt(saved, model).predict_proba(chosen)
    np.testing.assert_allclose(shown, plain, atol=1e-6)
