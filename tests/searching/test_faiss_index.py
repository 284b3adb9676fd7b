"""Any faiss index: as it is or wrapped, of inner products or of distances; what would rank otherwise is refused."""

import hashlib

import faiss
import numpy as np
import pytest

from fakes import HashingEncoder
from foils.encode import Vectors
from foils.runtime.errors import FormatError, InputError
from foils.runtime.memory import limited
from foils.searching import DimensionSettings, ExactIndex, FaissIndex, TextSearcher, as_index, search_vectors
from foils.searching.index_files import vectors_digest

D = 12
ECLIPSE = DimensionSettings("eclipse", k_plus=3, k_minus=4, share=0.5)


def unit(n, d=D, seed=0):
    x = np.random.default_rng(seed).normal(size=(n, d)).astype(np.float32)
    return x / np.linalg.norm(x, axis=1, keepdims=True)


DOCUMENTS, QUERIES = unit(120), unit(9, seed=1)
VECTORS = Vectors.of(DOCUMENTS)


def filled(index, documents=DOCUMENTS):
    index.add(np.ascontiguousarray(documents, np.float32))
    return index


@pytest.mark.parametrize("wrap", [lambda index: index, FaissIndex, lambda index: as_index(index, VECTORS)])
@pytest.mark.parametrize("metric", [faiss.METRIC_INNER_PRODUCT, faiss.METRIC_L2])
@pytest.mark.parametrize("settings", [DimensionSettings("none"), ECLIPSE], ids=["none", "eclipse"])
@pytest.mark.parametrize("second", ["index", "retrieved"])
def test_both_metrics_rank_as_the_inner_product_does(wrap, metric, settings, second):
    """‖q − d‖² = ‖q‖² + ‖d‖² − 2 q·d: where documents have one norm, the nearest has the largest inner product."""
    index = wrap(filled(faiss.IndexFlat(D, metric)))
    found = search_vectors(QUERIES, VECTORS, index, settings, k=25, second_pass=second)
    exact = search_vectors(QUERIES, VECTORS, ExactIndex(VECTORS), settings, k=25, second_pass=second)
    np.testing.assert_array_equal(found.masks, exact.masks)
    for one, other, scores, expected in zip(found.positions, exact.positions, found.scores, exact.scores, strict=True):
        np.testing.assert_array_equal(one, other)
        np.testing.assert_allclose(scores, expected, atol=1e-5)
        assert (np.diff(scores) <= 0).all(), "a run is sorted by these"


def test_distances_to_documents_of_another_common_norm_give_inner_products_too():
    documents = 3 * DOCUMENTS
    index = as_index(filled(faiss.IndexFlatL2(D), documents), Vectors.of(documents))
    positions, scores = index.search(2 * QUERIES, 7)
    exact, products = ExactIndex(Vectors.of(documents)).search(2 * QUERIES, 7)
    np.testing.assert_array_equal(positions, exact)
    np.testing.assert_allclose(scores, products, atol=1e-4)


def test_distances_to_documents_of_several_norms_are_refused():
    """There the nearest document is not the one of the largest inner product."""
    stretched = DOCUMENTS * np.linspace(1, 2, len(DOCUMENTS), dtype=np.float32)[:, None]
    index = filled(faiss.IndexFlatL2(D), stretched)
    with pytest.raises(InputError, match=r"L2.*METRIC_INNER_PRODUCT"):
        search_vectors(QUERIES, Vectors.of(stretched), index, ECLIPSE)


