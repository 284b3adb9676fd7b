"""Batches of several data sets, which are built inside each."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

from foils.batching.batches import no_conflicts, parts_of
from foils.batching.hobit import hobit_batches
from foils.batching.methods import METHODS
from foils.batching.sampler import BatchPlanner

SIZES = [90, 30, 60]
OWN = {"hobit": {"seeds": 2}, "hobit-c": {"seeds": 2}, "walks": {"candidates": 20, "neighbours": 5},
       "b3": {"skip": 1, "ranks": 5, "community_size": 6}}  # fmt: skip


SOURCE_OF = np.random.default_rng(3).permutation(np.repeat(np.arange(3), SIZES))


def vectors():
    made = np.random.default_rng(0).normal(size=(2, sum(SIZES), 8)).astype(np.float32)
    queries, documents = made[0], made[0] + 0.5 * made[1]
    return tuple(side / np.linalg.norm(side, axis=1, keepdims=True) for side in (queries, documents))


def builder(name, seed=0):
    choice = BatchPlanner(name, OWN.get(name), sources=SOURCE_OF)
    return partial(choice.build, rows=180, conflicts=no_conflicts(180), seed=seed)


@pytest.mark.parametrize("name", METHODS)
def test_every_method_builds_pieces_inside_each_data_set(name):
    batches = builder(name)(1, vectors(), 24)
    assert batches.batch_size == 24
    assert sorted(batches.order.tolist()) == list(range(180))
    whole = [SOURCE_OF[rows].reshape(3, 8) for rows in list(batches)[:4]]
    assert all((piece == piece[0]).all() for rows in whole for piece in rows)
    assert any(rows[0, 0] != rows[1, 0] for rows in whole)
    again = builder(name)(1, vectors(), 24)
    np.testing.assert_array_equal(batches.order, again.order)


def test_the_pieces_of_a_data_set_are_those_of_its_own_plan():
    queries, documents = vectors()
    batches = builder("hobit")(2, (queries, documents), 5)  # which neither 3 nor 2 divide
    for k in range(3):
        own = np.flatnonzero(k == SOURCE_OF)
        rng = np.random.default_rng([0, 2, k + 1])
        alone = hobit_batches(
            queries[own], documents[own], batch_size=5, rng=rng, conflicts=no_conflicts(len(own)), seeds=2
        )
        expected = {tuple(own[rows]) for rows in alone}
        assert expected == {tuple(rows) for rows in batches if SOURCE_OF[rows[0]] == k}


def test_parts_are_as_many_as_data_sets_where_that_fits():
    assert [parts_of(size, 3) for size in (24, 128, 5)] == [3, 2, 1]
