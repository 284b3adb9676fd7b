"""What a study says: outcomes, how far their order repeats, predictors, where something can be told, and its page."""

import itertools
import json
import math
import re
from html import escape
from pathlib import Path

import numpy as np
import pytest

from foils.experiments import analyse
from foils.experiments.analysis import (
    RESAMPLES,
    chance_of_best,
    mean_and_interval,
    reliability_of,
    resampled_means,
)
from foils.experiments.pages import study_page
from foils.experiments.study import Cell
from foils.experiments.tasks import UNTRAINED
from foils.statistics.agreement import kendall_tau
from hostile import ATTACK, assert_harmless
from refusals import refused

MEASURE = "nDCG@10"


def cell(
    sources=6, *, name="world", model="m", rise=0.05, noise=0.0, seeds=4, queries=40, base=0.3, predictors=("eci_sem",),
    good=None, spread=0.1, call="s",
):  # fmt: skip
    """Sources whose results rise, of which the first predictor knows the order; the untrained model is at 0.3."""
    rng = np.random.default_rng(0)
    names = [f"{call}{i}" for i in range(sources)]
    own = spread * rng.standard_normal(queries)  # what makes a query hard, for the untrained model as for the others
    outcomes = {
        each: {MEASURE: base + own + rise * i + noise * rng.standard_normal((seeds, queries))}
        for i, each in enumerate(names)
    }
    outcomes[UNTRAINED] = {MEASURE: np.tile(0.3 + own, (seeds, 1))}
    values = {
        each: {p: float(i) if p == "eci_sem" else rng.normal() for p in predictors} for i, each in enumerate(names)
    }
    if good is not None:  # what the first predictor says, beside one that says the reverse of the truth
        values = {each: {"eci_sem": float(good[i]), "rho": -float(i)} for i, each in enumerate(names)}
    facts = {
        "collection": {"name": name, "digest": "x" * 20}, "model": {"name": model, "fingerprint": "y" * 20},
        "settings": {"measures": [MEASURE], "training": {"learning_rate": 2e-5}}, "sources": dict.fromkeys(names, ""),
    }  # fmt: skip
    return Cell(Path(), facts, values, outcomes)


def five(name="world", *, good, **more):
    return cell(5, name=name, good=good, rise=0.1, **more)


# Outcomes and predictors.


def test_predictors_are_ranked_by_their_agreement_and_outcomes_by_their_means():
    found = analyse([five(good=[1, 2, 3, 4, 5]), five("other", good=[1, 2, 3, 5, 4])])
    first, last = found.leaderboard
    assert (first.predictor, last.predictor) == ("eci_sem", "rho")
    assert (first.kendall, first.worst, last.kendall) == pytest.approx(((1 + 0.8) / 2, 0.8, -1))
    assert first.low <= first.kendall <= first.high
    outcomes = found.outcomes["world · m"]
    assert [each.source for each in outcomes][:4] == ["s4", "s3", "s2", "s1"]
    assert all(each.low <= each.mean <= each.high and len(each.seeds) == 4 for each in outcomes)


def test_regret_is_what_the_first_choice_loses():
    regrets = {each.predictor: each.regret for each in analyse([five(good=[1, 2, 9, 4, 5])]).leaderboard}
    assert regrets == pytest.approx({"eci_sem": 0.2, "rho": 0.4})


def test_intervals_of_means_are_those_of_one_draw_after_the_other():
    values = np.random.default_rng(1).normal(size=(3, 7))
    rng = np.random.default_rng(2)
    draws = [values[of_seeds].mean(axis=0) for of_seeds in rng.integers(3, size=(RESAMPLES, 3))]
    low, high = np.quantile([means[rng.integers(7, size=7)].mean() for means in draws], [0.025, 0.975])
    assert mean_and_interval(values, np.random.default_rng(2)) == pytest.approx((values.mean(), low, high))


def test_intervals_of_predictors_are_those_of_one_draw_after_the_other():
    rng, cells = np.random.default_rng(1), []
    for sources, seeds in ((4, 3), (5, 1)):
        cells.append((rng.integers(5, size=sources).astype(float), rng.normal(size=(sources, seeds))))
    rng, plain = np.random.default_rng(2), []
    for predicted, results in cells:
        rows, seeds = (rng.integers(size, size=(RESAMPLES, size)) for size in results.shape)
        means = [results[:, each].mean(axis=1) for each in seeds]
        plain.append([kendall_tau(predicted[of], mean[of]) for of, mean in zip(rows, means, strict=True)])
    plain = np.transpose(plain)
    assert np.isnan(plain).any()
    found = resampled_means(cells, np.random.default_rng(2))
    assert found == pytest.approx(plain[np.isfinite(plain).all(axis=1)].mean(axis=1), abs=1e-12)


