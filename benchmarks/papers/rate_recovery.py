"""Do ratings find planted ones, and do their intervals cover?

    python benchmarks/run.py rate_recovery

1. Error against degree k and candidates n: each pair judged once yes or no, or by the mean of 5 or 25 answers.
   Theorem 6 says O(√(log n / k)): the error times √k, and over √(log n), should be flat.
2. Share of nominal 95 % intervals that hold the planted rating, by number of answers a pair.
"""

from __future__ import annotations

import numpy as np
from scipy.special import ndtr

from common import argument_parser, save
from foils.rating import Pairs, regular_pairs, thurstone

PRIOR_SD = 10.0
SPREAD = 0.7  # probits, of planted ratings: 207 Elo points


def planted(queries: int, n: int, rng: np.random.Generator) -> np.ndarray:
    truth = rng.normal(0, SPREAD, (queries, n))
    return (truth - truth.mean(1, keepdims=True)).ravel()


def answered(pairs: Pairs, truth: np.ndarray, answers: int, rng: np.random.Generator) -> np.ndarray:
    return rng.binomial(answers, ndtr(truth[pairs.first] - truth[pairs.second])) / answers


def recovery(rng: np.random.Generator) -> list[dict[str, float]]:
    found = []
    for answers in (1, 5, 25):
        for n in (25, 50, 100, 200):
            for k in (4, 6, 10, 16):
                queries = 6000 // n
                pairs, truth = regular_pairs([n] * queries, degree=k, keys=rng), planted(queries, n, rng)
                rating = thurstone(
                    pairs, answered(pairs, truth, answers, rng), prior_sd=PRIOR_SD, standard_errors=False
                ).rating
                error = float(np.sqrt(np.mean((rating - truth) ** 2)))
                found.append(
                    {
                        "answers": answers,
                        "n": n,
                        "k": k,
                        "rmse": error,
                        "rmse_sqrt_k": error * np.sqrt(k),
                        "over_sqrt_log_n": error * np.sqrt(k / np.log(n)),
                    }
                )
    return found


def coverage(rng: np.random.Generator) -> list[dict[str, float]]:
    found = []
    for answers in (1, 2, 4, 8, 16):
        once, truth = regular_pairs([50] * 200, degree=6, keys=rng), planted(200, 50, rng)
        pairs = Pairs(once.offsets, once.first.repeat(answers), once.second.repeat(answers))
        ratings = thurstone(pairs, answered(pairs, truth, 1, rng), prior_sd=PRIOR_SD)
        inside = np.abs(ratings.rating - truth) <= 1.96 * ratings.standard_error
        found.append({"answers": answers, "coverage": float(inside.mean())})
    return found


def main() -> None:
    parser = argument_parser(__doc__)
    parser.parse_args()
    found = {
        "Recovery": recovery(np.random.default_rng(0)),
        "Coverage of intervals": coverage(np.random.default_rng(3)),
    }
    save("rate_recovery", {}, found)
