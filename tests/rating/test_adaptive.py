import numpy as np
from scipy.special import ndtr
from scipy.stats import kendalltau

from foils.rating import Pairs, ask_adaptively, informative_pairs, regular_pairs, thurstone
from foils.rating.estimators import THURSTONE
from foils.selection import information
from foils.statistics.elo_scale import ELO_PER_PROBIT


def full_covariance(pairs, rating, prior_sd):
    n = len(rating)
    lead = rating[pairs.first] - rating[pairs.second]
    c = THURSTONE.information(lead)
    matrix = np.eye(n) / prior_sd**2
    for i, j, weight in zip(pairs.first, pairs.second, c, strict=True):
        matrix[[i, j], [i, j]] += weight
        matrix[[i, j], [j, i]] -= weight
    return np.linalg.inv(matrix)


def test_each_choice_is_the_best_pair_given_those_before_it():
    rng = np.random.default_rng(0)
    asked = regular_pairs([9], degree=2, keys=rng)
    ratings = thurstone(asked, rng.random(len(asked)))
    more = informative_pairs(asked, ratings, budget=5)
    known = {frozenset(pair) for pair in zip(asked.first.tolist(), asked.second.tolist(), strict=True)}
    pairs, bits = asked, lambda i, j: information(ELO_PER_PROBIT * (ratings.rating[i] - ratings.rating[j]))
    for i, j in zip(more.first.tolist(), more.second.tolist(), strict=True):
        covariance = full_covariance(pairs, ratings.rating, 10.0)
        worth = {
            (a, b): bits(a, b) * (covariance[a, a] + covariance[b, b] - 2 * covariance[a, b])
            for a in range(9)
            for b in range(a + 1, 9)
            if frozenset((a, b)) not in known
        }
        assert (i, j) == max(worth, key=worth.get)
        known.add(frozenset((i, j)))
        pairs = Pairs.of_one(9, [*pairs.first, i], [*pairs.second, j])


def test_no_pair_is_asked_twice_and_each_query_gets_its_budget():
    asked = regular_pairs([8, 3, 12, 1, 0], degree=2, keys=np.random.default_rng(1))
    ratings = thurstone(asked, np.full(len(asked), 0.6))
    more = informative_pairs(asked, ratings, budget=[4, 9, 2, 3, 1])
    np.testing.assert_array_equal(np.diff(more.pair_offsets), [4, 0, 2, 0, 0])  # three candidates had all pairs
    both, _ = asked.joined(more)
    ends = np.sort(np.stack([both.first, both.second], 1), axis=1)
    assert len(np.unique(ends, axis=0)) == len(both)


def noisy(truth, answers, seed):
    rng = np.random.default_rng(seed)
    return lambda pairs: rng.binomial(answers, ndtr(truth[pairs.first] - truth[pairs.second])) / answers


def adaptively(sizes, ask, *, degree=6, rounds=2, choice_sd=1.0, seed=3):
    start = regular_pairs(sizes, degree=2, keys=np.random.default_rng(seed))
    goal = start.sizes * degree // 2
    return ask_adaptively(start, ask, goal=goal, rounds=rounds, choice_sd=choice_sd)


def test_it_spends_as_much_as_the_random_graph_and_orders_better():
    sizes = [30] * 60
    truth = np.random.default_rng(2).normal(size=1800)
    pairs = regular_pairs(sizes, degree=6, keys=np.random.default_rng(3))
    random = thurstone(pairs, noisy(truth, 5, 4)(pairs)).rating
    spent, preference = adaptively(sizes, noisy(truth, 5, 4))
    assert len(spent) == len(pairs) == len(preference)

    def agreement(found):
        return np.mean(
            [kendalltau(a, b).statistic for a, b in zip(found.reshape(60, 30), truth.reshape(60, 30), strict=True)]
        )

    assert agreement(thurstone(spent, preference).rating) > agreement(random) + 0.005


def test_more_rounds_choose_otherwise_and_missing_answers_are_borne():
    truth = np.random.default_rng(7).normal(size=16)

    def ask(pairs):
        found = ndtr(truth[pairs.first] - truth[pairs.second])
        found[::5] = np.nan
        return found

    one, three, loose = (adaptively([16], ask, rounds=r, choice_sd=sd) for r, sd in ((1, 1.0), (3, 1.0), (1, 10.0)))
    chosen = [set(zip(pairs.first, pairs.second, strict=True)) for pairs, _ in (one, three, loose)]
    assert chosen[0] != chosen[1]
    assert chosen[0] != chosen[2]
    assert np.isfinite(thurstone(*three).rating).all()
