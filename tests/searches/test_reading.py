"""Readings: the fitted core against other solvers, what it must not depend on, and its limits."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy.optimize import minimize
from sklearn.linear_model import LogisticRegression

from pfes.searches.choose_reading import STRENGTHS, choose_reading, stratified_folds
from pfes.searches.fit_reading import LEAST_SLOPE, OFFSET_RIDGE, SLOPE_RIDGE, fit_reading
from pfes.searches.log_space import log_softmax
from pfes.searches.quick_readings import best_offsets, sloped_scores
from pfes.searches.reading import PLAIN, Reading


def answers(
    examples: int = 60, labels: int = 3, words: int = 20, seed: int = 0, telling: float = 1.0
) -> tuple[np.ndarray, np.ndarray]:
    """Made-up log-probabilities of which the further words tell the label, and the labels."""
    rng = np.random.default_rng(seed)
    given_ = np.arange(examples) % labels
    own = rng.normal(-4, 1, (examples, labels)) + 0.5 * np.eye(labels)[given_]
    further = rng.normal(-6, 1, (examples, words))
    further += telling * np.eye(labels)[given_] @ rng.standard_normal((labels, words))
    return np.concatenate([own, further], axis=1), given_


def test_a_plain_reading_is_the_largest_word() -> None:
    logprobs, _ = answers(words=0)
    np.testing.assert_array_equal(PLAIN.scores(logprobs), logprobs)


@pytest.mark.parametrize("strength", [1.0, 0.01])
def test_weights_are_those_of_scikit_learn_where_there_is_no_base(strength: float) -> None:
    """With no difference between the labels' own words, there is neither base nor slope."""
    logprobs, labels = answers()
    logprobs[:, :3] = -4
    reading = fit_reading(logprobs, labels, "words", tuple(range(20)), strength)
    spread = logprobs[:, 3:].std(axis=0)
    features = (logprobs[:, 3:] - logprobs[:, 3:].mean(axis=0)) / spread / np.sqrt(23)
    # an intercept with the ridge of an offset is a feature of that size
    one = np.full((len(labels), 1), np.sqrt(strength / OFFSET_RIDGE))
    model = LogisticRegression(
        C=1 / (strength * len(labels)), fit_intercept=False, tol=1e-10, max_iter=10_000
    ).fit(np.hstack([features, one]), labels)
    theirs = model.predict_log_proba(np.hstack([features, one]))
    np.testing.assert_allclose(reading.log_probabilities(logprobs), theirs, atol=1e-4)


@pytest.mark.parametrize("rung", ["offset", "slope", "words"])
def test_a_fit_is_the_minimum(rung: str) -> None:
    """A general solver, which knows nothing of the problem, finds nothing lower."""
    logprobs, labels = answers(examples=30, words=4)
    words = tuple(range(4)) if rung == "words" else ()
    logprobs = logprobs[:, : 3 + len(words)]
    own = logprobs[:, :3]
    features = logprobs - logprobs.mean(axis=0)
    features = features / logprobs.std(axis=0) / np.sqrt(logprobs.shape[1])

    def value(x: np.ndarray) -> float:
        slope = 1.0 if rung == "offset" else x[0]
        scores = slope * (own - own.mean(axis=0)) - x[1:4]
        weights = x[4:].reshape(-1, 3)
        if rung == "words":
            scores = scores + features @ weights
        loss = -log_softmax(scores)[np.arange(len(labels)), labels].mean()
        ridges = SLOPE_RIDGE * (slope - 1) ** 2 + OFFSET_RIDGE * (x[1:4] ** 2).sum()
        return loss + ridges / 2 + 0.05 * (weights**2).sum() / 2

    size = 4 + (logprobs.shape[1] * 3 if rung == "words" else 0)
    theirs = minimize(value, np.eye(1, size)[0], method="L-BFGS-B", options={"ftol": 1e-15})
    reading = fit_reading(logprobs, labels, rung, words, 0.05)
    offsets = reading.offsets - reading.slope * own.mean(axis=0)
    weights = np.zeros(0) if reading.weights is None else reading.weights
    scaled = (
        weights * (logprobs.std(axis=0) * np.sqrt(logprobs.shape[1]))[:, None]
        if len(weights)
        else weights
    )
    ours = np.concatenate([[reading.slope], offsets, scaled.ravel()])
    assert value(ours) <= theirs.fun + 1e-8


def test_many_candidates_at_once_have_the_offsets_of_each_alone() -> None:
    logprobs = np.stack([answers(words=0, seed=seed)[0] for seed in range(5)])
    labels = answers(words=0)[1]
    together = best_offsets(logprobs, labels)
    for candidate, offsets in zip(logprobs, together, strict=True):
        alone = fit_reading(candidate, labels, "offset").offsets
        np.testing.assert_allclose(offsets, alone, atol=1e-6)


def test_many_candidates_at_once_have_the_slope_and_offsets_of_each_alone() -> None:
    """One of them is so noisy that its slope would be below the least one."""
    logprobs = np.stack([answers(words=0, seed=seed)[0] for seed in range(5)])
    labels = answers(words=0)[1]
    logprobs[3] = -logprobs[3]
    logprobs[4] *= 3
    together = sloped_scores(logprobs, labels)
    readings = [fit_reading(candidate, labels, "slope") for candidate in logprobs]
    assert readings[3].slope == LEAST_SLOPE
    for candidate, reading, scores in zip(logprobs, readings, together, strict=True):
        expected = reading.log_probabilities(candidate)
        np.testing.assert_allclose(log_softmax(scores), expected, atol=1e-6)


