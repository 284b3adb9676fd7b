"""A bias of position fitted with the ratings, and errors of answers that come from the same few lists."""

import numpy as np
import pytest
from scipy.optimize import approx_fprime, minimize
from scipy.special import expit, log_expit, log_ndtr, ndtr

from foils.rating import Judgements, Pairs, bradley_terry, regular_pairs, thurstone
from foils.rating.estimators import order_biased
from foils.rating.fitting import fit_ratings, moment
from foils.rating.pairs import Showings
from foils.statistics.elo_scale import ELO_PER_PROBIT

LOG = {"thurstone": log_ndtr, "bradley-terry": log_expit}


def planted(queries: int, n: int, degree: int, seed: int, sd: float = 0.7):
    rng = np.random.default_rng(seed)
    truth = rng.normal(0, sd, (queries, n))
    return rng, truth, regular_pairs([n] * queries, degree=degree, keys=rng)


@pytest.mark.parametrize("model", ["thurstone", "bradley-terry"])
def test_ratings_and_bias_are_the_maximum_that_a_general_optimiser_finds(model):
    """The likelihood in a plain formula; its gradient there, by finite differences, is 0."""
    rng, truth, pairs = planted(2, 6, 4, seed=3)
    lead = truth.ravel()[pairs.first] - truth.ravel()[pairs.second]
    f, b = rng.beta(*np.array([ndtr(lead + 0.6), ndtr(-lead - 0.6)]) * 5), rng.uniform(0.4, 0.9, len(pairs))
    f = np.clip(f, 0.02, 0.98)
    log, prior = LOG[model], 1.3

    def loss(x):
        e, beta = x[:-1], x[-1]
        lead = e[pairs.first] - e[pairs.second]
        total = f @ log(lead + beta) + (1 - f) @ log(-lead - beta)
        total += b @ log(-lead + beta) + (1 - b) @ log(lead - beta)
        return -total / 2 + e @ e / (2 * prior**2) + beta**2 / (2 * 10.0**2)

    found = order_biased(pairs, Judgements(f, b), model=model, prior_sd=prior)
    at = np.append(found.rating, found.order_bias)
    best = minimize(loss, np.zeros(13), method="BFGS", options={"gtol": 1e-9})
    np.testing.assert_allclose(at, best.x, atol=2e-4)
    assert np.abs(approx_fprime(at, loss, 1e-6)).max() < 2e-3
    curvature = (
        loss(at + 1e-3 * (np.arange(13) == 12)) + loss(at - 1e-3 * (np.arange(13) == 12)) - 2 * loss(at)
    ) / 1e-6
    assert found.order_bias_error == pytest.approx(curvature**-0.5, rel=1e-2)


@pytest.mark.parametrize(("model", "estimator"), [("thurstone", thurstone), ("bradley-terry", bradley_terry)])
def test_answers_of_which_both_orders_agree_have_no_bias(model, estimator):
    _, truth, pairs = planted(3, 6, 4, seed=1)
    w = expit(truth.ravel()[pairs.first] - truth.ravel()[pairs.second])
    found = order_biased(pairs, Judgements(w, 1 - w), model=model, prior_sd=2.0)
    expected = estimator(pairs, w, prior_sd=2.0)
    assert (found.order_bias, found.distances) == (0.0, (1.0,))
    np.testing.assert_allclose(found.rating, expected.rating, atol=1e-9)
    np.testing.assert_allclose(found.standard_error, expected.standard_error, atol=1e-9)


def test_the_moment_is_that_of_simulated_answers():
    """Two pairs that share a candidate, each asked once in both orders by who adds β to what is shown first."""
    rng, sd, beta, draws = np.random.default_rng(0), 0.9, 0.8, 400_000
    e = rng.normal(0, sd, (3, draws))
    votes = [
        ((ndtr(e[0] - e[j] + beta) > rng.random(draws)) + 1.0 - (ndtr(e[j] - e[0] + beta) > rng.random(draws))) / 2
        for j in (1, 2)
    ]
    h, rho = beta / np.sqrt(1 + 2 * sd**2), sd**2 / (1 + 2 * sd**2)
    product = (votes[0] - 0.5) * (votes[1] - 0.5)
    assert float(moment(np.array(rho), h)) == pytest.approx(product.mean(), abs=4 * product.std() / draws**0.5)


def slope_and_coverage(fit, truth, n):
    """Of gaps to the last candidate of each query, in Elo points."""
    last = np.arange(len(truth)) * n + n - 1
    gap, true = fit.gaps(last), (np.repeat(truth.ravel()[last], n) - truth.ravel()) * ELO_PER_PROBIT
    error, others = fit.gap_errors(last, gap), np.arange(truth.size) % n < n - 1
    inside = np.abs(gap - true)[others] < 1.96 * error[others]
    return float(np.polyfit(true[others], gap[others], 1)[0]), float(inside.mean()), float(np.median(error[others]))


def asked(beta: float, votes: int, degree: int, seed: int = 0):
    rng, truth, pairs = planted(100, 20, degree, seed)
    lead = truth.ravel()[pairs.first] - truth.ravel()[pairs.second]
    f, b = ndtr(lead + beta), ndtr(-lead + beta)
    if votes:
        f, b = (rng.binomial(votes, p) / votes for p in (f, b))
    return pairs, Judgements(f, b), truth


