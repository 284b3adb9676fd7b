"""Estimators of ratings against the definition and other libraries; online Elo."""

import choix
import evalica
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import approx_fprime, minimize
from scipy.special import expit, log_expit, log_ndtr, logit, ndtr, ndtri

from foils.rating import (
    Pairs,
    all_pairs,
    bradley_terry,
    lead_errors,
    online_elo,
    regular_pairs,
    thurstone,
)  # fmt: skip
from foils.rating import (
    estimators as ratings_module,
)
from foils.rating.estimators import BRADLEY_TERRY, LINKS, THURSTONE, covariance, mills
from foils.runtime.errors import ConvergenceError, InputError
from foils.statistics.elo_scale import ELO_PER_LOGIT, ELO_PER_PROBIT, expected_score
from refusals import refused

ESTIMATORS = {"thurstone": thurstone, "bradley-terry": bradley_terry}
LOG_CURVE = {"thurstone": log_ndtr, "bradley-terry": log_expit}
CURVE = {"thurstone": ndtr, "bradley-terry": expit}
INVERSE = {"thurstone": ndtri, "bradley-terry": logit}

each_model = pytest.mark.parametrize("model", list(ESTIMATORS))


def planted(sizes, model, *, degree=4, noise=0.3, seed=0):
    rng = np.random.default_rng(seed)
    pairs = regular_pairs(sizes, degree=degree, keys=rng)
    truth = rng.normal(0, 1, pairs.candidates)
    lead = truth[pairs.first] - truth[pairs.second] + rng.normal(0, noise, len(pairs))
    return pairs, CURVE[model](lead), truth


def log_posterior(e, pairs, w, model, prior_sd=np.inf):
    lead = e[pairs.first] - e[pairs.second]
    log_curve = LOG_CURVE[model]
    return (w * log_curve(lead) + (1 - w) * log_curve(-lead)).sum() - (e**2).sum() / (2 * prior_sd**2)


@each_model
def test_one_judgement_by_hand(model):
    found = ESTIMATORS[model](Pairs([0, 2], [0], [1]), [0.8], prior_sd=np.inf)
    np.testing.assert_allclose(found.rating, np.array([0.5, -0.5]) * INVERSE[model](0.8), atol=1e-8)


@each_model
@pytest.mark.parametrize("prior_sd", [np.inf, 10.0, 0.5])
def test_ratings_maximise_the_posterior_that_scipy_maximises(model, prior_sd):
    """It is concave: where its gradient vanishes is its maximum. SciPy's search ends near that, and no higher."""
    pairs, w, _ = planted([30], model)
    found = ESTIMATORS[model](pairs, w, prior_sd=prior_sd).rating

    def loss(e):
        return -log_posterior(e, pairs, w, model, prior_sd)

    gradient = (approx_fprime(found, loss, 1e-5) + approx_fprime(found, loss, -1e-5)) / 2  # central differences
    np.testing.assert_allclose(gradient, 0, atol=1e-7)  # their rounding is about 1e-9
    assert abs(found.mean()) < 1e-12
    independent = minimize(loss, np.zeros(30), method="BFGS").x
    assert loss(found) <= loss(independent) + 1e-10
    np.testing.assert_allclose(found, independent - independent.mean(), atol=1e-3)


def test_bradley_terry_agrees_with_choix_and_its_prior():
    rng = np.random.default_rng(1)
    pairs, w, _ = planted([40], "bradley-terry", degree=6)
    won = rng.random(len(pairs)) < w
    data = [
        (int(a), int(b)) if win else (int(b), int(a)) for a, b, win in zip(pairs.first, pairs.second, won, strict=True)
    ]
    sd = 2.0
    independent = choix.opt_pairwise(40, data, alpha=1 / (2 * sd**2), tol=1e-12)  # choix' penalty is alpha·Σe²
    found = bradley_terry(pairs, won.astype(float), prior_sd=sd)
    np.testing.assert_allclose(found.rating, independent - independent.mean(), atol=1e-6)


