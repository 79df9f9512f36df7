"""What a classifier takes as texts."""

from collections.abc import Callable
from pathlib import Path

import datasets
import numpy as np
import pandas as pd
import pytest
from sklearn.base import is_classifier
from sklearn.calibration import CalibratedClassifierCV
from sklearn.frozen import FrozenEstimator
from sklearn.metrics import get_scorer
from sklearn.utils.validation import check_is_fitted

import pfes
from pfes.errors import PfesError
from pfes.saved import SavedPrompt
from pfes.tasks.spec import TaskSpec
from tests.conftest import TASK
from tests.stand_in import StandIn


@pytest.fixture
def classifier() -> pfes.Classifier:
    import yaml

    spec = TaskSpec.model_validate(yaml.safe_load(TASK))
    from pfes.config import make_config

    prompt = np.ones((2, StandIn.width), dtype=np.float32)
    config = make_config(model="stand-in", task="films")
    return pfes.Classifier(SavedPrompt(prompt, spec, "prefix", config, {}), StandIn())


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
    import json

    small = {"budget": 6, "population": 6, "shots": 4, "prompt_length": 2, "test_limit": 8}
    pfes.search(str(folders("llama")), task_file, out=tmp_path / "run", **small)
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
