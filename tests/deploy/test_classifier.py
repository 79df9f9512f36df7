"""The classifier: what it takes as texts, and what scikit-learn asks of it."""

import json
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pandas as pd
import pytest
import yaml
from sklearn.base import clone, is_classifier
from sklearn.calibration import CalibratedClassifierCV
from sklearn.exceptions import NotFittedError
from sklearn.frozen import FrozenEstimator
from sklearn.metrics import get_scorer
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils import estimator_checks
from sklearn.utils.validation import check_is_fitted

import pfes
from pfes.errors import PfesError
from pfes.runs.fit import SETTINGS as FIT
from pfes.tasks.spec import TaskSpec
from pfes.tasks.templates import template_pool
from tests.conftest import LINES, TASK
from tests.small_runs import small_settings
from tests.stand_in import StandIn

SPEC = TaskSpec.model_validate(yaml.safe_load(TASK))
TEMPLATE = SPEC.templates["causal"]
WORDS = {"bad": "terrible", "good": "great"}
SETTINGS = {k: v for k, v in small_settings().items() if k not in ("shots", "test_limit")}
X = [f"{text} , part {i}" for i in range(6) for text, _ in LINES]
y = [label for _ in range(6) for _, label in LINES]


@pytest.fixture(scope="module")
def classifier(tmp_path_factory: pytest.TempPathFactory) -> pfes.Classifier:
    """A classifier from a run: fitted, with a stand-in for its model."""
    out = tmp_path_factory.mktemp("classifier") / "run"
    task = pfes.Task.from_examples(X, y, template=TEMPLATE, verbalizers=WORDS, shots=2)
    pfes.search(StandIn(), task, out=out, **SETTINGS)
    return pfes.Classifier.from_run(out, StandIn())


def unfitted(**changes: Any) -> pfes.Classifier:
    return pfes.Classifier(StandIn(), TEMPLATE, WORDS, **SETTINGS | changes)


TEXTS = ["a great film", "dull", "and long"] * 30


@pytest.mark.parametrize(
    "kind",
    [
        list,
        tuple,
        np.array,
        pd.Series,
        lambda texts: iter(texts),
        lambda texts: pd.DataFrame({"id": range(len(texts)), "text": texts}),
        lambda texts: datasets.Dataset.from_dict({"text": texts}),
        lambda texts: [{"text": text} for text in texts],
        lambda texts: [(text,) for text in texts],
    ],
)
def test_texts_come_in_many_forms(classifier: pfes.Classifier, kind: Callable) -> None:
    wanted = classifier.predict_proba(TEXTS)
    assert wanted.shape == (90, 2)
    np.testing.assert_allclose(wanted.sum(axis=1), 1, rtol=1e-6)
    np.testing.assert_array_equal(classifier.predict_proba(kind(TEXTS)), wanted)
    labels = classifier.predict(kind(TEXTS))
    assert list(labels) == [classifier.classes_[i] for i in wanted.argmax(axis=1)]


@pytest.mark.parametrize(
    "texts", ["one text", [None], [3.5], [{"other": "x"}], [("a", "b")], [{"text": float("nan")}]]
)
def test_what_is_no_text_is_refused(classifier: pfes.Classifier, texts: object) -> None:
    with pytest.raises(PfesError, match="text"):
        classifier.predict(texts)


def test_no_texts_no_answers(classifier: pfes.Classifier) -> None:
    assert classifier.predict_proba([]).shape == (0, 2)
    assert classifier.predict([]).shape == (0,)


def test_a_run_of_a_cluster_is_used_here(
    folders: Callable[[str], Path], task_file: Path, tmp_path: Path
) -> None:
    pfes.search(str(folders("llama")), task_file, out=tmp_path / "run", **small_settings())
    file = tmp_path / "run" / "config.json"
    stored = json.loads(file.read_text()) | {"engine": "ray:10.0.0.1:6379", "workers": 8}
    file.write_text(json.dumps(stored))
    assert len(pfes.Classifier.from_run(tmp_path / "run").predict(TEXTS[:2])) == 2


