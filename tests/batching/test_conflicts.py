"""Known positives: who conflicts, what is masked, and batches that keep them apart."""

from __future__ import annotations

import time

import numpy as np
import pytest
from batch_vectors import clustered
from hypothesis import given, settings
from hypothesis import strategies as st

from foils.batching import METHODS, Batches, find_conflicts, no_conflicts
from foils.batching.batches import shuffled
from foils.batching.conflicts import separate_conflicts, swap_conflicts, warn_of_classes
from foils.runtime.errors import InputError


def contradictions(batches, conflicts):
    return sum(int(conflicts.matrix(b).sum()) for b in batches)


def test_mask_by_hand():
    # rows: (a, x), (a, y), (b, x), (c, z); and c is known to be answered by y
    conflicts = find_conflicts(list("aabc"), list("xyxz"), positives=[("c", "y"), ("c", "unknown"), ("nobody", "x")])
    expected = [
        [0, 1, 1, 0],  # a is answered by y of row 1 and by x of row 2
        [1, 0, 1, 0],
        [1, 0, 0, 0],  # b is answered by x of row 0
        [0, 1, 0, 0],  # c is answered by y of row 1
    ]
    np.testing.assert_array_equal(conflicts.matrix(np.arange(4)), np.array(expected, bool))
    # the mask follows the order of the rows
    np.testing.assert_array_equal(conflicts.matrix(np.array([3, 1])), [[False, True], [False, False]])


names = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 9)), min_size=1, max_size=40)


@settings(deadline=None, max_examples=60)
@given(names, names, st.integers(1, 8), st.integers(0, 3))
def test_dealt_is_a_partition_and_mask_is_the_definition(pairs, extra, size, seed):
    queries, documents = [q for q, _ in pairs], [d for _, d in pairs]
    conflicts = find_conflicts(queries, documents, positives=extra)
    known = set(pairs) | set(extra)
    rows = np.arange(len(pairs))
    expected = [[(queries[i], documents[j]) in known and i != j for j in rows] for i in rows]
    np.testing.assert_array_equal(conflicts.matrix(rows), np.array(expected))
    batches = separate_conflicts(rows, conflicts, batch_size=size, rng=np.random.default_rng(seed))
    assert sorted(batches.order.tolist()) == rows.tolist()


def test_dealt_defers_a_row_to_the_next_batch():
    conflicts = find_conflicts([0, 0, 1, 2, 3, 4], list(range(6)))
    batches = separate_conflicts(np.arange(6), conflicts, batch_size=3, rng=np.random.default_rng(0))
    np.testing.assert_array_equal(batches.order, [0, 2, 3, 1, 4, 5])


def test_repair_swaps_conflicts_away_and_never_adds_any():
    queries = np.repeat(np.arange(50), 4)
    conflicts = find_conflicts(queries.tolist(), list(range(200)))
    worst = Batches(np.arange(200), 20)
    assert contradictions(worst, conflicts) == 50 * 4 * 3
    assert contradictions(swap_conflicts(worst, conflicts, rng=np.random.default_rng(0)), conflicts) == 0


FAST = {"walks": {"candidates": 100, "neighbours": 20}, "b3": {"skip": 3, "ranks": 20}}


@pytest.mark.parametrize("name", METHODS)
def test_every_method_keeps_known_positives_apart(name):
    # 2 rows per query, 4 rows per document: hard methods pull exactly these together
    queries, documents = clustered(400, 16, 20)
    who = np.random.default_rng(1).integers(400, size=800)
    what = who // 4 + 100 * np.random.default_rng(2).integers(2, size=800)
    pairs = queries[who], documents[what]
    conflicts = find_conflicts(who.tolist(), what.tolist())
    build, chosen = METHODS[name].build, {"batch_size": 32, **FAST.get(name, {})}
    free = build(*pairs, rng=np.random.default_rng(0), **chosen)
    kept = build(*pairs, rng=np.random.default_rng(0), conflicts=conflicts, **chosen)
    assert sorted(kept.order.tolist()) == list(range(800))
    assert contradictions(free, conflicts) > 10
    assert contradictions(kept, conflicts) == 0


def test_batches_must_be_a_partition():
    with pytest.raises(InputError, match=r"2 are missing \(first: \[1, 3\]\)"):
        Batches(np.array([0, 2, 2, 7]), 2)
    with pytest.raises(InputError, match="batch_size"):
        Batches(np.arange(3), 0)


def test_shuffled_keeps_batches_whole_and_the_short_one_last():
    batches = Batches(np.arange(50), 8)
    mixed = shuffled(batches, rng=np.random.default_rng(0))
    assert sorted(b.tolist() for b in mixed) == sorted(b.tolist() for b in batches)
    assert mixed[-1].tolist() == [48, 49]
    assert not np.array_equal(mixed.order, batches.order)


@pytest.mark.parametrize("method", ["random", "hobit", "mutual"])
def test_batches_larger_than_the_classes_are_planned_quickly_and_say_so(method, caplog):
    """12 classes of 100 rows, batches of 48: each class comes four times in a batch, and nothing is tried for long."""
    classes, each, size = 12, 100, 48
    label = np.repeat(np.arange(classes), each)
    names = [f"d{i}" for i in range(classes * each)]
    positives = [(f"q{i}", f"d{j}") for c in range(classes) for i in np.flatnonzero(label == c)
                 for j in np.flatnonzero(label == c)]  # fmt: skip
    conflicts = find_conflicts([f"q{i}" for i in range(classes * each)], names, positives=positives)
    assert conflicts.classes == classes
    assert no_conflicts(9).classes == 9
    warn_of_classes(conflicts, size)
    assert "your batch of 48 exceeds the 12 classes" in caplog.text
    queries, documents = clustered(classes * each, 8, classes)
    build = METHODS[method].build
    begin = time.perf_counter()
    batches = build(queries, documents, batch_size=size, rng=np.random.default_rng(0), conflicts=conflicts)
    assert time.perf_counter() - begin < 30
    if method == "random":
        assert all(np.bincount(label[batch], minlength=classes).max() <= 5 for batch in list(batches)[:-3])
