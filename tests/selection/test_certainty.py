"""Rules that heed how sure a gap is."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import norm

from foils.runtime.errors import InputError
from foils.selection import RatedRows, sure, table, zone_probabilities, zones
from foils.selection.rules import BOUNDS, WEIGHTS


def test_chances_are_those_of_the_normal_and_sum_to_one() -> None:
    gap, error = np.array([90.0, 300.0, -50.0, 100.0, 100.0, np.nan, 3.0]), np.array([40.0, 100, 5, 0, 30, 10, np.nan])
    chances = zone_probabilities(gap, error, BOUNDS)
    for i in (0, 1, 2, 4):
        expected = np.diff(norm.cdf([-np.inf, *BOUNDS, np.inf], gap[i], error[i]))
        np.testing.assert_allclose(chances[i], expected, atol=1e-12)
    assert chances[3].tolist() == [0, 1, 0, 0, 0]  # a gap on a bound belongs above it
    assert chances[4, 0] == 0.5
    assert np.isnan(chances[5:]).all()


def test_zones_weigh_by_where_the_gap_may_be() -> None:
    gap, error = np.array([160.0, 160.0, 90.0, 110.0, 700.0]), np.array([1e-9, 60.0, 60.0, 60.0, 1e-9])
    found = zones(RatedRows.of_gaps(gap, gap_se=error))
    expected = zone_probabilities(gap, error, BOUNDS) @ np.array(WEIGHTS)
    np.testing.assert_allclose(found.weight, np.where([True, True, False, True, True], expected, 0))
    assert found.weight[[0, 4]].tolist() == pytest.approx([0.5, 0.3])
    assert found.weight[0] != pytest.approx(found.weight[1], abs=0.01)
    assert found.reason.tolist() == [None, None, "danger zone", None, None]
    assert zones(RatedRows.of_gaps(gap, gap_se=error), confidence=0.6).keep.tolist() == [True, True, False, False, True]
    assert zones(RatedRows.of_gaps(gap, gap_se=error), confidence=0.3).keep.all()


def test_without_errors_left_zones_are_the_table() -> None:
    gap = np.linspace(-50, 900, 40)
    exact, plain = zones(RatedRows.of_gaps(gap, gap_se=np.zeros(40))), table(RatedRows.of_gaps(gap))
    np.testing.assert_allclose(exact.weight, plain.weight)
    np.testing.assert_array_equal(exact.keep, plain.keep)
    np.testing.assert_array_equal(exact.tier, plain.tier)


def test_what_is_surely_inside_is_kept() -> None:
    rows = RatedRows.of_gaps(
        [200.0, 200.0, 500.0, 150.0, 300.0, np.nan], gap_se=[60.0, 100.0, 10.0, 20.0, np.nan, np.nan]
    )
    found = sure(rows)
    assert found.keep.tolist() == [True, False, True, True, False, False]
    unsure = "not surely inside 100 to inf"
    assert found.reason.tolist() == [None, unsure, None, None, "error of the gap not known", "unrated"]
    assert sure(rows, most=400.0).keep.tolist() == [True, False, False, True, False, False]
    assert sure(rows, confidence=0.8).keep.tolist() == [True, True, True, True, False, False]
    assert sure(rows, least=180.0).keep.tolist() == [False, False, True, False, False, False]


def test_faulty_settings_and_tables_without_errors_are_refused() -> None:
    rows = RatedRows.of_gaps([200.0], gap_se=[10.0])
    for rule in (zones, sure):
        with pytest.raises(InputError, match="confidence 2"):
            rule(rows, confidence=2.0)
        with pytest.raises(InputError, match="no errors of gaps"):
            rule(RatedRows.of_gaps([200.0]))
    with pytest.raises(InputError, match="least 500"):
        sure(rows, least=500.0, most=400.0)
    with pytest.raises(InputError, match="rising"):
        zones(rows, bounds=(100.0, 100.0, 200.0, 300.0))
