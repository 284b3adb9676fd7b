"""The prior that fits the answers: planted spreads and noise are found, and ratings with it are near the best."""

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.special import ndtr
from scipy.stats import multivariate_normal, norm

from foils.rating import Candidates, Judgements, Pairs, Rated, Spread, refined, regular_pairs, spread_of, thurstone
from foils.rating.fitting import MOST, WEAKEST, order_noise, shared_correlation
from foils.rating.pairs import Floats
from foils.statistics.elo_scale import ELO_PER_PROBIT
from judging import listed, numbers, rate_negatives


def by_residuals(pairs: Pairs, w: Floats, spread: Spread) -> Spread:
    """The spread that ratings by Thurstone's model refine."""
    return refined(pairs, w, spread, lambda sd: thurstone(pairs, w, prior_sd=sd, standard_errors=False))


def planted(sd: float, *, n: int = 30, queries: int = 40, degree: int = 6, seed: int = 0) -> tuple[Pairs, Floats]:
    rng = np.random.default_rng(seed)
    truth = rng.normal(0, sd, (queries, n))
    return regular_pairs([n] * queries, degree=degree, keys=rng), (truth - truth.mean(1, keepdims=True)).ravel()


def answers(pairs: Pairs, truth: Floats, votes: int, seed: int = 1) -> Floats:
    p = ndtr(truth[pairs.first] - truth[pairs.second])
    return np.asarray(np.random.default_rng(seed).binomial(votes, p) / votes if votes else p)


@pytest.mark.parametrize("sd", [0.3, 1.0, 1.7])
def test_the_moments_are_those_of_the_model(sd):
    """By integration over the shared candidate's e: it beats another, N(0, s²), with the chance Φ(e/√(1 + s²))."""
    beats = lambda e: (ndtr(e / np.sqrt(1 + sd**2)) - 0.5) ** 2 * norm.pdf(e, 0, sd)  # noqa: E731
    correlation = float(shared_correlation(np.array(sd)))
    assert quad(beats, -9 * sd, 9 * sd)[0] == pytest.approx(np.arcsin(correlation) / (2 * np.pi), rel=1e-6)
    orthant = multivariate_normal.cdf([0, 0], cov=[[1, correlation], [correlation, 1]])
    assert orthant == pytest.approx(0.25 + np.arcsin(correlation) / (2 * np.pi), abs=1e-4)
    spreads = lambda d: ndtr(d) * ndtr(-d) * norm.pdf(d, 0, np.sqrt(2) * sd)  # noqa: E731
    held = 0.25 - np.arcsin(2 * correlation) / (2 * np.pi)
    assert quad(spreads, -40, 40, points=[0], limit=200)[0] == pytest.approx(held, rel=1e-5)


@pytest.mark.parametrize("sd", [0.35, 0.7, 1.4])
@pytest.mark.parametrize("votes", [1, 2, 5])
def test_planted_spread_and_dispersion_are_found(sd, votes):
    pairs, truth = planted(sd)
    w = answers(pairs, truth, votes)
    spread = by_residuals(pairs, w, spread_of(pairs, w))
    assert spread.sd == pytest.approx(sd, rel=0.2)
    assert spread.dispersion == pytest.approx(1 / votes, rel=0.25)
    assert votes > 1 or spread.dispersion == 1


@pytest.mark.parametrize("degree", [2, 6])
@pytest.mark.parametrize("votes", [1, 2, 25])
def test_ratings_are_near_the_best_that_any_prior_gives_and_errors_cover(degree, votes):
    pairs, truth = planted(0.7, degree=degree)
    w = answers(pairs, truth, votes)
    spread = by_residuals(pairs, w, spread_of(pairs, w))
    fitted = thurstone(pairs, w, prior_sd=spread.prior_sd)

    def error(prior_sd: float) -> float:
        rating = thurstone(pairs, w, prior_sd=prior_sd, standard_errors=False).rating
        return float(np.sqrt(np.mean((rating - truth) ** 2)))

    assert error(spread.prior_sd) < 1.06 * min(error(tried) for tried in (0.35, 0.5, 0.7, 1.0, 1.4, 2.0, 4.0, 10.0))
    inside = np.abs(fitted.rating - truth) < 1.96 * spread.dispersion**0.5 * fitted.standard_error
    assert 0.88 < inside.mean() < 0.98
    if votes < 25:
        assert error(spread.prior_sd) < 0.6 * error(10.0)


