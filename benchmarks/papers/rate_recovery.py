"""Do ratings find planted ones, do their intervals cover, and what does choosing the pairs bring?

    python benchmarks/run.py rate_recovery

1. Error against degree k and candidates n: each pair judged once yes or no, or by the mean of 5 or 25 answers.
   Theorem 6 says O(√(log n / k)): the error times √k, and over √(log n), should be flat.
2. Share of nominal 95 % intervals that hold the planted rating, by number of answers a pair.
3. Random regular graph against pairs chosen in rounds, at the same number of comparisons: error, Kendall's τ, and the
   share of the ten best candidates found.
"""

from __future__ import annotations

import argparse

import numpy as np
from scipy.special import ndtr
from scipy.stats import kendalltau

from common import save
from foils.rating import Pairs, ask_adaptively, regular_pairs, thurstone

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


def adaptive() -> list[dict[str, float]]:
    found = []
    for answers in (1, 5, 25):
        for k in (4, 6, 10):
            sizes, truth = [50] * 100, planted(100, 50, np.random.default_rng(1))
            for rounds in (0, 1, 2, 4):
                rng = np.random.default_rng(2)
                ask = lambda pairs, rng=rng, truth=truth, answers=answers: answered(pairs, truth, answers, rng)  # noqa: E731
                pairs = regular_pairs(sizes, degree=2 if rounds else k, keys=rng)
                asked = ask_adaptively(pairs, ask, goal=25 * k, rounds=rounds) if rounds else (pairs, ask(pairs))
                ratings = thurstone(*asked, prior_sd=PRIOR_SD)
                found.append({"answers": answers, "k": k, "rounds": rounds, **quality(ratings.rating, truth)})
    return found


def quality(rating: np.ndarray, truth: np.ndarray) -> dict[str, float]:
    both = list(zip(rating.reshape(-1, 50), truth.reshape(-1, 50), strict=True))
    best = [len(set(np.argsort(-a)[:10]) & set(np.argsort(-b)[:10])) / 10 for a, b in both]
    return {
        "rmse": float(np.sqrt(np.mean((rating - truth) ** 2))),
        "tau": float(np.mean([kendalltau(a, b).statistic for a, b in both])),
        "best_ten": float(np.mean(best)),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.parse_args()
    rows = recovery(np.random.default_rng(0))
    result = {
        "recovery": rows,
        "coverage": coverage(np.random.default_rng(3)),
        "adaptive": adaptive(),
    }
    shown = {"Recovery": "recovery", "Coverage of intervals": "coverage", "Chosen pairs": "adaptive"}
    save("rate_recovery", {}, {caption: result[name] for caption, name in shown.items()})


if __name__ == "__main__":
    main()
