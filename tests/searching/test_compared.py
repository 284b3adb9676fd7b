"""Eclipse against DIME: which pairs are tested, by which test, and what is corrected together."""

import numpy as np
import pytest
from scipy import stats

from foils.searching.compared import compare_halves, compare_moons, compare_with_others
from foils.searching.findings import Findings
from foils.searching.systems import System
from foils.searching.tables import compared_table, half_against_dime, moon_table
from foils.statistics import holm, paired_test

RNG = np.random.default_rng(0)
BASE = System("baseline", "fixed", {m: RNG.uniform(0.2, 0.6, 40) for m in ("AP", "P@5")}, kept=1.0)
GAINS = {"PRF DIME": 0.01, "LLM DIME": 0.0, "PRF Eclipse": 0.02, "LLM Eclipse": -0.01}


def system(name, kind, gain):
    per_query = {m: of + gain + RNG.normal(0, 0.03, 40) for m, of in BASE.per_query.items()}
    return System(name, kind, per_query, kept=0.5)


SYSTEMS = [system("PRF RDIME", "fixed", 0.01)]
SYSTEMS += [system(name, kind, gain) for name, gain in GAINS.items() for kind in ("honest", "oracle")]


def of(name, kind):
    return next(each for each in SYSTEMS if (each.name, each.kind) == (name, kind))


def test_each_eclipse_is_tested_against_the_dime_of_its_sun_and_all_are_corrected_together():
    against_all, against_dime = compare_with_others(BASE, SYSTEMS, rng=np.random.default_rng(1))
    assert {key[:2] for key in against_dime} == {
        (f"{s} Eclipse", k) for s in ("PRF", "LLM") for k in ("honest", "oracle")
    }
    assert {key[:2] for key in against_all} == {(each.name, each.kind) for each in SYSTEMS}
    for measure in ("AP", "P@5"):
        for kinds in (("fixed", "honest"), ("oracle",)):
            tests = [
                (
                    a,
                    a.name if b is BASE else "",
                    paired_test(a.per_query[measure], b.per_query[measure], alternative="greater"),
                )
                for a in SYSTEMS
                if a.kind in kinds
                for b in (BASE, *([of(a.name.replace("Eclipse", "DIME"), a.kind)] if "Eclipse" in a.name else []))
            ]
            for (a, against_base, test), corrected in zip(tests, holm([test.p for *_, test in tests]), strict=True):
                found = (against_all if against_base else against_dime)[a.name, a.kind, measure]
                assert (found.p, found.difference, found.test) == (test.p, test.difference, test.test)
                assert found.p_holm == pytest.approx(corrected, abs=1e-15)
    findings = Findings(
        collection="c", split="test", queries=40, measures=["AP", "P@5"], baseline=BASE, filters=[BASE, *SYSTEMS],
        comparisons=against_all, against_dime=against_dime,
    )  # fmt: skip
    table = compared_table("Filters", findings.filters, findings)
    assert [*table.columns].count("over DIME") == 2
    rows = {row[0]: row for row in table.rows}
    gain = of("PRF Eclipse", "oracle").means["AP"] - of("PRF DIME", "oracle").means["AP"]
    assert rows["PRF Eclipse (oracle)"][5] == f"{gain:+.4f}"
    assert rows["PRF DIME (oracle)"][5] == "–"
    assert len(findings.to_json()["against_dime"]) == 4 * 2


def test_random_moons_are_tested_for_a_difference_and_for_being_as_good():
    """As good: less than a point of a hundred is lost, by an independent test; no difference found is not that."""
    rng, last = np.random.default_rng(2), RNG.uniform(0.2, 0.6, 60)
    losses = {"bottom 30": (0.0, 0.001), "bottom 100": (0.0, 0.1), "bottom 150": (0.02, 0.01)}
    moons = {
        pool: [System(pool, "fixed", {"AP": last - loss + rng.normal(0, noise, 60)}) for _ in range(3)]
        for pool, (loss, noise) in losses.items()
    }
    moons["exact"] = [System("exact", "fixed", {"AP": last})]
    tests = compare_moons(moons, rng=np.random.default_rng(0))
    means = {pool: np.mean([run.per_query["AP"] for run in moons[pool]], axis=0) for pool in losses}
    good = [stats.ttest_1samp(of - last, -0.01, alternative="greater").pvalue for of in means.values()]
    differ = [paired_test(of, last).p for of in means.values()]
    for at, (pool, values) in enumerate(means.items()):
        test = tests[pool, "AP"]
        assert test.difference.difference == pytest.approx((values - last).mean())
        assert test.difference.low <= test.difference.difference <= test.difference.high
        assert (test.difference.p, test.as_good) == (pytest.approx(differ[at]), pytest.approx(good[at]))
        assert test.as_good_holm == pytest.approx(holm(good)[at])
        assert test.difference.p_holm == pytest.approx(holm(differ)[at])
    assert [tests[pool, "AP"].as_good_holm < 0.05 for pool in losses] == [True, False, False]
    assert [tests[pool, "AP"].difference.p_holm < 0.05 for pool in losses] == [False, False, True]
    findings = Findings(
        collection="c", split="test", queries=60, measures=["AP"], baseline=BASE, moons=moons, moon_tests=tests
    )
    table = moon_table(findings)
    assert table.marked == {0}
    assert [row[0] for row in table.rows] == [*losses, "exact"]
    assert table.rows[3][4:8] == ["–"] * 4


def test_halves_are_compared_by_two_sided_t_tests_in_per_cent():
    """Whatever Shapiro–Wilk says: these differences are far from normal."""
    values = {name: system(name, "honest", gain) for name, gain in GAINS.items()}
    values["PRF Eclipse"].per_query["AP"][3] += 5
    shares = {"AP": {name: {"honest": {0.5: each, 1.0: BASE}} for name, each in values.items()}}
    tests = compare_halves(shares, rng=np.random.default_rng(1))
    expected = {
        sun: stats.ttest_rel(values[f"{sun} Eclipse"].per_query["AP"], values[f"{sun} DIME"].per_query["AP"]).pvalue
        for sun in ("PRF", "LLM")
    }
    corrected = dict(zip(expected, holm([*expected.values()]), strict=True))
    for sun, p in expected.items():
        test = tests[f"{sun} Eclipse", "honest", "AP"]
        assert (test.test, test.b) == ("t", f"{sun} DIME")
        assert (test.p, test.p_holm) == (pytest.approx(p), pytest.approx(corrected[sun]))
    findings = Findings(
        collection="c", split="test", queries=40, measures=["AP"], baseline=BASE, shares=shares, halves=tests
    )
    table = half_against_dime(findings)
    dime, eclipse = (values[f"LLM {name}"].means["AP"] for name in ("DIME", "Eclipse"))
    row = next(row for row in table.rows if row[0] == "LLM Eclipse (honest)")
    assert row[2:5] == [f"{dime:.4f}", f"{eclipse:.4f}", f"{100 * (eclipse - dime) / dime:+.2f} %"]
    assert not compare_halves({"AP": {"PRF DIME": shares["AP"]["PRF DIME"]}}, rng=np.random.default_rng(1))
