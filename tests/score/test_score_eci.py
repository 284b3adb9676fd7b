"""ECI, the earlier score: published figures, cases by hand, and its ends."""

from __future__ import annotations

import math
from dataclasses import astuple

import numpy as np
import pytest

from foils.errors import InputError
from foils.score.eci import eci, gradient_norm, score_variance, source_eci


@pytest.mark.parametrize(
    ("signal", "margin", "negatives", "mean", "published"),
    [
        (0.606, 0.175, 25, "harmonic", 0.88),
        (0.587, 0.192, 75, "harmonic", 1.25),
        (0.587, 0.192, 75, "arithmetic", 1.69),
    ],
)
def test_published_figures_from_their_summary_statistics(
    signal: float, margin: float, negatives: int, mean: str, published: float
) -> None:
    assert eci(signal, margin, negatives, mean=mean) == pytest.approx(published, abs=0.005)


def test_a_source_by_hand() -> None:
    """Record 0: negatives 0.2, 0.4; record 2: negative 0.9. Best positives 0.8 (and 0.1, of no record) and 0.7.

    S = 0.5, Δ = ((0.8 − 0.4) + (0.7 − 0.9))/2 = 0.1, |N| = 1.5: ECI = ln 2.5 · 2·0.5·0.1/0.6 = 0.152715.
    Per query: record 0: ln 3 · 2·0.3·0.4/0.7 = 0.376667; record 2: Δ < 0, so 0. Mean 0.188334.
    """
    found = source_eci(np.array([0, 0, 2]), np.array([0.2, 0.4, 0.9]), np.array([0.8, 0.1, 0.7]))
    assert found.signal == pytest.approx(0.5)
    assert found.margin == pytest.approx(0.1)
    assert found.negatives == 1.5
    assert found.value == pytest.approx(0.152715, abs=1e-6)
    assert found.per_query == pytest.approx(0.188334, abs=1e-6)


def test_only_the_hardest_negatives_count_where_asked() -> None:
    """Table 4: the hardest of each record. S = (0.4 + 0.9)/2, Δ = 0.1, |N| = 1."""
    arguments = np.array([0, 0, 0, 2]), np.array([0.2, 0.4, 0.1, 0.9]), np.array([0.8, 0.1, 0.7])
    found = source_eci(*arguments, hardest=1)
    assert (found.signal, found.negatives) == (pytest.approx(0.65), 1)
    assert found.margin == pytest.approx(0.1)
    assert found.value == pytest.approx(math.log(2) * 2 * 0.65 * 0.1 / 0.75)
    assert source_eci(*arguments, hardest=2).signal == pytest.approx(0.5)
    assert astuple(source_eci(*arguments, hardest=9)) == pytest.approx(astuple(source_eci(*arguments)))


def test_the_arithmetic_mean_on_each_path() -> None:
    arguments = np.array([0, 0]), np.array([0.2, 0.4]), np.array([0.8])
    found = source_eci(*arguments, mean="arithmetic")
    assert found.value == pytest.approx(math.log(3) * (0.3 + 0.4) / 2)
    assert found.per_query == pytest.approx(found.value)
    assert source_eci(*arguments).value == pytest.approx(math.log(3) * 2 * 0.3 * 0.4 / 0.7)


def test_unsafe_sources_score_nothing() -> None:
    assert eci(0.5, -0.1, 10) == 0
    assert eci(0.5, 0.0, 10) == 0
    assert eci(0.0, 0.0, 10) == 0
    assert eci(-0.2, 0.3, 10) == 0
    assert eci(0.5, 0.1, 0) == 0


def test_more_negatives_a_larger_signal_and_a_larger_margin_score_more() -> None:
    base = eci(0.5, 0.2, 10)
    assert eci(0.6, 0.2, 10) > base
    assert eci(0.5, 0.3, 10) > base
    assert eci(0.5, 0.2, 11) > base


def test_heuristics() -> None:
    assert gradient_norm(0.6, 25, 0.05) == pytest.approx(25 * math.exp(12))
    assert score_variance(0.8, 0.6) == pytest.approx(0.02)


@pytest.mark.parametrize("bad", ["geometric", ""])
def test_an_unknown_mean_is_an_error(bad: str) -> None:
    with pytest.raises(InputError, match="arithmetic, harmonic"):
        eci(0.5, 0.2, 10, mean=bad)
    with pytest.raises(InputError, match="arithmetic, harmonic"):
        source_eci(np.array([0]), np.array([0.2]), np.array([0.8]), mean=bad)


@pytest.mark.parametrize("bad", [0, -1])
def test_fewer_than_one_hardest_negative_is_an_error(bad: int) -> None:
    with pytest.raises(InputError, match="hardest"):
        source_eci(np.array([0]), np.array([0.2]), np.array([0.8]), hardest=bad)
