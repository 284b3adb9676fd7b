"""Two passes, what they are made of, and that nothing is searched for in vain."""

from dataclasses import replace
from typing import ClassVar

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from fakes import unit
from foils.encode import Vectors
from foils.encode.nearest import ExactIndex
from foils.runtime.errors import InputError
from foils.searching import (
    DimensionSettings,
    Grid,
    Judged,
    dime_importance,
    eclipse_importance,
    evaluate_grid,
    keep_share,
    rdime_mask,
    search_vectors,
    sharpened_queries,
    sun,
)  # fmt: skip
from foils.searching.choosing import Relevant
from foils.searching.dimensions import check_depths, dimension_order, kept_count, moon, moved, scaled_to
from refusals import refused

DOCUMENTS, QUERIES = unit(120), unit(9, seed=1)
VECTORS = Vectors.of(DOCUMENTS)
INDEX = ExactIndex(VECTORS)
ECLIPSE = DimensionSettings("eclipse", k_plus=3, k_minus=4, alpha=0.7, beta=0.4, share=0.5)


def bytes_of(found):
    return [array.tobytes() for array in (*found.positions, *found.scores)]


def searched(settings=ECLIPSE, index=INDEX, **more):
    return search_vectors(QUERIES, VECTORS, index, settings, **more)


def plainly(query, settings, *, k, depth, answer=None):
    """One query at a time, from the definitions; queries have length 1."""
    order = np.lexsort((np.arange(len(DOCUMENTS)), -(DOCUMENTS @ query)))
    feedback = DOCUMENTS[order[:depth]]
    relevant = sun(feedback, settings.k_plus) if answer is None else answer.astype(np.float64)
    if settings.method == "rocchio":
        sharpened = query + settings.weight * relevant / np.linalg.norm(relevant)
    else:
        u = dime_importance(query, relevant)
        if settings.method == "eclipse":
            away = feedback[-settings.k_minus :].astype(np.float64).mean(axis=0)
            u = eclipse_importance(query, relevant, away, alpha=settings.alpha, beta=settings.beta)
        if settings.method == "rdime":
            u = dime_importance(query, relevant * (np.linalg.norm(query) / np.linalg.norm(relevant)))
        sharpened = query * (rdime_mask(query, u) if settings.method == "rdime" else keep_share(u, settings.share))
    scores = DOCUMENTS @ sharpened
    return sharpened, np.argsort(-scores, kind="stable")[:k]


@pytest.mark.parametrize("method", ["dime", "eclipse", "rdime", "rocchio"])
@pytest.mark.parametrize("answered", [False, True])
def test_two_passes_are_the_definition(method, answered):
    settings = replace(ECLIPSE, method=method, weight=0.4)
    answers = unit(9, seed=3) if answered else None
    index = searched(settings, k=20, feedback_depth=50, answers=answers)
    for row, query in enumerate(QUERIES):
        answer = None if answers is None else answers[row]
        sharpened, whole = plainly(query, settings, k=20, depth=50, answer=answer)
        np.testing.assert_allclose(index.sharpened.queries[row], sharpened, rtol=1e-5)
        np.testing.assert_array_equal(index.positions[row], whole)
        np.testing.assert_allclose(index.scores[row], DOCUMENTS[whole] @ sharpened, rtol=1e-5, atol=1e-6)
    assert not index.sharpened.no_feedback.any()
    assert (index.sharpened.moved == (method == "rocchio")).all()
    assert index.sharpened.masks.all() == (method == "rocchio")


def test_a_step_of_length_0_moves_nothing():
    still = searched(DimensionSettings("rocchio", weight=0.0), k=20)
    assert bytes_of(still) == bytes_of(searched(DimensionSettings("none"), k=20))


@pytest.mark.parametrize("method", ["dime", "eclipse", "rdime"])
def test_however_the_work_is_cut_the_bytes_are_the_same(method, monkeypatch):
    settings = replace(ECLIPSE, method=method)
    index = searched(settings, k=120)
    monkeypatch.setattr("foils.searching.dimensions.QUERIES", 2)
    monkeypatch.setattr("foils.encode.nearest.BLOCK", 7)
    assert bytes_of(searched(settings, ExactIndex(VECTORS), k=120)) == bytes_of(index)


