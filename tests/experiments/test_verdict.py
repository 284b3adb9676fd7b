"""What a study says where something can be told, and where nothing can."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest

from foils.experiments import analyse
from foils.experiments.analysis import chance_of_best
from foils.experiments.cells import Cell
from foils.experiments.pages import study_page
from foils.experiments.tasks import UNTRAINED
from foils.statistics.agreement import kendall_tau

MEASURE = "nDCG@10"


def cell(sources=6, *, rise=0.05, noise=0.0, seeds=4, queries=40, base=0.3, predictors=("eci_sem",)):
    """Sources whose results rise, of which the first predictor knows the order; the untrained model is at 0.3."""
    rng = np.random.default_rng(0)
    names = [f"s{i}" for i in range(sources)]
    own = 0.1 * rng.standard_normal(queries)  # what makes a query hard, for the untrained model as for the others
    outcomes = {
        name: {MEASURE: base + own + rise * i + noise * rng.standard_normal((seeds, queries))}
        for i, name in enumerate(names)
    }
    outcomes[UNTRAINED] = {MEASURE: np.tile(0.3 + own, (seeds, 1))}
    values = {
        name: {p: float(i) if p == "eci_sem" else rng.normal() for p in predictors} for i, name in enumerate(names)
    }
    facts = {
        "collection": {"name": "world", "digest": "x"}, "model": {"name": "m", "fingerprint": "y"},
        "settings": {"measures": [MEASURE], "training": {"learning_rate": 2e-5}}, "sources": dict.fromkeys(names, ""),
    }  # fmt: skip
    return Cell(Path(), facts, values, outcomes)


def test_a_predictor_is_named_where_the_results_repeat_and_the_order_is_no_chance():
    found = analyse([cell(noise=0.01, base=0.4)])
    assert "best foreseen by eci_sem" in found.headline
    assert found.headline.startswith("Half of the seeds order the sources like the other half with τ +1.00")
    assert found.warnings == []
    assert found.chance < 0.05


@pytest.mark.parametrize(
    ("world", "why"),
    [
        (cell(noise=0.01, seeds=1), "with one seed"),
        (cell(noise=5.0), "half of the seeds order the sources like the other half"),
        (cell(3, noise=0.01), "random orders of the sources"),
        (cell(rise=0.0, noise=0.5, predictors=("rho", "eta")), "no interval above zero"),
    ],
    ids=["one seed", "noise", "three sources", "no order"],
)
def test_nothing_can_be_told(world, why):
    found = analyse([world])
    assert found.headline.startswith("Nothing can be told")
    assert why in found.headline
    assert "best foreseen" not in found.headline
    assert found.headline in study_page(found).replace("&#39;", "'")
    assert found.to_json()["headline"] == found.headline


def test_two_sources_are_compared_without_an_order():
    found = analyse([cell(2, rise=0.1, noise=0.01)])
    assert found.leaderboard == ()
    assert found.leads["world · m"].source == "s1"
    assert found.leads["world · m"].mean == pytest.approx(0.1, abs=0.01)
    assert "s1 trained better than s0" in found.headline
    assert "Nothing can be told of" in analyse([cell(2, rise=0.0, noise=0.5)]).headline


def test_cells_of_two_sources_stand_beside_cells_of_more():
    two = cell(2, noise=0.01)
    two.facts["collection"]["name"] = "little"
    found = analyse([cell(noise=0.01), two])
    assert [each.name for each in found.cells] == ["world · m", "little · m"]
    assert list(found.leaderboard[0].cells) == ["world · m"]
    assert found.leaderboard[0].missing == 0
    page = study_page(found)
    assert "little · m" in page


def test_a_training_that_moves_nothing_is_warned_of():
    still = analyse([cell(rise=0.0, noise=0.05)])
    assert all(not each.moved for each in still.outcomes["world · m"] if each.source != UNTRAINED)
    (warning,) = still.warnings
    assert "6 of 6 sources moved nDCG@10 by less than its interval" in warning
    assert "learning rate, now 2e-05" in warning
    assert still.to_json()["warnings"] == [warning]
    assert "moved nDCG@10 by less than its interval" in study_page(still)
    assert analyse([cell(base=0.5, noise=0.01)]).warnings == []
    sure = analyse([cell(base=0.3005, rise=0.0)])  # every query gains, and next to nothing
    assert sure.outcomes["world · m"][0].gain_low > 0
    assert len(sure.warnings) == 1


def test_a_gain_is_paired_query_by_query():
    """The spread between queries is in both models and leaves the gain's interval, not the mean's."""
    found = analyse([cell(base=0.32, rise=0.02)])
    best = found.outcomes["world · m"][0]
    assert best.gain == pytest.approx(0.12)
    assert best.gain_high - best.gain_low < 1e-9 < best.high - best.low


def test_without_the_untrained_model_no_gain_is_claimed_and_nothing_warned():
    world = cell(rise=0.0)
    del world.outcomes[UNTRAINED]
    found = analyse([world])
    assert np.isnan(found.outcomes["world · m"][0].gain)
    assert found.warnings == []
    assert found.to_json()["cells"][0]["outcomes"][0]["gain"] is None


def test_chance_is_the_share_of_all_orders_that_the_best_predictor_fits_as_well():
    rng = np.random.default_rng(1)
    predictors, results = rng.normal(size=(3, 4)), rng.normal(size=4)
    best = max(kendall_tau(each, results) for each in predictors)
    orders = [results[list(order)] for order in itertools.permutations(range(4))]
    exact = np.mean([max(kendall_tau(each, order) for each in predictors) >= best - 1e-9 for order in orders])
    assert chance_of_best([(predictors, results)], best, rng) == pytest.approx(exact, abs=0.05)
    doubled = [(np.vstack([predictors, predictors]), results)]
    assert chance_of_best(doubled, best, rng) == pytest.approx(exact, abs=0.05)  # the same twice is no second choice


def test_cells_of_one_collection_and_model_are_told_apart():
    one, two, three = cell(noise=0.01), cell(4, base=0.5), cell(5)
    two.facts["settings"]["training"]["learning_rate"] = 0.003
    found = analyse([one, two, three])
    names = [each.name for each in found.cells]
    assert names == [
        "world · m · learning_rate 2e-05", "world · m · learning_rate 0.003", "world · m · learning_rate 2e-05 (2)"
    ]  # fmt: skip
    assert [len(found.outcomes[name]) for name in names] == [7, 5, 6]
    assert list(found.leaderboard[0].cells) == names
    assert found.leaderboard[0].missing == 0
    assert all(name in study_page(found) for name in names)
    assert [each["name"] for each in found.to_json()["cells"]] == names
