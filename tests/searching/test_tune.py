"""The grid in one pass is the settings one by one; the honest number is held out, the oracle is not."""

from dataclasses import replace

import numpy as np
import pytest

from foils.encode import Vectors
from foils.runtime.errors import InputError, UnknownNameError
from foils.searching import (
    DimensionSettings,
    ExactIndex,
    Grid,
    GridValues,
    Relevant,
    cross_validate,
    dime_grid,
    evaluate_grid,
    measure_ranks,
    oracle,
    published_grid,
    search_vectors,
)
from foils.searching import grid_ranks as loops
from foils.searching.ranks import UNREACHED

MEASURES = ("nDCG@10", "AP", "RR@5")


def unit(n, d=10, seed=0):
    x = np.random.default_rng(seed).normal(size=(n, d)).astype(np.float32)
    return x / np.linalg.norm(x, axis=1, keepdims=True)


QUERIES, DOCUMENTS = unit(6, seed=1), Vectors.of(unit(80))
INDEX = ExactIndex(DOCUMENTS)
LISTS = list(INDEX.search(QUERIES, 40)[0])
RELEVANT = [
    Relevant(np.random.default_rng(row).choice(80, 4, replace=False), np.array([1, 2, 3, 1])) for row in range(6)
]
GRID = Grid("eclipse", ((2, 3), (5, 2), (3, 7)), ((0.2, 0.4), (0.5, 0.5), (0.5, 1.0), (1.0, 0.1)), (0.3, 0.5, 1.0))


def one_by_one(settings, **options):
    """Values of the settings, each searched for on its own."""
    out = {measure: np.empty((len(QUERIES), len(settings))) for measure in MEASURES}
    for column, setting in enumerate(settings):
        options = {"k": 40, "feedback_depth": 40, "rerank_depth": 40, **options}
        found = search_vectors(QUERIES, DOCUMENTS, INDEX, setting, second_pass="retrieved", **options)
        for row, relevant in enumerate(RELEVANT):
            place = {position: rank for rank, position in enumerate(found.positions[row])}
            ranks = np.array([place.get(position, UNREACHED) for position in relevant.rows])
            for measure in MEASURES:
                out[measure][row, column] = measure_ranks(measure, ranks, relevant)
    return out


@pytest.mark.parametrize("grid", [GRID, dime_grid((1, 4))])
@pytest.mark.parametrize("answered", [False, True])
@pytest.mark.parametrize("compiled", [True, False])
def test_the_grid_in_one_pass_is_the_settings_one_by_one(grid, answered, compiled, monkeypatch):
    if not compiled:
        monkeypatch.setattr(loops, "_compiled", lambda: None)
    answers = unit(6, seed=5) if answered else None
    found = evaluate_grid(QUERIES, DOCUMENTS, LISTS, RELEVANT, grid, measures=MEASURES, answers=answers)
    expected = one_by_one(found.settings, answers=answers)
    for measure in MEASURES:
        np.testing.assert_allclose(found.values[measure], expected[measure], atol=1e-6)
    assert not found.short.any()


def test_every_named_setting_is_among_the_settings_that_can_differ():
    """0.2:0.4 and 0.5:1.0 order alike, so one of them stands for both."""
    assert GRID.size == 3 * 4 * 3
    assert len(GRID.settings) == 3 * 3 * 3
    a = one_by_one([DimensionSettings(k_minus=3, alpha=0.2, beta=0.4, share=0.5)])
    b = one_by_one([DimensionSettings(k_minus=3, alpha=0.5, beta=1.0, share=0.5)])
    for measure in MEASURES:
        np.testing.assert_array_equal(a[measure], b[measure])


def test_depth_and_feedback_reach_the_grid():
    lists = [np.random.default_rng(row).permutation(80)[:30] for row in range(6)]
    for options in ({"feedback_depth": 12}, {"feedback": lists}, {"feedback": lists, "feedback_depth": 12}):
        found = evaluate_grid(QUERIES, DOCUMENTS, LISTS, RELEVANT, GRID, measures=MEASURES, **options)
        searched = {"feedback_depth": options.get("feedback_depth", 40), "feedback": options.get("feedback")}
        expected = one_by_one(GRID.settings, **searched)
        for measure in MEASURES:
            np.testing.assert_allclose(found.values[measure], expected[measure], atol=1e-6)


