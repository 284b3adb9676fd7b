"""How much of each data set an epoch takes, and batches that are built inside each."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

from foils.batching.batches import no_conflicts
from foils.batching.hobit import hobit_batches
from foils.batching.methods import METHODS
from foils.batching.multi_dataset import Mixture, mixture_counts
from foils.batching.rivals import members
from foils.batching.sampler import BatchPlanner

SIZES = [90, 30, 60]
OWN = {"hobit": {"seeds": 2}, "hobit-c": {"seeds": 2}, "walks": {"candidates": 20, "neighbours": 5},
       "b3": {"skip": 1, "ranks": 5, "community_size": 6}}  # fmt: skip


def mixture(counts=SIZES):
    """Rows of the three data sets take turns."""
    return Mixture(("a", "b", "c"), SOURCE_OF, np.asarray(counts))


SOURCE_OF = np.random.default_rng(3).permutation(np.repeat(np.arange(3), SIZES))


def vectors():
    made = np.random.default_rng(0).normal(size=(2, sum(SIZES), 8)).astype(np.float32)
    queries, documents = made[0], made[0] + 0.5 * made[1]
    return tuple(side / np.linalg.norm(side, axis=1, keepdims=True) for side in (queries, documents))


def builder(name, mixed, seed=0):
    choice = BatchPlanner(name, OWN.get(name), mixture=mixed)
    return partial(choice.build, rows=mixed.rows, conflicts=no_conflicts(mixed.rows), seed=seed)


@pytest.mark.parametrize(
    ("how", "counts"),
    [
        ({}, [90, 30, 60]),
        ({"shares": [1, 1, 1]}, [30, 30, 30]),
        ({"shares": [2, 1, 1]}, [60, 30, 30]),
        ({"shares": [1e-9, 1, 1]}, [1, 30, 30]),
    ],
)
def test_counts_by_hand(how, counts):
    assert mixture_counts(SIZES, **how).tolist() == counts


def test_counts_are_what_datasets_draws_until_one_is_exhausted():
    datasets = pytest.importorskip("datasets")
    sets = [datasets.Dataset.from_dict({"of": [k] * 20 * size}) for k, size in enumerate(SIZES)]
    shares = np.array([0.5, 0.2, 0.3])
    drawn = datasets.interleave_datasets(sets, shares.tolist(), seed=1, stopping_strategy="first_exhausted")
    theirs = np.bincount(drawn["of"], minlength=3)
    np.testing.assert_allclose(mixture_counts([20 * size for size in SIZES], shares), theirs, rtol=0.15)


def test_an_epoch_goes_on_where_the_one_before_stopped():
    mixed = mixture([36, 75, 60])
    epochs = [mixed.drawn(epoch, seed=5) for epoch in range(5)]
    for k in range(3):
        own = np.flatnonzero(k == SOURCE_OF)
        counts = np.cumsum([np.bincount(epoch[k], minlength=180)[own] for epoch in epochs], axis=0)
        assert (np.ptp(counts, axis=1) <= 1).all(), "no row comes again before all others came"
        assert all(np.array_equal(epoch[k], np.sort(epoch[k])) for epoch in epochs)
        assert [epoch[k].size for epoch in epochs] == [mixed.counts[k]] * 5
    assert not np.array_equal(epochs[0][0], epochs[1][0])
    assert not np.array_equal(mixed.drawn(0, seed=6)[0], epochs[0][0])


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("counts", [SIZES, [36, 75, 60]])
def test_every_method_builds_pieces_inside_each_data_set(name, counts):
    mixed = mixture(counts)
    batches = builder(name, mixed)(1, vectors(), 24)
    assert batches.batch_size == 24
    drawn = np.concatenate(mixed.drawn(1, seed=0))
    np.testing.assert_array_equal(np.sort(batches.order), np.sort(drawn))
    whole = [SOURCE_OF[rows].reshape(3, 8) for rows in list(batches)[:4]]
    assert all((piece == piece[0]).all() for rows in whole for piece in rows)
    assert any(rows[0, 0] != rows[1, 0] for rows in whole)
    again = builder(name, mixed)(1, vectors(), 24)
    np.testing.assert_array_equal(batches.order, again.order)


def test_the_pieces_of_a_data_set_are_those_of_its_own_plan():
    mixed, (queries, documents) = mixture(), vectors()
    batches = builder("hobit", mixed)(2, (queries, documents), 5)  # which neither 3 nor 2 divide
    for k in range(3):
        own = np.flatnonzero(k == SOURCE_OF)
        rng = np.random.default_rng([0, 2, k + 1])
        alone = hobit_batches(
            queries[own], documents[own], batch_size=5, rng=rng, conflicts=no_conflicts(len(own)), seeds=2
        )
        expected = {tuple(own[rows]) for rows in alone}
        assert expected == {tuple(rows) for rows in batches if SOURCE_OF[rows[0]] == k}


def test_copies_of_a_row_do_not_meet_in_a_piece():
    batches = builder("hobit", mixture([90, 90, 90]))(0, vectors(), 36)
    pieces = [piece for rows in list(batches)[:6] for piece in rows.reshape(3, 12)]
    assert any(SOURCE_OF[piece[0]] == 1 for piece in pieces), "the data set that is drawn three times"
    assert all(len(set(piece)) == 12 for piece in pieces)


def test_communities_follow_what_is_drawn():
    places = members(np.array([0, 1, 1, 0, 0, 1]), np.array([0, 0, 1, 3, 5, 5]))
    assert [p.tolist() for p in places] == [[0, 3], [1], [2, 4], [5]]


def test_parts_are_as_many_as_data_sets_where_that_fits():
    assert [mixture().parts_of(size) for size in (24, 128, 5)] == [3, 2, 1]
