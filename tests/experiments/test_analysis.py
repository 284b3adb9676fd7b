from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from foils.experiments import PREDICTORS, analyse
from foils.experiments.analysis import RESAMPLES, mean_and_interval, resampled_means
from foils.experiments.cells import Cell
from foils.experiments.tasks import UNTRAINED
from foils.runtime.errors import InputError
from foils.statistics.agreement import kendall_tau


def cell(name="world", *, good, noise=0.0, seeds=4, queries=30, values=None):
    """Five sources whose results rise by 0.1; predictors: `good` as given, and one that is the reverse."""
    rng = np.random.default_rng(0)
    sources = [f"s{i}" for i in range(5)]
    outcomes = {
        source: {"nDCG@10": 0.3 + 0.1 * i + noise * rng.standard_normal((seeds, queries))}
        for i, source in enumerate(sources)
    }
    outcomes[UNTRAINED] = {"nDCG@10": np.full((1, queries), 0.2)}
    predictors = {
        source: {"eci_sem": float(good[i]), "rho": -float(i), **(values or {}).get(source, {})}
        for i, source in enumerate(sources)
    }
    facts = {
        "collection": {"name": name, "digest": "x"}, "model": {"name": "m", "fingerprint": "y"},
        "settings": {"measures": ["nDCG@10"]}, "sources": dict.fromkeys(sources, ""),
    }  # fmt: skip
    return Cell(Path(), facts, predictors, outcomes)


def test_a_predictor_that_orders_the_sources_rightly_leads_and_loses_nothing():
    found = analyse([cell(good=[1, 2, 3, 4, 5]), cell("other", good=[1, 2, 3, 5, 4])])
    first, last = found.leaderboard
    assert (first.predictor, last.predictor) == ("eci_sem", "rho")
    assert first.kendall == pytest.approx((1 + 0.8) / 2)
    assert first.worst == pytest.approx(0.8)
    assert last.kendall == pytest.approx(-1)
    assert first.low <= first.kendall <= first.high


def test_regret_is_what_the_first_choice_loses():
    found = analyse([cell(good=[1, 2, 9, 4, 5])]).leaderboard
    chosen = next(each for each in found if each.predictor == "eci_sem")
    reverse = next(each for each in found if each.predictor == "rho")
    assert chosen.regret == pytest.approx(0.2)
    assert reverse.regret == pytest.approx(0.4)


def test_outcomes_are_ranked_with_the_baselines_among_them():
    found = analyse([cell(good=range(5), noise=0.05)])
    outcomes = found.outcomes["world · m"]
    assert [each.source for each in outcomes] == ["s4", "s3", "s2", "s1", "s0", UNTRAINED]
    assert all(each.low <= each.mean <= each.high for each in outcomes)
    assert len(outcomes[0].seeds) == 4
    assert found.reliability["world · m"].half == pytest.approx(1.0)


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


def test_noise_lowers_the_ceiling():
    assert analyse([cell(good=range(5), noise=5.0)]).reliability["world · m"].half < 0.9


def test_a_predictor_that_a_source_lacks_is_missing_in_that_cell():
    lacking = cell("other", good=range(5))
    del lacking.predictors["s2"]["rho"]
    found = {each.predictor: each for each in analyse([cell(good=range(5)), lacking]).leaderboard}
    assert found["rho"].missing == 1
    assert list(found["rho"].cells) == ["world · m"]
    assert found["eci_sem"].missing == 0
    assert "probe" not in found


def test_it_becomes_json_without_nan():
    text = json.dumps(analyse([cell(good=range(5), seeds=1)]).to_json(), allow_nan=False)
    assert json.loads(text)["cells"][0]["ceiling"] is None


def test_too_little_is_refused():
    little = cell(good=range(5))
    for name in ("s0", "s1", "s2", "s3"):
        del little.outcomes[name]
    with pytest.raises(InputError, match="two sources"):
        analyse([little])
    with pytest.raises(InputError, match="measured were nDCG@10"):
        analyse([cell(good=range(5))], measure="AP")


def test_every_predictor_is_described():
    assert all(title and title == title.strip() for title in PREDICTORS.values())


def test_single_sources_and_hybrids_are_compared_each_with_their_own():
    """Two single sources below four hybrids: rightly ordered among themselves, and one setting below the other."""
    world, names = cell(good=range(5)), {"s0": "a", "s1": "b", "s2": "c", "s3": "a & b", "s4": "a & c"}
    values = {"a": 3.0, "b": 4.0, "c": 5.0, "a & b": 1.0, "a & c": 2.0}
    facts = {**world.facts, "sources": dict.fromkeys(names.values(), "")}
    outcomes = {names.get(name, name): each for name, each in world.outcomes.items()}
    predictors = {name: {"eci_sem": value, "rho": -value} for name, value in values.items()}
    found = analyse([Cell(Path(), facts, predictors, outcomes)])
    standings = {each.predictor: each for each in found.leaderboard}
    assert found.cells[0].parts == [1, 1, 1, 2, 2]
    for name, sign in (("eci_sem", 1), ("rho", -1)):
        assert standings[name].within == {"world · m": pytest.approx(sign)}
        assert standings[name].kendall == pytest.approx(sign * (4 - 6) / 10)
    assert standings["eci_sem"].stability == {"world · m": 1.0}
    assert standings["rho"].stability == {"world · m": 0.0}
    assert "within settings" in str(found)
    assert "within settings" not in str(analyse([cell(good=range(5))]))
    assert found.to_json()["leaderboard"][0]["within"] is not None