def test_scikit_learn_takes_it(classifier: pfes.Classifier) -> None:
    labels = classifier.predict(TEXTS)
    labels[:30] = classifier.classes_[0]
    labels[30:60] = classifier.classes_[1]
    assert is_classifier(classifier)
    check_is_fitted(classifier)
    accuracy = float(np.mean(classifier.predict(TEXTS) == labels))
    assert classifier.score(TEXTS, labels) == get_scorer("accuracy")(classifier, TEXTS, labels)
    assert classifier.score(TEXTS, labels) == pytest.approx(accuracy)
    calibrated = CalibratedClassifierCV(FrozenEstimator(classifier), cv=2).fit(TEXTS, labels)
    assert calibrated.predict_proba(TEXTS).shape == (90, 2)


def test_fit_searches(folders: Callable[[str], Path]) -> None:
    model = str(folders("llama"))
    fitted = pfes.Classifier(model, TEMPLATE, WORDS, **SETTINGS).fit(X, y)
    assert fitted.result_.evaluations == SETTINGS["budget"]
    assert len(fitted.choices_.task.train) == 12  # half of what each class has
    assert unfitted(balance="equal").fit(X, y).result_.config["shots"] == 6
    assert fitted.result_.test_examples == 0
    assert list(fitted.classes_) == ["bad", "good"]
    assert fitted.predict_proba(X).shape == (24, 2)
    assert set(fitted.predict(X)) <= {"bad", "good"}


def test_fit_is_a_function_of_data_and_seed() -> None:
    fitted, again = unfitted().fit(X, y), unfitted().fit(X, y)
    np.testing.assert_array_equal(fitted.predict_proba(X), again.predict_proba(X))
    other = unfitted(seed=5).fit(X, y)
    assert not np.array_equal(fitted.result_.prompt, other.result_.prompt)


@pytest.mark.parametrize(
    "labels", [[1 if label == "good" else 0 for label in y], [label == "good" for label in y]]
)
def test_labels_keep_their_kind_and_are_sorted(labels: list[Any]) -> None:
    words = {max(labels): "great", min(labels): "terrible"}
    fitted = pfes.Classifier(StandIn(), TEMPLATE, words, **SETTINGS).fit(X, labels)
    assert fitted.classes_.tolist() == sorted(set(labels))
    assert set(fitted.predict(X).tolist()) <= set(labels)
    by_word = list(fitted.saved_.spec.verbalizers.values())
    assert by_word == ["terrible", "great"]


def test_pairs_and_frames() -> None:
    template = "{first} {second}\nSentiment:"
    frame = pd.DataFrame({"second": X, "first": X, "other": 1})
    pairs = unfitted().set_params(template=template).fit(list(zip(X, X, strict=True)), y)
    frames = unfitted().set_params(template=template).fit(frame, y)
    np.testing.assert_array_equal(pairs.predict_proba(frame), frames.predict_proba(frame))


def test_clones_and_parameters() -> None:
    first = unfitted(seed=3)
    assert first.get_params()["seed"] == 3
    copy = clone(first)
    assert copy is not first
    assert copy.get_params() == first.get_params()
    assert copy.model is first.model  # a model is large: clones share it
    first.set_params(seed=4, method="saes-id")
    assert (first.get_params()["seed"], first.method) == (4, "saes-id")
    assert copy.get_params()["seed"] == 3
    with pytest.raises(ValueError, match="colour"):
        first.set_params(colour="red")
    with pytest.raises(NotFittedError):
        first.predict(X)


def test_a_clone_of_a_fitted_one_can_be_fitted(classifier: pfes.Classifier) -> None:
    copy = clone(classifier)
    with pytest.raises(NotFittedError):
        copy.predict(X)
    assert len(copy.set_params(**SETTINGS).fit(X, y).predict(X)) == len(X)


def test_cross_validation_pipelines_and_grids() -> None:
    assert len(cross_val_score(unfitted(), X, y, cv=2)) == 2
    lower = FunctionTransformer(lambda texts: [text.lower() for text in texts])
    assert 0 <= make_pipeline(lower, unfitted()).fit(X, y).score(X, y) <= 1
    grid = GridSearchCV(unfitted(), {"sigma0": [0.1, 0.5]}, cv=2).fit(X, y)
    assert grid.best_params_["sigma0"] in (0.1, 0.5)


CHECKS = [
    estimator_checks.check_estimator_cloneable,
    estimator_checks.check_estimator_repr,
    estimator_checks.check_estimator_tags_renamed,
    estimator_checks.check_valid_tag_types,
    estimator_checks.check_get_params_invariance,
    estimator_checks.check_set_params,
    estimator_checks.check_mixin_order,
]


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_scikit_learns_own_checks(check: Callable[[str, Any], None]) -> None:
    """Those that ask neither for matrices of numbers nor for a fixed list of parameters."""
    check("Classifier", unfitted())


