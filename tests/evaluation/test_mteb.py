import re
from pathlib import Path

import pytest

from foils.data import load_collection
from foils.encode import SentenceEncoder
from foils.evaluation import measure_run
from foils.searching import DimensionSettings, embed_collection, search_collection
from refusals import refused
from train_models import made_up, static_model

mteb = pytest.importorskip("mteb")

METADATA = {
    "name": "MadeUpRetrieval",
    "description": "Made up.",
    "dataset": {"path": "none/none", "revision": "1"},
    "type": "Retrieval",
    "eval_splits": ["dev", "test"],
    "eval_langs": ["eng-Latn"],
    "main_score": "ndcg_at_10",
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


@pytest.mark.parametrize("method", ["none", "rdime"])
def test_the_example_of_the_docs_gives_our_figures(method, monkeypatch):
    """On retrieval by mteb's protocol nDCG@10 is that of our own search."""
    page = (Path(__file__).parents[2] / "docs" / "deploying.md").read_text("utf-8")
    (code,) = re.findall(r"^```py\n(import mteb\n.*?)^```", page, re.M | re.S)
    collection, encoder = made_up(), SentenceEncoder(static_model(), name="static")
    monkeypatch.setattr("foils.encode.load_encoder", lambda name: encoder)
    monkeypatch.setattr(mteb, "get_task", lambda name: task_of(collection))
    exec(compile(code.replace('"rdime"', repr(method)), "deploying.md", "exec"), found := {})
    embedded = embed_collection(collection, encoder, None, split="test")
    run = search_collection(embedded, DimensionSettings(method)).run
    ours = measure_run(run, collection, "test", ["nDCG@10"]).means["nDCG@10"]
    (theirs,) = found["results"].task_results[0].scores["test"]
    assert 0 < theirs["ndcg_at_10"] == pytest.approx(ours, abs=1e-4)
    assert found["results"].model_name == "foils/static"


@pytest.fixture
def read(monkeypatch):
    """What reads a task that mteb gives by its name."""

    def opened(task):
        monkeypatch.setattr(mteb, "get_task", lambda name: task)
        return load_collection("mteb:MadeUpRetrieval")

    return opened


def test_a_task_becomes_a_collection(read):
    made = made_up()
    found = read(task_of(made))
    assert found.name == "MadeUpRetrieval"
    assert found.splits == ["dev", "test"]
    assert found.documents["text"].to_pylist() == made.documents["text"].to_pylist()
    assert found.qrels["dev"].to_pylist() == made.qrels["dev"].to_pylist()
    assert len(found.queries) == 20


def loaded(seed=0):
    task = task_of(made_up(seed=seed))
    task.load_data()
    return task


def test_what_is_refused(read):
    refused("MadeUpRetrieval is a Collection, no retrieval task", read, made_up())
    refused(r"instruction; .* and no instruction", read, task_of(made_up(), instructions=True))
    languages, two, images = loaded(), loaded(), loaded()
    languages.dataset = {"deu": languages.dataset["default"], "eng": languages.dataset["default"]}
    refused("in several languages, deu, eng; a collection is of one", read, languages)
    two.dataset["default"]["test"]["corpus"] = loaded(seed=1).dataset["default"]["test"]["corpus"]
    refused(r"'.*' of the corpus of MadeUpRetrieval has .*; an id has one text", read, two)
    dev = images.dataset["default"]["dev"]
    dev["corpus"] = dev["corpus"].rename_column("text", "image")
    refused(r"has .*image.*; an id has one text", read, images)
