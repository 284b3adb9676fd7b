"""The first stage: exact, in blocks, with ties by position; any faiss index, of inner products or of distances.

What an index of faiss would rank otherwise than inner products do, or holds other documents, is refused.
"""

import faiss
import numpy as np
import pytest

from fakes import unit
from foils.encode import Vectors
from foils.runtime.errors import InputError
from foils.searching import DimensionSettings, ExactIndex, FaissIndex, search_vectors
from foils.searching.index import as_index
from refusals import refused


@pytest.mark.parametrize("make", [ExactIndex, FaissIndex.build])
@pytest.mark.parametrize(
    ("queries", "k"), [(unit(2, 5), 3), (unit(2), 0), (unit(2)[0], 3), (np.full((2, 12), np.nan, np.float32), 3)]
)
def test_unusable_queries_are_refused(make, queries, k):
    with pytest.raises(InputError):
        make(Vectors.of(unit(10))).search(queries, k)


@pytest.mark.parametrize("kind", ["hnsw", "ivf"])
def test_approximate_search_finds_most(kind):
    documents, queries = unit(2000), unit(50, seed=1)
    exact, _ = ExactIndex(Vectors.of(documents)).search(queries, 20)
    found, _ = FaissIndex.build(Vectors.of(documents), kind).search(queries, 20)
    assert np.mean([len(set(a) & set(b)) / 20 for a, b in zip(exact, found, strict=True)]) > 0.5


D = 12
ECLIPSE = DimensionSettings("eclipse", k_plus=3, k_minus=4, share=0.5)
DOCUMENTS, QUERIES = unit(120, D), unit(9, D, seed=1)
VECTORS = Vectors.of(DOCUMENTS)


def filled(index, documents=DOCUMENTS):
    if not index.is_trained:
        index.train(np.ascontiguousarray(documents, np.float32))
    index.add(np.ascontiguousarray(documents, np.float32))
    return index


@pytest.mark.parametrize("wrap", [lambda index: index, lambda index: as_index(index, VECTORS)])
@pytest.mark.parametrize("settings", [DimensionSettings("none"), ECLIPSE], ids=["none", "eclipse"])
@pytest.mark.parametrize("second", ["index", "rerank"])
def test_an_index_of_faiss_ranks_as_exact_search_does(wrap, settings, second):
    index = wrap(filled(faiss.IndexFlatIP(D)))
    found = search_vectors(QUERIES, VECTORS, index, settings, k=25, second_pass=second)
    exact = search_vectors(QUERIES, VECTORS, ExactIndex(VECTORS), settings, k=25, second_pass=second)
    np.testing.assert_array_equal(found.sharpened.masks, exact.sharpened.masks)
    for one, other, scores, expected in zip(found.positions, exact.positions, found.scores, exact.scores, strict=True):
        np.testing.assert_array_equal(one, other)
        np.testing.assert_allclose(scores, expected, atol=1e-5)
        assert (np.diff(scores) <= 0).all(), "a run is sorted by these"


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: filled(faiss.IndexFlatL2(D)), "metric 1.*METRIC_INNER_PRODUCT"),
        (lambda: filled(faiss.IndexFlatIP(D), DOCUMENTS[:50]), "120 documents"),
        (lambda: filled(faiss.IndexFlatIP(5), unit(120, 5)), "dimension 5"),
        (lambda: faiss.IndexBinaryFlat(D * 2), "IndexBinaryFlat"),
        (lambda: DOCUMENTS, "ndarray"),
        (lambda: None, "NoneType"),
    ],
)
def test_what_cannot_serve_is_refused_by_name(make, said):
    with pytest.raises(InputError, match=said):
        search_vectors(QUERIES, VECTORS, make(), ECLIPSE)


KINDS = ["Flat", "HNSW16,Flat", "IVF4,Flat", "SQ8", "PQ6x4"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("common", [0, 2])
def test_an_index_of_as_many_other_documents_is_refused(kind, common):
    """Also where all documents have much in common; compressed vectors are taken for those that they stand for."""
    documents = unit(800, D) + common * unit(1, D, seed=9)
    documents = (documents / np.linalg.norm(documents, axis=1, keepdims=True)).astype(np.float32)
    index = filled(faiss.index_factory(D, kind, faiss.METRIC_INNER_PRODUCT), documents)
    as_index(index, Vectors.of(documents))
    for others in (documents[::-1].copy(), documents[np.random.default_rng(0).permutation(800)], unit(800, D, seed=7)):
        refused("other vectors than the 800", as_index, index, Vectors.of(others))
        refused("other vectors than the 800", as_index, as_index(index, Vectors.of(documents)), Vectors.of(others))