def test_only_the_best_of_each_ranking_count():
    found = evaluate_grid(QUERIES, DOCUMENTS, LISTS, RELEVANT, GRID, measures=MEASURES, k=6)
    expected = one_by_one(GRID.settings, k=6)
    whole = evaluate_grid(QUERIES, DOCUMENTS, LISTS, RELEVANT, GRID, measures=MEASURES)
    for measure in MEASURES:
        np.testing.assert_allclose(found.values[measure], expected[measure], atol=1e-6)
    assert (found.values["AP"] < whole.values["AP"]).any()


def test_with_answers_settings_that_differ_in_the_sun_s_documents_alone_are_one():
    """k⁺ has no effect where an answer is the sun, so each distinct setting is computed once."""
    answers = unit(6, seed=5)
    published = published_grid("both")
    assert len(published.settings) == 105 * 63 * 10
    assert len(published.answered.settings) == 13 * 63 * 10
    assert sorted(minus for _, minus in published.answered.depths) == list(range(2, 15))
    assert len(dime_grid(range(1, 15)).answered.settings) == 10
    many = replace(GRID, depths=((2, 3), (4, 3), (3, 7), (6, 3)))
    few = evaluate_grid(QUERIES, DOCUMENTS, LISTS, RELEVANT, many, measures=MEASURES, answers=answers)
    assert few.settings == [s for s in many.settings if (s.k_plus, s.k_minus) in ((2, 3), (3, 7))]
    assert few.size == many.size
    expected = one_by_one([replace(s, k_plus=9) for s in few.settings], answers=answers)
    for measure in MEASURES:
        np.testing.assert_allclose(few.values[measure], expected[measure], atol=1e-6)


@pytest.mark.parametrize("which", ["lists", "feedback"])
def test_numbers_that_are_no_positions_are_refused(which):
    wrong = [*LISTS[:5], np.array([3, -1])]
    given = {"lists": LISTS, "feedback": None} | {which: wrong}
    with pytest.raises(InputError, match="from 0 to 79; list 5"):
        evaluate_grid(QUERIES, DOCUMENTS, given["lists"], RELEVANT, GRID, feedback=given["feedback"])


def test_short_lists_keep_everything_and_are_marked():
    lists = [found[:length] for found, length in zip(LISTS, (0, 5, 6, 7, 10, 11), strict=True)]
    found = evaluate_grid(QUERIES, DOCUMENTS, lists, RELEVANT, GRID, measures=MEASURES)
    short = found.short.reshape(6, 3, -1)[:, :, 0]
    assert short[:, 0].tolist() == [True, True, False, False, False, False], "k⁺ + k⁻ = 5 < k"
    assert short[:, 1].tolist() == [True, True, True, True, False, False]
    assert short[:, 2].tolist() == [True, True, True, True, True, False]
    baseline = found.values["AP"].reshape(6, -1, 3)[:, :, 2]
    for row, column in np.argwhere(found.short):
        assert found.values["AP"][row, column] == baseline[row, 0]
    only = replace(GRID, shares=(0.3,))
    less = evaluate_grid(QUERIES, DOCUMENTS, lists, RELEVANT, only, measures=MEASURES)
    np.testing.assert_array_equal(
        less.values["AP"], found.values["AP"].reshape(6, -1, 3)[:, :, 0], "all kept, though the grid has no share 1"
    )


def test_random_moons_come_from_the_generator():
    grid = replace(GRID, moon_pool=20)
    one, same, other = (
        evaluate_grid(QUERIES, DOCUMENTS, LISTS, RELEVANT, grid, rng=np.random.default_rng(seed)).values["AP"]
        for seed in (0, 0, 1)
    )
    np.testing.assert_array_equal(one, same)
    assert not np.array_equal(one, other)
    with pytest.raises(InputError, match="generator"):
        evaluate_grid(QUERIES, DOCUMENTS, LISTS, RELEVANT, grid)


