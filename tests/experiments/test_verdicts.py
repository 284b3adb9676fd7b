"""What a study may say, from numbers made by hand: when its order of predictors tells something, and when not."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from foils.experiments.analysis import Reliability, Standing, StudyAnalysis, chance_of_best, reliability_of


def analysis(*, half: float = 0.9, chance: float = 0.01, **more: Any) -> StudyAnalysis:
    best = Standing(predictor="eci_sem", cells={"a": 0.9}, kendall=0.9, regret=0.0)
    return StudyAnalysis(
        measure="nDCG@10", cells=(), outcomes={}, leads={}, leaderboard=(best,),
        reliability={"a": Reliability(seeds=4, half=half, whole=0.95)}, chance=chance, **more,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("numbers", "reason"),
    [
        ({"half": 0.49}, "order the sources like the other half"),
        ({"half": float("nan")}, "with one seed, or equal results"),
        ({"chance": 0.051}, "5.1 % of random orders"),
        ({"chance": 1.0}, "100 % of random orders"),
        ({"chance": float("nan")}, "random orders"),
    ],
)
def test_each_doubt_alone_is_enough_to_say_nothing(numbers: dict[str, float], reason: str) -> None:
    found = analysis(**numbers)
    (doubt,) = found.doubts()
    assert reason in doubt
    assert found.headline.startswith("Nothing can be told")


def test_without_a_doubt_the_leader_is_named() -> None:
    found = analysis(half=0.5, chance=0.05)
    assert found.doubts() == []
    assert "best foreseen by eci_sem" in found.headline


def test_the_chance_of_the_best_counts_the_order_that_was_seen() -> None:
    """Of 40,320 orders of eight sources one is right: hardly any of 1,000 draws; p is about 1/1,001, never 0."""
    order = np.arange(8.0)
    p = chance_of_best([(order[None], order)], 1.0, np.random.default_rng(0))
    assert p >= 1 / 1001
    assert p == pytest.approx(1 / 1001, abs=2.1 / 1001)
    assert chance_of_best([(order[None], order)], -1.0, np.random.default_rng(0)) == 1.0


@pytest.mark.parametrize(
    ("results", "half", "whole", "verdict"),
    [
        # In the half with the 4 the first source is second, in the other it is last.
        ([[1, 4, 1, 1], [2, 2, 2, 2], [3, 3, 3, 3]], 1 / 3, 1 / 2, "not reliable"),
        ([[1, 1], [2, 3], [3, 2], [4, 4]], 4 / 6, 0.8, "too few seeds"),  # one of six pairs is turned
        ([[1, 3], [2, 2], [3, 1]], -1, -1, "too few seeds"),  # what contradicts itself is not extrapolated
        ([[1] * 4, [2] * 4, [3] * 4], 1, 1, "reliable"),
        ([[1], [1], [1]], math.nan, math.nan, "too few seeds"),
    ],
)
def test_reliability_by_hand(results: list[list[float]], half: float, whole: float, verdict: str) -> None:
    reliability = reliability_of(np.array(results, float))
    assert (reliability.half, reliability.whole) == pytest.approx((half, whole), nan_ok=True)
    assert reliability.verdict == verdict
