"""Rules, windows, draws and copies of positives: hand-worked marks, orders, counts and distributions."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from fakes import HashingEncoder
from foils.data import Collection, tokens
from foils.data.collection import Rows
from foils.data.negatives import Negatives, negatives_table
from foils.encode import Vectors, VectorStore
from foils.mining import BM25Retriever, DenseRetriever, RandomRetriever, mine_negatives
from foils.mining.candidates import COPIES
from foils.mining.pairs import Scores, TextPairs
from foils.mining.rules import (
    LookAlikes,
    Margin,
    PositiveScores,
    ScoreAbove,
    ScoreBelow,
    SimANS,
    TriSampler,
    Uniform,
    filter_negatives,
)  # fmt: skip
from foils.mining.scorers import EncoderScorer
from foils.runtime import memory
from foils.runtime.errors import InputError


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
        ({"absolute": 0.1}, ["n4", "n5", "n6"]),  # over 0.3
        ({"relative": 0.5}, ["n5", "n6", "n7"]),  # over 0.2
        ({"absolute": -0.1}, ["n2", "n3", "n4"]),  # over 0.5
        ({"absolute": 0.1, "relative": 0.5}, ["n6", "n7"]),  # over 0.1
    ],
)
def test_margins_by_hand(world, rule, expected):
    found = mined(world, rules=[Margin(positive_scores(world), **rule)], ranks=(0, 8))
    assert kept(found) == expected
    rejected = [row["doc_id"] for row in found.table.to_pylist() if not row["keep"]]
    assert len(rejected) == found.rejected()[Margin(positive_scores(world), **rule).reason]


def test_a_relative_margin_goes_down_for_negative_scores_too(world):
    scores = SCORES - 1.0  # positives −0.2 and −0.6; the limit is −0.6 − 0.1·0.6 = −0.66
    rule = Margin(positive_scores(world, scores), relative=0.1)
    assert kept(mined(world, scores, rules=[rule], ranks=(0, 8))) == ["n4", "n5", "n6"]


@given(st.lists(st.floats(-5, 5), min_size=2, max_size=5), st.floats(0, 1), st.floats(0, 2))
def test_a_stricter_margin_never_rejects_less(values, relative, absolute):
    positives = PositiveScores(np.zeros(len(values), np.int64), np.arange(len(values)), np.array(values))
    world = Collection.from_dicts("w", {"d": "x"}, {"q": "y"}, {"train": {"q": {"d": 1}}})
    pairs = TextPairs(world, np.zeros(65, np.int64), np.zeros(65, np.int64), np.linspace(-8, 8, 65))
    marks = Margin(positives, absolute, relative).marks(pairs)
    assert (Margin(positives, absolute + 1, relative).marks(pairs) >= marks).all()
    one = np.zeros(1, np.int64)
    assert positives.reference(one)[0] == min(values)
    assert positives.reference(one, mean=True)[0] == pytest.approx(np.mean(values))


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


def test_short_lists_are_filled(world):
    filled = mine_negatives(world, Listed(SCORES), split="train", top=3, rules=[ScoreAbove(0.6)])
    assert (kept(filled), filled.short) == (["n2", "n3", "n4"], {})


def test_with_rules_the_window_ends_at_ten_times_top_unless_said(world):
    found = mine_negatives(world, Listed(SCORES), split="train", top=1, rules=[ScoreAbove(-1.0)], ranks=(0, None))
    assert found.rejected() == {"score above -1": 8}
    assert found.short == {"the collection has no further document": 1}


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
    least = positives.reference(np.array([0, 0, 1]))
    assert found.keep.tolist() == (np.array(cosines) <= least).tolist()
    with pytest.raises(InputError, match="cosine already"):
        filter_negatives(found, small, [], scorer=scorer)


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
    with pytest.raises(InputError, match="no labelled positive"):
        positives.reference(np.array([3]))
    for ranks in ((-1, 3), (3, 3), (5, 2)):
        with pytest.raises(InputError, match="ranks"):
            mined(world, ranks=ranks)
    with pytest.raises(InputError, match="differ in length"):
        TextPairs(world, np.zeros(2, np.int64), np.zeros(1, np.int64), np.zeros(2))
    with pytest.raises(InputError, match="needs its text"):
        TextPairs(world, np.zeros(1, np.int64), np.full(1, -1), np.zeros(1))


QUERIES = 400


@pytest.fixture(scope="module")
def many() -> tuple[Collection, Vectors, Vectors]:
    """400 copies of one query, its positive at cosine 0.9, twelve documents at cosines 0.8, 0.75, …, 0.25."""
    cosines = [0.9, *np.linspace(0.8, 0.25, 12)]
    documents = {f"d{at}": f"word{at}" for at in range(len(cosines))}
    queries = {f"q{at}": f"query {at}" for at in range(QUERIES)}
    world = Collection.from_dicts("many", documents, queries, {"train": {key: {"d0": 1} for key in queries}})
    vectors = np.array([[c, np.sqrt(1 - c * c)] for c in cosines])
    return world, Vectors.of(np.tile([[1.0, 0.0]], (QUERIES, 1))), Vectors.of(vectors)


def drawn(many, **settings) -> np.ndarray:
    """How often each rank (0–11) is kept."""
    world, queries, documents = many
    given = {"split": "train", "top": 1, "ranks": (0, 12), **settings}
    found = mine_negatives(world, DenseRetriever(queries, documents), **given)
    return np.bincount(found.kept()["rank"].to_numpy(), minlength=12)


def test_uniform_draws_are_uniform_repeat_with_the_seed_and_stay_in_the_window(many):
    counts = drawn(many, draw=Uniform(), ranks=(2, 10), seed=1)
    assert counts[:2].sum() == counts[10:].sum() == 0
    assert stats.chisquare(counts[2:10]).pvalue > 1e-4
    assert (drawn(many, draw=Uniform(), seed=1) == drawn(many, draw=Uniform(), seed=1)).all()
    assert (drawn(many, draw=Uniform(), seed=1) != drawn(many, draw=Uniform(), seed=2)).any()


def test_what_is_not_drawn_is_marked(many):
    world, queries, documents = many
    found = mine_negatives(
        world, DenseRetriever(queries, documents), split="train", top=3, ranks=(0, 8), draw=Uniform()
    )
    assert found.rejected() == {"not drawn": 5 * QUERIES}
    assert found.short == {}


def test_rejected_candidates_are_replaced(many):
    filled = drawn(many, draw=Uniform(), rules=[ScoreAbove(0.5)], top=2)
    assert filled[:7].sum() in (0, filled[6])  # 0.5 itself is a matter of rounding
    assert filled.sum() == 2 * QUERIES


def test_what_is_drawn_of_a_random_order_does_not_depend_on_the_document():
    """The order and the draw have streams of their own, though both are seeded alike."""
    documents, queries = 200, 3_000
    world = Collection.from_dicts(
        "even",
        {f"d{at}": f"text {at}" for at in range(documents)},
        {f"q{at}": f"query {at}" for at in range(queries)},
        {"train": {f"q{at}": {f"d{at % documents}": 1} for at in range(queries)}},
    )
    found = mine_negatives(world, RandomRetriever(world), split="train", top=1, ranks=(0, 2), draw=Uniform())
    places = (world.document_rows(found.kept()["doc_id"].to_pylist()) + 0.5) / documents
    assert abs(places.mean() - 0.5) < 4 * np.sqrt(1 / 12 / queries)


def test_simans_draws_as_its_formula_says(many):
    world, queries, documents = many
    positives = PositiveScores.of(world, DenseRetriever(queries, documents), np.arange(QUERIES))
    counts = drawn(many, draw=SimANS(positives, a=30.0, b=-0.3))
    cosines = np.linspace(0.8, 0.25, 12)
    p = np.exp(-30.0 * (cosines - 0.9 + 0.3) ** 2)
    assert stats.chisquare(counts, QUERIES * p / p.sum()).pvalue > 1e-4
    assert counts.argmax() in (3, 4, 5)  # the peak is at 0.6
    flat = drawn(many, draw=SimANS(positives, a=0.0))
    assert (flat == drawn(many, draw=Uniform())).all()


def test_simans_refusals(many, small):
    positives = PositiveScores(np.zeros(1, np.int64), np.zeros(1, np.int64), np.ones(1))
    with pytest.raises(InputError, match="at least 0"):
        SimANS(positives, a=-1.0)
    with pytest.raises(InputError, match="needs a scorer"):
        SimANS(positives).log_weights(
            TextPairs(small, np.zeros(1, np.int64), np.zeros(1, np.int64), np.full(1, np.nan))
        )
    with pytest.raises(InputError, match="window of ranks with an end"):
        mine_negatives(small, BM25Retriever(small), split="train", top=1, draw=Uniform())


@pytest.fixture
def triangle() -> tuple[Collection, Vectors, Vectors]:
    """A query at 0°, its positive at 20°, candidates at −10°, 15°, 20.5°, 50°, 79°, 85°; all in a plane."""
    angles = np.radians([20, -10, 15, 20.5, 50, 79, 85])
    documents = {f"d{at}": f"word{at}" for at in range(len(angles))}
    world = Collection.from_dicts("triangle", documents, {"q": "query"}, {"train": {"q": {"d0": 1}}})
    return world, Vectors.of(np.array([[2.0, 0.0]])), Vectors.of(np.stack([np.cos(angles), np.sin(angles)], 1))


def candidates(world: Collection) -> TextPairs:
    return TextPairs(world, np.zeros(6, np.int64), np.arange(1, 7), np.full(6, np.nan))


def test_the_quasi_triangular_region_by_hand(triangle):
    world = triangle[0]
    # θ = |20° − angle to the query|: 10, 5, 0.5, 30, 59, 65; angles to the positive: 30, 5, 0.5, 30, 59, 65
    marks = [False, True, True, False, False, True]  # an angle of 18.2° has the cosine 0.95
    assert TriSampler(*triangle).marks(candidates(world)).tolist() == marks


def test_the_distribution_over_the_region_by_hand(triangle):
    found = TriSampler(*triangle).log_weights(candidates(triangle[0]))
    cos = lambda degrees: np.cos(np.radians(degrees))  # noqa: E731
    assert found[0] == -np.inf  # 30° from the positive, 10° from the query
    assert found[1] == pytest.approx(-((cos(15) - cos(20)) ** 2) / 4 + np.log(cos(5) - cos(15)))
    assert found[3] == pytest.approx(-((cos(50) - cos(20)) ** 2) / 4 + np.log(cos(30) - cos(50)))


def test_trisampler_mines_from_its_region(triangle):
    world, queries, documents = triangle
    region = TriSampler(world, queries, documents)
    found = mine_negatives(
        world, DenseRetriever(queries, documents), split="train", top=6, ranks=(0, 6), rules=[region], draw=region
    )
    assert sorted(found.kept()["doc_id"].to_pylist()) == ["d4", "d5"]
    assert found.rejected() == {region.reason: 3, "not drawn": 1}


@pytest.fixture
def worded():
    rng = np.random.default_rng(0)
    words = np.array([f"w{i}" for i in range(12)])
    texts = {f"d{i}": " ".join(rng.choice(words, rng.integers(1, 7))) for i in range(60)}
    texts |= {"same": f"{texts['d0'].upper()}!", "turned": " ".join(reversed(texts["d1"].split())), "bare": "?"}
    queries = {f"q{i}": "anything" for i in range(8)}
    return Collection.from_dicts("worded", texts, queries, {"train": {q: {f"d{q[1:]}": 1} for q in queries}})


@pytest.mark.parametrize("kept", [tokens.SET, 1 << 40])  # remembers all sets, or forgets before each call
def test_marks_are_those_of_plain_sets(worded, kept, monkeypatch):
    monkeypatch.setattr(tokens, "SET", kept)
    looks, size = LookAlikes(worded, 0.6), len(worded.documents)
    texts = [text.lower().replace("!", "").split() for text in worded.document_texts(np.arange(size))]
    documents = np.arange(size)
    for query in (*range(8), 0, 3):
        equal, near = looks.marks(np.full(size, query), documents)
        own = texts[query]
        jaccard = np.array([len({*own} & {*text}) / len({*own} | {*text}) for text in texts])
        assert equal.tolist() == [text == own for text in texts]
        assert near.tolist() == ((jaccard >= 0.6) & ~equal).tolist()
    assert looks.marks(np.array([0, 1]), np.array([60, 61]))[0].tolist() == [True, texts[1] == texts[61]]


def test_parts_that_fit_into_the_memory_give_the_marks_of_all_at_once():
    rng = np.random.default_rng(0)
    words = np.array([f"w{i}" for i in range(3_000)])
    texts = {f"d{i}": " ".join(rng.choice(words, 5_000)) for i in range(12)}  # 27 kB each
    texts |= {f"again{i}": texts[f"d{i}"] for i in range(3)}
    judged = {f"q{i}": {f"d{i}": 1, f"d{i + 3}": 1} for i in range(3)}
    collection = Collection.from_dicts("long", texts, dict.fromkeys(judged, "anything"), {"train": judged})
    queries, documents = np.repeat(np.arange(3), 15), np.tile(np.arange(15), 3)
    whole = LookAlikes(collection, 0.5)
    with memory.limited(2**20):
        in_parts = LookAlikes(collection, 0.5).marks(queries, documents)
    for one, other in zip(in_parts, whole.marks(queries, documents), strict=True):
        assert (one == other).all()
    assert in_parts[0].reshape(3, 15)[:, 12:].tolist() == np.eye(3, dtype=bool).tolist()
    assert in_parts[1].any()


def test_copies_of_a_positive_are_bounded_and_counted():
    """Thousands of copies of one text would make thousands of rejected rows of each query."""
    documents = {f"d{at}": "one text that stands here often" if at < 250 else f"another {at}" for at in range(260)}
    queries = {f"q{at}": "one text" for at in range(3)}
    copied = Collection.from_dicts("copied", documents, queries, {"train": {query: {"d0": 1} for query in queries}})
    listed = Listed(np.tile(-np.arange(260.0), (3, 1)))
    found = mine_negatives(copied, listed, split="train", top=4)
    assert found.rejected() == {"equal to a positive": 3 * COPIES}
    assert found.copies_left_out == found.to_json()["copies_left_out"] == 3 * (249 - COPIES)
    assert kept(found) == [f"d{at}" for at in range(250, 254)] * 3
    assert ("further copies of positives left out", f"{found.copies_left_out}") in found.rows()