@pytest.mark.parametrize("step", [lambda t, k: 1 / (1 + 0.1 * t), lambda t, k: 1 / (2 * k)])
def test_gradient_ascent_of_algorithm_1_ends_where_newton_does(step):
    """g_i = Σ_j w_ij λ(e_i − e_j) − (1 − w_ij) λ(e_j − e_i); its decaying step, and Theorem 9's 1/L, L ≤ 2k."""
    pairs, w, _ = planted([12], "thurstone")
    e = np.zeros(12)
    for t in range(1, 20_000):
        lead = e[pairs.first] - e[pairs.second]
        slope = w * mills(lead) - (1 - w) * mills(-lead)
        gradient = np.bincount(pairs.first, slope, 12) - np.bincount(pairs.second, slope, 12)
        e += step(t, 4) * (gradient - gradient.mean())
        e -= e.mean()
    np.testing.assert_allclose(thurstone(pairs, w, prior_sd=np.inf).rating, e, atol=1e-5)


@pytest.mark.parametrize("link", list(LINKS.values()), ids=list(LINKS))
@pytest.mark.parametrize("w", [0.0, 0.3, 1.0])
def test_slope_and_curvature_by_finite_differences(link, w):
    leads = np.array([-6.0, -2.0, -0.1, 0.0, 0.4, 3.0, 8.0])
    weights = np.full(len(leads), w)
    step = 1e-5
    ahead, at, behind = (link.terms(leads + d, weights) for d in (step, 0.0, -step))
    np.testing.assert_allclose(at.slope, (ahead.value - behind.value) / (2 * step), rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(at.curvature, -(ahead.slope - behind.slope) / (2 * step), rtol=1e-5, atol=1e-9)


@pytest.mark.parametrize("link", list(LINKS.values()), ids=list(LINKS))
def test_terms_are_stable_far_into_the_tails(link):
    leads = np.array([-300.0, -40.0, 40.0, 300.0])
    for w in (0.0, 0.5, 1.0):
        terms = link.terms(leads, np.full(4, w))
        expected = w * LOG_CURVE[link.name](leads) + (1 - w) * LOG_CURVE[link.name](-leads)
        np.testing.assert_allclose(terms.value, expected, rtol=1e-12)
        assert np.isfinite(terms.slope).all()
        assert (terms.curvature >= -1e-9).all()


def test_fisher_information_is_the_expected_curvature():
    leads = np.linspace(-3, 3, 13)
    for link in LINKS.values():
        np.testing.assert_allclose(
            link.information(leads), link.terms(leads, link.probability(leads)).curvature, rtol=1e-9
        )
    assert THURSTONE.information(np.zeros(1))[0] == pytest.approx(2 / np.pi)
    assert BRADLEY_TERRY.information(np.zeros(1))[0] == 0.25


def information_matrix(pairs, rating, model):
    """The Fisher information of one query's judgements, pair by pair."""
    found = np.zeros((pairs.candidates, pairs.candidates))
    for i, j in zip(pairs.first, pairs.second, strict=True):
        c = LINKS[model].information(rating[i] - rating[j])
        found[[i, j], [i, j]] += c
        found[[i, j], [j, i]] -= c
    return found


@pytest.mark.parametrize("step", [8.7, 8.8, 8.9, 9.0, 9.1, 40.0])
def test_where_no_curvature_is_left_nothing_is_known(step):
    """Information that rounding alone makes is none, whether or not a factor of its matrix can be found."""
    pairs, apart = all_pairs([6]), np.arange(6)[None] * step  # probits: Φ(9) is 1 to the last digit
    block = next(pairs.blocks(1000))
    assert (covariance(block, apart, THURSTONE, precision=0.0) == np.inf).all()
    assert np.isfinite(covariance(block, apart, THURSTONE, precision=0.01)).all()


@each_model
@pytest.mark.parametrize("prior_sd", [np.inf, 1.0])
def test_errors_are_those_of_the_centred_inverse_information(model, prior_sd):
    """Of ratings, and of leads, whose two ratings are not independent."""
    pairs, w, _ = planted([11], model)
    ratings, centred = ESTIMATORS[model](pairs, w, prior_sd=prior_sd), np.eye(11) - 1 / 11
    inverse = np.linalg.pinv(information_matrix(pairs, ratings.rating, model) + np.eye(11) / prior_sd**2)
    np.testing.assert_allclose(ratings.standard_error**2, np.diag(centred @ inverse @ centred), rtol=1e-6)
    found = lead_errors(pairs, ratings, np.array([3]), prior_sd=prior_sd)
    expected = [np.sqrt((np.eye(11)[3] - u) @ inverse @ (np.eye(11)[3] - u)) for u in np.eye(11)]
    np.testing.assert_allclose(found, LINKS[model].elo_per_unit * np.array(expected), rtol=1e-6, atol=1e-9)


@each_model
def test_neither_block_size_nor_company_changes_a_rating(model, monkeypatch):
    pairs, w, _ = planted([5, 30, 2, 11], model)
    together = ESTIMATORS[model](pairs, w)
    for blocks in ("_CELLS", "_CANDIDATES"):
        monkeypatch.setattr(ratings_module, blocks, 1)
    apart = ESTIMATORS[model](pairs, w)
    np.testing.assert_allclose(together.rating, apart.rating, atol=1e-9)
    np.testing.assert_allclose(together.standard_error, apart.standard_error, atol=1e-9)


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 2**32), n=st.integers(2, 12), model=st.sampled_from(list(ESTIMATORS)))
def test_turning_the_pairs_round_or_numbering_anew_changes_nothing(seed, n, model):
    rng = np.random.default_rng(seed)
    pairs = regular_pairs([n], degree=4, keys=rng)
    w = rng.random(len(pairs))
    straight = ESTIMATORS[model](pairs, w)
    turned = ESTIMATORS[model](Pairs(pairs.offsets, pairs.second, pairs.first), 1 - w)
    number = rng.permutation(n)
    renumbered = ESTIMATORS[model](Pairs(pairs.offsets, number[pairs.first], number[pairs.second]), w)
    np.testing.assert_allclose(straight.rating, turned.rating, atol=1e-7)
    np.testing.assert_allclose(straight.rating, renumbered.rating[number], atol=1e-7)
    np.testing.assert_allclose(straight.standard_error, renumbered.standard_error[number], atol=1e-7)
    np.testing.assert_allclose(straight.rating.sum(), 0, atol=1e-7)
    assert (straight.standard_error > 0).all()


