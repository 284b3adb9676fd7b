"""The bootstrap over blocks of records: exact against expanded, width, coverage, seeds, and what has no interval."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.linalg import block_diag

from foils.encode import Vectors
from foils.errors import InputError
from foils.score.information import (
    BlockedMoments,
    Bootstrap,
    assign_blocks,
    blocked_moments,
    bootstrap,
    log_det,
    resampled_scores,
    unpacked,
)
from foils.score.measure import Geometry
from foils.score.records import Target

WHOLE = Target("s", 1)


def world(rng: np.random.Generator, records: int, *, d: int = 4, each: int = 3) -> tuple[Geometry, np.ndarray]:
    """Records with a hardness of their own, so that their negatives' weights belong together."""
    drawn = rng.standard_normal((records * (each + 1), d)) + np.array([2, *[0] * (d - 1)])
    documents = Vectors.of(drawn / np.linalg.norm(drawn, axis=1, keepdims=True))
    record = np.repeat(np.arange(records), each)
    geometry = Geometry(
        documents.select(np.arange(records)), documents, np.arange(records), record,
        np.arange(records, records * (each + 1)),
    )  # fmt: skip
    return geometry, rng.beta(2, 3, records)[record] * rng.uniform(0.5, 1, len(record))


def moments(rng: np.random.Generator, records: int) -> BlockedMoments:
    geometry, weights = world(rng, records)
    members = np.ones(len(weights), np.int64)
    return blocked_moments(geometry, weights, members, assign_blocks(records, rng))


@pytest.mark.parametrize("regularization", [1.0, 0.3])
def test_the_expansion_agrees_with_factorising_every_replicate(regularization: float) -> None:
    rng = np.random.default_rng(0)
    sums, counts = moments(rng, 2000).blocks_of(WHOLE)
    drawn = rng.multinomial(64, np.full(64, 1 / 64), size=200).astype(float)
    expanded = resampled_scores(sums, counts, drawn, regularization=regularization)
    exact = resampled_scores(sums, counts, drawn, regularization=regularization, tolerance=0)
    assert not np.array_equal(expanded, exact)
    assert abs(expanded - exact).max() < 0.01 * exact.std()
    plain = [
        np.linalg.slogdet(np.eye(4) + unpacked(row @ sums, 4) / (row @ counts) / regularization)[1] for row in drawn
    ]
    np.testing.assert_allclose(exact, plain, rtol=1e-10)


def test_where_the_expansion_is_too_coarse_every_replicate_is_factorised() -> None:
    rng = np.random.default_rng(1)
    sums, counts = moments(rng, 40).blocks_of(WHOLE)
    drawn = rng.multinomial(40, np.full(40, 1 / 40), size=50).astype(float)
    found = resampled_scores(sums, counts, drawn, regularization=1e-3)
    np.testing.assert_array_equal(found, resampled_scores(sums, counts, drawn, regularization=1e-3, tolerance=0))


def test_drawing_every_block_once_gives_the_score_itself() -> None:
    found = moments(np.random.default_rng(2), 300)
    sums, counts = found.blocks_of(WHOLE)
    for tolerance in (0.0, 0.01):
        scores = resampled_scores(sums, counts, np.ones((2, len(counts))), tolerance=tolerance)
        np.testing.assert_allclose(scores, log_det(found.of(WHOLE).information()), rtol=1e-12)


def test_intervals_shrink_with_the_root_of_the_number_of_records() -> None:
    widths = []
    for records in (400, 6400):
        low, high = bootstrap(moments(np.random.default_rng(3), records), [WHOLE], np.random.default_rng(0)).interval(
            "s"
        )
        widths.append(high - low)
    assert widths[0] / widths[1] == pytest.approx(4, rel=0.35)


def test_intervals_widen_with_confidence_and_hold_the_score() -> None:
    found = moments(np.random.default_rng(4), 500)
    drawn = bootstrap(found, [WHOLE], np.random.default_rng(0))
    score = log_det(found.of(WHOLE).information())
    (low, high), (lower, higher) = drawn.interval("s", 0.8), drawn.interval("s", 0.99)
    assert lower < low < score < high < higher


