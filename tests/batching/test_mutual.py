"""Mutual batches: the plain algorithm, a share of the optimum in every round, and what each setting changes."""

from itertools import combinations

import numpy as np
import pytest
from batch_vectors import clustered
from hypothesis import given, settings
from hypothesis import strategies as st

from foils.batching import (
    Batches,
    greedy,
    hobit_batches,
    mutual_batches,
    ngame_batches,
    no_conflicts,
    smooth_hardness,
)
from foils.batching.plan import measure_epoch


def build(pairs, seed=0, **chosen):
    return mutual_batches(*pairs, **{"batch_size": 32, "rng": np.random.default_rng(seed), "candidates": 64, **chosen})


def weights_of(queries, documents, alpha):
    """w_ij = (q_i·d_j + q_j·d_i)/2 − α d_i·d_j."""
    asked = queries.astype(np.float64) @ documents.T
    return (asked + asked.T) / 2 - alpha * documents.astype(np.float64) @ documents.T


def rounds(size):
    """(rows before, rows after) of each round."""
    filled = 1
    while filled < size:
        yield filled, min(2 * filled, size)
        filled = min(2 * filled, size)


def grown(weights, first, pool, *, size, tau):
    """A batch by plain greedy over `pool`, doubling from `first`."""
    batch, free = [first], pool.tolist()
    for before, after in rounds(size):
        seeds = np.array(batch)
        picked = greedy(weights[np.ix_(seeds, seeds)], weights[np.ix_(seeds, free)], size=after - before, tau=tau)
        batch += [free[p] for p in picked]
        free = [row for p, row in enumerate(free) if p not in set(picked.tolist())]
    return batch


@pytest.mark.parametrize(
    ("rows", "size", "tau", "alpha"), [(320, 32, 0.05, 0.0), (128, 16, 0.5, 1.0), (90, 30, 5, 0.5)]
)
def test_it_is_the_plain_algorithm(rows, size, tau, alpha):
    # on a grid of 1/32 every product is exact in single precision, so both see the same weights
    pairs = [np.round(32 * x) / 32 for x in clustered(rows, 12, 10, seed=rows)]
    got = build(pairs, 5, batch_size=size, candidates=60, tau=tau, alpha=alpha)
    near, weights = weights_of(*pairs, 0.0), weights_of(*pairs, alpha)
    unused, expected = np.ones(rows, bool), []
    for first in np.random.default_rng(5).permutation(rows):
        if not unused[first]:
            continue
        unused[first] = False
        order = np.argsort(-np.where(unused, near[first], -np.inf), kind="stable")[: min(60, unused.sum())]
        batch = grown(weights, int(first), np.sort(order), size=size, tau=tau)
        unused[batch] = False
        expected.append(batch)
    assert sorted(batch.tolist() for batch in got) == sorted([int(row) for row in batch] for batch in expected)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10**6), st.sampled_from([1e-3, 0.05, 1.0]))
def test_each_round_reaches_its_share_of_the_optimum(seed, tau):
    queries, documents = clustered(16, 4, 3, seed=seed)
    weights = weights_of(queries, documents, 0.0)
    built = build((queries, documents), seed, batch_size=8, candidates=16, tau=tau)
    first = np.random.default_rng(seed).permutation(16)[0]  # the other batch is what is left over
    batch = next(rows for rows in built if rows[0] == first)

    def value(seeds, rows):
        return smooth_hardness(weights[np.ix_(seeds, [*seeds, *rows])], tau=tau)

    for before, after in rounds(8):
        seeds = batch[:before]
        others = np.setdiff1d(np.arange(16), seeds)
        best = max(value(seeds, chosen) for chosen in combinations(others, after - before))
        start = value(seeds, [])
        assert value(seeds, batch[before:after]) - start >= (1 - 1 / np.e) * (best - start) - 1e-6


def test_all_rows_of_a_batch_gain_more_than_with_few_seeds(pairs):
    def loss(batches):
        return measure_epoch(*pairs, batches, conflicts=no_conflicts(len(pairs[0])))["loss"]

    found = loss(build(pairs))
    rng = np.random.default_rng(0)
    assert found > 5 * loss(Batches(rng.permutation(1000), 32))
    for other in (hobit_batches, ngame_batches):
        assert found > loss(other(*pairs, batch_size=32, rng=np.random.default_rng(0)))
