"""Metrics from scikit-learn, P and R from their definitions, intervals that mean something."""

import tracemalloc

import numpy as np
import pytest
from sklearn.metrics import accuracy_score, confusion_matrix, f1_score, matthews_corrcoef

from pfes.searches.scoring import RESAMPLES, Score, interval, metric_of_counts, metric_value
from pfes.seeds import stream
from pfes.tasks import TaskSpec

METRICS = {"accuracy": accuracy_score, "f1": f1_score, "matthews": matthews_corrcoef}


def spec(metric: str = "accuracy", **more) -> TaskSpec:
    return TaskSpec.model_validate(
        {
            "name": "t",
            "dataset": {"file": "x.csv"},
            "templates": {"causal": "{text}"},
            "verbalizers": {0: "no", 1: "yes"},
            "metric": metric,
        }
        | more
    )


def random_score(
    n: int = 200, skill: float = 1.0, seed: int = 0, metric: str = "accuracy"
) -> Score:
    labels = np.random.default_rng(99).integers(2, size=n)
    rng = np.random.default_rng(seed)
    right = rng.standard_normal(n) + skill
    sign = 2 * labels - 1
    logits = np.stack([-right * sign, right * sign, np.zeros(n)], axis=1)
    logprobs = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
    ranks = 1 + (logits[:, None, :] > logits[:, :2, None]).sum(axis=2)
    return Score(spec(metric), labels, logprobs[:, :2].astype(np.float32), ranks)


@pytest.mark.parametrize("metric", METRICS)
def test_metrics_are_those_of_scikit_learn(metric: str) -> None:
    score = random_score(metric=metric)
    expected = METRICS[metric](score.labels, score.predicted)
    assert score.metric == pytest.approx(expected)


def test_f1_counts_the_positive_class_that_is_named() -> None:
    labels, predicted = np.array([0, 0, 0, 1]), np.array([0, 0, 1, 1])
    first = metric_value(spec("f1", positive=0), labels, predicted)
    assert first == pytest.approx(f1_score(labels, predicted, pos_label=0))
    assert metric_value(spec("f1"), labels, predicted) == pytest.approx(f1_score(labels, predicted))


@pytest.mark.parametrize("metric", METRICS)
def test_a_constant_prediction_has_a_metric(metric: str) -> None:
    assert metric_value(spec(metric), np.array([0, 1]), np.array([0, 0])) in (0.0, 0.5)


def test_probability_and_rank_are_of_the_predicted_word() -> None:
    logprobs = np.log(np.array([[0.5, 0.1], [0.2, 0.25]], dtype=np.float32))
    score = Score(spec(), np.array([1, 1]), logprobs, np.array([[1, 4], [3, 2]]))
    assert score.predicted.tolist() == [0, 1]
    assert score.probability == pytest.approx((0.5 + 0.25) / 2)
    assert score.rank == pytest.approx((1 + 2) / 2)
    assert score.metric == 0.5
    assert Score(spec(), score.labels, logprobs, None).rank is None


@pytest.mark.parametrize("metric", METRICS)
def test_metric_of_counts_is_that_of_scikit_learn(metric: str) -> None:
    rng = np.random.default_rng(0)
    labels, predicted = rng.integers(2, size=(2, 30, 25))
    predicted[0] = 0  # a constant prediction has a metric too
    counts = np.array(
        [confusion_matrix(*pair, labels=[0, 1]) for pair in zip(labels, predicted, strict=True)]
    )
    expected = [metric_value(spec(metric), *pair) for pair in zip(labels, predicted, strict=True)]
    np.testing.assert_allclose(metric_of_counts(spec(metric), counts), expected, atol=1e-12)


def test_interval_holds_the_metric_and_narrows_with_examples() -> None:
    few, many = random_score(100), random_score(2000)
    for score in (few, many):
        low, high = interval(score)
        assert low < score.metric < high
    widths = [np.diff(interval(score))[0] for score in (few, many)]
    assert widths[1] < widths[0] / 3


def test_interval_of_an_accuracy_is_the_binomial_one() -> None:
    score = random_score(1000)
    p = score.metric
    half = 1.96 * np.sqrt(p * (1 - p) / 1000)
    np.testing.assert_allclose(interval(score), [p - half, p + half], atol=0.005)


def test_interval_of_a_gain_is_paired() -> None:
    score = random_score()
    assert interval(score, score) == (0.0, 0.0)
    low, high = interval(random_score(skill=2.0, seed=1), random_score(skill=0.2, seed=2))
    assert 0 < low < high


@pytest.mark.parametrize(("skill", "kinds"), [(0.3, 8), (9.0, 4), (-9.0, 4)])
def test_interval_equals_one_that_resamples_all_possible_triples(skill: float, kinds: int) -> None:
    ours, theirs = random_score(skill=skill, seed=1), random_score(skill=0.2, seed=2)
    triples = (ours.labels * 2 + ours.predicted) * 2 + theirs.predicted
    assert len(set(triples.tolist())) == kinds  # with −9 the last one is absent
    shares = np.bincount(triples, minlength=8) / len(triples)
    drawn = stream(0, "bootstrap").multinomial(len(triples), shares, size=RESAMPLES)
    cube = drawn.reshape(-1, 2, 2, 2)
    gains = [np.trace(cube.sum(axis=axis), axis1=1, axis2=2) / len(triples) for axis in (3, 2)]
    expected = np.percentile(gains[0] - gains[1], [2.5, 97.5])
    np.testing.assert_allclose(interval(ours, theirs), expected, rtol=1e-12)


def test_interval_of_many_labels_needs_little_memory() -> None:
    many = [str(number) for number in range(400)]
    spec_of_many = spec(verbalizers={name: f"w{name}" for name in many})
    rng = np.random.default_rng(0)
    labels = rng.integers(400, size=500)
    logprobs = rng.standard_normal((500, 400)).astype(np.float32)
    logprobs[np.arange(250), labels[:250]] = 9.0
    score = Score(spec_of_many, labels, logprobs, None)
    tracemalloc.start()
    low, high = interval(score)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert low < score.metric < high
    assert peak < 3e8