class TestDegenerateInput:
    @each_model
    def test_who_always_wins_is_first_and_finite(self, model):
        pairs = all_pairs([5])
        found = ESTIMATORS[model](pairs, np.ones(len(pairs)))  # the smaller number always wins
        assert np.isfinite(found.rating).all()
        assert (np.diff(found.rating) < 0).all()

    @each_model
    def test_without_a_prior_that_is_said(self, model):
        pairs = all_pairs([5, 3])
        w = np.where(pairs.query == 0, 1.0, 0.6)
        with pytest.raises(ConvergenceError, match=r"1 of 2 queries.*prior_sd"):
            ESTIMATORS[model](pairs, w, prior_sd=np.inf)

    @each_model
    @pytest.mark.parametrize("prior_sd", [10.0, np.inf])
    def test_parts_that_never_met_are_told_apart(self, model, prior_sd):
        found = ESTIMATORS[model](Pairs([0, 5], [0, 2], [1, 3]), [0.9, 0.2], prior_sd=prior_sd)
        assert len(set(found.component)) == 3
        assert found.component[0] == found.component[1] != found.component[2] == found.component[3]
        np.testing.assert_allclose([found.rating[:2].sum(), found.rating[2:4].sum()], 0, atol=1e-8)
        assert np.isnan(found.rating[4])
        alone = ESTIMATORS[model](Pairs([0, 2], [0], [1]), [0.9], prior_sd=prior_sd)
        np.testing.assert_allclose(found.standard_error[:2], alone.standard_error, rtol=1e-6)

    @each_model
    @pytest.mark.parametrize(
        ("w", "prior_sd", "said"),
        [([0.5], 0, "prior_sd 0"), ([1.5], 1, "outside"), ([0.5, 0.5], 1, "one for each of 1 pairs")],
    )
    def test_faulty_input_is_refused(self, model, w, prior_sd, said):
        with pytest.raises(InputError, match=said):
            ESTIMATORS[model](all_pairs([2]), w, prior_sd=prior_sd)


