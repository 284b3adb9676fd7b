"""Mining anew with a changed model."""

from __future__ import annotations

from fakes import HashingEncoder
from foils.encode import VectorStore
from foils.mine.ance import refresh


def test_a_changed_model_gives_other_negatives_and_an_unchanged_one_costs_nothing(small, tmp_path):
    store = VectorStore(tmp_path)
    one, two = HashingEncoder(), HashingEncoder(salt="trained")
    first = refresh(small, one, store, split="train", top=3).negatives
    encoded = one.encoded
    again = refresh(small, one, store, split="train", top=3).negatives
    assert one.encoded == encoded
    assert again.table.equals(first.table)
    other = refresh(small, two, store, split="train", top=3, near_duplicate=0.5).negatives
    assert not other.table.equals(first.table)
    assert set(first.table["source"].to_pylist()) == {"ance"}
    for row in first.table.to_pylist():
        query, document = (small.query_rows([row["query_id"]]), small.document_rows([row["doc_id"]]))
        cosine = (
            one.encode(small.query_texts(query), "query") @ one.encode(small.document_texts(document), "document").T
        )
        assert abs(row["score"] - cosine.item()) < 1e-6