def test_intervals_cover_the_score_of_the_population() -> None:
    """120 samples of 400 records: 95 % intervals hold the population's score in 88 to 99 % (64 blocks, percentiles)."""
    population = moments(np.random.default_rng(5), 40_000)
    truth = log_det(population.of(WHOLE).information())
    rng = np.random.default_rng(6)
    held = 0
    for _ in range(120):
        low, high = bootstrap(moments(rng, 400), [WHOLE], rng, replicates=100).interval("s")
        held += low <= truth <= high
    assert 0.88 <= held / 120 <= 0.99


def test_the_same_generator_draws_the_same() -> None:
    found = moments(np.random.default_rng(7), 100)
    first, again, other = (bootstrap(found, [WHOLE], np.random.default_rng(seed)).scores["s"] for seed in (1, 1, 2))
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other)
    assert len(first) == 1000


def test_targets_are_resampled_together() -> None:
    """A source against itself has the ratio 1 in every replicate, and is never above itself."""
    found = moments(np.random.default_rng(8), 100)
    drawn = bootstrap(found, [WHOLE, Target("t", 1)], np.random.default_rng(0), replicates=50)
    assert drawn.ratio_interval("s", "t") == (1, 1)
    assert drawn.order_probability("s", "t") == 0


def test_order_probability_counts_replicates() -> None:
    drawn = Bootstrap({"a": np.array([1.0, 2, 3, np.nan]), "b": np.array([2.0, 1, 1, 1]), "none": np.zeros(0)})
    assert drawn.order_probability("a", "b") == pytest.approx(2 / 3)
    assert math.isnan(drawn.order_probability("none", "none"))


def test_what_no_drawn_block_holds_has_no_score_there() -> None:
    sums, counts = np.array([[0.0] * 3, [1.0, 0, 1]]), np.array([0, 2])
    drawn = np.array([[2.0, 0], [0, 2], [1, 1]])
    for tolerance in (0.0, 0.01):
        np.testing.assert_allclose(
            resampled_scores(sums, counts, drawn, tolerance=tolerance), [np.nan, 2 * math.log(1.5), 2 * math.log(1.5)]
        )
    assert np.isnan(resampled_scores(sums, counts, drawn[:1])).all()
    assert Bootstrap({"s": np.array([np.nan, 1, 1])}).interval("s") == (1, 1)
    ratio = Bootstrap({"s": np.array([0.0, 1, 1]), "t": np.array([0.0, 0, 2])}).ratio_interval("s", "t")
    assert ratio == (0.5, 0.5)


def test_fewer_than_two_blocks_give_no_interval() -> None:
    rng = np.random.default_rng(9)
    for found, replicates in ((moments(rng, 1), 100), (moments(rng, 10), 0)):
        low, high = bootstrap(found, [WHOLE], rng, replicates=replicates).interval("s")
        assert math.isnan(low)
        assert math.isnan(high)


@pytest.mark.parametrize(("records", "blocks"), [(1, 1), (5, 5), (64, 64), (1000, 64)])
def test_records_are_dealt_evenly(records: int, blocks: int) -> None:
    dealt = assign_blocks(records, np.random.default_rng(0))
    sizes = np.bincount(dealt)
    assert len(dealt) == records
    assert len(sizes) == blocks
    assert sizes.max() - sizes.min() <= 1
    if records > 64:
        assert not np.array_equal(dealt, np.arange(records) % 64)


def test_unpacked_is_the_inverse_of_taking_the_lower_triangle() -> None:
    matrix = block_diag([[2.0, 1], [1, 3]], [[5.0]]) + 1
    np.testing.assert_array_equal(unpacked(matrix[np.tril_indices(3)], 3), matrix)


def test_a_target_without_triplets_is_an_error() -> None:
    with pytest.raises(InputError, match="other has no triplets"):
        moments(np.random.default_rng(0), 3).of(Target("other", 4))
