"""Measures from ranks agree with ir_measures; ranks under prefixes agree with their definition."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foils.runtime.errors import InputError, UnknownNameError
from foils.searching import Relevant, measure_ranks
from foils.searching.grid_ranks import grid_ranks, plain_grid_ranks
from foils.searching.ranks import UNREACHED

NAMES = ["nDCG@10", "nDCG@3", "nDCG", "AP", "AP@5", "RR", "RR@10", "R@5", "R@100", "P@5"]


@given(st.lists(st.integers(1, 4), min_size=1, max_size=6), st.randoms(use_true_random=False))
def test_values_agree_with_ir_measures(grades, random):
    ir_measures = pytest.importorskip("ir_measures")
    ranks = random.sample(range(30), len(grades))
    reached = [random.random() < 0.8 for _ in grades]
    relevant = Relevant(np.arange(len(grades)), np.array(grades))
    given_ranks = np.where(reached, ranks, UNREACHED)
    run = {"q": {f"x{i}": -float(i) for i in range(30) if i not in ranks}}
    run["q"] |= {f"d{i}": -float(rank) for i, rank in enumerate(ranks) if reached[i]}
    qrels = {"q": {f"d{i}": grade for i, grade in enumerate(grades)}}
    expected = ir_measures.calc_aggregate([ir_measures.parse_measure(name) for name in NAMES], qrels, run)
    # documents that were not reached leave no gap in a real ranking
    order = sorted(run["q"], key=lambda document: -run["q"][document])
    for i, hit in enumerate(reached):
        if hit:
            given_ranks[i] = order.index(f"d{i}")
    for name in NAMES:
        value = measure_ranks(name, given_ranks, relevant)
        assert value == pytest.approx(expected[ir_measures.parse_measure(name)], abs=1e-6), name


def test_values_worked_by_hand_for_many_rankings_at_once():
    relevant = Relevant(np.array([7, 9]), np.array([1, 2]))
    ranks = np.array([[[0, 2], [2, 0]], [[UNREACHED, 1], [UNREACHED, UNREACHED]]])
    np.testing.assert_allclose(measure_ranks("AP", ranks, relevant), [[(1 + 2 / 3) / 2] * 2, [1 / 4, 0]])
    np.testing.assert_allclose(measure_ranks("RR@1", ranks, relevant), [[1, 1], [0, 0]])
    ideal = 2 + 1 / np.log2(3)
    np.testing.assert_allclose(
        measure_ranks("nDCG@10", ranks, relevant) * ideal, [[1 + 1, 2 + 1 / 2], [2 / np.log2(3), 0]]
    )


@pytest.mark.parametrize(
    ("name", "error"),
    [
        ("ndcg@10", UnknownNameError),
        ("AP@0", InputError),
        ("R", InputError),
        ("nDCG@", InputError),
        ("P@x", InputError),
    ],
)
def test_other_names_are_refused(name, error):
    with pytest.raises(error):
        measure_ranks(name, np.array([0]), Relevant(np.array([0]), np.array([1])))


@pytest.mark.parametrize(("rows", "grades"), [([0, 0], [1, 1]), ([0], [0]), ([], []), ([0, 1], [1]), ([0], [-1])])
def test_relevant_documents_are_checked(rows, grades):
    with pytest.raises(InputError):
        Relevant(np.array(rows, np.int64), np.array(grades, np.int64))


def test_ranks_must_fit_the_documents():
    with pytest.raises(InputError, match="2 documents"):
        measure_ranks("AP", np.zeros((4, 3), np.int32), Relevant(np.array([0, 1]), np.array([1, 1])))


def problem(seed, k=40, d=9):
    rng = np.random.default_rng(seed)
    products = rng.integers(-2, 3, (k, d)).astype(np.float32)  # whole numbers: sums are exact, ties are many
    orders = np.argsort(rng.random((25, d)), axis=1)
    return products, orders, np.array([1, 4, 8, 9]), np.array([0, 17, k - 1])


@pytest.mark.parametrize("compute", [grid_ranks, plain_grid_ranks])
@pytest.mark.parametrize("seed", range(3))
def test_grid_ranks_are_their_definition(compute, seed):
    products, orders, cuts, columns = problem(seed)
    found = compute(products, orders, cuts, columns)
    for o, order in enumerate(orders):
        for c, cut in enumerate(cuts):
            scores = products[:, order[:cut]].sum(axis=1)
            ranking = list(np.argsort(-scores, kind="stable"))
            assert [ranking.index(column) for column in columns] == found[o, c].tolist()


def test_the_compiled_loop_is_the_plain_one():
    pytest.importorskip("numba")
    products, orders, cuts, columns = problem(8, k=300, d=30)
    cuts = np.array([3, 15, 30])
    np.testing.assert_array_equal(
        grid_ranks(products, orders, cuts, columns), plain_grid_ranks(products, orders, cuts, columns, block=7)
    )


def test_no_document_to_rank_is_no_rank():
    products, orders, cuts, _ = problem(0)
    for compute in (grid_ranks, plain_grid_ranks):
        assert compute(products, orders, cuts, np.array([], np.int64)).shape == (25, 4, 0)
