import numpy as np
import pyarrow as pa
import pytest

from foils.data import Collection, Negatives
from foils.data.negatives import negatives_table
from foils.training.data import training_set
from foils.training.reranker import reranker_loss, reranker_set
from judging import NumberJudge, numbers, rate_negatives
from refusals import refused
from train_models import unpaired


def negatives(rows, **columns):
    """Rows of (query, document, rank)."""
    queries, documents, ranks = zip(*rows, strict=True)
    found = Negatives(negatives_table(list(queries), list(documents), "s", ranks, np.zeros(len(rows))))
    return found.with_columns(columns)


ROWS = [("q1", "d4", 1), ("q1", "d7", 0), ("q2", "d1", 0), ("q1", "d9", 2)]


def test_triplets_in_the_order_of_judgements_and_ranks(small):
    made = training_set(small, negatives(ROWS), max_positives=1)
    text = dict(zip(small.documents["doc_id"].to_pylist(), small.document_texts(range(10)), strict=True))
    assert made.dataset.column_names == ["anchor", "positive", "negative", "label"]
    assert made.dataset[:]["negative"] == [text[d] for d in ("d7", "d4", "d9", "d1")]
    assert made.dataset[:]["anchor"][:3] == ["how does a boat tack"] * 3
    assert made.dataset[:]["positive"][0] == text["d1"]
    assert made.dataset[:]["label"] == [0, 1, 2, 3]
    assert made.counts["pairs without a negative, left out"] == 1  # q3
    assert made.counts["rows"] == len(made) == 4


def test_rejected_rows_are_not_trained_on_but_left_out_where_they_meet_their_query(small):
    table = negatives(ROWS).reject(np.array([False, True, False, False]), "false negative")
    made = training_set(small, table, form="lists", max_positives=1)
    assert made.rows.shape == (2, 4)
    known = set(zip(made.facts.known_query.tolist(), made.facts.known_document.tolist(), strict=True))
    assert len(known) == 3 + 4  # q1's two positives, q2's one, and all rows of the table
    at = training_set(small, table).facts
    weights = dict(zip(zip(at.known_query, at.known_document, strict=True), at.known_log_weight, strict=True))
    assert list(weights.values()).count(-np.inf) == 4
    assert list(weights.values()).count(0.0) == 3


def test_lists_mark_what_is_missing_and_pad_nothing(small):
    made = training_set(small, negatives(ROWS), form="lists", per_query=2, max_positives=1)
    assert made.dataset.column_names[2:] == ["negative_1", "negative_2", "label"]
    assert made.counts["short lists"] == 1
    assert made.rows[1, 3] == -1
    assert made.dataset[1]["negative_2"] == ""
    block = made.facts.log_weights(np.array([0, 1]), 0, 2)
    assert np.isneginf(block).all(0).tolist() == [False] * 5 + [True]


def test_pairs_need_no_table(small):
    made = training_set(small, form="pairs", max_positives=5)
    assert made.rows.tolist() == training_set(small).rows.tolist() == [[0, 0], [0, 2], [1, 3], [2, 6]]
    met = np.argwhere(unpaired(made.facts, np.arange(4)))
    assert met.tolist() == [[0, 1], [1, 0]]  # both positives of the first query


def test_a_weight_of_0_is_refused(small):
    refused("not above 0", training_set, small, negatives(ROWS, weight=[0.0, 1, 1, 1]))


def test_texts_of_a_source_come_along_and_equal_texts_are_one_document(small):
    table = negatives([("q1", "llm-1", 0), ("q2", "llm-2", 0), ("q3", "d1", 0)])
    positive = small.document_texts([0])[0]
    text = pa.array([positive, "A made-up passage.", None], pa.large_string())
    made = training_set(small, table.with_columns({"text": text}), form="triplets", max_positives=1)
    assert made.dataset[:]["negative"] == [positive, "A made-up passage.", positive]
    assert made.facts.documents[0, 0] == made.facts.documents[0, 1]  # the positive's own text as a negative …
    assert unpaired(made.facts, np.arange(3))[0].tolist() == [False, False, False, True, False, True]  # … is left out


def test_weights_and_ratings_come_from_the_table(small):
    rows = [*ROWS, ("q1", "d1", 0), ("q2", "d4", 0)]
    gap, elo = [300.0, 100.0, 250.0, np.nan, np.nan, np.nan], [1400.0, 1600.0, 1450.0, np.nan, 1700.0, 1700.0]
    source = negatives(rows, elo=elo, gap=gap, weight=[1.0, 0.5, 0.7, 1.0, 1.0, 1.0])
    source = source.reject(np.arange(6) > 3, "no negative")
    made = training_set(small, source, form="lists", per_query=3, max_positives=1)
    # d1 and d4, the first positives of q1 and q2, have rows with their ratings
    known = np.array([1400.0, 1600.0, 1450.0, 1700.0, 1700.0])
    expected = [[1700, 1600, 1400, np.nan], [1700, 1450, np.nan, np.nan]]
    assert np.allclose(made.facts.ratings, (expected - known.mean()) / known.std(), equal_nan=True)
    assert made.counts["positives without a rating"] == 0
    weights = np.exp(made.facts.known_log_weight)
    assert sorted(weights.round(6).tolist()) == [0, 0, 0, 0.5, 0.7, 1, 1]


