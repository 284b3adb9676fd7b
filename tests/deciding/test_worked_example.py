"""The example of docs/deciding.md, computed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from foils.deciding.benefit import FORM, HARM, added_losses
from foils.deciding.decision import _summed

X = {"dense": np.array([1.0, 0.5]), "far": np.array([0.2, 0.2])}
RATIOS = {"dense": np.array([0.10, 0.02]), "far": np.array([0.004, 0.0])}


def added(source: str) -> np.ndarray:
    record, alone = np.zeros(2, int), np.array([-np.inf])
    return added_losses(record, 0.05 * np.log(X[source]), np.zeros(1), alone, 0.05)


def benefit(source: str, o: float) -> float:
    return float((added(source) * (1 - (1 + HARM) * np.minimum(1, o * RATIOS[source]))).sum())


def test_the_numbers_of_the_page():
    text = (Path(__file__).parents[2] / "docs" / "deciding.md").read_text("utf-8")
    rows = [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith(("| dense |", "| far |"))]
    assert len(rows) == 4
    for at, (source, x, r, a, pi, product) in enumerate(rows):
        place, answers = at % 2, 2 * RATIOS[source]
        assert (float(x), float(r)) == (X[source][place], RATIOS[source][place])
        assert float(a) == pytest.approx(added(source)[place], abs=6e-4)
        assert float(pi) == pytest.approx(answers[place])
        assert float(product) == pytest.approx(added(source)[place] * (1 - 2.5 * answers[place]), abs=1e-3)
    assert added("dense").sum() == pytest.approx(np.log(2.5))
    values = {source: benefit(source, 2.0) for source in X}
    assert values == pytest.approx({"dense": 0.580, "far": 0.333}, abs=1e-3)
    gains = FORM["encoder"].mean(np.array([*values.values()]))
    assert gains.round(1).tolist() == [1.5, 1.1]
    falls = {source: benefit(source, 0.0) - benefit(source, 1.0) for source in X}
    assert falls == pytest.approx({"dense": 0.168, "far": 0.002}, abs=5e-4)
    crossing = (benefit("dense", 0.0) - benefit("far", 0.0)) / (falls["dense"] - falls["far"])
    assert crossing == pytest.approx(3.5, abs=0.02)
    assert (crossing * RATIOS["dense"]).mean() == pytest.approx(0.21, abs=0.002)


def test_the_decision_sums_what_the_page_sums():
    """Σ s·(1 − (1 + κ)·π) by block, κ = 1.5, π = σ(constant + slope·log r): here ½, then r/(1 + r)."""
    strength, block = np.array([1.0, 2.0, 4.0]), np.array([0, 0, 1])
    logs = np.log([0.25, 1.0, 0.25])
    sums, share = _summed(logs, strength, block, 2, 0.0, 0.0)
    np.testing.assert_allclose(sums, [-0.25 * 3, -0.25 * 4])
    assert share == 0.5
    sums, share = _summed(logs, strength, block, 2, 0.0, 1.0)
    np.testing.assert_allclose(sums, [1 * (1 - 2.5 * 0.2) + 2 * (1 - 2.5 * 0.5), 4 * (1 - 2.5 * 0.2)])
    assert share == pytest.approx(0.3)
