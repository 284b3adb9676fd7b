"""Sparse and multi-vector models: their own similarity, against plain loops over what the model gives."""

import numpy as np
import pytest

from foils.encode import EncoderSettings, as_encoder, load_encoder
from foils.encode.cross_encoders import cross_encoder_digest, load_cross_encoder, logits
from foils.encode.own_similarity import BLOCK, OwnIndex, OwnSimilarity, as_pair_model, open_own, own_kind
from foils.runtime.errors import InputError
from tiny_models import tiny_sparse_and_multi_vector

WORDS = [f"w{i}" for i in range(40)]
RNG = np.random.default_rng(0)


def texts(count, length):
    return [" ".join(RNG.choice(WORDS, length)) for _ in range(count)]


QUERIES, DOCUMENTS = texts(5, 3), texts(30, 7)


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    pytest.importorskip("torch")
    return dict(
        zip(
            ("sparse", "multi-vector"),
            tiny_sparse_and_multi_vector(tmp_path_factory.mktemp("models"), WORDS),
            strict=True,
        )
    )


@pytest.fixture(scope="module", params=["sparse", "multi-vector"])
def model(folders, request):
    return open_own(folders[request.param], EncoderSettings(device="cpu"))


def by_loops(model, queries, documents):
    """Inner products of word weights, or MaxSim, token by token."""
    if model.kind == "sparse":
        sides = [
            np.asarray(encode(list(of), convert_to_sparse_tensor=False).cpu(), np.float64)
            for encode, of in ((model.model.encode_query, queries), (model.model.encode_document, documents))
        ]
        return np.array([[sum(a * b for a, b in zip(q, d, strict=True)) for d in sides[1]] for q in sides[0]])
    asked = [np.asarray(of.cpu(), np.float64) for of in model.model.encode_query(list(queries))]
    given = [np.asarray(of.cpu(), np.float64) for of in model.model.encode_document(list(documents))]
    return np.array([[sum(max(float(t @ u) for u in d) for t in q) for d in given] for q in asked])


def test_pairs_have_the_model_s_own_similarity(model):
    expected = by_loops(model, QUERIES, DOCUMENTS)
    pairs = [(q, d) for q in QUERIES for d in DOCUMENTS]
    np.testing.assert_allclose(model.predict(pairs).reshape(5, 30), expected, rtol=1e-4)
    np.testing.assert_allclose(logits(model, pairs[7:9]), expected.ravel()[7:9], rtol=1e-4)
    assert model.predict([]).shape == (0,)
    assert model.similarity_name == ("dot" if model.kind == "sparse" else "maxsim")


def test_an_index_ranks_every_document_and_the_block_changes_nothing(model, monkeypatch):
    expected = by_loops(model, QUERIES, DOCUMENTS)
    copies = [*DOCUMENTS, DOCUMENTS[3]]
    rows, scores = OwnIndex(model, copies).search(QUERIES, 31)
    assert rows.shape == (5, 31)
    for row, scored, values in zip(rows, scores, expected, strict=True):
        np.testing.assert_allclose(scored, np.array([*values, values[3]])[row], rtol=1e-4)
        assert (np.diff(scored) <= 0).all()
    index = OwnIndex(model, DOCUMENTS)
    best, top = index.search(QUERIES, 4)
    monkeypatch.setattr("foils.encode.own_similarity.BLOCK", 7)
    parted = OwnIndex(model, DOCUMENTS)
    np.testing.assert_array_equal(parted.search(QUERIES, 4)[0], best)
    np.testing.assert_allclose(parted.search(QUERIES, 4)[1], top, rtol=1e-5)
    assert parted.search([], 4)[0].shape == (0, 0)
    assert BLOCK > 7


def test_settings_reach_the_model_and_the_fingerprint(folders):
    for kind, folder in folders.items():
        plain = open_own(folder)
        other = {
            "query_prompt": open_own(folder, EncoderSettings(query_prompt="w9 ")),
            "document_prompt": open_own(folder, EncoderSettings(document_prompt="w9 ")),
            "max_length": open_own(folder, EncoderSettings(max_length=4)),
        }
        pairs = [(q, d) for q in QUERIES for d in DOCUMENTS[:3]]
        for name, model in other.items():
            assert not np.allclose(model.predict(pairs), plain.predict(pairs)), (kind, name)
            assert model.fingerprint != plain.fingerprint
        small = open_own(folder, EncoderSettings(encode_batch=1))
        np.testing.assert_allclose(small.predict(pairs), plain.predict(pairs), rtol=1e-4)
        assert open_own(folder).fingerprint == plain.fingerprint == cross_encoder_digest(plain)
        for idle in ({"similarity": "cosine"}, {"precision": "bfloat16"}):
            with pytest.raises(InputError, match=f"on a {kind} model"):
                open_own(folder, EncoderSettings(**idle))


def test_kinds_are_told_apart_by_name_and_by_object(folders, tmp_path):
    for kind, folder in folders.items():
        loaded = open_own(folder)
        assert own_kind(folder) == own_kind(str(folder)) == own_kind(loaded) == own_kind(loaded.model) == kind
        assert isinstance(as_pair_model(loaded.model), OwnSimilarity)
        assert as_pair_model(loaded) is loaded
        assert open_own(loaded) is loaded
        assert isinstance(load_cross_encoder(folder, max_length=32), OwnSimilarity)
    assert own_kind("static:all-MiniLM-L6-v2") is None
    assert own_kind(folders["sparse"].parent / "plain") is None
    with pytest.raises(InputError, match="no sparse or multi-vector model"):
        open_own(folders["sparse"].parent / "plain")


def test_what_needs_a_dense_vector_refuses_them(folders):
    """sentence-transformers would load each as a SentenceTransformer: another model, under the same name."""
    for kind, folder in folders.items():
        for call in (
            lambda folder=folder: load_encoder(folder),
            lambda folder=folder: as_encoder(open_own(folder).model, EncoderSettings()),
            lambda folder=folder: load_cross_encoder(folder, new_head=True),
        ):
            with pytest.raises(InputError, match=f"{kind} model, which gives a text no dense vector"):
                call()
