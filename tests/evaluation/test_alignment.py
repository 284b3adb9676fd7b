"""Alignment and uniformity: hand-worked cases, limits, invariances."""

import numpy as np
import pytest

from foils.evaluation import alignment, uniformity
from foils.runtime.errors import InputError


def unit(n, d, seed=0):
    x = np.random.default_rng(seed).normal(size=(n, d))
    return x / np.linalg.norm(x, axis=1, keepdims=True)


def test_alignment_worked_by_hand():
    a, b = np.array([[1.0, 0], [0, 1]]), np.array([[1.0, 0], [1, 0]])
    assert alignment(a, b) == pytest.approx((0 + 2) / 2)
    assert alignment(a, b, exponent=1) == pytest.approx(np.sqrt(2) / 2)
    assert alignment(a, -a) == pytest.approx(4.0)


def test_uniformity_worked_by_hand():
    """Three points, squared distances 2, 2 and 4."""
    x = np.array([[1.0, 0], [0, 1], [-1, 0]])
    assert uniformity(x) == pytest.approx(np.log((2 * np.exp(-4) + np.exp(-8)) / 3))
    assert uniformity(x, t=1) == pytest.approx(np.log((2 * np.exp(-2) + np.exp(-4)) / 3))


def test_limits():
    assert uniformity(np.tile(unit(1, 5), (4, 1))) == pytest.approx(0.0, abs=1e-12)
    even = uniformity(unit(3000, 3))
    assert even == pytest.approx(np.log((1 - np.exp(-8)) / 8), abs=0.01), "the sphere in three dimensions"


def test_uniformity_agrees_with_autograds_library():
    torch = pytest.importorskip("torch")
    x = torch.from_numpy(unit(40, 8))
    assert uniformity(x.numpy()) == pytest.approx(float(torch.pdist(x).pow(2).mul(-2).exp().mean().log()))


def test_invariances():
    x, rotation = unit(70, 6), np.linalg.qr(np.random.default_rng(1).normal(size=(6, 6)))[0]
    order = np.random.default_rng(2).permutation(70)
    for changed in (x[order], x @ rotation):
        assert uniformity(changed) == pytest.approx(uniformity(x))
    assert uniformity(x, block=7) == pytest.approx(uniformity(x, block=1000))
    assert alignment(x @ rotation, x[order] @ rotation) == pytest.approx(alignment(x, x[order]))


@pytest.mark.parametrize(
    "call",
    [
        lambda: alignment(np.ones((2, 2)), unit(2, 2)),
        lambda: alignment(unit(2, 2), unit(3, 2)),
        lambda: alignment(unit(2, 2), unit(2, 2), exponent=0),
        lambda: alignment(np.empty((0, 2)), np.empty((0, 2))),
        lambda: uniformity(unit(1, 2)),
        lambda: uniformity(unit(3, 2), t=0),
        lambda: uniformity(unit(3, 2), block=0),
        lambda: uniformity(np.full((2, 2), np.nan)),
    ],
)
def test_unusable_input_is_refused(call):
    with pytest.raises(InputError):
        call()
