"""The grid in one pass is the settings one by one; the honest number is held out, the oracle is not; measures."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fakes import unit
from foils.encode import ExactIndex, Vectors
from foils.encode.nearest import rank_rows
from foils.runtime.errors import InputError, UnknownNameError
from foils.searching import (
    DimensionSettings,
    Grid,
    Judged,
    cross_validate,
    dime_grid,
    evaluate_grid,
    oracle,
    published_grid,
    sharpened_queries,
)
from foils.searching.choosing import UNREACHED, GridValues, Relevant, grid_ranks, measure_ranks
from refusals import refused

MEASURES = ("nDCG@10", "AP", "RR@5")


QUERIES, DOCUMENTS = unit(6, seed=1), Vectors.of(unit(80))
INDEX = ExactIndex(DOCUMENTS)
LISTS = list(INDEX.search(QUERIES, 40)[0])
RELEVANT = [
    Relevant(np.random.default_rng(row).choice(80, 4, replace=False), np.array([1, 2, 3, 1])) for row in range(6)
]
GRID = Grid("eclipse", ((2, 3), (5, 2), (3, 7)), ((0.2, 0.4), (0.5, 0.5), (0.5, 1.0), (1.0, 0.1)), (0.3, 0.5, 1.0))


JUDGED = Judged(QUERIES, DOCUMENTS, LISTS, RELEVANT, measures=MEASURES)


def one_by_one(settings, k=40, **options):
    """Values of the settings, by each of which what was retrieved is ranked again."""
    out = {measure: np.empty((len(QUERIES), len(settings))) for measure in MEASURES}
    for column, setting in enumerate(settings):
        made = sharpened_queries(QUERIES, DOCUMENTS, LISTS, setting, **options)
        positions, _ = rank_rows(made.queries, DOCUMENTS, LISTS)
        for row, relevant in enumerate(RELEVANT):
            place = {position: rank for rank, position in enumerate(positions[row][:k])}
            ranks = np.array([place.get(position, UNREACHED) for position in relevant.rows])
            for measure in MEASURES:
                out[measure][row, column] = measure_ranks(measure, ranks, relevant)
    return out


def alike(found, expected):
    for measure in MEASURES:
        np.testing.assert_allclose(found[measure], expected[measure], atol=1e-6)


@pytest.mark.parametrize("grid", [GRID, dime_grid((1, 4))])
@pytest.mark.parametrize("answers", [None, unit(6, seed=5)], ids=["feedback", "answers"])
def test_the_grid_in_one_pass_is_the_settings_one_by_one(grid, answers):
    found = evaluate_grid(replace(JUDGED, answers=answers), grid)
    expected = one_by_one(found.settings, answers=answers)
    alike(found.values, expected)


def test_every_named_setting_is_among_the_settings_that_can_differ():
    """0.2:0.4 and 0.5:1.0 order alike, so one of them stands for both."""
    assert len(GRID.settings) == 3 * 3 * 3
    pairs = ((0.2, 0.4), (0.5, 1.0))
    alike(*(one_by_one([DimensionSettings(k_minus=3, alpha=a, beta=b, share=0.5)]) for a, b in pairs))


def test_only_the_best_of_each_ranking_count():
    found = evaluate_grid(replace(JUDGED, k=6), GRID)
    expected = one_by_one(GRID.settings, k=6)
    whole = evaluate_grid(JUDGED, GRID)
    alike(found.values, expected)
    assert (found.values["AP"] < whole.values["AP"]).any()


def test_what_short_lists_cannot_serve_keeps_everything():
    """k⁺ + k⁻ is 5, 7 and 10: a list must be longer."""
    lengths = (0, 5, 6, 7, 10, 11)
    lists = [found[:length] for found, length in zip(LISTS, lengths, strict=True)]
    values = evaluate_grid(replace(JUDGED, lists=lists), GRID).values["AP"].reshape(6, 3, -1, 3)
    for row, length in enumerate(lengths):
        for at, needed in enumerate((5, 7, 10)):
            if length <= needed:
                np.testing.assert_array_equal(values[row, at], values[row, 0, :, 2:].repeat(3, axis=1))
    only = evaluate_grid(replace(JUDGED, lists=lists), replace(GRID, shares=(0.3,))).values["AP"].reshape(6, 3, -1)
    np.testing.assert_array_equal(only, values[..., 0], "all kept, though the grid has no share 1")


def test_the_published_grid_is_as_published():
    for reading in ("few-irrelevant", "few-relevant"):
        grid = published_grid(reading)
        assert (len(grid.depths), len(grid.weights), len(grid.shares)) == (5 * 13, 100, 10)
        assert len(grid.ratios) == 63
        plus, minus = (sorted({pair[i] for pair in grid.depths}) for i in (0, 1))
        few, many = (minus, plus) if reading == "few-irrelevant" else (plus, minus)
        assert few == [2, 3, 4, 5, 6]
        assert many == list(range(2, 15))
    assert published_grid() == published_grid("few-relevant"), "as in the authors' notebook"
    assert [s.share for s in dime_grid().settings] == [tenth / 10 for tenth in range(1, 11)]
    refused("few-irrelevant", published_grid, "both", error=UnknownNameError)


def made(values):
    values = np.asarray(values, np.float64)
    settings = [DimensionSettings(share=(c + 1) / 1000) for c in range(values.shape[1])]
    return GridValues(settings, {"AP": values, "RR": 1 - values})


def test_the_oracle_is_the_best_mean_and_the_first_where_equal():
    found = oracle(made([[0.1, 0.5, 0.5], [0.2, 0.4, 0.4]]), "AP")
    assert [s.share for s in found.settings] == [0.002]
    np.testing.assert_allclose(found.per_query["AP"], [0.5, 0.4])
    np.testing.assert_allclose(found.per_query["RR"], [0.5, 0.6])


def test_settings_are_chosen_without_the_queries_they_are_reported_on():
    """Written out for several deals: `per_query` is their mean, `spread` their deviation."""
    values = np.random.default_rng(0).random((23, 7))
    tuned = cross_validate(made(values), "AP", rng=np.random.default_rng(1), folds=4, deals=3)
    rng, deals, chosen = np.random.default_rng(1), [], []
    for _ in range(3):
        fold = np.empty(23, int)
        fold[rng.permutation(23)] = np.arange(23) % 4
        best = [int(np.argmax(values[fold != each].mean(axis=0))) for each in range(4)]
        chosen += [(column + 1) / 1000 for column in best]
        deals.append(values[np.arange(23), np.array(best)[fold]])
    assert [setting.share for setting in tuned.settings] == chosen
    np.testing.assert_allclose(tuned.per_query["AP"], np.mean(deals, axis=0))
    np.testing.assert_allclose(tuned.per_query["RR"], 1 - np.mean(deals, axis=0))
    assert tuned.spread["AP"] == pytest.approx(np.std([deal.mean() for deal in deals], ddof=1))
    assert oracle(made(values), "AP").spread["AP"] == 0


@pytest.mark.parametrize(
    "call",
    [
        lambda: cross_validate(made(np.ones((40, 2))), "AP", rng=np.random.default_rng(0), folds=1),
        lambda: cross_validate(made(np.ones((40, 2))), "AP", rng=np.random.default_rng(0), folds=41),
        lambda: cross_validate(made(np.ones((40, 2))), "AP", rng=np.random.default_rng(0), deals=0),
    ],
)
def test_unusable_input_is_refused(call):
    with pytest.raises(InputError):
        call()


OWN = ["nDCG@10", "nDCG@3", "nDCG", "AP", "AP@5", "RR", "RR@10", "R@5", "R@100"]


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
    expected = ir_measures.calc_aggregate([ir_measures.parse_measure(name) for name in OWN], qrels, run)
    # documents that were not reached leave no gap in a real ranking
    order = sorted(run["q"], key=lambda document: -run["q"][document])
    for i, hit in enumerate(reached):
        if hit:
            given_ranks[i] = order.index(f"d{i}")
    for name in OWN:
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
    [("ndcg@10", "capitals"), ("R", "cut-off"), ("Rprec", "nDCG, AP, RR, R"), ("AP(rel=2)", "cut-off alone")],
)
def test_other_names_are_refused(name, error):
    refused(error, measure_ranks, name, np.array([0]), Relevant(np.array([0]), np.array([1])))


def problem(seed, k=40, d=9):
    rng = np.random.default_rng(seed)
    products = rng.integers(-2, 3, (k, d)).astype(np.float32)  # whole numbers: sums are exact, ties are many
    orders = np.argsort(rng.random((25, d)), axis=1)
    return products, orders, np.array([1, 4, 8, 9]), np.array([0, 17, k - 1])


@pytest.mark.parametrize("seed", range(3))
def test_grid_ranks_are_their_definition(seed):
    products, orders, cuts, columns = problem(seed)
    found = grid_ranks(products, orders, cuts, columns)
    for o, order in enumerate(orders):
        for c, cut in enumerate(cuts):
            scores = products[:, order[:cut]].sum(axis=1)
            ranking = list(np.argsort(-scores, kind="stable"))
            assert [ranking.index(column) for column in columns] == found[o, c].tolist()
