"""Rules: hand-worked marks, negative scores, references, order of rules, counts, windows, filling."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fakes import HashingEncoder
from foils.data import Collection
from foils.data.collection import Rows
from foils.data.negatives import Negatives, negatives_table
from foils.encode import Vectors, VectorStore
from foils.mining import BM25Retriever, DenseRetriever, RandomRetriever, mine_negatives
from foils.mining.filters import (
    HoldsAnswer,
    LabelledElsewhere,
    Margin,
    PositiveScores,
    ScoreAbove,
    ScoreBelow,
    filter_negatives,
    table_pairs,
)
from foils.mining.pairs import Scores, TextPairs
from foils.mining.scorers import EncoderScorer
from foils.runtime.errors import InputError, UnknownNameError


class Listed:
    """Ranks all documents by scores given for each query."""

    name, short, column = "listed", "the collection has no further document", "listed"

    def __init__(self, scores: np.ndarray) -> None:
        self.scores = scores

    def search(self, query_rows: Rows, depth: int) -> tuple[Rows, Scores]:
        order = np.argsort(-self.scores[query_rows], axis=1, kind="stable")[:, :depth]
        return order, np.take_along_axis(self.scores[query_rows], order, axis=1)

    def score(self, pairs: TextPairs) -> Scores:
        return self.scores[pairs.query_rows, pairs.doc_rows]


@pytest.fixture(scope="module")
def world() -> Collection:
    """One query with positives p0 and p1, and eight other documents with nothing in common."""
    words = ["ash", "birch", "cedar", "elm", "fir", "hazel", "larch", "maple"]
    documents = {"p0": "apple tart", "p1": "pear pie", **{f"n{at}": f"{word} wood" for at, word in enumerate(words)}}
    return Collection.from_dicts("world", documents, {"q": "which cake"}, {"train": {"q": {"p0": 1, "p1": 1}}})


#                  p0   p1   n0    n1   n2   n3   n4   n5   n6   n7
SCORES = np.array([[0.8, 0.4, 0.85, 0.7, 0.5, 0.4, 0.3, 0.2, 0.1, 0.05]])


def kept(negatives: Negatives) -> list[str]:
    return negatives.kept()["doc_id"].to_pylist()


def mined(world: Collection, scores: np.ndarray = SCORES, **settings: object) -> Negatives:
    return mine_negatives(world, Listed(scores), split="train", **{"top": 3, **settings})


def positive_scores(world: Collection, scores: np.ndarray = SCORES) -> PositiveScores:
    return PositiveScores.of(world, Listed(scores), np.array([0]))


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        ({"absolute": 0.1, "against": "minimum"}, ["n4", "n5", "n6"]),  # over 0.3
        ({"absolute": 0.1, "against": "mean"}, ["n2", "n3", "n4"]),  # over 0.5
        ({"absolute": 0.1, "against": "maximum"}, ["n1", "n2", "n3"]),  # over 0.7
        ({"relative": 0.5, "against": "minimum"}, ["n5", "n6", "n7"]),  # over 0.2
        ({"relative": 0.5, "against": "maximum"}, ["n3", "n4", "n5"]),  # over 0.4
        ({"absolute": -0.1, "against": "minimum"}, ["n2", "n3", "n4"]),  # over 0.5
        ({"absolute": 0.1, "relative": 0.5, "against": "minimum"}, ["n6", "n7"]),  # over 0.1
    ],
)
def test_margins_by_hand(world, rule, expected):
    found = mined(world, rules=[Margin(positive_scores(world), **rule)], ranks=(0, 8))
    assert kept(found) == expected
    rejected = [row["doc_id"] for row in found.table.to_pylist() if not row["keep"]]
    assert len(rejected) == found.rejected()[Margin(positive_scores(world), **rule).reason]


def test_a_margin_on_its_limit_is_kept(world):
    assert kept(mined(world, rules=[Margin(positive_scores(world))], ranks=(0, 8)))[0] == "n3"  # 0.4 is not over 0.4


def test_a_relative_margin_goes_down_for_negative_scores_too(world):
    scores = SCORES - 1.0  # positives −0.2 and −0.6; the limit is −0.6 − 0.1·0.6 = −0.66
    rule = Margin(positive_scores(world, scores), relative=0.1)
    assert kept(mined(world, scores, rules=[rule], ranks=(0, 8))) == ["n4", "n5", "n6"]


@given(st.lists(st.floats(-5, 5), min_size=2, max_size=5), st.floats(0, 1), st.floats(0, 2))
def test_a_stricter_reference_or_margin_never_rejects_less(values, relative, absolute):
    positives = PositiveScores(np.zeros(len(values), np.int64), np.arange(len(values)), np.array(values))
    world = Collection.from_dicts("w", {"d": "x"}, {"q": "y"}, {"train": {"q": {"d": 1}}})
    scores = np.linspace(-8, 8, 65)
    pairs = TextPairs(world, np.zeros(65, np.int64), np.zeros(65, np.int64), scores)
    marks = [Margin(positives, absolute, relative, a).marks(pairs) for a in ("minimum", "mean", "maximum", "each")]
    assert (marks[0] >= marks[1]).all()
    assert (marks[1] >= marks[2]).all()
    cleared = Margin(positives, absolute, relative, "each").cleared(pairs)
    assert [not len(rows) for rows in cleared] == marks[3].tolist()
    assert (Margin(positives, absolute + 1, relative).marks(pairs) >= marks[0]).all()


def test_each_positive_for_itself(world):
    found = mined(world, rules=[Margin(positive_scores(world), 0.1, against="each")], top=4, ranks=(0, 8))
    rows = {row["doc_id"]: row["positives"] for row in found.table.to_pylist()}
    assert rows == {"n0": [], "n1": ["p0"], "n2": ["p0"], "n3": ["p0"], "n4": ["p0", "p1"]}
    assert kept(found) == ["n1", "n2", "n3", "n4"]


def test_limits_of_the_score(world):
    assert kept(mined(world, rules=[ScoreAbove(0.5)])) == ["n2", "n3", "n4"]
    found = mine_negatives(world, Listed(SCORES), split="train", top=8, rules=[ScoreAbove(0.5), ScoreBelow(0.2)])
    assert kept(found) == ["n2", "n3", "n4", "n5"]
    assert found.rejected() == {"score above 0.5": 2, "score below 0.2": 2}


def test_the_first_rule_that_holds_gives_the_reason_and_counts_add_up(world):
    one = mined(world, rules=[ScoreAbove(0.6), ScoreAbove(0.45)], top=8)
    assert one.rejected() == {"score above 0.6": 2, "score above 0.45": 1}
    other = mined(world, rules=[ScoreAbove(0.45), ScoreAbove(0.6)], top=8)
    assert other.rejected() == {"score above 0.45": 3}
    assert sum(one.rejected().values()) + int(one.keep.sum()) == len(one)


def test_windows_of_ranks(world):
    found = mined(world, ranks=(2, 6), top=3)
    assert kept(found) == ["n2", "n3", "n4"]
    assert found.rejected() == {"ranked before the window": 2}
    short = mine_negatives(world, Listed(SCORES), split="train", top=5, ranks=(2, 6))
    assert kept(short) == ["n2", "n3", "n4", "n5"]
    assert short.short == {"too few left of ranks 2–6": 1}


def test_short_lists_are_filled_or_kept_short(world):
    rules = [ScoreAbove(0.6)]
    filled = mine_negatives(world, Listed(SCORES), split="train", top=3, rules=rules)
    assert (kept(filled), filled.short) == (["n2", "n3", "n4"], {})
    short = mine_negatives(world, Listed(SCORES), split="train", top=3, rules=rules, fill=False)
    assert (kept(short), short.short) == (["n2"], {"too few left of ranks 0–3, not filled": 1})
    assert short.rejected() == {"score above 0.6": 2}


def test_with_rules_the_window_ends_at_ten_times_top_unless_said(world):
    found = mine_negatives(world, Listed(SCORES), split="train", top=1, rules=[ScoreAbove(-1.0)], ranks=(0, None))
    assert found.rejected() == {"score above -1": 8}
    assert found.short == {"the collection has no further document": 1}


def test_answers(world):
    answers = HoldsAnswer({"q": ["Ash!", "elm wood", "---"], "other": ["birch"]})
    found = mined(world, rules=[answers], top=3)
    assert found.rejected() == {"holds an answer": 2}
    assert kept(mined(world, rules=[answers], top=8))[:3] == ["n1", "n2", "n4"]
    assert HoldsAnswer({"q": ["as"]}).marks(table_pairs(found, world)).sum() == 0  # whole words


def test_labelled_for_a_near_identical_query():
    documents = {"a": "one", "b": "two", "c": "three", "d": "four"}
    queries = {"q1": "Where do bees sleep at night?", "q2": "where do bees sleep, at night", "q3": "where do owls hunt"}
    world = Collection.from_dicts("w", documents, queries, {
        "train": {"q1": {"a": 1}, "q3": {"c": 1}}, "test": {"q2": {"b": 1}}
    })  # fmt: skip
    rule = LabelledElsewhere(world)
    pairs = TextPairs(world, np.array([0, 0, 0, 1, 2]), np.array([1, 2, 3, 0, 0]), np.zeros(5))
    assert rule.marks(pairs).tolist() == [True, False, False, True, False]
    assert LabelledElsewhere(world, threshold=0.2).marks(pairs).tolist() == [True, True, False, True, True]


def test_rules_without_scores_are_refused(world):
    with pytest.raises(InputError, match="needs a scorer"):
        mine_negatives(world, RandomRetriever(world), split="train", top=2, rules=[ScoreAbove(0.5)])


def test_another_scorer_gives_the_scale(world):
    other = Listed(-SCORES)
    other.column = "logit"
    found = mined(world, rules=[ScoreAbove(-0.25)], scorer=other, top=2, ranks=(0, 8))
    assert kept(found) == ["n0", "n1"]
    assert found.table["logit"].to_pylist() == (-found.table["score"].to_numpy()).tolist()
    rejecting = mined(world, rules=[ScoreAbove(-0.45)], scorer=other, ranks=(0, 8), top=9)
    assert kept(rejecting) == ["n0", "n1", "n2"]


def test_marking_an_existing_table(small, tmp_path):
    ids, documents = pa.array(["q1", "q1", "q2"]), pa.array(["d2", "llm:1", "d5"])
    table = negatives_table(ids, documents, "x", [0, 1, 0], [np.nan] * 3)
    table = table.append_column("text", pa.array([None, "A sailing boat turns its bow", None], pa.large_string()))
    encoder, store = HashingEncoder(), VectorStore(tmp_path)
    scorer = EncoderScorer(encoder, store)
    positives = PositiveScores.of(small, scorer, np.array([0, 1]))
    found = filter_negatives(Negatives(table), small, [Margin(positives)], scorer=scorer)
    cosines = [
        float(encoder.encode([q], "query")[0] @ encoder.encode([d], "document")[0])
        for q, d in [
            (small.query_texts([0])[0], small.document_texts([1])[0]),
            (small.query_texts([0])[0], "A sailing boat turns its bow"),
            (small.query_texts([1])[0], small.document_texts([4])[0]),
        ]
    ]
    assert found.table["cosine"].to_pylist() == pytest.approx(cosines, abs=1e-6)
    least = positives.reference(np.array([0, 0, 1]), "minimum")
    assert found.keep.tolist() == (np.array(cosines) <= least).tolist()
    with pytest.raises(InputError, match="cosine already"):
        filter_negatives(found, small, [], scorer=scorer)


def test_a_row_that_was_rejected_before_keeps_its_reason(world):
    before = mined(world, rules=[ScoreAbove(0.6)], top=8)
    after = filter_negatives(before, world, [ScoreAbove(0.35)])
    assert after.rejected() == {"score above 0.6": 2, "score above 0.35": 2}


def test_retrievers_score_pairs_as_they_rank_them(small, encoder):
    queries = Vectors.of(encoder.encode(small.query_texts(range(5)), "query"))
    documents = Vectors.of(encoder.encode(small.document_texts(range(10)), "document"))
    for retriever in (DenseRetriever(queries, documents), BM25Retriever(small)):
        rows, scores = retriever.search(np.arange(5), 10)
        query, column = np.nonzero(rows >= 0)
        pairs = TextPairs(small, query, rows[query, column], np.full(len(query), np.nan))
        assert retriever.score(pairs) == pytest.approx(scores[query, column], abs=1e-6)
        with pytest.raises(InputError, match="text of their own"):
            retriever.score(TextPairs(small, np.array([0]), np.array([-1]), np.zeros(1), pa.array(["x"])))


def test_refusals(world):
    positives = positive_scores(world)
    for bad, message in (({"relative": 1.5}, "at most 1"), ({"absolute": np.nan}, "finite")):
        with pytest.raises(InputError, match=message):
            Margin(positives, **bad)
    with pytest.raises(UnknownNameError, match="minimum"):
        Margin(positives, against="least")
    with pytest.raises(InputError, match="no labelled positive"):
        positives.reference(np.array([3]), "mean")
    for ranks in ((-1, 3), (3, 3), (5, 2)):
        with pytest.raises(InputError, match="ranks"):
            mined(world, ranks=ranks)
    with pytest.raises(InputError, match="differ in length"):
        TextPairs(world, np.zeros(2, np.int64), np.zeros(1, np.int64), np.zeros(2))
    with pytest.raises(InputError, match="needs its text"):
        TextPairs(world, np.zeros(1, np.int64), np.full(1, -1), np.zeros(1))
