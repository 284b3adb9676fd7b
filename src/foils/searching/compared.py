"""The tests behind the tables: ways of searching against all dimensions, and Eclipse against DIME."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from foils.searching.systems import Kind, System
from foils.statistics import Comparison, bootstrap_interval, compare_systems, holm, paired_test

Tests = dict[tuple[str, str, str], Comparison]  # (name, kind, measure) ->
KINDS: tuple[tuple[Kind, ...], ...] = (("fixed", "honest"), ("oracle",))  # each corrected apart
BASELINE = "baseline"


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
                tests[name, kind, measure] = Comparison(
                    name, rival, measure, test.difference, low, high, test.test, test.p, float(p)
                )
    return tests


def _dime_of(name: str) -> str:
    """The name of the DIME that has this Eclipse's sun; empty for another filter."""
    return name.removesuffix("Eclipse") + "DIME" if name.endswith("Eclipse") else ""