@each_model
def test_intervals_cover_planted_ratings(model):
    rng = np.random.default_rng(7)
    once = regular_pairs([20] * 200, degree=6, keys=rng)
    truth = np.random.default_rng(8).normal(0, 0.7, once.candidates)
    truth -= truth.reshape(200, 20).mean(1).repeat(20)
    answers = 4
    pairs = Pairs(once.offsets, once.first.repeat(answers), once.second.repeat(answers))
    outcome = (rng.random(len(pairs)) < CURVE[model](truth[pairs.first] - truth[pairs.second])).astype(float)
    found = ESTIMATORS[model](pairs, outcome)
    covered = np.abs(found.rating - truth) <= 1.96 * found.standard_error
    assert 0.93 < covered.mean() < 0.97
    leader = np.arange(200) * 20
    gap = found.elo[leader].repeat(20) - found.elo
    true_gap = LINKS[model].elo_per_unit * (truth[leader].repeat(20) - truth)
    inside = np.abs(gap - true_gap) <= 1.96 * lead_errors(pairs, found, leader, prior_sd=10.0)
    assert 0.93 < np.delete(inside, leader).mean() < 0.97


def test_the_scale_is_the_papers():
    assert pytest.approx(173.7, abs=0.05) == ELO_PER_LOGIT
    assert pytest.approx(1.702 * 173.7, abs=0.1) == ELO_PER_PROBIT
    assert expected_score(400.0) == pytest.approx(10 / 11)
    assert expected_score([0.0]) == pytest.approx(0.5)


def test_one_game_by_hand():
    # equal ratings: E = 0.5, so a win moves both by K/2
    np.testing.assert_allclose(online_elo(Pairs([0, 2], [0], [1]), [1.0], k_factor=32), [1516, 1484])
    # 32 points ahead, E = 1/(1 + 10^(−.08)): a loss costs 32·E
    found = online_elo(Pairs([0, 2], [0, 0], [1, 1]), [1.0, 0.0], k_factor=32)
    np.testing.assert_allclose(found, [1516 - 32 / (1 + 10**-0.08), 1484 + 32 / (1 + 10**-0.08)])


def test_online_elo_agrees_with_evalica():
    rng = np.random.default_rng(1)
    pairs = regular_pairs([15], degree=6, keys=rng)
    won = rng.random(len(pairs)) < 0.5
    winners = [evalica.Winner.X if win else evalica.Winner.Y for win in won]
    expected = evalica.elo(pairs.first.tolist(), pairs.second.tolist(), winners, initial=1500, k=24).scores.sort_index()
    np.testing.assert_allclose(online_elo(pairs, won, k_factor=24), expected.to_numpy())


def test_queries_do_not_mix_and_missing_judgements_change_nothing():
    pairs = regular_pairs([6, 8], degree=4, keys=np.random.default_rng(2))
    w = np.random.default_rng(3).random(len(pairs))
    w[[0, 5]] = np.nan
    both = online_elo(pairs, w)
    one = pairs.query == 0
    alone = online_elo(Pairs([0, 6], pairs.first[one], pairs.second[one]), w[one])
    np.testing.assert_array_equal(both[:6], alone)
    known = np.isfinite(w)
    np.testing.assert_array_equal(both, online_elo(pairs.where(known), w[known]))


def test_faulty_settings_are_refused():
    pairs = Pairs([0, 2], [0], [1])
    refused("k_factor", online_elo, pairs, [1.0], k_factor=0)
