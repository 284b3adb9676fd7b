"""BM25 of scripts without blanks finds as much as bm25s does of scikit-learn's character bigrams."""

from __future__ import annotations

import bm25s
import numpy as np
import pytest
from sklearn.feature_extraction.text import CountVectorizer

import foils
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


def test_describe_warns_where_documents_have_one_token() -> None:
    def warned(texts: list[str]) -> bool:
        documents = {f"d{at}": text for at, text in enumerate(texts)}
        collection = foils.Collection.from_dicts("made", documents, {"q": "?"}, {"test": {"q": {"d0": 1}}})
        return any("single word" in warning for warning in foils.describe(collection).warnings)

    assert warned(["apple", "pears", "figs", "two words"])
    assert not warned(["apple", "two words", "three words now"])
    assert not warned(["北京是首都", "我喜欢茶", "今天下雨"])
