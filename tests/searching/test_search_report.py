"""The page of the experiments: what is significant is said so, what was not run is not there, names are plain text."""

import json
import re

import numpy as np
import pytest

from foils.searching.findings import Findings
from foils.searching.page import findings_page
from foils.searching.systems import System
from foils.statistics import compare_systems

RNG = np.random.default_rng(0)
BASE = System("baseline", "fixed", {"AP": RNG.uniform(0.2, 0.6, 40)}, kept=1.0)

OF = {"collection": "c", "split": "test", "encoder": "e", "queries": 40, "measures": ["AP"], "baseline": BASE}


def system(name, kind, gain):
    return System(name, kind, {"AP": BASE.per_query["AP"] + gain + RNG.normal(0, 0.02, 40)}, kept=0.4)


def findings(systems, **more):
    tests = {}
    for of in systems:
        compared = compare_systems(
            {"baseline": BASE.per_query, of.name: of.per_query}, rng=RNG, against=["baseline"], alternative="greater"
        )
        tests[of.name, of.kind, "AP"] = compared[0]
    return Findings(**OF, filters=[BASE, *systems], comparisons=tests, **more)


def figures(page):
    return json.loads(re.search(r"(\[\{\"data\".*?\}\])[;\n<]", page).group(1))


def test_the_best_honest_filter_is_named_and_oracles_are_not():
    page = findings_page(findings([system("RDIME", "fixed", 0.1), system("Eclipse", "oracle", 0.3)]))
    assert "AP: RDIME is best" in page
    assert "the gain is significant (p &lt; 0.001 after Holm" in page
    assert "Eclipse (oracle)" in page
    assert page.count('<tr class="marked"') == 2
    shown = figures(page)
    assert [trace["name"] for trace in shown[0]["data"]] == ["fixed", "oracle"]
    assert shown[0]["data"][0]["x"][0] == pytest.approx(0.1, abs=0.02)


def test_no_gain_is_said():
    page = findings_page(findings([system("RDIME", "fixed", -0.1)]))
    assert "AP: no filter beats keeping all dimensions" in page


def test_a_gain_that_may_be_chance_is_said_to_be():
    weak = System("DIME", "honest", {"AP": BASE.per_query["AP"] + np.where(np.arange(40) == 3, 0.01, 0.0)})
    assert "the gain is not significant" in findings_page(findings([weak]))


def test_only_what_was_run_is_there_and_names_are_text():
    hostile = "<script>alert(1)</script>"
    page = findings_page(findings([system(hostile, "fixed", 0.1)]))
    assert hostile not in page
    assert "&lt;script&gt;alert" in page
    assert "<h2>Filters" in page
    assert not any(f"<h2>{other}" in page for other in ("Share", "Length", "Moons"))
    moons = Findings(**OF, moons={"exact": [BASE], "bottom 9": [BASE, system("m", "fixed", 0.1)]})
    page = findings_page(moons)
    assert "<h2>Moons" in page
    assert "<h2>Filters" not in page
    shown = figures(page)[0]
    deviations = shown["data"][0]["error_x"]["array"]
    assert deviations[0] == 0
    assert deviations[1] > 0.03
    assert shown["layout"]["shapes"][0]["x0"] == BASE.means["AP"]
