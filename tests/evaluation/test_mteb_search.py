"""Search with useful dimensions by mteb's protocol: its figures are those of our own search."""

import numpy as np
import pytest

from foils.encode import VectorStore
from foils.evaluation import evaluate_runs
from foils.evaluation.mteb import MTEBEncoder
from foils.evaluation.mteb_search import MTEBIndex, mteb_search
from foils.runtime.errors import InputError
from foils.searching import DimensionSettings, TextSearcher, embed_collection, search_collection
from train_models import made_up, static_model

mteb = pytest.importorskip("mteb")
from test_mteb import encoder_of, task_of  # noqa: E402  # it needs mteb

RDIME = DimensionSettings("rdime")
ECLIPSE = DimensionSettings("eclipse", k_minus=3, share=0.2)


@pytest.mark.parametrize("settings", [RDIME, ECLIPSE])
def test_mteb_s_figures_are_those_of_our_search(settings, tmp_path):
    collection, encoder = made_up(), encoder_of()
    results = mteb.evaluate(
        mteb_search(MTEBEncoder(encoder), settings, feedback_depth=20), task_of(collection), cache=None,
        show_progress_bar=False, co2_tracker=False,
    )  # fmt: skip
    assert results.model_name == f"foils/static-{settings.method}"
    assert results.model_revision.startswith(encoder.fingerprint)
    assert ("share=0.2" in results.model_revision) == (settings is ECLIPSE)
    embedded = embed_collection(collection, encoder, VectorStore(tmp_path), split="test")
    plain, ours = (
        evaluate_runs(
            collection,
            [search_collection(embedded, of, feedback_depth=20, name="own").run],
            split="test",
            measures=["nDCG@10"],
            rng=np.random.default_rng(0),
        ).systems[0].means["nDCG@10"]
        for of in (DimensionSettings("none"), settings)
    )  # fmt: skip
    (theirs,) = results.task_results[0].scores["test"]
    assert theirs["ndcg_at_10"] == pytest.approx(ours, abs=1e-4)
    assert theirs["ndcg_at_10"] != pytest.approx(plain, abs=1e-4), "or the test would not see the dimensions"


def test_candidates_of_a_reranking_task_are_the_feedback_and_are_ordered():
    rng = np.random.default_rng(0)
    texts = {f"d{i}": " ".join(rng.choice(["ba", "be", "bi", "bo", "fa", "fe"], 4)) for i in range(12)}
    encoder = encoder_of()
    queries = ["ba be", "fa bo"]
    searcher = TextSearcher.of_texts(encoder, texts)
    candidates = {"a": ["d3", "d1", "d9", "d4"], "b": ["d7", "d2", "d8"]}
    index = MTEBIndex(RDIME)
    index.add_documents(encoder.encode([*texts.values()][:5], "document"), [*texts][:5])
    index.add_documents(encoder.encode([*texts.values()][5:], "document"), [*texts][5:])
    scores, places = index.search(
        encoder.encode(queries, "query"), 3, lambda a, b: a @ b.T, candidates, {0: "a", 1: "b"}
    )  # fmt: skip
    for at, (query, ids) in enumerate(zip(queries, candidates.values(), strict=True)):
        ((*first,),) = searcher.rank([query], [ids], DimensionSettings("none"))
        ((*hits,),) = searcher.rank([query], [[hit.doc_id for hit in first]], RDIME)
        assert [ids[place] for place in places[at]] == [hit.doc_id for hit in hits[:3]]
        np.testing.assert_allclose(scores[at], [hit.score for hit in hits[:3]], atol=1e-6)
    index.clear()
    with pytest.raises(InputError, match="no documents"):
        index.search(encoder.encode(queries, "query"), 3, lambda a, b: a @ b.T)


def test_the_model_s_similarity_is_recognised():
    """Cosines of vectors of any length are those of unit ones; a distance is refused."""
    rng = np.random.default_rng(0)
    queries, documents = rng.normal(size=(4, 8)), rng.normal(size=(30, 8))

    def unit(rows):
        return rows / np.linalg.norm(rows, axis=1, keepdims=True)

    def searched(similarity, q, d):
        index = MTEBIndex(RDIME)
        index.add_documents(d.astype(np.float32), [f"d{i}" for i in range(30)])
        return index.search(q.astype(np.float32), 5, similarity)

    cosines, places = searched(lambda a, b: unit(a) @ unit(b).T, queries, documents)
    expected = searched(lambda a, b: a @ b.T, unit(queries), unit(documents))
    assert places == expected[1]
    np.testing.assert_allclose(cosines, expected[0], atol=1e-5)
    assert searched(lambda a, b: a @ b.T, queries, documents)[1] != places
    with pytest.raises(InputError, match="neither the inner product nor the cosine"):
        searched(lambda a, b: -np.linalg.norm(a[:, None] - b, axis=2), queries, documents)
    with pytest.raises(InputError, match="a vector for each token"):
        MTEBIndex().add_documents([np.ones((3, 8)), np.ones((2, 8))], ["a", "b"])
    with pytest.raises(InputError, match="moon_pool"):
        MTEBIndex(DimensionSettings("eclipse", moon_pool=30))


def test_a_model_of_mteb_s_own_is_served():
    wrapped = mteb.SentenceTransformerEncoderWrapper(static_model())
    searching = mteb_search(wrapped, RDIME)
    assert isinstance(searching, mteb.SearchProtocol)
    results = mteb.evaluate(searching, task_of(made_up()), cache=None, show_progress_bar=False, co2_tracker=False)
    ours = mteb.evaluate(
        mteb_search(MTEBEncoder(encoder_of(similarity="cosine")), RDIME), task_of(made_up()), cache=None,
        show_progress_bar=False, co2_tracker=False,
    )  # fmt: skip
    scores = [of.task_results[0].scores["test"][0]["ndcg_at_10"] for of in (results, ours)]
    assert scores[0] == pytest.approx(scores[1], abs=1e-4)