@pytest.mark.parametrize(
    "change",
    [
        {"k_plus": 8},
        {"k_minus": 12},
        {"alpha": 0.1},
        {"beta": 1.0},
        {"share": 0.25},
        {"method": "dime"},
        {"method": "rdime"},
        {"method": "rocchio"},
        {"method": "rocchio", "weight": 0.1},
        {"method": "none"},
    ],
)
def test_every_setting_changes_the_result(change):
    how = {"k": 40, "feedback_depth": 40}
    changed, plain = (bytes_of(searched(settings, **how)) for settings in (replace(ECLIPSE, **change), ECLIPSE))
    assert changed != plain


def test_what_rdime_keeps_does_not_depend_on_how_long_documents_are():
    """As published it does: the rule compares q² with q ⊙ s."""
    lists = [np.argsort(-(DOCUMENTS @ query), kind="stable")[:30] for query in QUERIES]

    def kept(factor, **more):
        settings = DimensionSettings("rdime", k_plus=2, **more)
        return sharpened_queries(QUERIES, Vectors.of(DOCUMENTS * np.float32(factor)), lists, settings).masks

    for factor in (0.25, 2, 10):
        np.testing.assert_array_equal(kept(factor), kept(1))
    moves = [
        sharpened_queries(QUERIES, Vectors.of(DOCUMENTS * np.float32(factor)), lists, DimensionSettings("rocchio"))
        for factor in (1, 10)
    ]
    np.testing.assert_allclose(moves[0].queries, moves[1].queries, rtol=1e-5)
    shares = [kept(factor, scaled=False).mean() for factor in (0.25, 1, 2, 10)]
    assert shares == sorted(shares)
    assert shares[-1] - shares[0] > 0.3


class Counted(ExactIndex):
    """An exact index that remembers how it was asked."""

    asked: ClassVar[list[tuple[int, int]]] = []

    def search(self, queries, k):
        self.asked.append((len(queries), k))
        return super().search(queries, k)


@pytest.mark.parametrize(
    ("settings", "more", "searches"),
    [
        (ECLIPSE, {}, [(9, 40), (9, 10)]),
        (replace(ECLIPSE, method="dime"), {}, [(9, 10), (9, 10)]),
        (replace(ECLIPSE, method="dime"), {"answers": unit(9, seed=3)}, [(9, 10)]),
        (ECLIPSE, {"answers": unit(9, seed=3)}, [(9, 40), (9, 10)]),
        (replace(ECLIPSE, share=1.0), {}, [(9, 10)]),
        (DimensionSettings("none"), {}, [(9, 10)]),
    ],
)
def test_no_search_is_made_whose_result_is_not_used(settings, more, searches, monkeypatch):
    monkeypatch.setattr(Counted, "asked", [])
    counted = searched(settings, Counted(VECTORS), k=10, feedback_depth=40, **more)
    assert Counted.asked == searches
    assert [len(found) for found in counted.positions] == [10] * 9


@pytest.mark.parametrize("wrong", [[-1], [3, 120]])
def test_numbers_that_are_no_positions_are_refused(wrong):
    """NumPy takes −1, which an approximate index gives where it found nothing, for the last document."""
    lists = [np.arange(40)] * 8 + [np.asarray(wrong)]
    refused("positions of 120 documents", sharpened_queries, QUERIES, VECTORS, lists, ECLIPSE)


@pytest.mark.parametrize(
    ("settings", "lengths", "short"),
    [
        (ECLIPSE, [0, 4, 7, 8, 9], [True, True, True, False, False]),  # 0 < 3 < k − 4
        (replace(ECLIPSE, method="dime"), [0, 2, 3, 4, 5], [True, True, False, False, False]),
        (replace(ECLIPSE, method="rdime"), [0, 2, 3, 4, 5], [True, True, False, False, False]),
        (replace(ECLIPSE, method="rocchio"), [0, 2, 3, 4, 5], [True, True, False, False, False]),
        (replace(ECLIPSE, share=1.0), [0, 0, 0, 0, 0], [False] * 5),
    ],
)
def test_queries_with_too_short_a_list_keep_everything_and_are_marked(settings, lengths, short):
    lists = [np.arange(length) for length in lengths]
    made = sharpened_queries(QUERIES[:5], VECTORS, lists, settings)
    assert made.no_feedback.tolist() == short
    assert (~made.changed).tolist() == (short if settings.share < 1 else [True] * 5)


