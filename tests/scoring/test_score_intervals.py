"""Intervals from blocks of records: pseudo-values, width, coverage at every λ, seeds, memory, what has no interval."""

import math

import numpy as np
import pytest

from foils.encode import Vectors
from foils.scoring.information import log_det, target_moments
from foils.scoring.intervals import Bootstrap, assign_blocks, bootstrap, leave_out, resampled
from foils.scoring.measure import Geometry, information_matrix
from foils.scoring.triplets import Target

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


def scored(
    rng: np.random.Generator, records: int, *, regularization: float = 1.0, **shape: int
) -> tuple[dict[str, float], dict[str, np.ndarray]]:
    """The score of a world, and the scores without each block."""
    geometry, weights = world(rng, records, **shape)
    members = np.ones(len(weights), np.int64)
    moments = target_moments(geometry, weights, members, [WHOLE])
    blocks = assign_blocks(records, rng)
    left_out = leave_out(geometry, weights, members, moments, [WHOLE], blocks, regularization=regularization)
    return {"s": log_det(moments.of(WHOLE).information(), regularization)}, left_out


@pytest.mark.parametrize("regularization", [1.0, 0.01])
def test_leaving_a_block_out_is_scoring_the_others(regularization):
    """Two overlapping sources and their union: the second pass against scoring the other records' triplets alone."""
    rng = np.random.default_rng(0)
    geometry, weights = world(rng, 30)
    members, blocks = rng.integers(1, 4, len(weights)), assign_blocks(30, rng, blocks=7)
    members[geometry.record == 0] = 2  # block of record 0: may hold none of the first source
    targets = [Target("a", 1), Target("b", 2), Target("a+b", 3, 2)]
    found = leave_out(
        geometry, weights, members, target_moments(geometry, weights, members, targets), targets, blocks,
        regularization=regularization,
    )  # fmt: skip
    for target in targets:
        for block in range(7):
            rows = np.flatnonzero(target.of(members) & (blocks[geometry.record] != block))
            expected = log_det(information_matrix(geometry, weights, rows) / len(rows), regularization)
            assert found[target.name][block] == pytest.approx(expected, rel=1e-10)


def test_the_pseudo_values_of_a_mean_are_its_terms():
    """Three blocks score 1, 2, 6: their mean 3; left out 4, 3.5, 1.5. No bias; standard error √(7/3)."""
    replicates, bias, error = resampled(3.0, np.array([4, 3.5, np.nan, 1.5]), np.ones((5, 4)))
    np.testing.assert_allclose(replicates, 3.0)
    assert bias == pytest.approx(0)
    assert error == pytest.approx(math.sqrt(7 / 3))


def test_the_jackknife_takes_the_bias_of_a_square_away():
    """θ = x̄² exceeds μ² by σ²/n; the jackknife estimates just s²/n of it (Quenouille 1956)."""
    x = np.random.default_rng(0).normal(2, 1, 20)
    left_out = ((x.sum() - x) / 19) ** 2
    _, bias, _ = resampled(x.mean() ** 2, left_out, np.ones((1, 20)))
    assert bias == pytest.approx(x.var(ddof=1) / 20)


def test_intervals_cover_the_score_of_the_population():
    """120 samples of 400 records: 95 % intervals hold the population's score in 88 to 99 %."""
    geometry, weights = world(np.random.default_rng(5), 40_000)
    truth = log_det(information_matrix(geometry, weights, np.arange(len(weights))) / len(weights))
    rng = np.random.default_rng(6)
    held = 0
    for _ in range(120):
        low, high = bootstrap(*scored(rng, 400), rng, replicates=100).interval("s")
        held += low <= truth <= high
    assert 0.88 <= held / 120 <= 0.99


@pytest.mark.slow
@pytest.mark.parametrize(("records", "d", "each"), [(128, 64, 5), (64, 64, 1), (20, 16, 2)])
def test_intervals_cover_at_every_lambda_where_they_say_so(records, d, each):
    """200 samples each. Where most samples' intervals claim to cover, 0.9 of those or more hold the population's score;
    where a small λ makes the bias too large (64 triplets in 64 dimensions), most claim nothing."""
    geometry, weights = world(np.random.default_rng(7), 60_000 // each, d=d, each=each)
    information = information_matrix(geometry, weights, np.arange(len(weights))) / len(weights)
    claims = {}
    for regularization in (1.0, 0.1, 0.01, 0.001, 1e-4):
        truth, rng = log_det(information, regularization), np.random.default_rng(18)
        held, claimed = [], []
        for _ in range(200):
            drawn = bootstrap(*scored(rng, records, regularization=regularization, d=d, each=each), rng, replicates=300)
            low, high = drawn.interval("s")
            held.append(low <= truth <= high)
            claimed.append(drawn.covers("s"))
        claims[regularization] = float(np.mean(claimed))
        if sum(claimed) > 100:
            assert np.mean(np.array(held)[claimed]) >= 0.9, regularization
    assert claims[1.0] == claims[0.1] == 1
    assert claims[1e-4] < 0.5


def test_a_small_lambda_moves_the_interval_above_the_score_and_says_so():
    """64 triplets span 64 dimensions barely: the score at λ = 1e-4 is far below that of many records."""
    rng = np.random.default_rng(10)
    score, left_out = scored(rng, 64, regularization=1e-4, d=64, each=1)
    drawn = bootstrap(score, left_out, rng)
    assert drawn.bias["s"] < -2 * drawn.error["s"]
    assert drawn.interval("s")[0] > score["s"]
    assert not drawn.covers("s")


def test_targets_are_resampled_together():
    """A source against itself has the ratio 1 in every replicate, and is never above itself."""
    score, left_out = scored(np.random.default_rng(8), 100)
    twice = {"s": score["s"], "t": score["s"]}, {"s": left_out["s"], "t": left_out["s"]}
    drawn = bootstrap(*twice, np.random.default_rng(0), replicates=50)
    assert drawn.ratio_interval("s", "t") == (1, 1)


def test_fewer_than_two_blocks_give_no_interval_and_no_claim():
    """One record, one block of a hundred that holds the source, no replicates."""
    rng = np.random.default_rng(9)
    alone = {"s": 1.0}, {"s": np.r_[np.nan, np.full(99, np.nan)]}
    for found, replicates in ((scored(rng, 1), 100), (alone, 100), (scored(rng, 10), 0)):
        drawn = bootstrap(*found, rng, replicates=replicates)
        assert all(math.isnan(end) for end in drawn.interval("s"))
    assert not bootstrap(*alone, rng).covers("s")
    assert not Bootstrap().covers("s")
