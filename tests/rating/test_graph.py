"""Graphs of comparisons, and what a large rating costs: work by pairs, memory by blocks."""

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fakes import memory_of
from foils.rating import lead_errors, thurstone
from foils.rating import pairs as pairs_module
from foils.rating.pairs import (
    Candidates,
    Pairs,
    algebraic_connectivity,
    all_pairs,
    candidate_keys,
    regular_pairs,
)
from foils.runtime import memory
from foils.runtime.errors import InputError


def graph_of(pairs: Pairs, query: int) -> nx.MultiGraph:
    graph = nx.MultiGraph()
    graph.add_nodes_from(range(pairs.offsets[query], pairs.offsets[query + 1]))
    graph.add_edges_from(np.stack([pairs.first, pairs.second], 1)[pairs.query == query].tolist())
    return graph


@settings(max_examples=60, deadline=None)
@given(
    sizes=st.lists(st.integers(0, 30), min_size=0, max_size=6),
    degree=st.sampled_from([2, 4, 6, 8, 12]),
    seed=st.integers(0, 2**32),
)
def test_graphs_are_simple_regular_and_connected(sizes, degree, seed):
    pairs = regular_pairs(sizes, degree=degree, keys=np.random.default_rng(seed))
    for query, n in enumerate(sizes):
        graph = graph_of(pairs, query)
        expected = min(degree, n - 1) if n else 0
        assert all(count == expected for _, count in graph.degree())
        assert nx.Graph(graph).number_of_edges() == graph.number_of_edges() == n * expected // 2
        assert n == 0 or nx.is_connected(graph)


def test_a_graph_just_above_the_complete_one_is_found():
    pairs = regular_pairs([18] * 50, degree=16, keys=np.random.default_rng(0))  # complete less a perfect matching
    assert (pairs.degrees == 16).all()
    assert len(np.unique(np.sort(np.stack([pairs.first, pairs.second], 1), 1), axis=0)) == len(pairs) == 50 * 144


def test_diagnostics_of_known_graphs():
    cycle = Pairs([0, 8], np.arange(8), (np.arange(8) + 1) % 8)
    assert algebraic_connectivity(cycle)[0] == pytest.approx(2 - 2 * np.cos(2 * np.pi / 8))
    complete = all_pairs([5, 2])
    np.testing.assert_allclose(algebraic_connectivity(complete), [5, 2])
    apart = Pairs([0, 4], [0, 2], [1, 3])
    assert algebraic_connectivity(apart)[0] == pytest.approx(0, abs=1e-12)
    assert np.isnan(algebraic_connectivity(all_pairs([1, 0]))).all()


def test_random_graphs_are_the_expanders_that_friedman_promises():
    pairs = regular_pairs([200] * 5, degree=6, keys=np.random.default_rng(4))
    assert (algebraic_connectivity(pairs) > 6 - 2 * np.sqrt(5) - 0.35).all()


@pytest.mark.parametrize(
    ("offsets", "first", "second", "said"),
    [
        ([0, 2], [0], [0], "1 of 1 pairs are not two candidates"),
        ([0, 2, 4], [0], [3], "1 of 1 pairs are not two candidates"),
        ([0, 2], [0], [2], "of 2 in all"),
        ([0, 2, 4], [2, 0], [3, 1], "query by query"),
        ([1, 2], [], [], "offsets"),
        ([0, 3, 2], [], [], "offsets"),
        ([0, 2], [0, 1], [1], "as many first as second"),
    ],
)
def test_faulty_pairs_are_refused(offsets, first, second, said):
    with pytest.raises(InputError, match=said):
        Pairs(np.array(offsets), np.array(first), np.array(second))


def test_blocks_hold_every_pair_once_whatever_their_size():
    pairs = regular_pairs([5, 0, 9, 3, 5, 1], degree=2, keys=np.random.default_rng(5))
    for cells in (1, 60, 1000):
        seen = []
        for block in pairs.blocks(cells):
            assert len(block.queries) == 1 or block.at.shape[1] * block.at.size <= cells
            np.testing.assert_array_equal(block.at[block.query, block.first], pairs.first[block.pairs])
            np.testing.assert_array_equal(block.at[block.query, block.second], pairs.second[block.pairs])
            seen.extend(block.pairs)
        assert sorted(seen) == list(range(len(pairs)))


def asked(pairs: Pairs, names: list[str], query: int = 0) -> set[frozenset[str]]:
    ends = zip(pairs.first[pairs.query == query].tolist(), pairs.second[pairs.query == query].tolist(), strict=True)
    return {frozenset((names[one], names[other])) for one, other in ends}


def keyed(documents: list[list[str]], seed: int = 0) -> np.ndarray:
    lists = [[(key, "text") for key in of] for of in documents]
    names = [f"q{number}" for number in range(len(lists))]
    return candidate_keys(Candidates.of_lists(names, names, lists), seed)


@pytest.mark.parametrize(("n", "least"), [(12, 0.7), (20, 0.85), (50, 0.95)])
def test_another_candidate_keeps_most_pairs(n, least):
    """One edge of each of the three cycles has to go: (n − 1)/n would be kept without any repair."""
    kept = []
    for seed in range(10):
        names = [f"d{i}" for i in range(n)]
        more = ["another", *names]
        before = asked(regular_pairs([n], degree=6, keys=keyed([names], seed)), names)
        after = asked(regular_pairs([n + 1], degree=6, keys=keyed([more], seed)), more)
        kept.append(len(before & after) / len(before))
    assert least < np.mean(kept) <= (n - 1) / n


@pytest.mark.parametrize("n", [5, 7, 9, 14, 20])
def test_a_graph_depends_on_its_query_its_candidates_and_the_seed_alone(n):
    names, other = [f"d{i}" for i in range(n)], [f"e{i}" for i in range(9)]
    alone = asked(regular_pairs([n], degree=6, keys=keyed([names])), names)
    both = asked(regular_pairs([n, 9], degree=6, keys=keyed([names, other])), [*names, *other])
    turned = asked(regular_pairs([n], degree=6, keys=keyed([names[::-1]])), names[::-1])
    assert alone == both == turned
    if n > 7:
        assert asked(regular_pairs([n], degree=6, keys=keyed([names], 1)), names) != alone
        second = regular_pairs([9, n], degree=6, keys=keyed([other, names]))  # the same documents of another query
        assert asked(second, [*other, *names], 1) != alone


def test_the_memory_budget_cuts_the_errors_and_changes_no_digit_of_them(monkeypatch):
    rng = np.random.default_rng(0)
    pairs = regular_pairs([60] * 20 + [59] * 3 + [5, 1, 0], degree=4, keys=rng)
    preference, leader = rng.random(len(pairs)), np.minimum(pairs.offsets[:-1], pairs.candidates - 1)

    def errors():
        ratings = thurstone(pairs, preference)
        return ratings.standard_error, lead_errors(pairs, ratings, leader, prior_sd=10.0)

    whole, sizes, plain = errors(), [], pairs_module.block_of
    monkeypatch.setattr(pairs_module, "block_of", lambda *given: sizes.append(len(given[1])) or plain(*given))
    with memory_of(memory.LEAST):
        small = errors()
    np.testing.assert_array_equal(small, whole)
    assert sizes.count(4) == 2 * 5, "two passes over twenty queries, 4 of 60² cells in a block"