@pytest.mark.parametrize(
    ("call", "error", "said"),
    [
        (lambda: sharpened_queries(QUERIES, VECTORS, [np.arange(9)] * 2, ECLIPSE), InputError, "2 lists"),
        (lambda: searched(answers=unit(3)), InputError, r"\(3, 12\)"),
        (lambda: searched(k=0), InputError, "k 0; expected"),
        (lambda: searched(feedback_depth=0), InputError, "feedback_depth 0; expected"),
    ],
)
def test_unusable_input_is_refused(call, error, said):
    refused(said, call, error=error)


def test_a_query_without_an_answer_keeps_every_dimension():
    documents, queries, answers = Vectors.of(unit(80)), unit(4, seed=1), unit(4, seed=2)
    silent = answers.copy()
    silent[2] = np.nan
    for method in ("dime", "eclipse", "rdime", "rocchio"):
        settings = DimensionSettings(method, k_plus=2, k_minus=3, share=0.5)
        found, full, base = (
            search_vectors(queries, documents, ExactIndex(documents), chosen, k=30, answers=given)
            for chosen, given in ((settings, silent), (settings, answers), (DimensionSettings("none"), None))
        )
        assert found.sharpened.no_feedback.tolist() == [False, False, True, False]
        assert found.sharpened.changed.tolist() == [True, True, False, True]
        assert found.scores[2].tobytes() == base.scores[2].tobytes()
        for row in (0, 1, 3):
            assert found.scores[row].tobytes() == full.scores[row].tobytes()
    lists = list(ExactIndex(documents).search(queries, 30)[0])
    relevant = [Relevant(rows[[4, 9]], np.array([1, 1])) for rows in lists]
    grid = Grid("eclipse", ((2, 3),), shares=(0.3, 1.0))
    values = evaluate_grid(Judged(queries, documents, lists, relevant, silent), grid)
    assert values.values["AP"][2, 0] == values.values["AP"][2, 1]
    whole = evaluate_grid(Judged(queries, documents, lists, relevant, answers), grid)
    np.testing.assert_array_equal(values.values["AP"][[0, 1, 3]], whole.values["AP"][[0, 1, 3]])
    made = sharpened_queries(queries, documents, lists, DimensionSettings("dime", share=0.3), answers=silent)
    assert made.masks[2].all()


# Importance of dimensions: cases worked by hand, exact depths, ties, short lists


FEEDBACK = np.array([[4.0, 0, 0, 1], [2, 2, 0, 1], [0, 2, 2, 1], [0, 0, 4, 1], [0, 0, 6, 3]])
QUERY = np.array([0.5, 1.0, 0.25, -1.0])
ARRAYS = arrays(np.float64, (3, 6), elements=st.floats(-2, 2, width=32))


def test_sun_and_moon_worked_by_hand():
    np.testing.assert_array_equal(sun(FEEDBACK, 2), [3, 1, 0, 1])
    np.testing.assert_array_equal(moon(FEEDBACK, 2), [0, 0, 5, 2])
    np.testing.assert_array_equal(sun(FEEDBACK, 1), FEEDBACK[0])
    np.testing.assert_array_equal(moon(FEEDBACK, 1), FEEDBACK[4])
    np.testing.assert_array_equal(sun(FEEDBACK, 5), FEEDBACK.mean(axis=0))


def test_importance_worked_by_hand():
    np.testing.assert_array_equal(dime_importance(QUERY, [3, 1, 0, 1]), [1.5, 1, 0, -1])
    u = eclipse_importance(QUERY, [3, 1, 0, 1], [0, 0, 5, 2], alpha=1.0, beta=0.5)
    np.testing.assert_array_equal(u, [1.5, 1, -0.625, 0])
    np.testing.assert_array_equal(keep_share(u, 0.5), [True, True, False, False])
    np.testing.assert_array_equal(keep_share(u, 0.75), [True, True, False, True])


def test_rdime_worked_by_hand():
    """q² − u = [.25 − 1.5, 1 − 1, .0625 − 0, 1 + 1]: σ² = .203125."""
    np.testing.assert_array_equal(rdime_mask(QUERY, [1.5, 1, 0, -1]), [True, True, False, False])
    np.testing.assert_array_equal(rdime_mask(QUERY, [0.2, 0.2, 0.2, 0.2]), [True, False, False, False])


