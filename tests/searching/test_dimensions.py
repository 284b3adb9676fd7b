"""Importance of dimensions: cases worked by hand, exact depths, ties, short lists."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from foils.runtime.errors import InputError
from foils.searching import (
    dime_importance,
    eclipse_importance,
    keep_share,
    moon,
    rdime_mask,
    sun,
)
from foils.searching.dimensions import check_depths, dimension_order, kept_count, moon_rows, moved, scaled_to

FEEDBACK = np.array([[4.0, 0, 0, 1], [2, 2, 0, 1], [0, 2, 2, 1], [0, 0, 4, 1], [0, 0, 6, 3]])
QUERY = np.array([0.5, 1.0, 0.25, -1.0])
VECTORS = arrays(np.float64, (3, 6), elements=st.floats(-2, 2, width=32))


def test_sun_and_moon_worked_by_hand():
    np.testing.assert_array_equal(sun(FEEDBACK, 2), [3, 1, 0, 1])
    np.testing.assert_array_equal(moon(FEEDBACK, 2), [0, 0, 5, 2])
    np.testing.assert_array_equal(sun(FEEDBACK, 1), FEEDBACK[0])
    np.testing.assert_array_equal(moon(FEEDBACK, 1), FEEDBACK[-1])
    np.testing.assert_array_equal(sun(FEEDBACK, 5), FEEDBACK.mean(axis=0))


def test_importance_worked_by_hand():
    np.testing.assert_array_equal(dime_importance(QUERY, [3, 1, 0, 1]), [1.5, 1, 0, -1])
    u = eclipse_importance(QUERY, [3, 1, 0, 1], [0, 0, 5, 2], alpha=1.0, beta=0.5)
    np.testing.assert_array_equal(u, [1.5, 1, -0.625, 0])
    np.testing.assert_array_equal(keep_share(u, 0.5), [True, True, False, False])
    np.testing.assert_array_equal(keep_share(u, 0.75), [True, True, False, True])


def test_rdime_worked_by_hand():
    """q² − u = [.25 − 1.5, 1 − 1, .0625 − 0, 1 + 1]: σ² = .203125."""
    np.testing.assert_array_equal(rdime_mask(QUERY, [1.5, 1, 0, -1]), [True, True, False, False])
    np.testing.assert_array_equal(rdime_mask(QUERY, [0.2, 0.2, 0.2, 0.2]), [True, False, False, False])


def test_a_sun_is_scaled_to_its_query():
    np.testing.assert_allclose(scaled_to([3, 4], [0, 2]), [0, 5])
    np.testing.assert_array_equal(scaled_to([3, 4], [0, 0]), [0, 0])
    np.testing.assert_allclose(scaled_to([[3, 4], [1, 0]], [[0, 2], [4, 0]]), [[0, 5], [1, 0]])


def test_a_step_towards_the_sun_worked_by_hand():
    np.testing.assert_allclose(moved([3, 4], [0, 2], weight=0.5), [3, 6.5])
    np.testing.assert_array_equal(moved([[3, 4], [1, 0]], [[0, 0], [0, 9]], weight=0.5), [[3, 4], [1, 0.5]])


@given(arrays(np.float64, 6, elements=st.floats(-2, 2, width=32)))
def test_rdime_keeps_what_has_signal_when_feedback_is_the_query_itself(q):
    """u = q² has no noise: σ² = 0, and every dimension that is not 0 stays."""
    expected = q**2 > 0
    if expected.any():
        np.testing.assert_array_equal(rdime_mask(q, q**2), expected)


@given(st.integers(1, 12), st.integers(0, 14), st.integers(0, 14))
def test_depths_are_as_published(k, k_plus, k_minus):
    """0 < k⁻ < k and 0 < k⁺ < k − k⁻ where both are used."""
    allowed = 0 < k_minus < k and 0 < k_plus < k - k_minus
    if k_plus == 0 and k_minus:
        allowed = k_minus < k
    if k_minus == 0 and k_plus:
        allowed = k_plus <= k
    if allowed:
        check_depths(k, k_plus, k_minus)
    else:
        with pytest.raises(InputError):
            check_depths(k, k_plus, k_minus)


@pytest.mark.parametrize(
    "call",
    [
        lambda: sun(FEEDBACK, 0),
        lambda: sun(FEEDBACK, 6),
        lambda: moon(FEEDBACK, 0),
        lambda: moon(FEEDBACK, 5),
        lambda: moon(FEEDBACK, -1),
        lambda: moon(FEEDBACK, 2, pool=3),
        lambda: moon(FEEDBACK, 2, pool=1, rng=np.random.default_rng()),
        lambda: moon(FEEDBACK, 2, pool=5, rng=np.random.default_rng()),
        lambda: sun(FEEDBACK[0], 1),
        lambda: sun(np.full((2, 2), np.nan), 1),
        lambda: dime_importance(QUERY, QUERY[:3]),
        lambda: dime_importance(QUERY, QUERY * np.inf),
        lambda: eclipse_importance(QUERY, QUERY, QUERY, alpha=0, beta=1),
        lambda: eclipse_importance(QUERY, QUERY, QUERY, alpha=1, beta=-1),
        lambda: keep_share(QUERY, 0),
        lambda: keep_share(QUERY, 1.01),
        lambda: keep_share([1.0, np.nan], 0.5),
        lambda: rdime_mask(QUERY, QUERY[:2]),
    ],
)
def test_unusable_input_is_refused(call):
    with pytest.raises(InputError):
        call()


@given(VECTORS, st.floats(0.05, 1), st.floats(0, 1))
def test_only_the_ratio_of_the_weights_orders_the_dimensions(x, alpha, beta):
    """Doubling is exact in floating point, so the orders are equal, ties included."""
    q, s, m = x
    one = eclipse_importance(q, s, m, alpha=alpha, beta=beta)
    two = eclipse_importance(q, s, m, alpha=2 * alpha, beta=2 * beta)
    np.testing.assert_array_equal(dimension_order(one), dimension_order(two))
    np.testing.assert_array_equal(eclipse_importance(q, s, m, alpha=1.0, beta=0.0), dime_importance(q, s))


@given(arrays(np.float64, 7, elements=st.integers(-2, 2).map(float)), st.floats(0.01, 1))
def test_equal_importance_keeps_the_lower_index(u, share):
    kept = keep_share(u, share)
    expected = sorted(range(7), key=lambda i: (-u[i], i))[: kept_count(7, share)]
    assert set(np.flatnonzero(kept)) == set(expected)


def test_kept_count_rounds_to_the_nearest():
    assert [kept_count(384, share) for share in (0.1, 0.2, 0.5, 0.9, 1.0)] == [38, 77, 192, 346, 384]
    assert kept_count(10, 0.25) == 3, "half goes up"
    assert kept_count(10, 0.001) == 1, "never none"


def test_a_random_moon_comes_from_the_pool_without_repeats_and_by_seed():
    drawn = [tuple(moon_rows(20, 3, pool=6, rng=np.random.default_rng(seed))) for seed in range(200)]
    assert all(len(set(rows)) == 3 and min(rows) >= 14 and max(rows) < 20 for rows in drawn)
    assert {row for rows in drawn for row in rows} == set(range(14, 20))
    assert drawn[0] == tuple(moon_rows(20, 3, pool=6, rng=np.random.default_rng(0)))
    np.testing.assert_array_equal(moon_rows(20, 3, pool=3, rng=np.random.default_rng(0)), moon_rows(20, 3))