def test_a_positive_that_has_no_row_has_no_rating(small):
    gap, elo = [300.0, 100.0, 250.0, 150.0], [1400.0, 1600.0, 1450.0, 1550.0]
    made = training_set(small, negatives(ROWS, elo=elo, gap=gap), form="lists", max_positives=2)
    assert np.isnan(made.facts.ratings[:, 0]).all()
    assert np.isfinite(made.facts.ratings[:2, 1:]).all()
    assert made.counts["positives without a rating"] == 3


EXACT = {"model": "bradley-terry", "prior_sd": 1e4}
STRENGTHS = {"strong": 2.0, "weak": -1.0, "near": 1.0, "middle": 0.0, "far": -2.0}


def test_a_weak_positive_is_trained_toward_its_own_rating():
    """Strength −1 of the positive, 1, 0, −2 of the negatives: their mean is −½, their variance 5/4."""
    collection = numbers(STRENGTHS, 1, {"train": {"q0": {"weak": 1}}})
    source = negatives([("q0", name, rank) for rank, name in enumerate(("near", "middle", "far"))])
    rated = rate_negatives(collection, source, NumberJudge(antisymmetric=True), **EXACT)
    made = training_set(collection, rated, form="lists")
    expected = np.array([[-0.5, 1.5, 0.5, -1.5]]) / np.sqrt(5 / 4)
    np.testing.assert_allclose(made.facts.ratings, expected, atol=1e-3)
    pairs = reranker_set(made, reranker_loss("regression"))
    targets = {text: target for text, ((target,), *_) in zip(pairs["document"], pairs["label"], strict=True)}
    np.testing.assert_allclose([targets["-1.0"], targets["1.0"]], np.array([-0.5, 1.5]) / np.sqrt(5 / 4), atol=1e-3)


@pytest.mark.parametrize("again", [{}, {"again": "first"}])
def test_labelled_positives_of_other_splits_and_of_queries_with_the_same_text_are_known_too(again):
    queries = {"q1": "first", "q2": "second", **again}
    qrels = {"train": {"q1": {"d1": 1}, "q2": {"d2": 1}}, "test": {next(iter(again), "q1"): {"d2": 1}}}
    collection = Collection.from_dicts("c", {"d1": "one", "d2": "two", "d3": "three"}, queries, qrels)
    made = training_set(collection, form="pairs")
    assert unpaired(made.facts, np.arange(2)).tolist() == [[False, True], [False, False]]


def test_blocks_in_which_texts_are_read_change_nothing(small, monkeypatch):
    whole = training_set(small, negatives(ROWS), form="lists").facts
    at_once, texts = [], Collection.document_texts

    def counted(collection, rows):
        at_once.append(len(rows))
        return texts(collection, rows)

    monkeypatch.setattr(Collection, "document_texts", counted)
    monkeypatch.setattr("foils.data.collection.TEXTS_AT_ONCE", 2)
    blocks = training_set(small, negatives(ROWS), form="lists").facts
    np.testing.assert_array_equal(blocks.documents, whole.documents)
    assert max(at_once) == 2


def test_a_reranker_learns_ratings_of_queries_without_labels():
    """The strengths 3, 1, −1 of q0's candidates are the ratings 2, 0, −2, and 1 and −1 of q1's are 1 and −1."""
    unlabelled = numbers({"a": 3, "b": 1, "c": -1}, 2)
    source = negatives([("q0", "b", 0), ("q1", "c", 0), ("q0", "a", 1), ("q0", "c", 2), ("q1", "b", 1)])
    rated = rate_negatives(unlabelled, source, NumberJudge(antisymmetric=True), split="all", **EXACT)
    made = training_set(unlabelled, rated, split="all", form="lists")
    expected = np.array([[2, 0, -2], [1, -1, np.nan]]) / np.sqrt(2)
    np.testing.assert_allclose(made.facts.ratings, expected, atol=1e-3)
    assert made.counts == {
        "queries": 2, "pairs": 2, "queries without a label, the candidate rated best in the positive's place": 2,
        "pairs without a negative, left out": 0, "short lists": 1, "rows": 2, "positives without a rating": 0,
    }  # fmt: skip
    assert made.facts.own_log_weights()[1].tolist() == [0, 0, -np.inf]
    assert reranker_set(made, reranker_loss("regression"))["document"] == ["3.0", "1.0", "-1.0", "1.0", "-1.0"]
    assert reranker_set(made, reranker_loss("listnet"))["label"][0][0] == [1, 0, 0]