def test_a_candidate_without_numbers_harms_no_other() -> None:
    logprobs = np.stack([answers(words=0, seed=seed)[0] for seed in range(2)])
    labels = answers(words=0)[1]
    broken = np.concatenate([logprobs, np.full_like(logprobs[:1], np.nan)])
    assert np.isnan(sloped_scores(broken, labels)[2]).all()
    np.testing.assert_array_equal(
        sloped_scores(broken, labels)[:2], sloped_scores(logprobs, labels)
    )


def fitted(logprobs: np.ndarray, labels: np.ndarray, kind: str, words: tuple[int, ...]) -> Reading:
    if kind == "auto":
        return choose_reading(logprobs, labels, words)
    return fit_reading(logprobs, labels, kind, words, 0.1)


@pytest.mark.parametrize("kind", ["offset", "slope", "words", "auto"])
def test_a_constant_for_each_label_changes_no_answer(kind: str) -> None:
    logprobs, labels = answers()
    words = tuple(range(20)) if kind in ("words", "auto") else ()
    logprobs = logprobs[:, : 3 + len(words)]
    moved = logprobs.copy()
    moved[:, :3] += [3.0, -2.0, 0.5]
    before, after = (fitted(a, labels, kind, words).log_probabilities(a) for a in (logprobs, moved))
    np.testing.assert_allclose(before, after, atol=1e-6)


def test_order_does_not_matter() -> None:
    logprobs, labels = answers()
    words = tuple(range(100, 120))
    reading = choose_reading(logprobs, labels, words)
    rng = np.random.default_rng(1)
    examples, columns = rng.permutation(60), rng.permutation(20)
    mixed = np.concatenate([logprobs[:, :3], logprobs[:, 3:][:, columns]], axis=1)
    other = choose_reading(mixed[examples], labels[examples], tuple(words[i] for i in columns))
    assert reading.rung == other.rung
    assert other.shares == pytest.approx(reading.shares, abs=1e-5)
    assert other.loss == pytest.approx(reading.loss, abs=1e-6)
    np.testing.assert_allclose(
        reading.log_probabilities(logprobs), other.log_probabilities(mixed), atol=1e-5
    )


def test_words_are_used_where_they_tell_and_not_where_they_do_not() -> None:
    weak = [f"words {strength:g}" for strength in STRENGTHS if strength <= 0.003]

    def weight_of_words(telling: float) -> float:
        reading = choose_reading(*answers(telling=telling), tuple(range(20)))
        assert sum(reading.shares.values()) == pytest.approx(1)
        return sum(reading.shares[name] for name in weak)

    assert weight_of_words(2.0) > 0.8
    assert weight_of_words(0.0) < 0.05


def test_a_mean_of_rungs_is_the_mean_of_their_scores() -> None:
    logprobs, labels = answers(telling=0.0)
    words = tuple(range(20))
    reading = choose_reading(logprobs, labels, words)
    assert reading.rung == "mixed"
    expected = np.zeros((len(labels), 3))
    for name, share in reading.shares.items():
        rung, _, strength = name.partition(" ")
        own = words if rung == "words" else ()
        seen = logprobs if own else logprobs[:, :3]
        part = fit_reading(seen, labels, rung, own, float(strength or 1))
        expected += share * part.scores(seen)
    np.testing.assert_allclose(reading.scores(logprobs), expected, atol=1e-5)
    assert reading.loss is not None
    assert reading.loss <= min(reading.trials.values()) + 0.01


def test_the_labels_own_words_have_weights_where_there_are_no_others() -> None:
    """Here the word of each label speaks for the next one, which offsets and slope cannot say."""
    logprobs, labels = answers(words=0)
    logprobs += 2 * np.eye(3)[(labels + 1) % 3]
    reading = choose_reading(logprobs, labels, ())
    assert (reading.log_probabilities(logprobs).argmax(axis=1) == labels).mean() > 0.7
    tokens = [7, 8, 9]
    stored = Reading.from_arrays(reading.to_arrays(tokens), reading.rung)
    np.testing.assert_array_equal(stored.scores(logprobs), reading.scores(logprobs))
    assert reading.summary(None, ["a", "b", "c"])["telling"] == {}


def test_folds_have_every_label() -> None:
    labels = np.arange(60) % 3
    folds = stratified_folds(labels, 0)
    counts = np.array([np.bincount(labels[folds == fold], minlength=3) for fold in range(5)])
    assert (counts == 4).all()
    assert not np.array_equal(folds, stratified_folds(labels, 1))


@settings(max_examples=60, deadline=None)
@given(
    data=st.data(),
    labels=st.integers(2, 6),
    each=st.integers(1, 4),
    words=st.integers(0, 30),
    rung=st.sampled_from(["offset", "slope", "words"]),
)
def test_every_fit_is_finite(data, labels: int, each: int, words: int, rung: str) -> None:
    """Also for one example a label, labels that can be separated, and a label with −∞."""
    shape = (labels * each, labels + words)
    logprobs = data.draw(hnp.arrays(np.float32, shape, elements=st.floats(-40, 0, width=32)))
    logprobs[data.draw(st.integers(0, len(logprobs) - 1)), 0] = -np.inf
    given_ = np.repeat(np.arange(labels), each)
    tokens = tuple(range(words)) if rung == "words" else ()
    used = logprobs if rung == "words" else logprobs[:, :labels]
    reading = fit_reading(used, given_, rung, tokens, 0.01)
    assert np.isfinite(reading.log_probabilities(used)).all()
    assert reading.slope > 0
