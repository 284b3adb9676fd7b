"""What becomes a negative, by windows, rules, draws and copies of positives: against a plain loop, and by hand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from fakes import HashingEncoder, memory_of
from foils.data import Collection, tokens
from foils.data.negatives import EQUAL, Negatives, negatives_table
from foils.encode import Vectors, VectorStore
from foils.mining import BM25Retriever, DenseRetriever, Mined, Miner, RandomRetriever, candidates
from foils.mining.candidates import COPIES
from foils.mining.rules import (
    NEAR,
    LookAlikes,
    Margin,
    PositiveScores,
    ScoreLimit,
    TextPairs,
    TriSampler,
    Uniform,
    filter_negatives,
)  # fmt: skip
from foils.mining.scorers import EncoderScorer
from foils.runtime.errors import InputError
from refusals import refused


@dataclass
class Listed:
    """Ranks what it is given: query row -> document rows, best first, of scores 1/2, 1/3, 1/4, …."""

    rankings: Mapping[int, Sequence[int]]
    name: str = "listed"
    short: str = "the list is over"
    column: str = "listed"
    searched: list[tuple[int, int]] = field(default_factory=list)

    def search(self, query_rows: np.ndarray, depth: int) -> tuple[np.ndarray, np.ndarray]:
        self.searched.append((len(query_rows), depth))
        rows = np.full((len(query_rows), depth), -1, np.int64)
        for at, query in enumerate(query_rows.tolist()):
            ranked = list(self.rankings.get(query, ()))[:depth]
            rows[at, : len(ranked)] = ranked
        return rows, np.where(rows >= 0, 1 / (2.0 + np.arange(depth)), np.nan)

    def score(self, pairs: TextPairs) -> np.ndarray:
        return np.where(pairs.doc_rows % 2, -1.0, 1.0) / (1 + pairs.doc_rows)


def words(text: str) -> list[str]:
    cleaned = "".join(char if char.isalnum() else " " for char in text.casefold())
    return cleaned.split()


@dataclass
class Plain:
    rows: list[tuple[str, str, int, bool, str | None]]
    passed: int
    short: int


Row = tuple[str, str, int, bool, str | None]


def plain_mine(
    collection: Collection, rankings: Mapping[int, Sequence[int]], split: str, top: int, near: float, first: int,
    end: float, reason_of: Any,
) -> Plain:  # fmt: skip
    """One query, one document at a time."""
    documents = {row["doc_id"]: f"{row['title']} {row['text']}" for row in collection.documents.to_pylist()}
    ids = list(documents)
    queries = collection.queries["query_id"].to_pylist()
    labelled: dict[str, set[str]] = {}
    asked: dict[str, None] = {}
    for name, table in collection.qrels.items():
        for row in table.to_pylist():
            if row["relevance"] > 0:
                labelled.setdefault(row["query_id"], set()).add(row["doc_id"])
                if name == split:
                    asked[row["query_id"]] = None
    found = Plain([], 0, 0)
    for query in asked:
        usable, rank = 0, 0
        for place, index in enumerate(rankings.get(queries.index(query), ())):
            if usable == top or rank >= end:
                break
            document = ids[index]
            if document in labelled[query]:
                found.passed += 1
                continue
            ours, reason = words(documents[document]), reason_of(query, 1 / (2.0 + place))
            for positive in (words(documents[key]) for key in labelled[query]):
                shared, either = len(set(ours) & set(positive)), len(set(ours) | set(positive))
                if rank < first or reason not in (None, NEAR):
                    reason = reason or "ranked before the window"
                elif ours == positive:
                    reason = EQUAL
                elif shared / either >= near:
                    reason = NEAR
            found.rows.append((query, document, rank, reason is None, reason))
            rank, usable = rank + 1, usable + (reason is None)
        found.short += usable < top
    return found


def rows_of(mined: Mined) -> list[tuple[str, str, int, bool, str | None]]:
    table = mined.table.to_pylist()
    return [(row["query_id"], row["doc_id"], row["rank"], row.get("keep", True), row.get("reason")) for row in table]


VOCABULARY = ["wind", "boat", "bee", "yeast", "nest"]
texts = st.lists(st.sampled_from(VOCABULARY), min_size=1, max_size=5).map(" ".join)


@st.composite
def worlds(draw: st.DrawFn) -> tuple[Collection, dict[int, list[int]]]:
    documents = draw(st.lists(texts, min_size=2, max_size=25))
    noise = draw(st.lists(st.sampled_from(["", "!", "UP"]), min_size=len(documents), max_size=len(documents)))
    written = [text.upper() if how == "UP" else text + how for text, how in zip(documents, noise, strict=True)]
    queries = draw(st.integers(1, 6))
    qrels: dict[str, dict[str, dict[str, int]]] = {"train": {}, "test": {}}
    for query in draw(st.permutations(range(queries))):
        judged = draw(st.dictionaries(st.integers(0, len(documents) - 1), st.integers(0, 2), min_size=1, max_size=4))
        split = draw(st.sampled_from(["train", "test", "both"]))
        for name in ("train", "test"):
            if split in (name, "both"):
                qrels[name][f"q {query}"] = {f"d{key}": grade for key, grade in judged.items()}
    qrels["train"].setdefault("q 0", {})["d0"] = 1
    collection = Collection.from_dicts(
        "drawn",
        {f"d{i}": text for i, text in enumerate(written)},
        {f"q {i}": f"query {i}" for i in range(queries)},
        qrels,
    )
    rankings = {
        query: draw(st.permutations(range(len(documents))))[: draw(st.integers(0, len(documents)))]
        for query in range(queries)
    }
    return collection, rankings


@settings(max_examples=200, deadline=None)
@given(worlds(), st.integers(1, 6), st.sampled_from([0.3, 0.5, 0.75, 0.9, 1.0, 2.0]), st.integers(0, 4), st.data())
def test_negatives_equal_those_of_the_plain_loop(
    world: tuple[Collection, dict[int, list[int]]], top: int, near: float, first: int, data: st.DataObject
) -> None:
    """With windows, limits and margins, however many are mined at once; the first rule that holds gives the reason."""
    collection, rankings = world
    end = data.draw(st.none() | st.integers(first + 1, 12))
    queries, documents = collection.known_positives.pairs()
    scores = data.draw(st.lists(st.floats(-0.6, 0.6), min_size=len(queries), max_size=len(queries)))
    positives = PositiveScores(queries, documents, np.array(scores))
    limits = st.floats(-0.2, 0.6)
    rules: list[Any] = data.draw(
        st.lists(
            st.builds(ScoreLimit, limits, st.booleans()) | st.builds(Margin, st.just(positives), limits, st.booleans()),
            max_size=3,
        )
    )

    def reason_of(query: str, score: float) -> str | None:
        lowest = min(s for q, s in zip(queries, scores, strict=True) if q == int(query[2:]))
        for rule in rules:
            if isinstance(rule, Margin):
                holds = score > lowest - rule.amount * (abs(lowest) if rule.relative else 1)
            else:
                holds = score < rule.limit if rule.below else score > rule.limit
            if holds:
                return str(rule.reason)
        return None

    given_rules = {"near_duplicate": near, "ranks": (first, end), "rules": rules}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(candidates, "QUERIES", data.draw(st.sampled_from([1, 2, 4_096])))
        found = Miner(collection, Listed(rankings), top=top, **given_rules).mined("train")
    last = end or (first + 10 * top if rules else np.inf)
    expected = plain_mine(collection, rankings, "train", top, near, first, last, reason_of)
    assert rows_of(found) == expected.rows
    assert found.positives_left_out == expected.passed
    assert sum(found.short.values()) == expected.short
    reasons = [reason for *_, reason in expected.rows if reason]
    assert found.rejected() == {reason: reasons.count(reason) for reason in set(reasons)}
    assert found.queries == len(collection.positives("train"))


def test_a_deeper_search_is_made_for_the_short_lists_alone() -> None:
    """Of 100 documents the first 30 repeat the positive of q0; q1 is full at once."""
    documents = {f"d{i}": "the positive text" if i < 31 else f"text {i}" for i in range(100)}
    collection = Collection.from_dicts(
        "deep", documents, {"q0": "a", "q1": "b"}, {"train": {"q0": {"d0": 1}, "q1": {"d99": 1}}}
    )
    retriever = Listed({0: range(100), 1: range(100)})
    found = Miner(collection, retriever, top=3).mined("train")
    assert retriever.searched == [(2, 11), (1, 44)]
    kept = [row for row in rows_of(found) if row[3]]
    assert [row[1] for row in kept] == ["d31", "d32", "d33", "d0", "d1", "d2"]
    assert [row[2] for row in kept] == [30, 31, 32, 0, 1, 2]
    assert found.rejected() == {EQUAL: 30}
    assert found.short == {}
    assert found.positives_left_out == 1


def test_short_lists_say_why() -> None:
    collection = Collection.from_dicts(
        "short", {f"d{i}": f"text {i}" for i in range(4)}, {"q": "a"}, {"train": {"q": {"d0": 1}}}
    )
    ended = Miner(collection, Listed({0: [0, 3]}), top=3).mined("train")
    assert ended.short == {"the list is over": 1}
    assert [row[1] for row in rows_of(ended)] == ["d3"]
    through = Miner(collection, Listed({0: [3, 0, 1, 2]}), top=4).mined("train")
    assert through.short == {"the collection has no further document": 1}
    assert Miner(collection, Listed({0: [3, 0, 1, 2]}), top=3).mined("train").short == {}


def test_titles_and_texts_of_no_letter_or_digit_are_compared_too() -> None:
    documents = {
        "p": "?!", "same": " ?! ", "other": "!!", "word": "word", "wind": ("Wind", "turns the boat"),
        "again": ("", "wind turns the boat"),
    }  # fmt: skip
    judged = {"train": {"q": {"p": 1}, "r": {"wind": 1}}}
    collection = Collection.from_dicts("marks", documents, {"q": "?", "r": "?"}, judged)
    found = Miner(collection, Listed({0: [1, 2, 3], 1: [5]}), top=3).mined("train")
    assert [row[4] for row in rows_of(found)] == [EQUAL, None, None, EQUAL]


def test_scores_and_provenance_come_through(small: Collection) -> None:
    made = {"stage": "mine", "settings": {"top": 2}}
    found = Miner(small, Listed({0: [1, 4, 5]}, name="mine"), top=2).mined("train", made=made)
    recapture = found.provenance["recapture"]
    assert found.provenance == {**made, "recapture": recapture}
    counts = {name: recapture[name] for name in ("way", "labelled", "kept", "queries")}
    assert counts == {"way": "counted", "labelled": 4, "kept": 2, "queries": 3}
    first = found.table.slice(0, 1).to_pylist()[0]
    assert (first["query_id"], first["source"], first["score"]) == ("q1", "mine", 0.5)


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "top": ({"top": 0}, "top 0; expected at least 1"),
    "near": ({"near_duplicate": float("nan")}, "near_duplicate nan; expected above 0"),
    "split": ({"split": "tran"}, "Did you mean 'train'"),
    "ranks": ({"ranks": (3, 3)}, "ranks 3–3"),
    "no end": ({"draw": Uniform()}, "window of ranks with an end"),
    "no scores": ({"rules": [ScoreLimit(0.5)]}, "needs a scorer"),
}


@pytest.mark.parametrize(("bad", "message"), REFUSED.values(), ids=list(REFUSED))
def test_settings_out_of_range(small: Collection, bad: dict[str, Any], message: str) -> None:
    split = bad.get("split", "train")
    window = {"top": 2, **{name: value for name, value in bad.items() if name != "split"}}
    with pytest.raises(InputError, match=message):
        Miner(small, RandomRetriever(small), **window).mined(split)


def test_a_split_without_a_positive_is_an_error() -> None:
    collection = Collection.from_dicts("none", {"a": "x"}, {"q": "?"}, {"train": {"q": {"a": 0}}})
    with pytest.raises(InputError, match="judges no document relevant"):
        Miner(collection, RandomRetriever(collection), top=1).mined("train")


@pytest.mark.parametrize(
    ("rule", "limit"), [({"amount": 0.1}, 0.3), ({"amount": 0.5, "relative": True}, 0.2), ({"amount": -0.1}, 0.5)]
)
@pytest.mark.parametrize("sign", [1, -1])
def test_margins_by_hand(small, rule, limit, sign):
    """Against positives of .8 and .4, the lowest of which counts; for −.4 a share of the positive lies below it."""
    scores = np.array([0.8, 0.4]) if sign > 0 else np.array([-0.4, 0.0])
    limit -= 0.8 if sign < 0 else 0
    positives = PositiveScores(np.zeros(2, np.int64), np.arange(2), scores)
    pairs = TextPairs(small, np.zeros(2, np.int64), np.ones(2, np.int64), limit + np.array([-1e-6, 1e-6]))
    assert Margin(positives, **rule).marks(pairs).tolist() == [False, True]
    one = np.zeros(1, np.int64)
    assert positives.lowest(one)[0] == scores.min()
    for bad, message in (({"amount": 1.5, "relative": True}, "at most 1"), ({"amount": np.nan}, "finite")):
        refused(message, Margin, positives, **bad)
    refused("no positive; a margin", positives.lowest, np.array([3]))


def test_another_scorer_gives_the_scale(small):
    """The listed score of a document is 1, −1/2, 1/3, −1/4, … by its row."""
    listed = Listed({0: [1, 3, 4, 5, 6, 7]}, column="logit")
    found = Miner(small, listed, top=3, rules=[ScoreLimit(-0.2)], scorer=listed, ranks=(0, 9)).mined("train")
    assert found.kept()["doc_id"].to_pylist() == ["d2", "d4"]
    rows = small.document_rows(found.table["doc_id"])
    assert found.table["logit"].to_pylist() == (np.where(rows % 2, -1.0, 1.0) / (1 + rows)).tolist()


def test_marking_an_existing_table(small, tmp_path):
    own = "A sailing boat turns its bow"
    table = negatives_table(pa.array(["q1", "q1", "q2"]), pa.array(["d2", "llm:1", "d5"]), "x", [0, 1, 0], [np.nan] * 3)
    table = table.append_column("text", pa.array([None, own, None], pa.large_string()))
    encoder = HashingEncoder()
    scorer = EncoderScorer(encoder, VectorStore(tmp_path))
    positives = PositiveScores.of(small, scorer, np.array([0, 1]))
    found = filter_negatives(Negatives(table), small, [Margin(positives)], scorer=scorer)
    queries, (second, fifth) = small.query_texts([0, 0, 1]), small.document_texts([1, 4])
    asked, given = encoder.encode(queries, "query"), encoder.encode([second, own, fifth], "document")
    cosines = (asked * given).sum(1)
    assert found.table["cosine"].to_pylist() == pytest.approx(cosines, abs=1e-6)
    assert found.keep.tolist() == (cosines <= positives.lowest(np.array([0, 0, 1]))).tolist()
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
        with pytest.raises(InputError, match="their own text"):
            retriever.score(TextPairs(small, np.array([0]), np.array([-1]), np.zeros(1), pa.array(["x"])))


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
    given = {"top": 1, "ranks": (0, 12), **settings}
    found = Miner(world, DenseRetriever(queries, documents), **given).mined("train")
    return np.bincount(found.kept()["rank"].to_numpy(), minlength=12)


def test_uniform_draws_are_uniform_repeat_with_the_seed_and_stay_in_the_window(many):
    counts = drawn(many, draw=Uniform(), ranks=(2, 10), seed=1)
    assert counts[:2].sum() == counts[10:].sum() == 0
    assert stats.chisquare(counts[2:10]).pvalue > 1e-4
    assert (drawn(many, draw=Uniform(), seed=1) == drawn(many, draw=Uniform(), seed=1)).all()
    assert (drawn(many, draw=Uniform(), seed=1) != drawn(many, draw=Uniform(), seed=2)).any()


def test_what_is_not_drawn_is_marked_and_what_is_rejected_is_replaced(many):
    world, queries, documents = many
    found = Miner(world, DenseRetriever(queries, documents), top=3, ranks=(0, 8), draw=Uniform()).mined("train")
    assert found.rejected() == {"not drawn": 5 * QUERIES}
    assert found.short == {}
    filled = drawn(many, draw=Uniform(), rules=[ScoreLimit(0.52)], top=2)
    assert filled[:6].sum() == 0
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
    found = Miner(world, RandomRetriever(world), top=1, ranks=(0, 2), draw=Uniform()).mined("train")
    places = (world.document_rows(found.kept()["doc_id"].to_pylist()) + 0.5) / documents
    assert abs(places.mean() - 0.5) < 4 * np.sqrt(1 / 12 / queries)


@pytest.fixture
def triangle() -> tuple[Collection, Vectors, Vectors]:
    """A query at 0°, its positive at 20°, candidates at −10°, 15°, 20.5°, 50°, 79°, 85°; all in a plane."""
    angles = np.radians([20, -10, 15, 20.5, 50, 79, 85])
    documents = {f"d{at}": f"word{at}" for at in range(len(angles))}
    world = Collection.from_dicts("triangle", documents, {"q": "query"}, {"train": {"q": {"d0": 1}}})
    return world, Vectors.of(np.array([[2.0, 0.0]])), Vectors.of(np.stack([np.cos(angles), np.sin(angles)], 1))


def six(world: Collection) -> TextPairs:
    return TextPairs(world, np.zeros(6, np.int64), np.arange(1, 7), np.full(6, np.nan))


def test_the_quasi_triangular_region_by_hand(triangle):
    world = triangle[0]
    # θ = |20° − angle to the query|: 10, 5, 0.5, 30, 59, 65; angles to the positive: 30, 5, 0.5, 30, 59, 65
    marks = [False, True, True, False, False, True]  # an angle of 18.2° has the cosine 0.95
    assert TriSampler(*triangle).marks(six(world)).tolist() == marks


def test_the_distribution_over_the_region_by_hand(triangle):
    found = TriSampler(*triangle).log_weights(six(triangle[0]))
    cos = lambda degrees: np.cos(np.radians(degrees))  # noqa: E731
    assert found[0] == -np.inf  # 30° from the positive, 10° from the query
    assert found[1] == pytest.approx(-((cos(15) - cos(20)) ** 2) / 4 + np.log(cos(5) - cos(15)))
    assert found[3] == pytest.approx(-((cos(50) - cos(20)) ** 2) / 4 + np.log(cos(30) - cos(50)))


def test_trisampler_mines_from_its_region(triangle):
    world, queries, documents = triangle
    region = TriSampler(world, queries, documents)
    dense = DenseRetriever(queries, documents)
    found = Miner(world, dense, top=6, ranks=(0, 6), rules=[region], draw=region).mined("train")
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
    looks, size = LookAlikes(worded.known_positives, tokens.DocumentSets(worded), 0.6), len(worded.documents)
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
    whole = LookAlikes(collection.known_positives, tokens.DocumentSets(collection), 0.5)
    with memory_of(2**20):
        in_parts = LookAlikes(collection.known_positives, tokens.DocumentSets(collection), 0.5).marks(
            queries, documents
        )
    for one, other in zip(in_parts, whole.marks(queries, documents), strict=True):
        assert (one == other).all()
    assert in_parts[0].reshape(3, 15)[:, 12:].tolist() == np.eye(3, dtype=bool).tolist()
    assert in_parts[1].any()


def test_copies_of_a_positive_are_bounded_and_counted():
    """Thousands of copies of one text would make thousands of rejected rows of each query."""
    documents = {f"d{at}": "one text that stands here often" if at < 250 else f"another {at}" for at in range(260)}
    queries = {f"q{at}": "one text" for at in range(3)}
    copied = Collection.from_dicts("copied", documents, queries, {"train": {query: {"d0": 1} for query in queries}})
    listed = Listed(dict.fromkeys(range(3), range(260)))
    found = Miner(copied, listed, top=4).mined("train")
    assert found.rejected() == {"equal to a positive": 3 * COPIES}
    assert found.copies_left_out == found.to_json()["copies_left_out"] == 3 * (249 - COPIES)
    assert found.kept()["doc_id"].to_pylist() == [f"d{at}" for at in range(250, 254)] * 3
    assert ("further copies of positives left out", f"{found.copies_left_out}") in found.rows()
