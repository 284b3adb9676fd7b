"""The tests behind the tables: ways of searching against all dimensions, and against one another."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from foils.searching.systems import Kind, System
from foils.statistics import Comparison, bootstrap_interval, compare_systems, holm, paired_test, randomisation_p

Tests = dict[tuple[str, str, str], Comparison]  # (name, kind, measure) ->
KINDS: tuple[tuple[Kind, ...], ...] = (("fixed", "honest"), ("oracle",))  # each corrected apart
BASELINE = "baseline"
MARGIN = 0.01  # of a measure: what a way may lose and yet be as good


def compare_with_others(
    baseline: System, systems: Sequence[System], *, rng: np.random.Generator
) -> tuple[Tests, Tests]:
    """Test systems against all dimensions, and each Eclipse against the DIME of its own sun and kind; as published.

    One-sided, for a gain. Holm's correction over all of these tests by one measure, oracles apart.

    Args:
        baseline: all dimensions.
        systems: what is tested; of one kind, names are distinct.
        rng: resamples, for the intervals.

    Returns:
        (name, kind, measure) → test against all dimensions, and → test against DIME.

    Source: Eclipse, Table 1 (superscripts a and b).
    """
    against_all: Tests = {}
    against_dime: Tests = {}
    for kinds in KINDS:
        named = {system.name: system for system in systems if system.kind in kinds}
        if not named:
            continue
        pairs = [(name, rival) for name in named if (rival := _dime_of(name)) in named]
        values = {BASELINE: baseline.per_query, **{name: system.per_query for name, system in named.items()}}
        for test in compare_systems(values, rng=rng, against=[BASELINE], pairs=pairs, alternative="greater"):
            tests = against_all if test.b == BASELINE else against_dime
            tests[test.a, named[test.a].kind, test.measure] = test
    return against_all, against_dime


def compare_halves(
    shares: Mapping[str, Mapping[str, Mapping[str, Mapping[float, System]]]], *, rng: np.random.Generator
) -> Tests:
    """Test Eclipse against DIME, both with half of the dimensions: two-sided paired t-tests, as published.

    Holm's correction over the suns of one measure and kind.

    Args:
        shares: measure → filter → kind → share → system, with the share 0.5.
        rng: resamples, for the intervals.

    Returns:
        (name of the Eclipse, kind, measure) → test against the DIME of its sun.

    Source: Eclipse, Table 2.
    """
    tests: Tests = {}
    for measure, filters in shares.items():
        pairs = [(name, rival) for name in filters if (rival := _dime_of(name)) in filters]
        for kind in filters[pairs[0][0]] if pairs else ():
            values = [
                tuple(filters[each][kind][0.5].per_query[measure] for each in pair) for pair in pairs
            ]  # of Eclipse, of DIME
            found = [paired_test(a, b, normality=0) for a, b in values]
            corrected = holm([test.p for test in found])
            for (name, rival), (a, b), test, p in zip(pairs, values, found, corrected, strict=True):
                low, high = bootstrap_interval(a - b, rng=rng)
                randomised = randomisation_p(a - b, rng=rng.spawn(1)[0])
                tests[name, kind, measure] = Comparison(
                    name, rival, measure, test.difference, low, high, test.test, test.p, float(p), randomised
                )
    return tests


@dataclass(frozen=True)
class MoonTest:
    """A pool of moons drawn at random against the last k⁻, by one measure.

    Attributes:
        difference: the mean over runs against the last k⁻; two-sided.
        as_good: p of the one-sided paired t-test that the mean is not `MARGIN` or more below that of the last k⁻.
        as_good_holm: after Holm's correction.
    """

    difference: Comparison
    as_good: float
    as_good_holm: float


def compare_moons(
    moons: Mapping[str, Sequence[System]], *, rng: np.random.Generator
) -> dict[tuple[str, str], MoonTest]:
    """Test moons drawn at random against the last k⁻, whether they differ and whether they are as good.

    A difference that is not significant does not say that they are as good; that they lose less than `MARGIN` does. Of
    each query the mean over the runs is tested. Holm's correction over the pools of one measure, for either question.

    Args:
        moons: of `by_moon`, with `exact` among them.
        rng: resamples, for the intervals.

    Returns:
        (pool, measure) → test.

    Source: the question is that of Eclipse, Table 3; margin and test are ours.
    """
    (exact,) = moons["exact"]
    pools = [pool for pool in moons if pool != "exact"]
    tests: dict[tuple[str, str], MoonTest] = {}
    for measure, last in exact.per_query.items():
        drawn = [np.mean([run.per_query[measure] for run in moons[pool]], axis=0) for pool in pools]
        differ = [paired_test(values, last) for values in drawn]
        good = [paired_test(values + MARGIN, last, alternative="greater", normality=0).p for values in drawn]
        corrected = zip(pools, drawn, differ, holm([of.p for of in differ]), good, holm(good), strict=True)
        for pool, values, of, p, as_good, as_good_holm in corrected:
            low, high = bootstrap_interval(values - last, rng=rng)
            randomised = randomisation_p(values - last, rng=rng.spawn(1)[0])
            difference = Comparison(
                pool, "exact", measure, of.difference, low, high, of.test, of.p, float(p), randomised
            )
            tests[pool, measure] = MoonTest(difference, as_good, float(as_good_holm))
    return tests


def _dime_of(name: str) -> str:
    """The name of the DIME that has this Eclipse's sun; empty for another filter."""
    return name.removesuffix("Eclipse") + "DIME" if name.endswith("Eclipse") else ""
