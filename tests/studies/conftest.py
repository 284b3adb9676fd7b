"""What tests of studies share: a small collection with three sources, and a model that trains in no time."""

from __future__ import annotations

import pytest

from foils.encode import VectorStore
from foils.mining import BM25Retriever, RandomRetriever, mine_negatives
from train_models import made_up, static_model, table


@pytest.fixture
def world(tmp_path):
    """Collection, sources, folder of the model, store of vectors, and where a study may lie."""
    collection = made_up()
    static_model().save_pretrained(str(tmp_path / "static"))
    sources = {
        "random": mine_negatives(collection, RandomRetriever(collection, seed=0), split="train", top=4),
        "bm25": mine_negatives(collection, BM25Retriever(collection), split="train", top=4),
        "made": table(collection),
    }
    return collection, sources, str(tmp_path / "static"), VectorStore(tmp_path / "vectors"), tmp_path / "study"
