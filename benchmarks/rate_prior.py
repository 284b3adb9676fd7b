"""How well are planted ratings found, by votes, noise, degree and prior?

    python benchmarks/rate_prior.py [--json benchmarks/results/rate_prior.json]

40 queries of n candidates whose ratings are normal with a standard deviation of `spread` probits; a pair is judged by
1, 2, 5 or 25 yes-or-no votes, or by fractions: exactly, or with normal noise of 0.5 probits in the lead. Five seeds.
For each prior: root mean squared error over that of the best fixed prior of eight, and how much of the nominal 95 %
intervals holds the planted rating. Then a judge that always prefers the better one, yes or no: the mean width of a
query's ratings, in Elo points.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np
from scipy.special import ndtr, ndtri

from foils.rating import ELO_PER_PROBIT, Spread, refined, regular_pairs, spread_of, thurstone

SEEDS, QUERIES = 5, 40
FIXED = (0.35, 0.5, 0.7, 1.0, 1.4, 2.0, 4.0, 10.0)
ANSWERS = ("1 vote", "2 votes", "5 votes", "25 votes", "fractions", "noisy fractions", "always right")


def answered(kind: str, lead: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    p = ndtr(lead)
    if kind == "always right":
        return (lead > 0).astype(float)
    if kind == "fractions":
        return p
    if kind == "noisy fractions":
        return ndtr(ndtri(np.clip(p, 1e-12, 1 - 1e-12)) + rng.normal(0, 0.5, len(p)))
    votes = int(kind.split()[0])
    return rng.binomial(votes, p) / votes


def measured(kind: str, spread: float, n: int, degree: int, seed: int) -> dict[str, dict[str, float]]:
    rng = np.random.default_rng([seed, n, degree, round(100 * spread)])
    truth = rng.normal(0, spread, (QUERIES, n))
    truth = (truth - truth.mean(1, keepdims=True)).ravel()
    pairs = regular_pairs([n] * QUERIES, degree=degree, rng=rng)
    w = answered(kind, truth[pairs.first] - truth[pairs.second], rng)
    fitting = refined(pairs, w, spread_of(pairs, w))
    found = {}
    for name, given in {"auto": fitting, **{str(sd): Spread(sd) for sd in FIXED}}.items():
        ratings = thurstone(pairs, w, prior_sd=given.prior_sd).scaled_errors(given.dispersion**0.5)
        found[name] = {
            "rmse": float(np.sqrt(np.mean((ratings.rating - truth) ** 2))),
            "coverage": float((np.abs(ratings.rating - truth) <= 1.96 * ratings.standard_error).mean()),
            "width": float(np.ptp(ratings.elo.reshape(QUERIES, n), axis=1).mean()),
        }
    found["auto"] |= {"spread": fitting.sd, "dispersion": fitting.dispersion}
    return found


def row(kind: str, spread: float, n: int, degree: int) -> dict[str, object]:
    runs = [measured(kind, spread, n, degree, seed) for seed in range(SEEDS)]
    mean = {
        prior: {key: round(float(np.mean([run[prior][key] for run in runs])), 4) for key in runs[0][prior]}
        for prior in runs[0]
    }
    best = min(FIXED, key=lambda sd: mean[str(sd)]["rmse"])
    return {"answers": kind, "spread": spread, "n": n, "degree": degree, "best": best, "priors": mean}


def described(found: dict[str, object]) -> str:
    priors = found["priors"]
    auto, best, ten = priors["auto"], priors[str(found["best"])], priors["10.0"]
    facts = [
        f"{found['answers']:16} spread {found['spread']} n {found['n']} degree {found['degree']}: rmse",
        f"auto {auto['rmse']:.2f}, best fixed {best['rmse']:.2f} ({found['best']}), 10 {ten['rmse']:.2f};",
        f"spread {auto['spread']:.2f}, dispersion {auto['dispersion']:.2f}, coverage {auto['coverage']:.2f}",
        f"(10: {ten['coverage']:.2f}), width {auto['width']:.0f} Elo (10: {ten['width']:.0f})",
    ]
    return " ".join(facts)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path, default=Path("benchmarks/results/rate_prior.json"))
    options = parser.parse_args()
    rows = []
    for kind in ANSWERS:
        for spread in (0.35, 0.7, 1.4):
            for n, degree in ((30, 2), (30, 6), (100, 6)):
                rows.append(row(kind, spread, n, degree))
                print(described(rows[-1]), flush=True)
    facts = {"seeds": SEEDS, "queries": QUERIES, "elo_per_probit": ELO_PER_PROBIT, "rows": rows}
    options.json.parent.mkdir(parents=True, exist_ok=True)
    options.json.write_text(json.dumps(facts, indent=1) + "\n")


if __name__ == "__main__":
    main()