@pytest.mark.parametrize(
    ("texts", "labels", "message"),
    [
        (X, y[:-1], "24 texts but 23 labels"),
        ([], [], "y must be a list of labels"),
        (X, [y], "y must be a list of labels"),
        (X, ["maybe", *y[1:]], "no word for label 'maybe'"),
        ("a text", y, "texts must be a list"),
        (X[:2], y[:2], "each label has 1 example, none is left to validate"),
    ],
)
def test_what_cannot_be_fitted_is_one_line(texts: Any, labels: Any, message: str) -> None:
    with pytest.raises(PfesError, match=message):
        unfitted().fit(texts, labels)


def test_a_wrong_setting_is_found_before_the_model_is_loaded() -> None:
    with pytest.raises(PfesError, match="^budget: "):
        pfes.Classifier("smollm2-135m", TEMPLATE, WORDS, budget=0).fit(X, y)
    with pytest.raises(PfesError, match="^init: bdpl does not use it"):
        pfes.Classifier("smollm2-135m", TEMPLATE, WORDS, "bdpl", init="zeros").fit(X, y)


def test_a_fitted_one_can_be_pickled(folders: Callable[[str], Path]) -> None:
    """Without its model, which is opened again when it is needed."""
    fitted = pfes.Classifier(str(folders("llama")), TEMPLATE, WORDS, **SETTINGS).fit(X, y)
    content = pickle.dumps(fitted)
    assert len(content) < 100_000
    again = pickle.loads(content)
    np.testing.assert_allclose(again.predict_proba(X), fitted.predict_proba(X), atol=1e-6)


def test_labels_that_differ_in_spaces_are_refused() -> None:
    labels = ["good", " good", *y[2:]]
    with pytest.raises(PfesError, match="the same but for spaces"):
        pfes.Classifier(StandIn(), TEMPLATE, **SETTINGS).fit(X, labels)


def test_a_classifier_keeps_its_model_here(folders: Callable[[str], Path]) -> None:
    with pytest.raises(PfesError, match="^engine: a classifier keeps its model in this process"):
        pfes.Classifier(str(folders("llama")), TEMPLATE, WORDS, engine="ray").fit(X, y)


CHOICES = {"budget": 60, "population": 4, "answer_words": 20, "batch_tokens": 512}
SEVERAL_TOKENS = {"good": "good film", "bad": "of no use"}


def test_fit_makes_the_choices_of_the_command(folders: Callable[[str], Path]) -> None:
    """Without a template, words or a method, all of it is found."""
    labels = pd.Series([SEVERAL_TOKENS[label] for label in y], name="verdict")
    fitted = pfes.Classifier(str(folders("llama")), **CHOICES).fit(X, labels)
    words = {word.label: word.word for word in fitted.choices_.words}
    assert set(words) == set(SEVERAL_TOKENS.values())
    assert fitted.saved_.spec.verbalizers == words
    tried = [template.template for template in fitted.choices_.templates]
    assert tried[0] == fitted.saved_.spec.templates["causal"]
    assert set(tried) == set(template_pool(("text",), "verdict", "causal"))
    config = fitted.result_.config
    chosen = FIT.keys() - CHOICES.keys() - {"test_limit"}
    assert {name: config[name] for name in chosen} == {name: FIT[name] for name in chosen}
    assert (config["placement"], config["test_limit"]) == ("middle", None)
    assert set(fitted.predict(X)) <= set(labels)
    pickle.loads(pickle.dumps(fitted)).predict(X[:2])


@pytest.mark.parametrize("kind", ["frame", "mappings", "sequences"])
def test_a_pair_needs_no_template(folders: Callable[[str], Path], kind: str) -> None:
    pairs = pd.DataFrame({"premise": X, "hypothesis": X[::-1]})
    texts = {
        "frame": pairs,
        "mappings": pairs.to_dict("records"),
        "sequences": pairs.to_numpy().tolist(),
    }[kind]
    fitted = pfes.Classifier(str(folders("roberta")), **CHOICES).fit(texts, y)
    names = ("text1", "text2") if kind == "sequences" else ("premise", "hypothesis")
    assert fitted.saved_.spec.fields == names
    assert fitted.predict_proba(texts).shape == (24, 2)
