"""How fast are ratings, against choix and evalica on the same judgements?

    python benchmarks/run.py rate [--queries 10000] [--candidates 100] [--degree 6]

1. Yes-or-no judgements under a Gaussian prior: `bradley_terry` against choix.opt_pairwise (which has that prior).
2. Fractional judgements without a prior: `bradley_terry` against evalica.bradley_terry (each fraction as two weighted
   outcomes; the index is made beforehand).
3. All queries with `bradley_terry` and `thurstone`, with and without standard errors, and the graphs themselves.

Peers are timed on the first queries; their ratings must be ours.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable

import choix
import evalica
import numpy as np
from scipy.special import expit

from common import argument_parser, save
from foils.rating import Pairs, bradley_terry, regular_pairs, thurstone

PRIOR_SD = 3.0


def timed(work: Callable[[], object]) -> tuple[float, object]:
    start = time.perf_counter()
    result = work()
    return time.perf_counter() - start, result


def of_query(pairs: Pairs, values: np.ndarray, query: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    part = slice(pairs.pair_offsets[query], pairs.pair_offsets[query + 1])
    start = pairs.offsets[query]
    return pairs.first[part] - start, pairs.second[part] - start, values[part]


def choix_ratings(pairs, won, queries):
    n = int(pairs.sizes[0])
    found = []
    data = []
    for query in range(queries):
        first, second, outcome = of_query(pairs, won, query)
        data.append(
            [(int(a), int(b)) if win else (int(b), int(a)) for a, b, win in zip(first, second, outcome, strict=True)]
        )

    def work():
        for games in data:
            found.append(choix.opt_pairwise(n, games, alpha=1 / (2 * PRIOR_SD**2)))

    seconds, _ = timed(work)
    ratings = np.array(found)
    return seconds / queries, (ratings - ratings.mean(1, keepdims=True)).ravel()


def evalica_ratings(pairs, preference, queries):
    prepared = []
    for query in range(queries):
        first, second, w = of_query(pairs, preference, query)
        xs, ys = np.concatenate([first, first]).tolist(), np.concatenate([second, second]).tolist()
        winners = [evalica.Winner.X] * len(w) + [evalica.Winner.Y] * len(w)
        prepared.append((xs, ys, winners, np.concatenate([w, 1 - w]).tolist(), evalica.indexing(xs, ys)[2]))
    results = []

    def work():
        for xs, ys, winners, weights, index in prepared:
            results.append(evalica.bradley_terry(xs, ys, winners, index=index, weights=weights))

    seconds, _ = timed(work)
    ratings = np.log(np.array([result.scores.sort_index().to_numpy() for result in results]))
    return (
        seconds / queries,
        (ratings - ratings.mean(1, keepdims=True)).ravel(),
        np.mean([r.iterations for r in results]),
    )


def main() -> None:
    parser = argument_parser(__doc__)
    parser.add_argument("--queries", type=int, default=10_000)
    parser.add_argument("--candidates", type=int, default=100)
    parser.add_argument("--degree", type=int, default=6)
    options = parser.parse_args()
    rng = np.random.default_rng(0)
    graph_seconds, pairs = timed(
        lambda: regular_pairs([options.candidates] * options.queries, degree=options.degree, keys=rng)
    )
    truth = rng.normal(0, 1, pairs.candidates)
    preference = expit(truth[pairs.first] - truth[pairs.second] + rng.normal(0, 0.3, len(pairs)))
    won = (rng.random(len(pairs)) < preference).astype(float)
    pairs.query, pairs.pair_offsets  # noqa: B018  made once, for all

    def ours(outcomes, prior_sd, *, estimator=bradley_terry, errors=False):
        seconds, found = timed(lambda: estimator(pairs, outcomes, prior_sd=prior_sd, standard_errors=errors))
        return seconds / options.queries, found.rating

    one, hard = ours(won, PRIOR_SD)
    two, soft = ours(preference, np.inf)
    result = {
        "candidates": options.candidates, "degree": options.degree, "queries": options.queries,
        "threads": os.environ.get("OMP_NUM_THREADS"), "graphs_seconds": graph_seconds,
        "bradley_terry_with_prior_ms": 1e3 * one, "bradley_terry_fractional_ms": 1e3 * two,
    }  # fmt: skip
    seconds, ratings = choix_ratings(pairs, won, 20)
    result |= {
        "choix_ms": 1e3 * seconds, "choix_ratio": seconds / one,
        "choix_largest_difference": float(np.abs(ratings - hard[: len(ratings)]).max()),
    }  # fmt: skip
    seconds, ratings, iterations = evalica_ratings(pairs, preference, 300)
    result |= {
        "evalica_ms": 1e3 * seconds, "evalica_ratio": seconds / two, "evalica_iterations": float(iterations),
        "evalica_largest_difference": float(np.abs(ratings - soft[: len(ratings)]).max()),
    }  # fmt: skip
    for estimator in (bradley_terry, thurstone):
        for errors in (False, True):
            seconds, _ = ours(preference, 10.0, estimator=estimator, errors=errors)
            name = f"{estimator.__name__}{'_with_errors' if errors else ''}"
            result[f"{name}_seconds_for_all"] = seconds * options.queries
    result["evalica_ratio_with_errors"] = result["evalica_ms"] / (
        1e3 * result["bradley_terry_with_errors_seconds_for_all"] / options.queries
    )
    save("rate", result, {"": [{"": name, "measured": value} for name, value in result.items()]})
