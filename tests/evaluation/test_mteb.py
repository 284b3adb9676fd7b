from __future__ import annotations

import numpy as np
import pytest

from foils.data.read import collection_from_mteb
from foils.encode import EncoderSettings, SentenceEncoder
from foils.evaluation import measure_encoder
from foils.evaluation.mteb import MTEBEncoder
from foils.runtime.errors import InputError, MissingExtraError
from train_models import made_up, static_model

mteb = pytest.importorskip("mteb")

METADATA = {
    "name": "MadeUpRetrieval",
    "description": "Made up.",
    "reference": None,
    "dataset": {"path": "none/none", "revision": "1"},
    "type": "Retrieval",
    "category": "t2t",
    "modalities": ["text"],
    "eval_splits": ["dev", "test"],
    "eval_langs": ["eng-Latn"],
    "main_score": "ndcg_at_10",
    "date": ("2020-01-01", "2020-01-02"),
    "domains": [],
    "task_subtypes": [],
    "license": "cc0-1.0",
    "annotations_creators": "derived",
    "dialect": [],
    "sample_creation": "created",
    "bibtex_citation": "",
}


def task_of(collection, *, instructions=False):
    """A retrieval task of mteb over a collection in memory."""
    from datasets import Dataset

    class MadeUpRetrieval(mteb.abstasks.AbsTaskRetrieval):
        metadata = mteb.TaskMetadata(**METADATA)

        def load_data(self, num_proc=None, **kwargs):
            if self.data_loaded:
                return
            corpus = {"id": collection.documents["doc_id"].to_pylist()}
            corpus |= {name: collection.documents[name].to_pylist() for name in ("title", "text")}
            texts = dict(zip(*(collection.queries[c].to_pylist() for c in ("query_id", "text")), strict=True))
            parts = {}
            for split in self.eval_splits:
                ids, found, grades = (
                    collection.qrels[split][c].to_pylist() for c in ("query_id", "doc_id", "relevance")
                )
                asked = {"id": ids, "text": [texts[key] for key in ids]}
                if instructions:
                    asked["instruction"] = ["say"] * len(ids)
                parts[split] = {
                    "corpus": Dataset.from_dict(corpus),
                    "queries": Dataset.from_dict(asked),
                    "relevant_docs": {q: {d: g} for q, d, g in zip(ids, found, grades, strict=True)},
                    "top_ranked": None,
                }
            self.dataset = {"default": parts}
            self.data_loaded = True

    return MadeUpRetrieval()


def encoder_of(**settings):
    return SentenceEncoder(static_model(), EncoderSettings(**settings), name="static")


@pytest.fixture(scope="module")
def results():
    encoder = MTEBEncoder(encoder_of())
    return mteb.evaluate(encoder, task_of(made_up()), cache=None, show_progress_bar=False, co2_tracker=False)


def test_mteb_s_protocol_gives_our_figures(results):
    collection = made_up()
    assert results.model_name == "foils/static"
    assert results.model_revision == encoder_of().fingerprint
    for split in ("dev", "test"):
        ours = measure_encoder(static_model(), collection, split, ["nDCG@10", "RR@10"]).means
        (theirs,) = results.task_results[0].scores[split]
        assert ours["nDCG@10"] == pytest.approx(theirs["ndcg_at_10"], abs=1e-4)
        assert ours["RR@10"] == pytest.approx(theirs["mrr_at_10"], abs=1e-4)
        assert 0 < theirs["ndcg_at_10"] < 1


def test_the_encoder_s_prompts_count():
    texts = [{"text": ["ba be", "bi"]}, {"text": ["bo"]}]
    plain, prompted = MTEBEncoder(encoder_of()), MTEBEncoder(encoder_of(query_prompt="fa fe "))
    query, document = mteb.types.PromptType.query, mteb.types.PromptType.document
    assert plain.encode(texts, prompt_type=query).shape == (3, 16)
    assert np.array_equal(plain.encode(texts, prompt_type=document), prompted.encode(texts, prompt_type=document))
    assert np.array_equal(plain.encode(texts), plain.encode(texts, prompt_type=document))
    assert not np.allclose(plain.encode(texts, prompt_type=query), prompted.encode(texts, prompt_type=query))
    assert isinstance(plain, mteb.models.EncoderProtocol)
    a, b = np.eye(2, dtype=np.float32), np.array([[3, 4], [5, 6]], np.float32)
    assert np.asarray(plain.similarity(a, b)).tolist() == [[3, 5], [4, 6]]
    assert np.asarray(plain.similarity_pairwise(a, b)).tolist() == [3, 6]
    with pytest.raises(InputError, match="has image"):
        plain.encode([{"image": []}])


def test_a_task_becomes_a_collection():
    made = made_up()
    found = collection_from_mteb(task_of(made))
    assert found.name == "MadeUpRetrieval"
    assert found.splits == ["dev", "test"]
    assert found.documents["text"].to_pylist() == made.documents["text"].to_pylist()
    assert found.qrels["dev"].to_pylist() == made.qrels["dev"].to_pylist()
    assert len(found.queries) == 20
    alone = collection_from_mteb(task_of(made), splits=["dev"])
    assert alone.splits == ["dev"]
    assert len(alone.queries) == 10


def test_what_is_refused(monkeypatch):
    task = task_of(made_up())
    with pytest.raises(InputError, match="no retrieval task"):
        collection_from_mteb(made_up())
    with pytest.raises(InputError, match="no split train, only dev, test"):
        collection_from_mteb(task, splits=["train"])
    with pytest.raises(InputError, match="no subset 'deu'"):
        collection_from_mteb(task, subset="deu")
    with pytest.raises(InputError, match="instructions"):
        collection_from_mteb(task_of(made_up(), instructions=True))
    two = task_of(made_up())
    two.load_data()
    other = task_of(made_up(seed=1))
    other.load_data()
    two.dataset["default"]["test"]["corpus"] = other.dataset["default"]["test"]["corpus"]
    with pytest.raises(InputError, match="80 documents of MadeUpRetrieval have two texts"):
        collection_from_mteb(two)
    images = task_of(made_up())
    images.load_data()
    corpus = images.dataset["default"]["dev"]["corpus"]
    images.dataset["default"]["dev"]["corpus"] = corpus.rename_column("text", "image")
    with pytest.raises(InputError, match="of texts"):
        collection_from_mteb(images)
    monkeypatch.setitem(__import__("sys").modules, "mteb", None)
    with pytest.raises(MissingExtraError, match=r"foils\[mteb\]"):
        MTEBEncoder(encoder_of())
