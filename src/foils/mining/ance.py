"""ANCE: dense negatives by the vectors of the model that is being trained, mined anew as it changes."""

from __future__ import annotations

from typing import Any

from foils.data.collection import Collection, Rows
from foils.data.texts import DocumentTexts
from foils.encode.encoder import Encoder
from foils.encode.vectors import VectorStore
from foils.mining.candidates import mine_negatives
from foils.mining.dense import DenseRetriever, embed_queries
from foils.mining.results import Mined


class ANCERetriever(DenseRetriever):
    """Ranks as `DenseRetriever`, by the vectors of a checkpoint; exact search in the place of ANCE's approximate one.

    Args:
        collection: documents and queries.
        encoder: the checkpoint; other weights have another fingerprint, so no vector of an older one is used.
        store: keeps the vectors.
        query_rows: the queries that will be asked for, which alone are embedded; None: all.

    Source: Xiong et al., ANCE (ICLR 2021); HOBIT, baselines.
    """

    name = "ance"

    def __init__(
        self, collection: Collection, encoder: Encoder, store: VectorStore, *, query_rows: Rows | None = None
    ) -> None:
        queries = embed_queries(collection, encoder, store, query_rows)
        super().__init__(queries, store.embed(encoder, DocumentTexts(collection), "document"))


def refresh(
    collection: Collection, encoder: Encoder, store: VectorStore, *, split: str, top: int, **settings: Any
) -> Mined:
    """Mine a split's negatives anew with a checkpoint's vectors; `settings` are those of `mine_negatives`."""
    retriever = ANCERetriever(collection, encoder, store, query_rows=collection.positives(split).query_rows)
    return mine_negatives(collection, retriever, split=split, top=top, **settings)
