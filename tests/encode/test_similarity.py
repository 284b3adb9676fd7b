"""Similarities that models bring along: cosines and inner products; sparse and multi-vector models are refused."""

from typing import Any

import numpy as np
import pytest
import torch
from datasets import Dataset
from sentence_transformers import MultiVectorEncoder, SparseEncoder
from sentence_transformers.sentence_transformer.losses import (
    CachedMultipleNegativesRankingLoss,
    MultipleNegativesRankingLoss,
)  # fmt: skip
from sentence_transformers.util import dot_score

import foils
from foils.batching.sampler import BatchPlanner
from foils.encode import EncoderSettings, SentenceEncoder, VectorStore, as_encoder, load_encoder
from foils.encode.models import load_cross_encoder, similarity_of
from foils.encode.vectors import EncodingSettings
from foils.evaluation import measure_encoder
from foils.experiments.score import score
from foils.mining.scorers import EncoderScorer
from foils.training.losses import ContrastiveLoss
from foils.training.models import load_trainable
from refusals import refused
from tiny_models import tiny_sparse_and_multi_vector
from train_models import WORDS, bert_model, evaluated, made_up, same, static_model, table


@pytest.fixture
def collection():
    return made_up()


def dot_model(similarity: str = "dot") -> Any:
    """Word vectors of very different lengths, so that inner products and cosines rank apart."""
    model = static_model()
    with torch.no_grad():
        table = next(iter(model.parameters()))
        table *= torch.linspace(0.05, 3, len(table))[:, None]
    model.similarity_fn_name = similarity
    return model


def ranking(collection: Any, model: Any, *, unit: bool) -> list[str]:
    """The best document of each query, by plain NumPy."""
    texts = [collection.document_texts(np.arange(len(collection.documents)))]
    documents = model.encode(texts[0], normalize_embeddings=unit)
    queries = model.encode(collection.queries["text"].to_pylist(), normalize_embeddings=unit)
    return [f"d{best}" for best in (queries @ documents.T).argmax(axis=1)]


def test_the_models_own_similarity_is_taken_unless_another_is_asked_for():
    assert similarity_of(static_model()) == "cosine"
    assert similarity_of(dot_model()) == "dot"
    assert similarity_of(dot_model(), "cosine") == "cosine"
    assert similarity_of(dot_model("euclidean"), "dot") == "dot"
    refused("euclidean distance; foils ranks by cosine or dot", similarity_of, dot_model("euclidean"))
    refused("manhattan distance; foils ranks by", similarity_of, dot_model(), "manhattan")