def test_the_published_grid_is_as_published():
    for reading in ("few-irrelevant", "few-relevant"):
        grid = published_grid(reading)
        assert grid.size == 5 * 13 * 10 * 10 * 10
        assert len(grid.ratios) == 63
        plus, minus = (sorted({pair[i] for pair in grid.depths}) for i in (0, 1))
        few, many = (minus, plus) if reading == "few-irrelevant" else (plus, minus)
        assert few == [2, 3, 4, 5, 6]
        assert many == list(range(2, 15))
    assert published_grid() == published_grid("few-relevant"), "as in the authors' notebook"
    assert published_grid("both").size == 105_000
    assert len(set(published_grid("both").depths)) == 105
    assert published_grid(moon_pool=30).settings[0].moon_pool == 30
    assert [s.share for s in dime_grid().settings] == [tenth / 10 for tenth in range(1, 11)]
    with pytest.raises(UnknownNameError, match="both"):
        published_grid("all")


def made(values):
    values = np.asarray(values, np.float64)
    settings = [DimensionSettings(share=(c + 1) / 1000) for c in range(values.shape[1])]
    return GridValues(settings, {"AP": values, "RR": 1 - values}, *np.zeros((2, *values.shape), bool), values.shape[1])


def test_the_oracle_is_the_best_mean_and_the_first_where_equal():
    found = oracle(made([[0.1, 0.5, 0.5], [0.2, 0.4, 0.4]]), "AP")
    assert found.kind == "oracle"
    assert [s.share for s in found.settings] == [0.002]
    np.testing.assert_allclose(found.per_query["AP"], [0.5, 0.4])
    np.testing.assert_allclose(found.per_query["RR"], [0.5, 0.6])


def test_settings_are_chosen_without_the_queries_they_are_reported_on():
    values = np.random.default_rng(0).random((23, 7))
    tuned = cross_validate(made(values), "AP", rng=np.random.default_rng(1), folds=4)
    assert tuned.kind == "honest"
    assert sorted(np.bincount(tuned.fold)) == [5, 6, 6, 6]
    for fold, setting in enumerate(tuned.settings):
        best = int(np.argmax(values[tuned.fold != fold].mean(axis=0)))
        assert setting.share == (best + 1) / 1000
        np.testing.assert_allclose(
            tuned.per_query["AP"][tuned.fold == fold], values[tuned.fold == fold, best], rtol=1e-6
        )
        np.testing.assert_allclose(
            tuned.per_query["RR"][tuned.fold == fold], 1 - values[tuned.fold == fold, best], rtol=1e-6
        )


def test_on_noise_the_oracle_promises_what_the_honest_number_does_not_keep():
    values = np.random.default_rng(0).random((400, 500))
    rng = np.random.default_rng(1)
    assert oracle(made(values), "AP").per_query["AP"].mean() > 0.53
    assert cross_validate(made(values), "AP", rng=rng).per_query["AP"].mean() == pytest.approx(0.5, abs=0.05)


def test_where_one_setting_is_best_for_all_both_find_it():
    values = np.random.default_rng(0).random((30, 5)) * 0.1
    values[:, 3] += 0.5
    for tuned in (oracle(made(values), "AP"), cross_validate(made(values), "AP", rng=np.random.default_rng(2))):
        np.testing.assert_array_equal(tuned.per_query["AP"], values[:, 3])


def test_folds_and_seed_matter():
    values = made(np.random.default_rng(0).random((40, 50)))
    deals = [
        cross_validate(values, "AP", rng=np.random.default_rng(seed), folds=folds).fold.tolist()
        for seed, folds in ((0, 5), (1, 5), (0, 8))
    ]
    assert deals[0] != deals[1]
    assert deals[0] != deals[2]
    for folds in (1, 41):
        with pytest.raises(InputError, match="folds"):
            cross_validate(values, "AP", rng=np.random.default_rng(0), folds=folds)


@pytest.mark.parametrize(
    "call",
    [
        lambda: Grid("eclipse", ()),
        lambda: Grid("eclipse", ((2, 2),), shares=()),
        lambda: Grid("rdime", ((1, 1),)),
        lambda: Grid("eclipse", ((0, 2),)),
        lambda: Grid("eclipse", ((2, 2),), ((0.0, 1.0),)),
        lambda: Grid("eclipse", ((2, 2),), shares=(1.2,)),
        lambda: evaluate_grid(QUERIES, DOCUMENTS, LISTS[:2], RELEVANT, GRID),
        lambda: evaluate_grid(QUERIES, DOCUMENTS, LISTS, RELEVANT[:2], GRID),
    ],
)
def test_unusable_input_is_refused(call):
    with pytest.raises(InputError):
        call()