@pytest.mark.parametrize(("votes", "degree"), [(1, 4), (1, 6), (1, 12), (2, 4), (4, 18), (0, 4), (0, 12)])
def test_a_bias_of_position_neither_flattens_gaps_nor_spoils_their_errors(votes, degree):
    """Biases of 0, .14, .26 and .31: slopes within 10 % of the unbiased one, intervals of 95 % cover 90 % and more."""
    unbiased = None
    for beta in (0.0, 0.5, 1.0, 1.2):
        pairs, answers, truth = asked(beta, votes, degree)
        fit = fit_ratings(pairs, answers)
        slope, coverage, _ = slope_and_coverage(fit, truth, 20)
        unbiased = slope if unbiased is None else unbiased
        assert slope == pytest.approx(unbiased, rel=0.1)
        assert coverage >= 0.9
        assert fit.ratings.order_bias == pytest.approx(beta, rel=0.12, abs=0.06)


def lists(degree: int, a_place: float, showings: int = 4, seed: int = 0, of=None):
    """A judge that sorts by worth plus noise, less `a_place` for each place that a document stands behind."""
    rng, truth, pairs = planted(100, 20, degree, seed)
    if of is not None:  # another judge of the same candidates
        truth, pairs = of
    shown, came = np.empty((2, showings, truth.size))
    for query, worth in enumerate(truth):
        at = slice(20 * query, 20 * query + 20)
        for turn in range(0, showings, 2):
            drawn = rng.permutation(20)
            for showing, places in ((turn, drawn), (turn + 1, 19 - drawn)):
                seen = worth + rng.normal(0, 0.5**0.5, 20) - a_place * places
                shown[showing, at], came[showing, at] = places, np.argsort(np.argsort(-seen))
    wins = (came[:, pairs.first] < came[:, pairs.second]).astype(float)
    found = Showings(wins, shown[:, pairs.second] - shown[:, pairs.first])
    first = found.ahead > 0
    f, b = (np.where(which, value, 0).sum(0) / which.sum(0) for which, value in ((first, wins), (~first, 1 - wins)))
    return pairs, Judgements(f, b), found, truth


@pytest.mark.parametrize("a_place", [0.0, 0.1])
def test_errors_of_lists_come_from_the_showings_and_more_pairs_claim_nothing(a_place):
    """Four showings of twenty documents: coverage of 90 % and more whatever the degree, also where places count."""
    slopes, errors = [], []
    for degree in (4, 6, 12, 18):
        pairs, answers, found, truth = lists(degree, a_place)
        slope, coverage, error = slope_and_coverage(fit_ratings(pairs, found), truth, 20)
        assert coverage >= 0.9
        slopes.append(slope)
        errors.append(error)
    independent = slope_and_coverage(fit_ratings(pairs, answers), truth, 20)
    assert independent[1] < 0.8, "what counting each pair as an answer of its own gives"
    assert errors[-1] > 0.9 * errors[2] > 0.75 * errors[0]
    assert min(slopes) > 0.6


@pytest.mark.parametrize("degree", [4, 6, 12])
def test_slopes_of_lists_do_not_fall_with_the_bias(degree):
    """Biases of .1, .18 and .25: slopes, the means of three draws, within 10 % of the unbiased one."""

    def measured(a_place: float):
        draws = (lists(degree, a_place, seed=seed) for seed in range(3))
        return np.mean([slope_and_coverage(fit_ratings(p, s), truth, 20) for p, _, s, truth in draws], 0)

    unbiased = measured(0.0)[0]
    for a_place in (0.05, 0.1, 0.15):
        slope, coverage, _ = measured(a_place)
        assert slope == pytest.approx(unbiased, rel=0.1)
        assert coverage >= 0.9


@pytest.mark.parametrize("other", ["lists", "votes", "probabilities"])
@pytest.mark.parametrize(("a_place", "beta"), [(0.0, 0.0), (0.1, 0.5), (0.15, 1.2)])
def test_errors_of_an_ensemble_with_lists_come_from_the_showings_of_all(other, a_place, beta):
    for degree in (4, 18):
        pairs, _, shown, truth = lists(degree, a_place)
        if other == "lists":
            _, _, found, _ = lists(degree, a_place, seed=1, of=(truth, pairs))
        else:
            lead, rng = truth.ravel()[pairs.first] - truth.ravel()[pairs.second], np.random.default_rng(1)
            f, b = ndtr(lead + beta), ndtr(-lead + beta)
            if other == "votes":
                f, b = ((rng.random(len(p)) < p).astype(float) for p in (f, b))
            found = Judgements(f, b)
        every = Showings.of_judges([shown, found])
        slope, coverage, _ = slope_and_coverage(fit_ratings(pairs, every), truth, 20)
        assert coverage >= 0.9
        assert slope > 0.7


def test_no_answer_is_no_rating():
    pairs = Pairs([0, 2], [0], [1])
    fit = fit_ratings(pairs, Judgements(np.array([np.nan]), np.array([0.5])))
    assert np.isnan(fit.ratings.rating).all()