def test_a_searcher_takes_a_faiss_index_as_it_is():
    texts = {f"d{i}": f"w{i} w{i + 1} w{i + 5}" for i in range(40)}
    plain = TextSearcher.of_texts(HashingEncoder(), texts)
    documents = plain.documents.take(slice(None))
    queries = ["w3 w4", "w20 w21 w25"]
    for metric in (faiss.METRIC_INNER_PRODUCT, faiss.METRIC_L2):
        index = filled(faiss.IndexFlat(documents.shape[1], metric), documents)
        searcher = TextSearcher.of_texts(HashingEncoder(), texts, index=index)
        found = [[hit.doc_id for hit in hits] for hits in searcher.search(queries, ECLIPSE, k=5)]
        assert found == [[hit.doc_id for hit in hits] for hits in plain.search(queries, ECLIPSE, k=5)]


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: filled(faiss.IndexFlat(D, faiss.METRIC_L1)), "metric 2"),
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


def test_numbers_that_are_no_positions_are_refused():
    """An index with ids of its own (IndexIDMap) says which vector it means by those, not by its place."""
    index = faiss.IndexIDMap(faiss.IndexFlatIP(D))
    index.add_with_ids(DOCUMENTS, np.arange(120, dtype=np.int64) + 1000)
    with pytest.raises(InputError, match="ids of its own"):
        search_vectors(QUERIES, VECTORS, index, ECLIPSE)


def test_a_wrapped_index_of_distances_needs_its_documents_to_give_inner_products():
    with pytest.raises(InputError, match="as_index"):
        FaissIndex(filled(faiss.IndexFlatL2(D))).search(QUERIES, 3)


def test_a_file_says_what_it_was_built_from_and_serves_nothing_else(tmp_path):
    """Size and dimension alone do not tell one collection from another."""
    path = tmp_path / "index.faiss"
    FaissIndex.build(VECTORS, "hnsw").save(path, VECTORS, encoder="one")
    loaded = FaissIndex.load(path, VECTORS, kind="hnsw", encoder="one")
    assert loaded.kind == "hnsw"
    np.testing.assert_array_equal(loaded.search(DOCUMENTS[:5], 1)[0][:, 0], np.arange(5))
    for given, said in (
        ((Vectors.of(unit(120, seed=7)), "hnsw", "one"), "other vectors"),
        ((Vectors.of(DOCUMENTS[::-1]), "hnsw", "one"), "other vectors"),
        ((Vectors.of(DOCUMENTS[:60]), "hnsw", "one"), "120 documents, not 60"),
        ((VECTORS, "flat", "one"), "kind hnsw, not flat"),
        ((VECTORS, "hnsw", "two"), "encoder one, not two"),
        ((Vectors.of(unit(120, seed=7)), "ivf", "two"), "kind hnsw.*encoder one.*other vectors"),
    ):
        with pytest.raises(InputError, match=rf"index\.faiss.*{said}"):
            FaissIndex.load(path, given[0], kind=given[1], encoder=given[2])


def test_the_digest_is_of_the_vectors_however_they_are_stored_and_read():
    halves = Vectors((DOCUMENTS[60:], DOCUMENTS[:60]), np.r_[60:120, 0:60])
    digest = vectors_digest(VECTORS)
    assert vectors_digest(halves) == digest
    with limited(2**20):
        many = Vectors.of(np.tile(DOCUMENTS, (400, 1)))
        small = vectors_digest(many)
    assert vectors_digest(many) == small
    changed = DOCUMENTS.copy()
    changed[70, 3] = np.nextafter(changed[70, 3], np.float32(2))
    assert vectors_digest(Vectors.of(changed)) != digest
    assert vectors_digest(Vectors.of(DOCUMENTS.reshape(60, 24))) != digest


def test_a_file_that_does_not_say_what_it_was_built_from_is_refused(tmp_path):
    """As the files of earlier versions: whole, but of any vectors."""
    path = tmp_path / "index.faiss"
    faiss.write_index(filled(faiss.IndexFlatIP(D)), str(path))
    written = path.read_bytes()
    path.write_bytes(written + b"foils-index-1\n" + hashlib.blake2b(written, digest_size=32).digest())
    with pytest.raises(FormatError, match="earlier version"):
        FaissIndex.load(path, VECTORS)