def test_a_sun_is_scaled_to_its_query():
    np.testing.assert_allclose(scaled_to([3, 4], [0, 2]), [0, 5])
    np.testing.assert_array_equal(scaled_to([3, 4], [0, 0]), [0, 0])
    np.testing.assert_allclose(scaled_to([[3, 4], [1, 0]], [[0, 2], [4, 0]]), [[0, 5], [1, 0]])


def test_a_step_towards_the_sun_worked_by_hand():
    np.testing.assert_allclose(moved([3, 4], [0, 2], weight=0.5), [3, 6.5])
    np.testing.assert_array_equal(moved([[3, 4], [1, 0]], [[0, 0], [0, 9]], weight=0.5), [[3, 4], [1, 0.5]])


@given(arrays(np.float64, 6, elements=st.floats(-2, 2, width=32)))
def test_rdime_keeps_what_has_signal_when_feedback_is_the_query_itself(q):
    """u = q² has no noise: σ² = 0, and every dimension that is not 0 stays."""
    expected = q**2 > 0
    if expected.any():
        np.testing.assert_array_equal(rdime_mask(q, q**2), expected)


@given(st.integers(1, 12), st.integers(0, 14), st.integers(0, 14))
def test_depths_are_as_published(k, k_plus, k_minus):
    """0 < k⁻ < k and 0 < k⁺ < k − k⁻ where both are used."""
    allowed = 0 < k_minus < k and 0 < k_plus < k - k_minus
    if k_plus == 0 and k_minus:
        allowed = k_minus < k
    if k_minus == 0 and k_plus:
        allowed = k_plus <= k
    if allowed:
        check_depths(k, k_plus, k_minus)
    else:
        with pytest.raises(InputError):
            check_depths(k, k_plus, k_minus)


@pytest.mark.parametrize(
    "call",
    [
        lambda: sun(FEEDBACK, 0),
        lambda: sun(FEEDBACK, 6),
        lambda: moon(np.ones((5, 2)), 0),
        lambda: moon(np.ones((5, 2)), 5),
        lambda: sun(np.full((2, 2), np.nan), 1),
        lambda: dime_importance(QUERY, QUERY[:3]),
        lambda: eclipse_importance(QUERY, QUERY, QUERY, alpha=0, beta=1),
        lambda: eclipse_importance(QUERY, QUERY, QUERY, alpha=1, beta=-1),
        lambda: keep_share(QUERY, 0),
    ],
)
def test_unusable_dimensions_are_refused(call):
    with pytest.raises(InputError):
        call()


@given(ARRAYS, st.floats(0.05, 1), st.floats(0, 1))
def test_only_the_ratio_of_the_weights_orders_the_dimensions(x, alpha, beta):
    """Doubling is exact in floating point, so the orders are equal, ties included."""
    q, s, m = x
    one = eclipse_importance(q, s, m, alpha=alpha, beta=beta)
    two = eclipse_importance(q, s, m, alpha=2 * alpha, beta=2 * beta)
    np.testing.assert_array_equal(dimension_order(one), dimension_order(two))
    np.testing.assert_array_equal(eclipse_importance(q, s, m, alpha=1.0, beta=0.0), dime_importance(q, s))


@given(arrays(np.float64, 7, elements=st.integers(-2, 2).map(float)), st.floats(0.01, 1))
def test_equal_importance_keeps_the_lower_index(u, share):
    kept = keep_share(u, share)
    expected = sorted(range(7), key=lambda i: (-u[i], i))[: kept_count(7, share)]
    assert set(np.flatnonzero(kept)) == set(expected)


def test_kept_count_rounds_to_the_nearest():
    assert [kept_count(384, share) for share in (0.1, 0.2, 0.5, 0.9, 1.0)] == [38, 77, 192, 346, 384]
    assert kept_count(10, 0.25) == 3, "half goes up"
    assert kept_count(10, 0.001) == 1, "never none"


# The first stage: exact, in blocks, with ties by position


@pytest.mark.parametrize(
    ("queries", "k"), [(unit(2, 5), 3), (unit(2), 0), (unit(2)[0], 3), (np.full((2, 12), np.nan, np.float32), 3)]
)
def test_unusable_queries_are_refused(queries, k):
    with pytest.raises(InputError):
        ExactIndex(Vectors.of(unit(10))).search(queries, k)
