"""Search by a model's own similarity: a sparse model's inner product, a multi-vector model's MaxSim."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from foils.data import Collection, Run
from foils.data.read import identical_ids_caption
from foils.data.texts import DocumentTexts
from foils.encode.models import own_kind
from foils.encode.own_similarity import OwnIndex, OwnSimilarity
from foils.runtime.errors import InputError
from foils.runtime.options import refuse, spelled
from foils.runtime.results import Result, Table
from foils.searching.index import search_lists
from foils.searching.settings import Method


@dataclass(frozen=True)
class Retrieved(Result):
    """A run by a model's own similarity.

    Attributes:
        run: the rankings.
        queries: how many were searched for.
        collection: that was searched.
        split: whose queries.
        kind: of the model: sparse or multi-vector.
        facts: what else JSON says of the search.
    """

    run: Run
    queries: int
    collection: Collection = field(repr=False)
    split: str
    kind: str
    facts: Mapping[str, Any] = field(default_factory=dict, repr=False)

    def write(self, path: str | Path) -> None:
        """Write the run in TREC form."""
        self.run.write(path)

    def tables(self) -> list[Table]:
        """Return the counts of queries and documents."""
        rows = [("queries", f"{self.queries:,}"), ("documents ranked", f"{self.run.table.num_rows:,}")]
        written = f" → {self.facts['run']}" if self.facts.get("run") else ""
        title = f"{self.kind} search of {self.collection.name} ({self.split}){written}"
        return [Table(title, ["", ""], rows, identical_ids_caption(self.collection.identical_ids(self.split)))]

    def to_json(self) -> dict[str, Any]:
        """Return how the search was made."""
        return {**self.facts, "queries": self.queries, "identical_ids": self.collection.identical_ids(self.split)}


def own_run(model: OwnSimilarity, collection: Collection, split: str, *, depth: int, name: str = "") -> Run:
    """Rank all documents for every judged query of a split, exactly.

    A document that has the query's own id is left out (`Collection.identical`).

    Args:
        model: compares.
        collection: what is searched.
        split: whose queries.
        depth: documents of each ranking.
        name: of the run; empty: the model's.

    Raises:
        UnknownNameError: no such split.
        InputError: a depth below 1.
    """
    ids = collection.judgements(split)["query_id"].unique()
    rows = collection.query_rows(ids)
    index: Any = OwnIndex(model, DocumentTexts(collection))
    texts: Any = collection.query_texts(rows)
    lists, scores = search_lists(index, texts, depth, without=collection.identical[rows])
    lengths = [len(of) for of in lists]
    documents = collection.documents["doc_id"].take(pa.array(np.concatenate(lists)))
    queries = np.repeat(np.array(ids.to_pylist(), object), lengths).tolist()
    return Run.ranked(queries, documents, np.concatenate(scores), name=name or model.name)


def search_own(
    model: OwnSimilarity, collection: Collection, split: str, *, k: int, run: str | Path | None = None
) -> Retrieved:
    """Return `own_run` with what JSON says of it.

    Args:
        model: compares.
        collection: what is searched.
        split: whose queries.
        k: documents of each ranking.
        run: file to write it to.
    """
    ranked = own_run(model, collection, split, depth=k)
    facts = {
        "collection": collection.name, "split": split, "encoder": model.describe(), "top": k,
        "run": None if run is None else str(run),
    }  # fmt: skip
    queries = len(collection.judgements(split)["query_id"].unique())
    retrieved = Retrieved(ranked, queries, collection, split, model.kind, facts)
    if run is not None:
        retrieved.write(run)
    return retrieved


def check_own_search(given: Any, dimensions: Method | None, idle: Mapping[str, Any]) -> None:
    """Raise an InputError for what has no meaning, or no effect, on a model that compares by its own similarity.

    Args:
        given: the model.
        dimensions: which of a query's dimensions are kept; None or `none` alone will do.
        idle: options that have no effect on it, by name; None: not given.
    """
    kind, flag = own_kind(given), spelled("dimensions")
    if dimensions not in (None, "none"):
        why = (
            "its query has a vector for each token, and each token's best match counts: there is no dimension of the "
            "whole query"
            if kind == "multi-vector"
            else "the dimensions of its queries are words, of which the model itself keeps few"
        )
        raise InputError(f"{flag} {dimensions} with a {kind} model: {why}; leave {flag} out")
    refuse(idle, f"with a {kind} model, which searches once, exactly, by its own similarity; leave it out")
