"""Rankings of each retriever, against brute force and against bm25s' own retrieval."""

import pickle
from dataclasses import replace

import bm25s
import numpy as np
import pytest
import Stemmer
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

from fakes import HashingEncoder
from foils.data import Collection
from foils.encode import EmbeddingSettings, Vectors, VectorStore, nearest
from foils.encode.nearest import top_inner_products
from foils.mining import BM25Retriever, DenseRetriever, Miner, RandomRetriever, retrievers
from foils.mining.rules import TextPairs
from foils.runtime.errors import InputError
from foils.searching import DimensionSettings
from foils.searching.choosing import judged_queries
from foils.searching.doors import Retriever as FoilsRetriever
from foils.searching.runs import embed_collection, search_collection

WORDS = [
    "wind",
    "boat",
    "keel",
    "sailing",
    "sailed",
    "bread",
    "yeast",
    "flour",
    "loaves",
    "bee",
    "nests",
    "the",
    "a",
    "of",
]


def collection_of(documents: list[str], queries: list[str]) -> Collection:
    ids = [f"d{i}" for i in range(len(documents))]
    return Collection.from_dicts(
        "made", dict(zip(ids, documents, strict=True)), {f"q{i}": text for i, text in enumerate(queries)},
        {"train": {"q0": {"d0": 1}}},
    )  # fmt: skip


@pytest.fixture(scope="module")
def texts():
    rng = np.random.default_rng(0)
    documents = [" ".join(rng.choice(WORDS, rng.integers(1, 15))) for _ in range(120)]
    queries = [" ".join(rng.choice([*WORDS, "unseen"], rng.integers(1, 6))) for _ in range(30)]
    return documents, queries


@pytest.mark.parametrize(("k1", "b"), [(1.2, 0.75), (0.5, 0.0), (2.0, 1.0)])
def test_bm25_scores_are_those_of_bm25s(texts, k1, b):
    documents, queries = texts
    tokens = bm25s.tokenize(documents, stopwords="english", stemmer=Stemmer.Stemmer("english"), show_progress=False)
    index = bm25s.BM25(method="lucene", k1=k1, b=b)
    index.index(tokens, show_progress=False)
    retriever = BM25Retriever(collection_of(documents, queries), k1=k1, b=b)
    rows, scores = retriever.search(np.arange(len(queries)), 15)
    for at, query in enumerate(queries):
        asked = bm25s.tokenize(
            query, stopwords="english", stemmer=Stemmer.Stemmer("english"), return_ids=False, show_progress=False
        )[0]
        every = index.get_scores(asked) if asked else np.zeros(len(documents))
        order = [row for row in np.lexsort((np.arange(len(every)), -every)) if every[row] > 0][:15]
        count = len(order)
        np.testing.assert_allclose(scores[at, :count], every[order], rtol=1e-5)
        np.testing.assert_allclose(every[rows[at, :count]], scores[at, :count], rtol=1e-5)
        assert len(np.unique(rows[at, :count])) == count
        assert (rows[at, count:] == -1).all()
        assert np.isnan(scores[at, count:]).all()


@pytest.mark.parametrize(("k1", "b"), [(float("nan"), 0.5), (1.2, 1.1)])
def test_bm25_settings_out_of_range(k1, b):
    with pytest.raises(InputError, match="expected"):
        BM25Retriever(collection_of(["bread"], ["bread"]), k1=k1, b=b)


def test_bm25_in_another_language():
    collection = collection_of(["Die Boote segeln", "Brot und Hefe"], ["das Boot", "und"])
    rows, _ = BM25Retriever(collection, language="german").search(np.array([0, 1]), 2)
    assert rows.tolist() == [[0, -1], [-1, -1]]
    rows, _ = BM25Retriever(collection).search(np.array([0, 1]), 2)
    assert rows.tolist() == [[0, -1], [1, -1]]  # 'und' is no stop word of English


