"""Measures from ranks agree with ir_measures; ranks under prefixes agree with their definition."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foils.runtime.errors import InputError
from foils.searching import Relevant, measure_ranks
from foils.searching.grid_ranks import grid_ranks, plain_grid_ranks
from foils.searching.ranks import UNREACHED

OWN = ["nDCG@10", "nDCG@3", "nDCG", "AP", "AP@5", "RR", "RR@10", "R@5", "R@100", "P@5"]
OWN += ["AP(rel=2)", "AP(rel=3)@5", "RR(rel=2)", "R(rel=4)@5", "P(rel=2)@10"]
OTHERS = ["IPrec@0.5", "Rprec", "Rprec(rel=2)", "Success@3", "SetP", "NumRet"]


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
    names = [*OWN, *OTHERS]
    expected = ir_measures.calc_aggregate([ir_measures.parse_measure(name) for name in names], qrels, run)
    # documents that were not reached leave no gap in a real ranking
    order = sorted(run["q"], key=lambda document: -run["q"][document])
    for i, hit in enumerate(reached):
        if hit:
            given_ranks[i] = order.index(f"d{i}")
    for name in names:
        value = measure_ranks(name, given_ranks, relevant, retrieved=len(order))
        assert value == pytest.approx(expected[ir_measures.parse_measure(name)], abs=1e-6), name


def test_one_s_own_measures_need_no_package_and_others_are_measured_once_a_ranking(monkeypatch):
    ir_measures = pytest.importorskip("ir_measures")
    relevant = Relevant(np.array([3, 5]), np.array([1, 2]))
    ranks = np.array([[[0, 4], [4, 0], [0, 4]], [[UNREACHED, 2], [UNREACHED, UNREACHED], [0, 4]]])
    one_by_one = [
        [float(measure_ranks("Rprec(rel=2)", row, relevant, retrieved=9)) for row in of] for of in ranks
    ]  # fmt: skip
    np.testing.assert_allclose(one_by_one, [[0, 1, 0], [0, 0, 0]])
    asked = []
    computed = ir_measures.iter_calc
    monkeypatch.setattr(ir_measures, "iter_calc", lambda m, q, r: asked.append(len(r)) or computed(m, q, r))
    np.testing.assert_array_equal(measure_ranks("Rprec(rel=2)", ranks, relevant, retrieved=9), one_by_one)
    assert asked == [4], "six rankings, four of them distinct"
    np.testing.assert_allclose(measure_ranks("SetP", ranks[0], relevant, retrieved=10), [0.2] * 3)
    np.testing.assert_allclose(measure_ranks("SetP", ranks[0], relevant), [0.4] * 3)
    assert measure_ranks("AP(rel=3)", ranks, relevant).tolist() == [[0] * 3] * 2, "no document is that relevant"
    assert len(asked) == 3


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
        ("ndcg@10", "capitals"),
        ("R", "ir_measures' names"),
        ("nDCG@", "ir_measures' names"),
        ("P@x", "ir_measures' names"),
        ("Bpref", "judged not relevant"),
        ("Judged@10", "judged not relevant"),
    ],
)
def test_other_names_are_refused(name, error):
    pytest.importorskip("ir_measures")
    with pytest.raises(InputError, match=error):
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
