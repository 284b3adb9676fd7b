"""Shares by a judge's answers: by hand, and against the plain formula over many draws."""

from __future__ import annotations

import numpy as np
import pytest

from foils.labelling.relabelling import Judged, believed_errors, share_by_answers


def test_a_share_by_hand() -> None:
    """40 answers, 10 of them yes, drawn with probability 1/2 (the first 20, 10 yes) and 1/4: q = 20/120."""
    relevant = np.r_[np.ones(10), np.zeros(30)]
    judged = Judged(np.arange(40), relevant, 0.9, 0.9, probability=np.r_[np.full(20, 0.5), np.full(20, 0.25)])
    share, error = share_by_answers(judged, np.ones(45, bool))
    q, n = 20 / 120, 120**2 / (20 * 4 + 20 * 16)
    smoothed = (q * n + 0.5) / (n + 1)
    assert share == pytest.approx((q - 0.1) / 0.8)
    assert error == pytest.approx(np.sqrt(smoothed * (1 - smoothed) / n) / 0.8)
    few = np.arange(45) < 29
    assert np.isnan(share_by_answers(judged, few)[0])
    assert share_by_answers(judged, few)[1] == np.inf


def test_the_standard_error_is_that_of_many_draws() -> None:
    rng, truth = np.random.default_rng(0), np.arange(2000) < 600
    probability = np.where(truth, 0.3, 0.1)
    shares, errors = [], []
    for _ in range(300):
        rows = np.flatnonzero(rng.random(2000) < probability)
        said = np.where(truth[rows], rng.random(len(rows)) < 0.8, rng.random(len(rows)) < 0.3)
        judged = Judged(rows, said.astype(float), 0.8, 0.7, probability=probability[rows])
        share, error = share_by_answers(judged, np.ones(2000, bool))
        shares.append(share)
        errors.append(error)
    assert np.mean(shares) == pytest.approx(0.3, abs=0.02)
    assert np.mean(errors) == pytest.approx(np.std(shares), rel=0.25)


def test_errors_are_believed_as_usual_until_checks_say_otherwise() -> None:
    assert believed_errors((0, 0), (0, 0)) == (0.8, 0.9)
    assert believed_errors((90, 90), (45, 90)) == pytest.approx((98 / 100, 54 / 100))
    assert believed_errors((0, 90), (0, 90)) == (0.5, 0.5), "nobody is worse than chance"
