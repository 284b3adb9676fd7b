"""NGAME, BatchSampler, B3, seeds and mixtures: what each is, by construction."""

import numpy as np
import pytest
from batch_vectors import clustered

from foils.batching import (
    METHODS,
    Batches,
    b3_batches,
    find_conflicts,
    mixed_batches,
)
from foils.batching.hobit import coverage_order, kmeans_seeds
from foils.batching.methods import balanced_clusters, method_named, proximity_graph, rank_communities
from foils.runtime.errors import InputError, UnknownNameError

FAST = {"walks": {"candidates": 100, "neighbours": 20}, "b3": {"skip": 3, "ranks": 20}}


ORDERS = {f"hobit, {order}": {"seed_order": order} for order in ("k-means", "facility-location")}


def build(name, pairs, seed=0, **settings):
    base = {**FAST.get(name, {}), **ORDERS.get(name, {}), **settings}
    return METHODS[name.partition(",")[0]].build(*pairs, batch_size=32, rng=np.random.default_rng(seed), **base)


@pytest.mark.parametrize("name", [*METHODS, *ORDERS])
@pytest.mark.parametrize("rows", [1, 2, 64, 333])
def test_every_method_partitions_and_repeats(name, rows):
    pairs = clustered(rows, 8, 5)
    first, again, other = (build(name, pairs, seed) for seed in (0, 0, 1))
    assert sorted(first.order.tolist()) == list(range(rows))
    assert [len(batch) for batch in first] == [32] * (rows // 32) + ([rows % 32] if rows % 32 else [])
    np.testing.assert_array_equal(first.order, again.order)
    if rows > 2:
        assert not np.array_equal(first.order, other.order)


APART = find_conflicts([i % 300 for i in range(1000)], list(range(1000)))


@pytest.mark.parametrize(
    ("name", "setting", "value"),
    [
        ("hobit", "alpha", 0.0), ("hobit", "tau", 5.0), ("hobit", "seeds", 16), ("hobit", "candidates", 9),
        ("hobit", "seed_order", "k-means"), ("hobit", "seed_order", "facility-location"), ("hobit", "conflicts", APART),
        ("walks", "candidates", 30), ("walks", "neighbours", 3), ("walks", "restart", 0.9),
        ("ngame", "cluster_size", 4), ("b3", "skip", 0), ("b3", "ranks", 5), ("b3", "community_size", 8),
    ],
    ids=str,
)  # fmt: skip
def test_every_setting_changes_the_batches(pairs, name, setting, value):
    assert not np.array_equal(build(name, pairs).order, build(name, pairs, **{setting: value}).order)


@pytest.mark.parametrize("name", ["ngame", "walks", "b3", "hobit"])
def test_planted_clusters_meet(name):
    # 8 tight clusters of 64 in orthogonal directions: a method that looks at vectors fills batches from few of them
    rng = np.random.default_rng(0)
    label = rng.permutation(np.repeat(np.arange(8), 64))
    vectors = (np.eye(8)[label] + 0.05 * rng.standard_normal((512, 8))).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    settings = {
        "hobit": {"seeds": 1, "alpha": 0.0},
        "walks": {"candidates": 200, "neighbours": 10},
        "b3": FAST["b3"],
    }.get(name, {})
    batches = METHODS[name].build(vectors, vectors, batch_size=32, rng=np.random.default_rng(1), **settings)
    purity = np.mean([np.bincount(label[b]).max() / len(b) for b in batches])
    assert purity > 0.5, purity  # random batches: about 0.25


def test_balanced_clusters_are_balanced_and_similar():
    vectors, _ = clustered(1000, 16, 10)
    clusters = balanced_clusters(vectors, size=100, rng=np.random.default_rng(0))
    assert sorted(np.concatenate(clusters).tolist()) == list(range(1000))
    assert {c.size for c in clusters} <= {62, 63}
    within = np.mean([(vectors[c] @ vectors[c].T).mean() for c in clusters])
    assert within > (vectors @ vectors.T).mean() + 0.1


def test_proximity_graph_of_all_candidates_is_exact():
    vectors, _ = clustered(60, 8, 4)
    graph = proximity_graph(vectors, candidates=60, neighbours=5, rng=np.random.default_rng(0), block=7)
    scores = vectors @ vectors.T - 9 * np.eye(60)
    np.testing.assert_array_equal(np.sort(graph), np.sort(np.argsort(-scores, axis=1)[:, :5]))


def test_a_batch_joins_several_communities():
    pairs = clustered(512, 16, 16)
    of = rank_communities(*pairs, skip=2, ranks=20)
    assert len(set(of)) == 16
    batches = b3_batches(*pairs, batch_size=128, skip=2, ranks=20, rng=np.random.default_rng(0))
    assert all(4 <= len(set(of[batch])) <= 6 for batch in batches)


def test_the_top_ranks_left_out_are_the_nearest():
    # with the two top ranks left out, a pair's twin (its nearest document) is no edge of it
    queries, documents = clustered(60, 8, 6)
    from foils.batching.methods import _rank_graph

    starts, ends, _ = _rank_graph(queries, documents, 2, 5)
    scores = queries @ documents.T - 9 * np.eye(60)
    ranking = np.argsort(-scores, axis=1)
    for i in range(60):
        edges = set(ends[starts[i] : starts[i + 1]].tolist())
        assert set(ranking[i, 2:7].tolist()) <= edges
        for j in ranking[i, :2]:
            assert (j in edges) == (i in ranking[j, 2:7])


def test_kmeans_seeds_come_from_different_clusters():
    rng = np.random.default_rng(0)
    label = rng.permutation(np.repeat(np.arange(4), 50))
    queries = (np.eye(4)[label] + 0.01 * rng.standard_normal((200, 4))).astype(np.float32)
    line, groups = kmeans_seeds(queries, seeds=4, rng=np.random.default_rng(0))
    assert sorted(line.tolist()) == list(range(200))
    assert len({(a, b) for a, b in zip(label, groups, strict=True)}) == 4
    batches = METHODS["hobit"].build(
        queries, queries, batch_size=20, seeds=4, seed_order="k-means", rng=np.random.default_rng(0)
    )
    assert sum(len(set(label[batch[:4]])) == 4 for batch in batches) >= 5


def test_coverage_order_is_greedy_facility_location():
    # three directions with 3, 2 and 1 rows: each next seed covers the largest uncovered group
    vectors = np.eye(3)[[2, 0, 0, 1, 0, 1]]
    assert coverage_order(vectors).tolist()[:3] == [1, 3, 0]


def test_a_mixture_takes_pieces_of_different_sources():
    source = np.repeat(np.arange(4), [160, 80, 83, 40])
    mix = [(np.flatnonzero(source == k), Batches(np.random.default_rng(k).permutation(n), 8))
           for k, n in enumerate(np.bincount(source))]  # fmt: skip
    batches = mixed_batches(mix, parts=2, rng=np.random.default_rng(0))
    assert sorted(batches.order.tolist()) == list(range(363))
    assert batches.batch_size == 16
    two = [len(set(source[b])) == 2 and len(set(source[b[:8]])) == 1 for b in batches][:-1]
    assert np.mean(two) == 1
    pieces = {tuple(rows[p]) for rows, own in mix for p in own}
    assert all(tuple(b[:8]) in pieces and tuple(b[8:]) in pieces for b in list(batches)[:-1])


def test_methods_refuse_strange_names_and_settings():
    assert method_named("hobit", {"alpha": 0.5}).vectors == "current"
    with pytest.raises(UnknownNameError, match="b3, hobit, hobit-c, ngame, random, walks"):
        method_named("hobbit", {})
    known = r"unknown setting of ngame 'alpha'; expected one of: anneal, cluster_size, warmup"
    with pytest.raises(InputError, match=known):
        method_named("ngame", {"alpha": 1, "tau": 2})
    with pytest.raises(UnknownNameError, match="setting of random 'how'; expected one of: anneal, warmup"):
        method_named("random", {"how": 1})
