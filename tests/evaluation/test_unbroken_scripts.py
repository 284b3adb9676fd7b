"""BM25 of scripts without blanks finds as much as bm25s does of scikit-learn's character bigrams."""

from __future__ import annotations

import bm25s
import numpy as np
import pytest
from sklearn.feature_extraction.text import CountVectorizer

import foils
from foils.data import Run
from foils.data.tokens import BM25Settings
from foils.evaluation import bm25_run
from unbroken_pairs import unbroken_pairs


def first_by_bigrams(collection: foils.Collection) -> list[int]:
    bigrams = CountVectorizer(analyzer="char", ngram_range=(2, 2)).build_analyzer()
    documents = collection.document_texts(np.arange(len(collection.documents)))
    index = bm25s.BM25(method="lucene", k1=1.2, b=0.75)
    index.index([bigrams(text) for text in documents], show_progress=False)
    queries = collection.query_texts(np.arange(len(collection.queries)))
    return [int(np.argmax(index.get_scores(bigrams(text)))) for text in queries]


@pytest.mark.parametrize(("language", "pairs"), [("Chinese", 200), ("Japanese", 30), ("Thai", 30)])
def test_bm25_finds_the_passages(language: str, pairs: int) -> None:
    collection = unbroken_pairs(language)
    assert len(collection.queries) == pairs
    measured = foils.evaluate(collection, "bm25", measures=["R@1", "nDCG@10"])
    means = measured.systems[0].means
    theirs = np.mean([first == at for at, first in enumerate(first_by_bigrams(collection))])
    assert means["R@1"] >= theirs - 0.05
    assert means["nDCG@10"] > 0.5


def test_mining_names_the_analyser_and_finds_what_resembles() -> None:
    mined = foils.mine(unbroken_pairs("Chinese"), "bm25", top=5)
    settings = mined.provenance.get("settings", mined.provenance)
    assert {"analyser": "words-and-bigrams", "language": "none", "k1": 1.2, "b": 0.75}.items() <= settings.items()
    assert int(mined.keep.sum()) == 200 * 5


@pytest.mark.parametrize(("language", "found"), [("Chinese", "none"), ("Thai", "none")])
def test_what_is_measured_names_how_bm25_read_the_texts(language: str, found: str) -> None:
    collection = unbroken_pairs(language)
    run = bm25_run(collection, "test", depth=5, name="second", lexical=BM25Settings(language="none", k1=2, b=0.1))
    systems = foils.evaluate(collection, ["bm25", run], measures=["R@1"]).to_json()["systems"]
    facts = {"analyser": "words-and-bigrams", "language": found}
    assert [each["bm25"] for each in systems] == [{**facts, "k1": 1.2, "b": 0.75}, {**facts, "k1": 2, "b": 0.1}]


def test_other_systems_say_nothing_of_bm25() -> None:
    collection = unbroken_pairs("Chinese")
    run = Run.from_dict({key: {"d0": 1.0} for key in collection.queries["query_id"].to_pylist()}, name="theirs")
    assert "bm25" not in foils.evaluate(collection, [run], measures=["R@1"]).to_json()["systems"][0]


@pytest.mark.parametrize(("query", "language"), [("zzz qqq", "english"), ("the of and", "english"), ("???", "none")])
def test_an_empty_run_of_bm25_says_that_no_term_is_shared(query: str, language: str) -> None:
    documents = {"d1": "a keel of a boat", "d2": "the crew rows"}
    judged = {split: {"q": {"d1": 1}} for split in ("train", "test")}
    collection = foils.Collection.from_dicts("boats", documents, {"q": query}, judged)
    with pytest.raises(foils.FoilsError, match=f"shares a term.*words-and-bigrams, language {language}"):
        foils.evaluate(collection, "bm25", measures=["R@1"], language=language)
    said = foils.mine(collection, "bm25", language=language).nothing_kept()
    assert "no further document shares a term with the query" in said
    assert "rule to loosen" not in said


def test_a_run_of_other_queries_is_told_to_check_the_split() -> None:
    collection = unbroken_pairs("Chinese")
    with pytest.raises(foils.FoilsError, match="other ranks no document for any query of the split"):
        foils.evaluate(collection, [Run.from_dict({"x": {"d0": 1.0}}, name="other")], measures=["R@1"])
