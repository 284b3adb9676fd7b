"""Is one system better than another? Paired tests over queries, corrected for how many are made; intervals.

The protocol is that of Eclipse (section 4): Shapiro–Wilk on the paired differences; the paired
t-test where they look normal, Wilcoxon's signed-rank test where they do not; Holm–Bonferroni over
the comparisons. Wilcoxon's is about ranks: where differences are skewed it can be sure of the other
sign than the mean has. So each test has the p of the paired randomisation test beside it, which is
about the means whatever the shape, and claims about means rest on that.

Kendall's τ says whether two lists of numbers, such as a predictor and an outcome, order the same
things alike.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
import numpy.typing as npt

from foils.runtime.errors import InputError, check_names

Floats = npt.NDArray[np.float64]
NORMALITY = 0.05  # level of Shapiro–Wilk above which differences count as normal
RESAMPLES = 10_000  # draws of a bootstrap
AT_ONCE = 4_000_000  # numbers drawn at a time


@dataclass(frozen=True)
class PairedTest:
    """One paired comparison of a with b.

    Attributes:
        difference: mean of a − b over the queries.
        test: `t` (paired Student), `wilcoxon` (signed ranks) or `identical` (no query differs; p = 1).
        p: of the test, before any correction.
        p_randomised: two-sided, of the paired randomisation test (`randomisation_p`), for claims
            about the mean.
    """

    difference: float
    test: str
    p: float
    p_randomised: float


@dataclass(frozen=True)
class Comparison:
    """A row of the table of comparisons: a against b under one measure.

    Attributes:
        a: name of the first system.
        b: name of the second.
        measure: which measure.
        difference: mean of a − b over the queries; above 0: a is better.
        low: lower end of the bootstrap interval of the difference.
        high: upper end.
        test: `t`, `wilcoxon` or `identical`.
        p: before correction.
        p_holm: after Holm's correction over all comparisons of the measure.
        p_randomised: of the paired randomisation test, before correction, for claims about the means.
        p_randomised_holm: the same after Holm's correction.
    """

    a: str
    b: str
    measure: str
    difference: float
    low: float
    high: float
    test: str
    p: float
    p_holm: float
    p_randomised: float
    p_randomised_holm: float


def paired_test(
    a: npt.ArrayLike,
    b: npt.ArrayLike,
    *,
    rng: np.random.Generator | None = None,
) -> PairedTest:
    """Test whether two systems differ over the same queries.

    d = a − b. Where Shapiro–Wilk gives p ≥ .05 for three differences or more, not all equal, d is
    taken as normal: paired t-test. Else Wilcoxon's signed-rank test over the queries that differ
    (scipy's). Both are two-sided. Values count as equal within 1e-12 of the largest, so that
    rounding makes no difference.

    Args:
        a: (n,) values of the first system, n ≥ 1.
        b: (n,) values of the second, for the same queries in the same order.
        rng: source of the signs of the randomisation test; None: a generator of seed 0.

    Raises:
        InputError: lengths that differ, no pair, a value that is not finite.

    Source: Eclipse (section 4, metrics); Shapiro and Wilk 1965; Wilcoxon 1945.
    """
    from scipy import stats

    first, second = _finite(a), _finite(b)
    if first.shape != second.shape:
        raise InputError(f"expected a value of each query of both; found shapes {first.shape} and {second.shape}")
    differences = first - second
    mean = float(np.mean(differences))
    exact: Floats = np.round(differences / float(np.abs([first, second]).max() or 1.0), 12)
    if not exact.any():
        return PairedTest(0.0, "identical", 1.0, 1.0)
    signed = randomisation_p(differences, rng=rng or np.random.default_rng(0))
    varied = len(differences) > 2 and bool(np.ptp(exact))
    if varied and float(stats.shapiro(differences).pvalue) >= NORMALITY:
        return PairedTest(mean, "t", float(stats.ttest_rel(first, second).pvalue), signed)
    p = float(stats.wilcoxon(exact[exact != 0]).pvalue)
    return PairedTest(mean, "wilcoxon", p, signed)


def randomisation_p(differences: npt.ArrayLike, *, rng: np.random.Generator, draws: int = 9_999) -> float:
    """Return the two-sided p of Fisher's paired randomisation test: could the signs have fallen otherwise?

    Under no effect each query's difference is as likely with either sign. All 2ⁿ signings are tried
    where they are no more than `draws`; else p = (1 + signings as extreme as what was seen)/(1 +
    draws).

    Args:
        differences: (n,) finite, n ≥ 1; a − b of each query.
        rng: source of the signs.
        draws: how many signings, ≥ 1.

    Raises:
        InputError: no value, or one that is not finite.

    Source: Fisher 1935; Smucker, Allan & Carterette 2007 for retrieval.
    """
    d = _finite(differences)
    n = len(d)
    exact = 2 ** min(n, 62) <= draws
    if exact:
        means = (1 - 2 * ((np.arange(2**n)[:, None] >> np.arange(n)) & 1)) @ d / n
    else:
        block = max(1, AT_ONCE // n)
        sizes = [min(block, draws - done) for done in range(0, draws, block)]
        means = np.concatenate([(d * (1 - 2 * rng.integers(0, 2, (size, n), np.int8))).mean(axis=1) for size in sizes])
    extreme = np.abs(means) >= abs(float(d.mean())) - 1e-12 * float(np.abs(d).max())
    return float(extreme.mean() if exact else (1 + extreme.sum()) / (1 + draws))


def holm(p_values: npt.ArrayLike) -> Floats:
    """Correct p-values for their number, by Holm's step-down method.

    In ascending order p̃_(i) = max_{j ≤ i} min(1, (m − j + 1)·p_(j)), j from 1; given back in the
    order received.

    Args:
        p_values: (m,) in [0, 1]; m may be 0.

    Raises:
        InputError: a value outside [0, 1], or NaN.

    Source: Holm 1979; Eclipse (section 4).
    """
    p = np.asarray(p_values, np.float64)
    if p.ndim != 1 or not np.all((p >= 0) & (p <= 1)):
        raise InputError(f"expected a list of p-values in [0, 1], found {p.tolist()}")
    order = np.argsort(p, kind="stable")
    stepped = np.minimum(1.0, (len(p) - np.arange(len(p))) * p[order])
    corrected = np.empty_like(p)
    corrected[order] = np.maximum.accumulate(stepped)
    return corrected


def bootstrap_interval(values: npt.ArrayLike, *, rng: np.random.Generator) -> tuple[float, float]:
    """Return the 95 % percentile bootstrap interval of per-query values' mean, of 10,000 draws of queries.

    For a difference of two systems, give the differences.

    Args:
        values: (n,) finite, n ≥ 1.
        rng: source of the draws.

    Raises:
        InputError: no value, or a value that is not finite.
    """
    sample = _finite(values)
    if len(sample) == 1:
        return float(sample[0]), float(sample[0])
    from scipy.stats import bootstrap

    how = {"n_resamples": RESAMPLES, "batch": max(1, AT_ONCE // len(sample)), "method": "percentile"}
    interval = bootstrap((sample,), np.mean, rng=rng, **how).confidence_interval
    return float(interval.low), float(interval.high)


def compare_systems(
    systems: Mapping[str, Mapping[str, npt.ArrayLike]],
    *,
    rng: np.random.Generator,
    against: Sequence[str] | None = None,
    pairs: Sequence[tuple[str, str]] = (),
) -> list[Comparison]:
    """Compare systems pair by pair under each measure, with Holm's correction within a measure.

    Args:
        systems: name → measure → (n,) values per query; the same measures and queries for all.
        rng: source of the bootstrap's draws.
        against: compare every other system with each of these as b; None compares all pairs, the
            later one as a.
        pairs: further pairs (a, b) to compare, which the correction counts, too.

    Raises:
        InputError: measures that differ between systems, or what `paired_test` refuses.
        UnknownNameError: an unknown name in `against` or `pairs`.
    """
    measures = list(next(iter(systems.values()), {}))
    other = [name for name, values in systems.items() if list(values) != measures]
    if other:
        raise InputError(f"{', '.join(other)} have other measures than {measures}; measure all by the same")
    check_names("system", [name for pair in pairs for name in pair], list(systems))
    compared = [(a, b) for b, a in combinations(systems, 2)]
    if against is not None:
        check_names("system", against, list(systems))
        compared = [(a, b) for b in against for a in systems if a != b and a not in against[: against.index(b)]]
    compared += pairs
    table: list[Comparison] = []
    signs = rng.spawn(1)[0]  # intervals are the same, whatever is tested
    for measure in measures:
        values = {name: np.asarray(per_measure[measure], np.float64) for name, per_measure in systems.items()}
        tests = [paired_test(values[a], values[b], rng=signs) for a, b in compared]
        corrected = holm([test.p for test in tests])
        of_means = holm([test.p_randomised for test in tests])
        for (a, b), test, p_holm, p_of_means in zip(compared, tests, corrected, of_means, strict=True):
            low, high = bootstrap_interval(values[a] - values[b], rng=rng)
            holms: dict[str, Any] = {"p_holm": float(p_holm), "p_randomised_holm": float(p_of_means)}
            table.append(Comparison(a=a, b=b, measure=measure, low=low, high=high, **holms, **vars(test)))
    return table


def kendall_tau(a: npt.ArrayLike, b: npt.ArrayLike) -> float:
    """Return Kendall's τ-b: (concordant − discordant) / √((n₀ − ties in a)(n₀ − ties in b)), n₀ = n(n − 1)/2.

    Args:
        a: (n,) finite numbers, n ≥ 2.
        b: (n,) finite numbers.

    Returns:
        τ-b in [−1, 1]; NaN where all values of a, or of b, are equal.
    """
    return float(kendall_taus(np.asarray(a, np.float64)[None], np.asarray(b, np.float64)[None])[0])


def kendall_taus(a: Floats, b: Floats) -> Floats:
    """Return (m,) Kendall's τ-b of each row of (m, n) finite numbers with the same row of others."""
    x, y = _signs(a), _signs(b)
    both = np.sqrt(np.count_nonzero(x, axis=(1, 2)) * np.count_nonzero(y, axis=(1, 2)).astype(np.float64))
    return np.asarray(np.divide((x * y).sum(axis=(1, 2)), both, out=np.full(both.shape, np.nan), where=both > 0))


def _signs(values: Floats) -> Floats:
    """(m, n, n) signs of the differences within each row of (m, n) numbers."""
    return np.sign(values[:, :, None] - values[:, None, :])


def _finite(values: npt.ArrayLike) -> Floats:
    sample = np.asarray(values, np.float64)
    if sample.ndim != 1 or not len(sample) or not np.isfinite(sample).all():
        raise InputError(f"values {sample.shape}; expected (n,) finite ones, 0 of an unanswered query")
    return sample