def test_answers_without_noise_get_the_weakest_prior():
    pairs, truth = planted(0.7, queries=3)
    w = answers(pairs, truth, 0)
    spread = by_residuals(pairs, w, spread_of(pairs, w))
    assert spread.prior_sd == pytest.approx(WEAKEST)
    np.testing.assert_allclose(thurstone(pairs, w, prior_sd=spread.prior_sd).rating, truth, atol=0.08)


def test_yes_or_no_answers_that_never_contradict_each_other_do_not_run_away():
    pairs, truth = planted(0.7)
    w = (truth[pairs.first] > truth[pairs.second]).astype(float)
    spread = by_residuals(pairs, w, spread_of(pairs, w))
    assert 1.7 < spread.sd < MOST
    assert spread.dispersion == 1
    widths = [np.ptp(thurstone(pairs, w, prior_sd=sd).elo.reshape(40, 30), axis=1).mean() for sd in (spread.sd, 10.0)]
    assert widths[0] < 0.5 * widths[1]


def test_where_no_candidate_has_two_answers_the_spread_is_the_belief_s():
    pairs = Pairs([0, 4], [0, 2], [1, 3])
    for w in ([1.0, 0.0], [np.nan, 1.0], [np.nan, np.nan]):
        assert spread_of(pairs, w).sd == pytest.approx(0.66, abs=0.01)  # of the log-normal belief, cut at 2 probits
    assert by_residuals(pairs, np.array([1.0, 0.0]), Spread(1.0)) == Spread(1.0)


class PlantedJudge:
    """Answers by planted levels (the documents' texts, in probits), each order with noise of its own."""

    name, fingerprint, antisymmetric = "planted", "planted", False

    def __init__(self, *, noise: float = 0.0, votes: int = 0) -> None:
        self.noise, self.votes, self.rng = noise, votes, np.random.default_rng(5)

    def judge(self, candidates: Candidates, pairs: Pairs) -> Floats:
        one, other = (np.array(candidates.texts(rows), float) for rows in (pairs.first, pairs.second))
        p = ndtr(one - other + 0.2 * bool(self.noise) + self.noise * self.rng.normal(size=len(one)))
        return np.asarray(self.rng.binomial(self.votes, p) / self.votes if self.votes else p)


def rated_world(sd: float, judge: PlantedJudge, **settings: object) -> tuple[Rated, Floats, Floats]:
    """Twenty queries with twenty negatives and a positive: what was rated, its gaps and the planted ones, in Elo."""
    level = np.random.default_rng(1).normal(0, sd, (20, 21))
    qrels = {"train": {f"q{q}": {f"d{q}-20": 1} for q in range(20)}}
    collection = numbers({f"d{q}-{i}": level[q, i] for q in range(20) for i in range(21)}, 20, qrels)
    rows = listed([(f"q{q}", f"d{q}-{i}") for q in range(20) for i in range(20)])
    rated = rate_negatives(collection, rows, judge, accept_judge=True, **settings)  # positives are like the others
    gap = ELO_PER_PROBIT * (level[:, 20:] - level[:, :20]).ravel()
    return rated, rated.table["gap"].to_numpy()[:400], gap


def test_the_prior_is_that_of_the_planted_ratings():
    rated, _, planted_gap = rated_world(0.7, PlantedJudge(votes=1))
    assert rated.summary["spread"] == pytest.approx(207, rel=0.3)
    gap, error = (rated.table[name].to_numpy()[:400] for name in ("gap", "gap_se"))
    assert (np.abs(gap - planted_gap) < 1.96 * error).mean() > 0.85


@pytest.mark.parametrize(("sd", "noise"), [(0.7, 0.7), (1.2, 0.7), (1.2, 0.3)])
def test_errors_of_gaps_from_fractional_answers_cover(sd, noise):
    """The orders disagree by the noise, which also draws gaps towards 0."""
    rated, gap, planted_gap = rated_world(sd, PlantedJudge(noise=noise))
    error = rated.table["gap_se"].to_numpy()[:400]
    assert (np.abs(gap - planted_gap) < 1.96 * error).mean() >= 0.92
    assert np.abs(gap).mean() < np.abs(planted_gap).mean()


def test_orders_that_agree_or_say_yes_or_no_add_no_error():
    half = np.full(50, 0.5)
    for forward in (np.linspace(0.1, 0.9, 50), np.repeat([0.0, 1.0], 25)):
        assert order_noise(Judgements(forward, 1 - forward), half, 0.1, 0 * half) == (1.0, 1.0)
