"""The number of threads, and the last digits of vectors: what they may change in a decision, and what not."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from threadpoolctl import threadpool_limits

from decided_world import WorldEncoder, mined
from decided_world import decided as decide_between
from foils.deciding import Decision
from foils.deciding import unlabelled as survey
from foils.deciding.unlabelled import rounded
from hidden_positives import hidden_world


def decided(folder: Path, *, noise: float = 0.0) -> Decision:
    world = hidden_world(8, labelled=0.5)
    encoder, rng = WorldEncoder(world), np.random.default_rng(1)
    for kind, vectors in encoder.vectors.items():
        encoder.vectors[kind] = vectors * (1 + noise * rng.standard_normal(vectors.shape))
    return decide_between(world, mined(world), folder / f"{noise}", encoder)


@pytest.mark.parametrize("scale", [1.0, 1e-6, 37.0])
def test_inner_products_of_rounded_vectors_are_exact_in_any_order(scale):
    rng = np.random.default_rng(2)
    vectors = scale * rng.standard_normal((40, 384)) * rng.lognormal(0, 1, (40, 1)) / np.sqrt(384)
    a, b = rounded(vectors[:20].astype(np.float32)), rounded(vectors[20:].astype(np.float32))
    exact = np.einsum("id,jd->ij", a.astype(np.float64), b.astype(np.float64))
    for order in (np.arange(384), rng.permutation(384), np.argsort(-np.abs(a[0]))):
        products = np.ascontiguousarray(a[:, order]) @ np.ascontiguousarray(b[:, order]).T
        np.testing.assert_array_equal(products.astype(np.float64), exact)
    lengths = np.linalg.norm(vectors, axis=1)
    error = exact - vectors[:20] @ vectors[20:].T
    assert np.abs(error / lengths[:20, None] / lengths[None, 20:]).max() < 2e-3


def test_threads_and_blocks_change_no_bit(tmp_path, monkeypatch):
    decisions = []
    for threads, queries, documents in ((1, 256, 8_192), (2, 37, 1_000), (3, 500, 300)):
        monkeypatch.setattr(survey, "BLOCK", queries)
        monkeypatch.setattr(survey, "DOCUMENTS", documents)
        with threadpool_limits(threads):
            decisions.append(decided(tmp_path))
    assert len({json.dumps([each.to_json(), each.curve, str(each.worths)]) for each in decisions}) == 1


def test_the_last_digits_of_vectors_hardly_change_a_decision(tmp_path):
    plain, noisy = decided(tmp_path), decided(tmp_path, noise=1e-7)
    assert noisy.source == plain.source
    for name, worth in plain.worths.items():
        assert noisy.worths[name].benefit == pytest.approx(worth.benefit, rel=0.1)
        assert noisy.worths[name].gain_low == pytest.approx(worth.gain_low, abs=0.2)
