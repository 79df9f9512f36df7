"""Neighbours and the estimator, against scikit-learn and scikit-dimension."""

from pathlib import Path

import numpy as np
import pytest
import skdim
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.neighbors import NearestNeighbors

import pfes
from pfes.analysis import neighbours
from pfes.analysis.dimension import (
    estimates,
    gaussian_estimates,
    local_dimensions,
    noise_dimensions,
)
from pfes.analysis.neighbours import nearest


def cloud(points: int, dimension: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((points, dimension))


def by_sklearn(points: np.ndarray, count: int, metric: str) -> tuple[np.ndarray, np.ndarray]:
    search = NearestNeighbors(n_neighbors=count + 1, metric=metric, algorithm="brute").fit(points)
    distances, places = search.kneighbors(points)
    return distances[:, 1:], places[:, 1:]


@pytest.mark.parametrize("metric", ["cosine", "euclidean"])
@pytest.mark.parametrize("standard", ["none", "coordinate", "vector"])
def test_distances_are_those_of_scikit_learn(
    metric: str, standard: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(neighbours, "COLUMNS", 7)  # several blocks, the last one smaller
    points = cloud(60, 40) * np.linspace(1, 9, 40) + 3
    prepared = points
    if standard == "coordinate":
        prepared = (points - points.mean(axis=0)) / points.std(axis=0)
    elif standard == "vector":
        prepared = points - points.mean(axis=1, keepdims=True)
        if metric == "cosine":  # which no scale changes
            prepared = prepared / prepared.std(axis=1, keepdims=True)
    found = nearest(points, 12, metric, standard)
    assert found.duplicates == 0
    np.testing.assert_allclose(found.distances, by_sklearn(prepared, 12, metric)[0], rtol=1e-9)


def test_a_mapped_file_of_single_precision(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(neighbours, "COLUMNS", 64)
    points = cloud(80, 500).astype(np.float32)
    file = np.lib.format.open_memmap(tmp_path / "x.npy", "w+", np.dtype(np.float32), points.shape)
    file[:] = points
    found = nearest(file, 20, "cosine", "coordinate")
    exact = nearest(points.astype(np.float64), 20, "cosine", "coordinate")
    np.testing.assert_allclose(found.distances, exact.distances, rtol=2e-6)
    np.testing.assert_array_equal(file, points)  # the file is read, not changed


@settings(deadline=None, max_examples=25)
@given(
    seed=st.integers(0, 2**16),
    dimension=st.integers(2, 30),
    k=st.integers(2, 30),
    metric=st.sampled_from(["cosine", "euclidean"]),
)
def test_the_estimate_is_that_of_scikit_dimension(
    seed: int, dimension: int, k: int, metric: str
) -> None:
    points = cloud(100, dimension, seed)
    found = nearest(points, k, metric)
    reference = skdim.id.MLE()
    places = by_sklearn(points, k, metric)[1]
    reference.fit(points, precomputed_knn_arrays=(found.distances, places), comb="mean")
    own = pfes.intrinsic_dimension(points, k=k, metric=metric)
    assert own == pytest.approx(reference.dimension_, rel=1e-6)


def test_cosine_estimates_are_half_of_euclidean_ones_of_the_directions() -> None:
    points = cloud(300, 8)
    directions = points / np.linalg.norm(points, axis=1, keepdims=True)
    cosine = pfes.intrinsic_dimension(points, k=10)
    assert 2 * cosine == pytest.approx(pfes.intrinsic_dimension(directions, 10, "euclidean"))


@pytest.mark.parametrize(("dimension", "error"), [(2, 0.06), (5, 0.06), (10, 0.14), (20, 0.25)])
def test_balls_of_known_dimension(dimension: int, error: float) -> None:
    """The bias is the known one: small in few dimensions, downwards at the edge in many."""
    rng = np.random.default_rng(0)
    directions = rng.standard_normal((2000, dimension))
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    ball = directions * rng.random((2000, 1)) ** (1 / dimension)
    wide = np.zeros((2000, 50))
    wide[:, :dimension] = ball
    rotation = np.linalg.qr(rng.standard_normal((50, 50)))[0]
    own = pfes.intrinsic_dimension(wide @ rotation, k=20, metric="euclidean")
    assert abs(own / dimension - 1) < error
    assert own == pytest.approx(skdim.id.MLE().fit(ball, comb="mean").dimension_, rel=1e-6)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("metric", ["cosine", "euclidean"])
def test_duplicates_are_counted_and_never_infinite(dtype: type, metric: str) -> None:
    points = cloud(50, 200).astype(dtype)
    repeated = np.concatenate([points, points[:7], points[:3]])
    found = nearest(repeated, 10, metric)
    assert found.duplicates == 10
    np.testing.assert_allclose(found.distances, nearest(points, 10, metric).distances, rtol=1e-5)
    assert np.isfinite(pfes.intrinsic_dimension(repeated, k=10, metric=metric))


def test_vectors_without_a_direction_are_left_out() -> None:
    points = np.concatenate([cloud(30, 8), np.zeros((2, 8))])
    assert nearest(points, 5, "cosine").duplicates == 2


def test_equally_far_neighbours_give_no_estimate() -> None:
    with pytest.raises(ValueError, match="equally far"):
        local_dimensions(np.ones((4, 5)), 5)
    mixed = np.array([[1.0, 1.0, 1.0], [1.0, 2.0, 4.0]])
    assert local_dimensions(mixed, 3) == pytest.approx([2 / (np.log(4) + np.log(2))])


def test_noise_shows_the_ceiling_of_so_few_points() -> None:
    (few,) = gaussian_estimates(100, 2000, [20], "coordinate")
    (more,) = gaussian_estimates(800, 2000, [20], "coordinate")
    assert few.value < more.value < 2000 / 2  # far below the 2,000 dimensions that noise has
    (own,) = estimates(nearest(cloud(100, 2000, 5).astype(np.float32), 20, "cosine"), [20])
    assert own.value == pytest.approx(few.value, rel=0.1)
    low, high = few.interval
    assert low < few.value < high


def test_mistakes() -> None:
    with pytest.raises(ValueError, match="matrix of real numbers"):
        pfes.intrinsic_dimension([1.0, 2.0])
    with pytest.raises(ValueError, match="distinct points"):
        pfes.intrinsic_dimension(cloud(10, 3), k=10)
    with pytest.raises(ValueError, match="k must be"):
        local_dimensions(np.ones((4, 5)), 1)


def test_the_dimensions_of_noise_are_found_with_few_points() -> None:
    """Also where so few points make the estimate itself far too small."""
    turn = np.linalg.qr(cloud(500, 500, seed=1))[0][:120]
    found = estimates(nearest(cloud(400, 120) @ turn, 20), [5, 20])
    assert all(2 * one.value < 0.75 * 120 for one in found)
    same = noise_dimensions(found, 400, 500, "none")
    assert same == [pytest.approx(120, rel=0.15), pytest.approx(120, rel=0.15)]


def test_points_at_the_ceiling_have_no_equal_noise() -> None:
    found = gaussian_estimates(100, 400, [5, 20], "none")
    assert noise_dimensions(found, 100, 300, "none") == [None, None]


@pytest.mark.parametrize(("standard", "least"), [("none", 2), ("coordinate", 2), ("vector", 3)])
def test_a_line_is_noise_of_the_fewest_dimensions(standard: str, least: int) -> None:
    angles = np.linspace(0, 6, 100) ** 1.5
    found = estimates(nearest(np.stack([np.cos(angles), np.sin(angles)], axis=1), 5), [5])
    assert noise_dimensions(found, 100, 50, standard) == [pytest.approx(least, rel=0.2)]
