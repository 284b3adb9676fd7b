"""Mining anew with a changed model."""

from __future__ import annotations

import pytest

from fakes import HashingEncoder
from foils.encode import VectorStore
from foils.encode.opening import EncodingSettings
from foils.mining.ance import refresh
from foils.mining.methods import METHODS, Models
from foils.mining.settings import FilterSettings


def test_a_changed_model_gives_other_negatives_and_an_unchanged_one_costs_nothing(small, tmp_path):
    store = VectorStore(tmp_path)
    one, two = HashingEncoder(), HashingEncoder(salt="trained")
    first = refresh(small, one, store, split="train", top=3)
    encoded = one.encoded
    again = refresh(small, one, store, split="train", top=3)
    assert one.encoded == encoded
    assert again.table.equals(first.table)
    other = refresh(small, two, store, split="train", top=3, near_duplicate=0.5)
    assert not other.table.equals(first.table)
    assert set(first.table["source"].to_pylist()) == {"ance"}
    for row in first.table.to_pylist():
        query, document = (small.query_rows([row["query_id"]]), small.document_rows([row["doc_id"]]))
        cosine = (
            one.encode(small.query_texts(query), "query") @ one.encode(small.document_texts(document), "document").T
        )
        assert row["score"] == pytest.approx(cosine.item(), abs=1e-5)


@pytest.mark.parametrize("method", ["dense", "ance", "trisampler"])
def test_only_the_queries_of_the_split_are_embedded(small, tmp_path, method):
    encoder = HashingEncoder()
    encoding = EncodingSettings(encoder=encoder, vectors=VectorStore(tmp_path))
    ranking = METHODS[method](Models(small, "test", FilterSettings(), encoding))
    encoded = {text for call in encoder.calls for text in call}
    assert encoded & set(small.query_texts(range(5))) == set(small.query_texts([3, 4]))
    documents, _ = ranking.retriever.search(small.positives("test").query_rows, 2)
    assert documents[:, 0].tolist() == [1, 7], "each query's own positive"
    refresh(small, other := HashingEncoder(salt="other"), VectorStore(tmp_path), split="test", top=1)
    assert other.encoded == 10 + 2
