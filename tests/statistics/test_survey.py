"""Draws with unequal probabilities, and what their few judged units say of all."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import expit, logit
from scipy.stats import binomtest, kstest

from foils.runtime.errors import InputError
from foils.statistics.survey import Share, corrected_share, draw, estimate_share, permanent_numbers

Floats = npt.NDArray[np.float64]
SIZES = np.array([8.0, 1.0, 2.0, 4.0, 0.0, 1.0, 3.0])


# Permanent numbers


def test_numbers_belong_to_keys_and_are_even():
    keys = [f"q{i}\0d{i % 7}" for i in range(5_000)]
    numbers = permanent_numbers(keys, seed=3)
    np.testing.assert_array_equal(permanent_numbers(keys[::-1], seed=3), numbers[::-1])
    assert kstest(numbers, "uniform").pvalue > 0.001
    other = permanent_numbers(keys, seed=4)
    assert abs(np.corrcoef(numbers, other)[0, 1]) < 0.06
    assert ((numbers > 0) & (numbers < 1)).all()


# Draws


@given(st.integers(1, 40), st.integers(0, 1_000))
def test_a_larger_draw_begins_with_the_smaller_one(n, seed):
    rng = np.random.default_rng(seed)
    sizes, numbers = rng.gamma(0.5, size=50) * (rng.random(50) < 0.9), rng.random(50)
    smaller, larger = draw(sizes, numbers, n), draw(sizes, numbers, n + 5)
    np.testing.assert_array_equal(larger.rows[: len(smaller.rows)], smaller.rows)
    assert (larger.probability[: len(smaller.rows)] >= smaller.probability).all()


def test_probabilities_are_exact():
    """Given the numbers of the others, a unit is drawn where its own lies below its probability."""
    rng = np.random.default_rng(0)
    for _ in range(50):
        numbers, n = rng.random(len(SIZES)), int(rng.integers(1, 6))
        drawn = draw(SIZES, numbers, n)
        for row, p in zip(drawn.rows, drawn.probability, strict=True):
            for number in (p * 0.999, min(p * 1.001, 1)):
                moved = numbers.copy()
                moved[row] = number
                assert (row in draw(SIZES, moved, n).rows) == (number < p or p == 1)


def test_weighted_totals_are_unbiased_and_uncorrelated():
    rng = np.random.default_rng(1)
    weights = np.zeros((20_000, len(SIZES)))
    for each in weights:
        drawn = draw(SIZES, rng.random(len(SIZES)), 3)
        each[drawn.rows] = 1 / drawn.probability
    errors = weights.std(axis=0) / np.sqrt(len(weights))
    assert weights[:, 4].max() == 0, "a unit of size 0 is never drawn"
    kept = SIZES > 0
    assert (np.abs(weights.mean(axis=0) - 1)[kept] <= 4 * errors[kept] + 1e-12).all()
    correlation = np.corrcoef(weights[:, kept & (errors > 0)].T)
    assert np.abs(correlation - np.eye(len(correlation))).max() < 0.08, "their tails are heavy"


def test_a_census_is_certain():
    drawn = draw(SIZES, np.full(len(SIZES), 0.5), 6)
    np.testing.assert_array_equal(drawn.probability, 1)
    assert len(drawn.rows) == 6
    share = estimate_share([1, 0, 0, 1, 0, 0], drawn.probability)
    assert (share.low, share.share, share.high) == pytest.approx((1 / 3, 1 / 3, 1 / 3))


# Shares


@pytest.mark.parametrize(("hits", "of"), [(0, 20), (10, 30), (30, 30)])
def test_equal_draws_from_many_give_the_exact_binomial_interval(hits, of):
    y = np.arange(of) < hits
    share = estimate_share(y, np.full(of, 1e-9))
    exact = binomtest(hits, of).proportion_ci(0.95, "exact")
    assert share.share == pytest.approx(hits / of)
    assert (share.low, share.high) == pytest.approx((exact.low, exact.high), abs=1e-6)
    same = estimate_share(y, np.full(of, 1e-9), belief=np.full(of, 0.3), population=np.full(99, 0.3))
    assert same.share == pytest.approx(share.share)


def test_by_hand():
    share = estimate_share([1, 0, 0], [0.5, 0.25, 0.25])
    assert share.share == pytest.approx(2 / 10)  # weights 2, 4, 4
    nothing = estimate_share([], [])
    assert np.isnan(nothing.share)
    assert (nothing.low, nothing.high, nothing.judged) == (0, 1, 0)


Beliefs = Callable[[np.random.Generator, Floats], Floats]
BELIEFS: dict[str, Beliefs | None] = {
    "none": None,
    "right": lambda rng, pi: pi,
    "noisy": lambda rng, pi: expit(0.7 * _logits(pi) + 1 + 0.7 * rng.normal(size=len(pi))),
    "too sure": lambda rng, pi: expit(2.5 * _logits(pi)),
    "too low": lambda rng, pi: pi / 5,
}


def _logits(pi: Floats) -> Floats:
    return np.asarray(logit(np.clip(pi, 1e-3, 1 - 1e-3)))


@pytest.mark.parametrize(("n", "shape"), [(20, (0.05, 0.95)), (60, (0.5, 0.5)), (60, (10.0, 10.0))])
@pytest.mark.parametrize("belief", BELIEFS)
def test_intervals_hold_the_share(belief, n, shape):
    """A coverage of .93 at least where .95 is meant, whatever is believed; a third of the units is another source."""
    trials, covered = 100, []
    for seed in range(trials):
        rng = np.random.default_rng(seed)
        pi = rng.beta(*shape, 1_500)
        y = rng.random(len(pi)) < pi
        believed = BELIEFS[belief](rng, pi) if BELIEFS[belief] else np.full(len(pi), 0.5)
        spread = np.sqrt(believed * (1 - believed))
        drawn = draw(0.8 * spread / spread.mean() + 0.2, rng.random(len(pi)), n)
        for source in (np.ones(len(pi), bool), np.arange(len(pi)) % 3 == 0):
            inside = source[drawn.rows]
            rows = drawn.rows[inside]
            model = {} if BELIEFS[belief] is None else {"belief": believed[rows], "population": believed[source]}
            share = estimate_share(y[rows], drawn.probability[inside], **model)
            covered.append(share.low <= y[source].mean() <= share.high)
    assert np.mean(covered) >= 0.95 - 1.64 * np.sqrt(0.95 * 0.05 / trials)


def test_what_cannot_be_estimated_is_refused():
    for given_, p, more in (
        ([2], [0.5], {}),
        ([1], [0.0], {}),
        ([1, 0], [0.5], {}),
        ([1], [0.5], {"belief": [0.5]}),
        ([1], [0.5], {"belief": [0.5], "population": [1.5]}),
        ([1, 1], [0.5, 0.5], {"belief": [0.5, 0.5], "population": [0.5]}),
    ):
        with pytest.raises(InputError):
            estimate_share(given_, p, **more)  # type: ignore[arg-type]


# Judges that err


def test_a_perfect_judge_needs_no_correction_and_a_bad_one_says_nothing():
    apparent = estimate_share(np.arange(50) < 10, np.full(50, 1e-6))
    perfect = corrected_share(apparent, (10_000, 10_000), (10_000, 10_000))
    assert (perfect.share, perfect.low, perfect.high) == pytest.approx((0.2, apparent.low, apparent.high), abs=0.02)
    by_hand = corrected_share(apparent, (800, 1000), (900, 1000))
    assert by_hand.share == pytest.approx((0.2 - 0.1) / 0.7)
    useless = corrected_share(apparent, (20, 40), (20, 40))
    assert np.isnan(useless.share)
    assert (useless.low, useless.high) == (0, 1)
    refuted = corrected_share(estimate_share(np.arange(50) < 45, np.full(50, 1e-6)), (40, 100), (90, 100))
    assert np.isnan(refuted.share)
    assert (refuted.low, refuted.high) == (0, 1), "more are called relevant than even relevant ones are"
    assert corrected_share(Share(np.nan, 0, 1, 0, 0), (1, 1), (1, 1)).judged == 0
    with pytest.raises(InputError, match="specificity from 0 of 0"):
        corrected_share(apparent, (1, 1), (0, 0))


@pytest.mark.parametrize(
    ("true", "se", "sp"), [(0.05, 0.8, 0.9), (0.3, 0.7, 0.95), (0.3, 0.9, 0.6), (0.0, 0.9, 0.95), (1.0, 0.9, 0.9)]
)
def test_corrected_intervals_hold_the_share(true, se, sp):
    trials, covered = 300, []
    for seed in range(trials):
        rng = np.random.default_rng(seed)
        y = rng.random(60) < true
        said = np.where(y, rng.random(60) < se, rng.random(60) > sp)
        share = corrected_share(
            estimate_share(said, np.full(60, 1e-6)),
            (int(rng.binomial(40, se)), 40),
            (int(rng.binomial(40, sp)), 40),
            seed=seed,
        )
        covered.append(share.low <= true <= share.high)
    assert np.mean(covered) >= 0.95 - 1.64 * np.sqrt(0.95 * 0.05 / trials)
