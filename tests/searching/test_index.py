"""The first stage: exact, in blocks, with ties by position; faiss indexes, saved and loaded."""

import faiss
import numpy as np
import pytest

from foils.encode import Vectors
from foils.runtime.errors import FormatError, InputError, UnknownNameError
from foils.searching import ExactIndex, FaissIndex


def unit(n, d=16, seed=0):
    x = np.random.default_rng(seed).normal(size=(n, d)).astype(np.float32)
    return x / np.linalg.norm(x, axis=1, keepdims=True)


def plain(queries, documents, k):
    return np.stack([np.lexsort((np.arange(len(documents)), -(documents @ q)))[:k] for q in queries])


WHOLE = np.random.default_rng(5).integers(-2, 3, (300, 6)).astype(np.float32)  # many exact ties


@pytest.mark.parametrize(("block", "query_block"), [(1000, 256), (300, 1), (7, 3), (1, 1)])
@pytest.mark.parametrize("k", [1, 10, 299, 300, 500])
def test_exact_search_is_a_sort_with_ties_by_position(k, block, query_block):
    queries = WHOLE[:5]
    positions, scores = ExactIndex(Vectors.of(WHOLE), block=block, query_block=query_block).search(queries, k)
    np.testing.assert_array_equal(positions, plain(queries, WHOLE, k))
    np.testing.assert_array_equal(scores, np.take_along_axis(queries @ WHOLE.T, positions, axis=1))


def test_no_query_gives_no_row():
    positions, scores = ExactIndex(Vectors.of(WHOLE)).search(np.zeros((0, 6), np.float32), 4)
    assert positions.shape == scores.shape == (0, 4)


def test_flat_faiss_agrees_with_exact_search():
    documents, queries = unit(500), unit(20, seed=1)
    exact, scores = ExactIndex(Vectors.of(documents)).search(queries, 30)
    found, faiss_scores = FaissIndex.build(Vectors.of(documents), "flat", block=64).search(queries, 30)
    np.testing.assert_array_equal(found, exact)
    np.testing.assert_allclose(faiss_scores, scores, rtol=1e-5)


def recall(index, queries, documents, k=20):
    exact, _ = ExactIndex(Vectors.of(documents)).search(queries, k)
    found, _ = index.search(queries, k)
    return np.mean([len(set(a) & set(b)) / k for a, b in zip(exact, found, strict=True)])


@pytest.mark.parametrize(
    ("kind", "poor", "rich"),
    [
        ("hnsw", {"search_depth": 1, "links": 4, "construction_depth": 4}, {"search_depth": 400}),
        ("ivf", {"probes": 1, "lists": 40}, {"probes": 40, "lists": 40}),
    ],
)
def test_approximate_search_finds_more_with_more_effort(kind, poor, rich):
    documents, queries = unit(2000), unit(50, seed=1)
    built = [FaissIndex.build(Vectors.of(documents), kind, **settings) for settings in (poor, rich)]
    low, high = (recall(index, queries, documents) for index in built)
    assert low < 0.9 < 0.99 < high


@pytest.mark.parametrize("kind", ["flat", "hnsw", "ivf"])
def test_a_saved_index_answers_as_before(kind, tmp_path):
    documents, queries = unit(800), unit(10, seed=1)
    index = FaissIndex.build(Vectors.of(documents), kind, probes=3, search_depth=30)
    index.save(tmp_path / "index.faiss", Vectors.of(documents))
    loaded = FaissIndex.load(tmp_path / "index.faiss", Vectors.of(documents))
    assert len(loaded) == 800
    for one, other in zip(index.search(queries, 25), loaded.search(queries, 25), strict=True):
        np.testing.assert_array_equal(one, other)


def test_a_file_that_is_no_index_is_named(tmp_path):
    (tmp_path / "x").write_bytes(b"not an index")
    with pytest.raises(FormatError, match="not an index that foils wrote"):
        FaissIndex.load(tmp_path / "x", Vectors.of(unit(4)))
    with pytest.raises(InputError, match="no such file"):
        FaissIndex.load(tmp_path / "y", Vectors.of(unit(4)))


@pytest.mark.parametrize("kind", ["flat", "hnsw", "ivf"])
def test_a_damaged_index_never_reaches_faiss(kind, tmp_path):
    path = tmp_path / "index.faiss"
    documents = Vectors.of(unit(400))
    FaissIndex.build(documents, kind, lists=4).save(path, documents)
    whole = path.read_bytes()
    for at in (4, 40, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        with pytest.raises(FormatError, match=r"index\.faiss: damaged"):
            FaissIndex.load(path, documents)
    path.write_bytes(whole[:-1])
    with pytest.raises(FormatError, match=r"index\.faiss: damaged"):
        FaissIndex.load(path, documents)
    faiss.write_index(faiss.IndexFlatIP(4), str(path))
    with pytest.raises(FormatError, match=r"index\.faiss: damaged, or not an index that foils wrote"):
        FaissIndex.load(path, documents)


@pytest.mark.parametrize("make", [ExactIndex, FaissIndex.build])
@pytest.mark.parametrize(
    ("queries", "k"), [(unit(2, 5), 3), (unit(2), 0), (unit(2)[0], 3), (np.full((2, 16), np.nan, np.float32), 3)]
)
def test_unusable_queries_are_refused(make, queries, k):
    with pytest.raises(InputError):
        make(Vectors.of(unit(10))).search(queries, k)


def test_unusable_settings_are_refused():
    with pytest.raises(UnknownNameError, match="hnsw"):
        FaissIndex.build(Vectors.of(unit(10)), "hnws")
    with pytest.raises(InputError):
        FaissIndex.build(Vectors.of(unit(10)), "ivf", probes=0)
    for documents, settings in ((unit(0), {}), (unit(3), {"block": 0}), (unit(3), {"query_block": 0})):
        with pytest.raises(InputError):
            ExactIndex(Vectors.of(documents), **settings)