def test_vectors_of_a_model_for_inner_products_keep_their_lengths():
    texts = [" ".join(WORDS[:3]), " ".join(WORDS[-3:])]
    own, unit = SentenceEncoder(dot_model()), SentenceEncoder(dot_model("cosine"))
    np.testing.assert_allclose(own.encode(texts, "query"), dot_model().encode(texts), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(np.linalg.norm(unit.encode(texts, "query"), axis=1), 1, atol=1e-5)
    assert own.fingerprint != unit.fingerprint
    assert (own.describe()["similarity"], unit.describe()["similarity"]) == ("dot", "cosine")


def test_mining_ranks_by_the_models_similarity(collection, tmp_path):
    for name, unit in (("dot", False), ("cosine", True)):
        model = dot_model(name)
        mined = foils.mine(collection, "dense", top=5, encoder=model, vectors=tmp_path).table.to_pylist()[:10]
        queries = collection.query_texts(collection.query_rows([row["query_id"] for row in mined]))
        documents = collection.document_texts(collection.document_rows([row["doc_id"] for row in mined]))
        sides = (model.encode(side, normalize_embeddings=unit) for side in (queries, documents))
        expected = np.multiply(*sides).sum(1)
        assert [row["score"] for row in mined] == pytest.approx(expected, rel=1e-4, abs=1e-5)


def test_a_column_of_scores_is_called_by_the_similarity(tmp_path):
    store = VectorStore(tmp_path)
    assert EncoderScorer(SentenceEncoder(dot_model()), store).column == "dot"
    assert EncoderScorer(SentenceEncoder(static_model()), store).column == "cosine"


@pytest.mark.parametrize("size", [{}, {"mini_batch_size": 2}])
def test_losses_compare_as_the_model_does(size, tmp_path):
    model = bert_model(tmp_path)
    model.similarity_fn_name = "dot"
    rng, theirs = np.random.default_rng(0), CachedMultipleNegativesRankingLoss if size else MultipleNegativesRankingLoss
    batch = {column: [" ".join(rng.choice(WORDS, 4)) for _ in range(6)] for column in range(3)}
    found = evaluated(ContrastiveLoss(model, temperature=1.0, **size), batch)
    same(found, evaluated(theirs(model, scale=1.0, similarity_fct=dot_score, **size), batch), atol=1e-4)


def test_training_takes_the_similarity_that_is_asked_for(tmp_path):
    dot_model("cosine").save(str(tmp_path / "model"))
    assert load_trainable(str(tmp_path / "model"), device="cpu").similarity_fn_name == "cosine"
    model = load_trainable(str(tmp_path / "model"), device="cpu", similarity="dot")
    assert ContrastiveLoss(model, temperature=1.0).similarity == "dot"
    model.save(str(tmp_path / "saved"))
    assert load_encoder(tmp_path / "saved").similarity == "dot"
    refused("manhattan distance", load_trainable, str(tmp_path / "model"), device="cpu", similarity="manhattan")


def test_the_planner_of_a_training_is_given_the_models_inner_products():
    texts = [" ".join(WORDS[i : i + 3]) for i in range(12)]
    data = Dataset.from_dict({"anchor": texts[:6], "positive": texts[6:]})
    for similarity, unit in (("dot", False), ("cosine", True)):
        model, planner = dot_model(similarity), BatchPlanner("hobit", {"seeds": 1})
        sampler: Any = planner(data, batch_size=2, drop_last=False, seed=0)
        sampler.attach(lambda texts, column, model=model: model.encode(list(texts)), scaled=unit)
        sampler.batches()
        queries, _ = sampler._current_vectors(1)
        np.testing.assert_allclose(queries, model.encode(texts[:6], normalize_embeddings=unit), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("similarity", ["dot", "cosine"])
def test_scores_and_measures_are_of_the_models_similarity(collection, tmp_path, similarity):
    model, unit, negatives = dot_model(similarity), similarity == "cosine", table(collection, per_query=2)
    scores = score(collection, {"made": negatives}, encoder=model, vectors=tmp_path, temperature=1.0)
    rows = negatives.table.to_pylist()
    queries = collection.query_rows([row["query_id"] for row in rows])
    documents = collection.document_rows([row["doc_id"] for row in rows])
    given = collection.document_texts(np.arange(len(collection.documents)))
    held = model.encode(given, normalize_embeddings=unit).astype(np.float64)
    asked = model.encode(collection.queries["text"].to_pylist(), normalize_embeddings=unit).astype(np.float64)
    margins = (asked[queries] * (held[queries] - held[documents])).sum(1)  # query i has the positive i
    assert scores.sources[0].rho == pytest.approx((1 / (1 + np.exp(-margins))).mean(), abs=1e-4)
    best = ranking(collection, model, unit=unit)
    test = collection.qrels["test"].to_pylist()
    hits = np.mean([best[int(row["query_id"][1:])] == row["doc_id"] for row in test])
    assert measure_encoder(model, collection, "test", ["P@1"]).means["P@1"] == pytest.approx(hits)
    assert ranking(collection, model, unit=False) != ranking(collection, model, unit=True)
    model.save(str(tmp_path / "model"))
    found = foils.search(collection, model=str(tmp_path / "model"), split="test", top=5).run.first(1).table.to_pylist()
    assert {row["doc_id"] == best[int(row["query_id"][1:])] for row in found} == {True}


def test_sparse_and_multi_vector_models_are_refused(tmp_path):
    """sentence-transformers would load each as a SentenceTransformer: another model, under the same name."""
    folders = tiny_sparse_and_multi_vector(tmp_path, [f"w{i}" for i in range(40)])
    for of, folder in zip((SparseEncoder, MultiVectorEncoder), folders, strict=True):
        loaded = of(str(folder), device="cpu")
        for call in (
            lambda folder=folder: load_encoder(folder),
            lambda loaded=loaded: as_encoder(loaded, EncoderSettings()),
            lambda folder=folder: load_cross_encoder(folder),
            lambda loaded=loaded: EncodingSettings().open_cross_encoder(loaded),
        ):
            refused(f"a model of the kind {of.__name__}, not", call)
