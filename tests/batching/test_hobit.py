"""HOBIT's batches: a partition, the batches that the plain algorithm builds, and what each setting changes."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from batch_vectors import clustered
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.special import logsumexp

from foils.batching import (
    greedy,
    hardness,
    hobit_batches,
    kernels,
    no_conflicts,
    smooth_hardness,
)
from foils.batching import hobit as hobit_module
from foils.batching.batches import find_conflicts, nearest
from foils.batching.hobit import WIDER, Filler
from foils.runtime.errors import InputError


def build(pairs, seed=0, **chosen):
    return hobit_batches(*pairs, **{"batch_size": 32, "rng": np.random.default_rng(seed), "seeds": 4, **chosen})


def plain_hobit(queries, documents, *, line, sizes, seeds, candidates, alpha, tau):
    """Algorithm 2 with plain greedy and full searches, drawing seeds along `line`."""
    unused, batches = np.ones(len(queries), bool), []
    for batch_size in sizes:
        chosen = [row for row in line if unused[row]][: min(seeds, batch_size)]
        unused[chosen] = False
        scores = np.where(unused, (queries[chosen] @ documents.T).astype(np.float32), -np.inf)
        top = np.argsort(-scores, axis=1, kind="stable")[:, :candidates]
        pool = np.unique(top[np.take_along_axis(scores, top, axis=1) > -np.inf])
        picked = greedy(
            hardness(queries[chosen], documents[chosen], documents[chosen], alpha=alpha),
            hardness(queries[chosen], documents[chosen], documents[pool], alpha=alpha),
            size=batch_size - len(chosen),
            tau=tau,
        )
        batches.append([*chosen, *pool[picked].tolist()])
        unused[pool[picked]] = False
    return batches


@pytest.mark.parametrize(
    ("rows", "size", "tau", "alpha"), [(300, 32, 0.05, 1.0), (101, 16, 0.5, 0.0), (257, 64, 1e-2, 2)]
)
def test_compiled_and_blocked_is_the_plain_algorithm(rows, size, tau, alpha):
    # on a grid of 1/32 every product is exact in single precision, so both see the same weights
    queries, documents = (np.round(32 * x) / 32 for x in clustered(rows, 12, 10, seed=rows))
    rng = np.random.default_rng(5)
    line, sizes = rng.permutation(rows), [size] * (rows // size)
    sizes.insert(rng.integers(len(sizes) + 1), rows % size)
    got = hobit_batches(
        queries,
        documents,
        batch_size=size,
        rng=np.random.default_rng(5),
        seeds=4,
        candidates=60,
        tau=tau,
        alpha=alpha,
    )
    expected = plain_hobit(queries, documents, line=line, sizes=sizes, seeds=4, candidates=60, tau=tau, alpha=alpha)
    assert sorted(batch.tolist() for batch in got) == sorted(expected)
    assert len(got[-1]) == rows % size


def test_other_rows_fill_the_short_batch_in_each_epoch():
    # documents of 60 rows point away from all queries: nothing calls for them, so they are what is left over
    queries, documents = (side.copy() for side in clustered(1000, 24, 25))
    queries[:, 0], documents[:, 0], documents[:60] = 1.0, 1.0, -np.eye(24)[0]
    queries, documents = (side / np.linalg.norm(side, axis=1, keepdims=True) for side in (queries, documents))
    last = [build((queries, documents), epoch, batch_size=96)[-1] for epoch in range(20)]
    assert {batch.size for batch in last} == {1000 % 96}
    again = [np.isin(batch, before).mean() for before, batch in pairwise(last)]
    assert np.mean(again) < 0.25  # as many rows meet there again by chance: 4 %
    assert np.bincount(np.concatenate(last)).max() <= 10


@settings(deadline=None, max_examples=60)
@given(arrays(np.float64, (3, 12), elements=st.floats(-2, 2, width=16)), st.sampled_from([1e-3, 0.05, 1.0, 30.0]))
def test_compiled_greedy_picks_what_plain_greedy_picks(weights, tau):
    seeds, candidates = weights[:, :3], weights[:, 3:]
    expected = 3 + greedy(seeds, candidates, size=5, tau=tau)
    totals = logsumexp(seeds / tau, axis=1)
    if np.maximum(candidates.max(axis=1) / tau - totals, 0).sum() > kernels.FINITE:
        return
    batch = np.zeros(8, np.int64)
    size = kernels.greedy(candidates / tau, totals, np.arange(3, 12), 1, no_conflicts(12).state(), batch, 3)
    assert size == 8
    picked = batch[3:] - 3
    # the same value where exact ties, or gains too small to tell apart, leave a choice
    reached = [smooth_hardness(np.hstack([seeds, candidates[:, list(c)]]), tau=tau) for c in (picked, expected - 3)]
    assert reached[0] == pytest.approx(reached[1], rel=1e-12, abs=1e-12)
    if len(np.unique(candidates[0])) == 9 and tau == 1.0:
        np.testing.assert_array_equal(picked + 3, expected)
    after = logsumexp(np.hstack([seeds, candidates[:, picked]]) / tau, axis=1)
    np.testing.assert_allclose(totals, after, rtol=1e-12, atol=1e-12)


def test_small_temperatures_take_the_other_greedy(pairs, monkeypatch):
    # both greedy loops build the same epoch where both can
    expected = build(pairs, tau=0.05).order
    monkeypatch.setattr(kernels, "FINITE", -1.0)
    np.testing.assert_array_equal(build(pairs, tau=0.05).order, expected)


def test_looking_ahead_changes_nothing(pairs, monkeypatch):
    expected = build(pairs).order
    for ahead in (1, 10**6):
        monkeypatch.setattr(hobit_module, "AHEAD", ahead)
        np.testing.assert_array_equal(build(pairs).order, expected)


@pytest.mark.parametrize("block", [1, 7, 4096])
def test_nearest_is_argsort_for_every_block(block):
    rng = np.random.default_rng(1)
    queries, documents = rng.integers(-2, 3, (9, 5)).astype(np.float32), rng.integers(-2, 3, (60, 5)).astype(np.float32)
    among = np.flatnonzero(rng.random(60) < 0.7)
    rows, scores = nearest(queries, documents, among, k=11, block=block)
    exact = queries @ documents[among].T  # whole numbers: many ties
    expected = np.argsort(-exact, axis=1, kind="stable")[:, :11]
    np.testing.assert_array_equal(rows, among[expected])
    np.testing.assert_array_equal(scores, np.take_along_axis(exact, expected, axis=1))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"batch_size": 0}, "batch_size"),
        ({"seeds": 0}, "seeds"),
        ({"seeds": 33}, "seeds"),
        ({"candidates": 0}, "candidates"),
        ({"alpha": -0.1}, "alpha"),
        ({"tau": 0.0}, "tau"),
        ({"conflicts": no_conflicts(3)}, "conflicts speak of 3 rows"),
    ],
)
def test_settings_out_of_range_are_refused(pairs, change, message):
    with pytest.raises(InputError, match=message):
        build(pairs, **change)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda documents: documents[:-1], "one shape"),
        (lambda documents: documents.astype(int), "floating-point"),
        (
            lambda documents: np.where(np.isin(np.arange(1000), [3, 17])[:, None], np.nan, documents),
            r"rows with NaN or infinity \(first: \[3, 17\]\)",
        ),
    ],
)
def test_vectors_that_do_not_fit_are_refused(pairs, change, message):
    with pytest.raises(InputError, match=message):
        build((pairs[0], change(pairs[1])))


def test_batches_larger_than_the_classes_are_not_sought_for_long(monkeypatch):
    """12 classes of 100 rows, batches of 48: once a row of each class is in, wider candidates are not asked for."""
    label = np.repeat(np.arange(12), 100)
    names = [f"d{i}" for i in range(1200)]
    positives = [(f"q{i}", names[j]) for i in range(1200) for j in np.flatnonzero(label == label[i])]
    conflicts = find_conflicts([f"q{i}" for i in range(1200)], names, positives=positives)
    assert (conflicts.classes, no_conflicts(9).classes) == (12, 9)
    factors, own = set(), Filler.near
    monkeypatch.setattr(Filler, "near", lambda filler, seeds, factor: factors.add(factor) or own(filler, seeds, factor))
    queries, documents = clustered(1200, 8, 12)
    how = {"batch_size": 48, "rng": np.random.default_rng(0), "conflicts": conflicts}
    assert len(list(hobit_batches(queries, documents, **how))) == 25
    assert factors == {WIDER[0]}
