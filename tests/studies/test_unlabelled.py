from __future__ import annotations

import numpy as np
import pytest

from foils.data import Collection
from foils.data.recapture import Recapture
from foils.encode import VectorStore
from foils.mining import DenseRetriever, mine_negatives
from foils.scoring import ScoreSettings, score_sources
from foils.studies.unlabelled import estimate_unlabelled

TOPICS, MEMBERS, OTHERS = 12, 30, 200


class TopicEncoder:
    """A text `topic n` lies near its topic's direction; the number decides where exactly."""

    name, dimension, fingerprint = "topics", 24, "topics"

    def __init__(self):
        self.topics = np.linalg.qr(np.random.default_rng(0).standard_normal((24, 24)))[0]

    def route(self, kind):
        return ""

    def encode(self, texts, kind):
        rows = []
        for text in texts:
            topic, number = map(int, text.split())
            noise = np.random.default_rng([topic, number]).standard_normal(24) * 0.12
            rows.append(self.topics[topic % 24] + noise)
        return (np.array(rows) / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)


def world(labelled, tmp_path, *, relevant=MEMBERS):
    """A query a topic, `relevant` documents of the topic's are relevant, `labelled` of them labelled."""
    documents = {f"d{t}-{i}": f"{t} {i}" for t in range(TOPICS) for i in range(relevant)}
    documents |= {f"o{t}-{i}": f"{t + TOPICS} {i}" for t in range(TOPICS) for i in range(OTHERS // TOPICS)}
    queries = {f"q{t}": f"{t} 1000" for t in range(TOPICS)}
    judged = {f"q{t}": {f"d{t}-{i}": 1 for i in range(labelled)} for t in range(TOPICS)}
    collection = Collection.from_dicts("topics", documents, queries, {"train": judged})
    encoder, store = TopicEncoder(), VectorStore(tmp_path)
    rows = np.arange(len(collection.queries))
    texts = collection.document_texts(np.arange(len(collection.documents)))
    retriever = DenseRetriever(
        store.embed(encoder, collection.query_texts(rows), "query"), store.embed(encoder, texts, "document")
    )
    near_duplicate = 1.1  # the texts are all but alike
    negatives = mine_negatives(collection, retriever, split="train", top=20, near_duplicate=near_duplicate)
    settings = ScoreSettings(hybrids=1, control=False, replicates=0)
    measured = score_sources(collection, {"dense": negatives}, encoder, store, settings).measured
    return measured, {"dense": Recapture.of(negatives.provenance)}, negatives


@pytest.mark.parametrize("labelled", [5, 10, 15])
def test_it_finds_how_many_labels_are_missing(labelled, tmp_path):
    measured, recaptures, negatives = world(labelled, tmp_path)
    estimate = estimate_unlabelled(measured, recaptures)
    kept = negatives.kept()
    false = np.mean([doc.startswith("d") for doc in kept["doc_id"].to_pylist()])
    rate = recaptures["dense"].false_negatives(estimate)
    assert rate == pytest.approx(false, abs=0.25)
    assert rate > 0.5


@pytest.mark.parametrize("labelled", [1, 30])
def test_nothing_is_missing_where_all_is_labelled(labelled, tmp_path):
    measured, recaptures, _ = world(labelled, tmp_path, relevant=labelled)
    assert recaptures["dense"].false_negatives(estimate_unlabelled(measured, recaptures)) < 0.15


def test_one_label_a_query_is_judged_by_the_query(tmp_path):
    measured, recaptures, negatives = world(1, tmp_path, relevant=10)
    false = np.mean([doc.startswith("d") for doc in negatives.kept()["doc_id"].to_pylist()])
    rate = recaptures["dense"].false_negatives(estimate_unlabelled(measured, recaptures))
    assert rate == pytest.approx(false, abs=0.35)


def test_no_estimate_without_recapture(tmp_path):
    measured, _, _ = world(5, tmp_path)
    assert np.isnan(estimate_unlabelled(measured, {"dense": None}))
    assert np.isnan(estimate_unlabelled(measured, {"dense": Recapture(0, 60, 240)}))