def test_bm25_ties_go_to_the_earlier_document_and_stop_words_find_nothing():
    retriever = BM25Retriever(collection_of(["bread", "sail", "breads", "the of", "bread"], ["bread", "the", "?"]))
    rows, scores = retriever.search(np.array([0, 1, 2]), 4)
    assert rows[0].tolist() == [0, 2, 4, -1]
    assert len(set(scores[0, :3].tolist())) == 1
    assert (rows[1:] == -1).all()


def test_a_kept_index_is_mapped_and_a_damaged_one_made_again(texts, tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(retrievers, "LEAST_KEPT", 100)
    monkeypatch.setenv("FOILS_CACHE", str(tmp_path))
    made = collection_of(*texts)
    rows = np.arange(30)
    expected = BM25Retriever(made).search(rows, 20)
    assert not BM25Retriever(made).portable, "it is stored nowhere"
    stored = replace(made, folder=tmp_path)
    first = BM25Retriever(stored)
    monkeypatch.setattr(BM25Retriever, "_indexed", lambda *_: 1 / 0)
    sent = pickle.loads(pickle.dumps(first.__reduce__()[0]))(stored)  # the collection goes by its folder
    for retriever in (first, BM25Retriever(stored), sent):
        for found, wanted in zip(retriever.search(rows, 20), expected, strict=True):
            np.testing.assert_array_equal(found, wanted)
    monkeypatch.undo()
    monkeypatch.setattr(retrievers, "LEAST_KEPT", 100)
    monkeypatch.setenv("FOILS_CACHE", str(tmp_path))
    (damaged,) = tmp_path.glob("bm25/*/data.npy")
    damaged.write_bytes(damaged.read_bytes()[:-1] + b"\0")
    np.testing.assert_array_equal(BM25Retriever(stored).search(rows, 20)[0], expected[0])
    assert "is damaged" in caplog.text
    monkeypatch.setenv("FOILS_CACHE", str(damaged))  # a file: nothing can be kept there
    unkept = BM25Retriever(stored)
    np.testing.assert_array_equal(unkept.search(rows, 20)[0], expected[0])
    assert not unkept.portable
    assert "is not kept" in caplog.text


def test_bm25_at_any_depth_begins_alike_whatever_is_scored_at_once(texts, monkeypatch):
    retriever = BM25Retriever(collection_of(*texts))
    deep, scores = retriever.search(np.arange(30), 60)
    monkeypatch.setattr(retrievers, "QUERIES", 7)
    for depth in (1, 5, 59):
        rows, values = retriever.search(np.arange(30), depth)
        np.testing.assert_array_equal(rows, deep[:, :depth])
        np.testing.assert_array_equal(values, scores[:, :depth])
    some = np.array([3, 17, 3])
    np.testing.assert_array_equal(retriever.search(some, 60)[0], deep[some])
    assert retriever.search(np.zeros(0, np.int64), 4)[0].shape == (0, 4)


@pytest.mark.parametrize(("threads", "few"), [(1, 0), (2, 0), (2, 2_000)])
def test_bm25_spares_documents_without_changing_a_bit(threads, few, monkeypatch):
    """Words by Zipf's law, so that most queries have a term of nearly every document; repeated terms, and many ties."""
    monkeypatch.setattr("foils.runtime.parallel.workers", lambda: threads)
    monkeypatch.setattr(retrievers, "FEW", few)
    rng = np.random.default_rng(1)
    documents = [" ".join(f"w{word}" for word in rng.zipf(1.2, 12) % 500) for _ in range(3_000)]
    queries = [" ".join(f"w{word}" for word in rng.zipf(1.2, rng.integers(1, 9)) % 600) for _ in range(200)]
    retriever = BM25Retriever(collection_of(documents, queries))
    counts = sparse.vstack([block for *_, block in retriever._counted(np.arange(200))])
    every = (counts @ retriever._scores).toarray()  # float32, added in the order of the query's terms
    order = np.lexsort((np.broadcast_to(np.arange(3_000), every.shape), -every), axis=1)
    best = np.take_along_axis(every, order, axis=1)
    for depth in (1, 10, 300, 3_000):
        found, values = retriever.search(np.arange(200), depth)
        np.testing.assert_array_equal(found, np.where(best > 0, order, -1)[:, :depth])
        np.testing.assert_array_equal(values, np.where(best > 0, best, np.nan)[:, :depth])
    asked, rows = np.repeat(np.arange(200), 15), np.tile(np.arange(0, 3_000, 200), 200)
    pairs = TextPairs(retriever._collection, asked[::-1], rows[::-1], np.zeros(3_000))
    np.testing.assert_array_equal(retriever.score(pairs), every[asked, rows][::-1])


@settings(max_examples=120, deadline=None)
@given(
    st.integers(1, 40), st.integers(1, 6), st.integers(1, 45), st.integers(1, 50), st.integers(0, 2**32 - 1),
    st.booleans(),
)  # fmt: skip
def test_dense_equals_brute_force_with_ties_by_position(documents, queries, depth, block, seed, ties):
    """Small whole numbers make products exact, so ties are ties on every path."""
    rng = np.random.default_rng(seed)
    kind = rng.integers(-1, 2, (documents, 3)) if ties else rng.integers(-400, 400, (documents, 3))
    held, asked = kind.astype(np.float32), rng.integers(-3, 4, (queries, 3)).astype(np.float32)
    products = asked @ held.T
    expected = np.argsort(-products, axis=1, kind="stable")[:, :depth]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(nearest, "BLOCK", block)
        rows, scores = top_inner_products(asked, Vectors.of(held), depth)
    count = min(depth, documents)
    assert rows.shape == scores.shape == (queries, depth)
    np.testing.assert_array_equal(rows[:, :count], expected)
    np.testing.assert_array_equal(scores[:, :count], np.take_along_axis(products, expected, 1))
    assert (rows[:, count:] == -1).all()
    assert np.isnan(scores[:, count:]).all()


def test_dense_reads_float16_vectors_and_queries_by_row(monkeypatch):
    rng = np.random.default_rng(1)
    documents, queries = rng.standard_normal((50, 8)), rng.standard_normal((9, 8)).astype(np.float32)
    held = Vectors(documents.astype(np.float16), rng.permutation(50))
    monkeypatch.setattr(nearest, "BLOCK", 4)
    rows, scores = DenseRetriever(Vectors.of(queries), held).search(np.array([8, 0, 5, 5, 1]), 7)
    products = queries[[8, 0, 5, 5, 1]] @ held.take(np.arange(50)).T
    np.testing.assert_array_equal(rows, np.argsort(-products, axis=1)[:, :7])
    np.testing.assert_allclose(scores, -np.sort(-products, axis=1)[:, :7], rtol=1e-5)
    none = DenseRetriever(Vectors.of(queries), held).search(np.zeros(0, np.int64), 3)
    assert none[0].shape == none[1].shape == (0, 3)


def test_bm25_keeps_marks_with_their_letters():
    texts = {
        "0": "किताब मेज़ पर है",
        "1": "कलम मेज़ पर है",
        "2": "hôtel",
        "3": "ho\u0302tel du port",
        "4": "plain words_here",
    }
    asked = {"book": "किताब", "hotel": "hôtel", "words": "words_here"}
    collection = Collection.from_dicts("marks", texts, asked, {"train": {"book": {"0": 1}}})
    rows, _ = BM25Retriever(collection).search(np.arange(3), 3)
    assert rows.tolist() == [[0, -1, -1], [2, 3, -1], [4, -1, -1]]


def big(documents: int) -> Collection:
    return collection_of([f"text {i}" for i in range(documents)], ["?"] * 3)


def test_random_draws_are_seeded_and_their_own_for_each_query():
    collection = big(500)
    rows, scores = RandomRetriever(collection, seed=1).search(np.array([0, 1, 2]), 400)
    assert np.isnan(scores).all()
    np.testing.assert_array_equal(RandomRetriever(collection, seed=1).search(np.array([2, 0]), 400)[0], rows[[2, 0]])
    assert not np.array_equal(RandomRetriever(collection, seed=2).search(np.array([0]), 400)[0], rows[:1])
    assert not np.array_equal(rows[0], rows[1])


@pytest.mark.parametrize("documents", [1, 255, 257, 600])
def test_random_searches_deeper_with_the_same_beginning_and_end_with_the_collection(documents):
    retriever = RandomRetriever(big(documents))
    deep = retriever.search(np.array([0]), documents + 3)[0][0]
    assert sorted(deep[:documents]) == list(range(documents))
    assert deep[documents:].tolist() == [-1] * 3
    for depth in {1, documents // 2 or 1, documents}:
        np.testing.assert_array_equal(retriever.search(np.array([0]), depth)[0][0], deep[:depth])
    assert retriever.search(np.zeros(0, np.int64), 2)[0].shape == (0, 2)


def test_random_draws_are_uniform_at_every_rank():
    collection = collection_of([f"text {i}" for i in range(20)], ["?"] * 3000)
    rows, _ = RandomRetriever(collection).search(np.arange(3000), 5)
    for column in range(5):
        counts = np.bincount(rows[:, column], minlength=20)
        assert ((counts - 150) ** 2 / 150).sum() < 43.8  # chi-square, 19 degrees of freedom, p = 0.001


def test_a_gpu_screens_where_there_is_one(monkeypatch):
    import torch

    seen, held = [], Vectors.of(np.eye(4, dtype=np.float32))

    def noting(*given, device=None):
        seen.append(device)
        return top_inner_products(*given)

    monkeypatch.setattr(retrievers, "top_inner_products", noting)
    for there in (True, False):
        monkeypatch.setattr(torch.cuda, "is_available", lambda there=there: there)
        for device in (None, "cpu", "cuda:0"):
            DenseRetriever(held, held, device=device).search(np.arange(4), 2)
    assert seen == [None, None, "cuda:0", None, None, None]


def test_what_an_encoder_made_is_searched_on_its_device_unless_another_is_named(small, tmp_path, monkeypatch):
    """Devices of made-up names: what the exact search of mining, of searching and of a retriever asks for."""
    asked, real = [], top_inner_products

    def noting(*given, device=None, **more):
        asked.append(device)
        return real(*given, **more)

    for module in (retrievers, nearest):
        monkeypatch.setattr(module, "gpu", lambda device: device)
        monkeypatch.setattr(module, "top_inner_products", noting)
    encoder, store, rows = HashingEncoder(), VectorStore(tmp_path), small.positives("train").query_rows
    encoder.device = "first:1"

    def searched(**named):
        asked.clear()
        DenseRetriever.of_model(small, encoder, store, **named).search(rows, 3)
        embedded = embed_collection(small, encoder, store, split="train", **named)
        search_collection(embedded, DimensionSettings("none"), k=3)
        judged_queries(embedded, k=3, feedback_depth=3)
        FoilsRetriever(small, encoder, embedding=EmbeddingSettings(vectors=store, **named)).search("reed", k=2)
        return set(asked)

    assert searched() == {"first:1"}
    assert searched(device="second:0") == {"second:0"}
    del encoder.device
    assert searched() == {None}


def test_a_changed_model_gives_other_negatives_and_an_unchanged_one_costs_nothing(small, tmp_path):
    """ANCE: the model in training mines anew."""
    store, rows = VectorStore(tmp_path), small.positives("train").query_rows
    one, two = HashingEncoder(), HashingEncoder(salt="trained")

    def mined(encoder):
        retriever = DenseRetriever.of_model(small, encoder, store, query_rows=rows, name="ance")
        return Miner(small, retriever, top=3).mined("train")

    first, encoded = mined(one), one.encoded
    assert mined(one).table.equals(first.table)
    assert one.encoded == encoded
    assert not mined(two).table.equals(first.table)
    assert set(first.table["source"].to_pylist()) == {"ance"}
    asked = {text for call in one.calls for text in call} & set(small.query_texts(range(5)))
    assert asked == set(small.query_texts(rows)), "the split's alone"
