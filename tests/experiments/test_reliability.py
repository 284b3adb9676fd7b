"""Reliability of a cell: worked cases, formulas against simulation, and seeds that are added until it is reached."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from test_verdict import cell

from foils.experiments import analyse
from foils.experiments.analysis import LEAST_SEEDS, MOST_SEEDS, Reliability, reliability_of, seeds_at_best
from foils.experiments.pages import study_page


def table_of(sources: int, seeds: int, spread: float, seed: int = 0) -> np.ndarray:
    """Results of sources whose true means differ by a standard deviation, each training with noise of 1."""
    rng = np.random.default_rng(seed)
    blocks = 5 * rng.standard_normal(seeds)  # what a seed's queries give all sources alike
    return spread * rng.standard_normal((sources, 1)) + blocks + rng.standard_normal((sources, seeds))


def test_the_halves_of_four_seeds_by_hand():
    results = np.array([[1.0, 4.0, 1.0, 1.0], [2.0, 2.0, 2.0, 2.0], [3.0, 3.0, 3.0, 3.0]])
    found = reliability_of(results)  # in the half with the 4 the first source is second, in the other it is last
    assert found.half == pytest.approx(1 / 3)
    assert found.whole == pytest.approx(1 / 2)
    assert found.verdict == "not reliable"


def test_spearman_brown_by_hand():
    results = np.array([[1.0, 1.0], [2.0, 3.0], [3.0, 2.0], [4.0, 4.0]])  # one of six pairs is turned
    found = reliability_of(results)
    assert found.half == pytest.approx(4 / 6)
    assert found.whole == pytest.approx(0.8)
    assert found.verdict == "too few seeds"  # two may agree by chance
    assert not found.reliable


def test_equal_and_reversed_orders():
    same = np.array([[1.0], [2.0], [3.0]])
    verdicts = [reliability_of(np.repeat(same, seeds, axis=1)).verdict for seeds in (1, 2, 3, 4)]
    assert verdicts == ["too few seeds"] * 3 + ["reliable"]
    turned = reliability_of(np.array([[1.0, 3.0], [2.0, 2.0], [3.0, 1.0]]))
    assert (turned.half, turned.whole) == (-1, -1)
    alone = reliability_of(np.ones((3, 1)))
    assert math.isnan(alone.half)
    assert not alone.reliable
    assert not alone.flat


def test_the_upper_end_of_the_sources_variance_holds_the_truth_as_often_as_it_says():
    spread, correlation = 0.5, math.sin(0.4 * math.pi)
    truth = correlation / (1 - correlation) / spread**2
    below = np.mean([seeds_at_best(table_of(6, 5, spread, seed)) <= truth for seed in range(400)])
    assert below == pytest.approx(0.95, abs=0.04)


def test_sources_without_a_difference_are_shown_to_be_flat_and_large_ones_are_reliable():
    flat = [reliability_of(table_of(10, 12, 0.0, seed)).verdict for seed in range(20)]
    assert flat.count("flat") > 12
    assert "reliable" not in flat
    assert {reliability_of(table_of(10, 12, 10.0, seed)).verdict for seed in range(20)} == {"reliable"}


def test_it_is_settled_with_four_seeds_at_least_and_with_sixty_four():
    steady, poor = Reliability(3, 1.0, 1.0, 1.0), Reliability(30, 0.3, 0.46, 50.0)
    assert not steady.settled
    assert Reliability(LEAST_SEEDS, 1.0, 1.0, 1.0).settled
    assert not poor.settled
    assert Reliability(MOST_SEEDS, 0.3, 0.46, 50.0).settled
    assert Reliability(30, 0.3, 0.46, 65.0).settled
    assert Reliability(LEAST_SEEDS, 0.0, 0.0, math.inf).verdict == "flat"
    assert Reliability(LEAST_SEEDS - 1, 0.0, 0.0, math.inf).verdict == "too few seeds"


def flat_cell():
    flat = cell(10, rise=0.0, noise=1.0, seeds=24, predictors=("eci_sem", "rho"))
    flat.facts["collection"]["name"] = "plain"
    return flat


def test_flat_cells_are_left_out_of_the_means_and_listed():
    alone, both = analyse([cell(noise=0.01)]), analyse([cell(noise=0.01), flat_cell()])
    assert both.left_out == ["plain · m"]
    assert both.leaderboard[0].kendall == alone.leaderboard[0].kendall
    assert list(both.leaderboard[0].cells) == ["world · m"]
    caption = "Left out of the means, as flat: plain · m."
    assert caption in str(both)
    assert caption in study_page(both)
    assert "plain · m, flat" in both.headline
    data = json.loads(json.dumps(both.to_json(), allow_nan=False))
    assert data["left_out"] == ["plain · m"]
    assert [each["reliability"]["verdict"] for each in data["cells"]] == ["reliable", "flat"]
    assert [each["reliability"]["counts"] for each in data["cells"]] == [True, False]


def test_no_order_takes_less_than_one_seed():
    found = analyse([cell(noise=0.01)])
    assert found.reliability["world · m"].at_best < 0.5
    assert found.reliability_table().rows[0][4] == "1"


def test_where_no_cell_counts_nothing_is_told():
    found = analyse([flat_cell()])
    assert found.leaderboard == ()
    assert found.headline.startswith("Nothing can be told")
    assert "no cell counts (plain · m, flat)" in found.headline
    assert "Reliability" in study_page(found)