def test_a_predictor_that_a_source_lacks_is_not_compared():
    lacking = five("other", good=range(5))
    del lacking.predictors["s2"]["rho"]
    assert [each.predictor for each in analyse([five(good=range(5)), lacking]).leaderboard] == ["eci_sem"]
    for source in lacking.sources:
        lacking.predictors[source].pop("eci_sem")
    assert "no predictor is there for every source" in analyse([lacking, five(good=range(5))]).headline


def test_too_little_is_refused():
    little = five(good=range(5))
    for name in ("s0", "s1", "s2", "s3"):
        del little.outcomes[name]
    refused("two sources", analyse, [little])
    refused("measured were nDCG@10", analyse, [five(good=range(5))], measure="AP")


# Reliability.


@pytest.mark.parametrize(
    ("results", "half", "whole", "verdict"),
    [
        # In the half with the 4 the first source is second, in the other it is last.
        ([[1, 4, 1, 1], [2, 2, 2, 2], [3, 3, 3, 3]], 1 / 3, 1 / 2, "not reliable"),
        ([[1, 1], [2, 3], [3, 2], [4, 4]], 4 / 6, 0.8, "too few seeds"),  # one of six pairs is turned
        ([[1, 3], [2, 2], [3, 1]], -1, -1, "too few seeds"),
        ([[1] * 4, [2] * 4, [3] * 4], 1, 1, "reliable"),
        ([[1], [1], [1]], math.nan, math.nan, "too few seeds"),
    ],
)
def test_reliability_by_hand(results, half, whole, verdict):
    found = reliability_of(np.array(results, float))
    assert (found.half, found.whole) == pytest.approx((half, whole), nan_ok=True)
    assert found.verdict == verdict


# What can be told.


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
    assert found.leads["world · m"].mean == pytest.approx(0.1, abs=0.01)
    assert "s1 trained better than s0" in found.headline
    assert "Nothing can be told of" in analyse([cell(2, rise=0.0, noise=0.5)]).headline
    beside = analyse([cell(noise=0.01), cell(2, name="little", noise=0.01)])
    assert list(beside.leaderboard[0].cells) == ["world · m"]
    assert "little · m" in study_page(beside)


def test_a_gain_is_paired_query_by_query():
    """The spread between queries is in both models and leaves the gain's interval, not the mean's."""
    found = analyse([cell(base=0.32, rise=0.02)])
    best = found.outcomes["world · m"][0]
    assert best.gain == pytest.approx(0.12)
    assert best.gain_high - best.gain_low < 1e-9 < best.high - best.low


def test_json_has_null_for_what_is_no_number():
    world = five(good=range(5), seeds=1)
    del world.outcomes[UNTRAINED]
    (found,) = json.loads(json.dumps(analyse([world]).to_json(), allow_nan=False))["cells"]
    assert (found["ceiling"], found["outcomes"][0]["gain"]) == (None, None)


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
    assert all(name in study_page(found) for name in names)
    assert [each["name"] for each in found.to_json()["cells"]] == names


def test_the_page_escapes_what_users_named_and_tells_models_apart():
    analysis = analyse([
        cell(4, name=f"a {ATTACK}", model=model, call=f"s {ATTACK}", predictors=("eci_sem", "rho")) for model in "mn"
    ])  # fmt: skip
    page = study_page(analysis)
    assert analysis.leaderboard[0].predictor in page
    assert_harmless(page)
    assert page.count("· m") > 1
    assert page.count("· n") > 1
    figures = json.loads(re.search(r"^const figures = (.*);$", page, re.M).group(1))
    predictors, outcomes, _ = [figure["layout"] for figure in figures]
    assert outcomes["yaxis"]["type"] == "category"
    assert [each for each in outcomes["yaxis"]["categoryarray"] if "<" in each] == []
    assert escape(f"s {ATTACK}0") in outcomes["yaxis"]["categoryarray"]
    assert predictors["yaxis"]["categoryarray"] == ["rho", "eci_sem"]
