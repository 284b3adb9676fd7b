"""The sources of a study as they are scored and trained on: cut to one length, united, drawn from, told apart."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import replace
from itertools import combinations

import numpy as np

from foils.data import Collection, Negatives
from foils.data.recapture import Recapture
from foils.data.splitting import drawn_judgements
from foils.mining.fusion import fuse_sources
from foils.studies.cells import AND
from foils.studies.settings import StudySettings


def study_sources(sources: Mapping[str, Negatives], settings: StudySettings) -> dict[str, Negatives]:
    """Return the sources as they are scored and trained on: hybrids added, lists cut to `per_query` kept rows.

    A hybrid takes turns between its parts, so that it is no larger than they are; with `whole_hybrids` it has all of
    them.
    """
    prepared = {name: _whole(_cut(negatives, settings.per_query)) for name, negatives in sources.items()}
    for parts in range(2, settings.hybrids + 1):
        for names in combinations(sources, parts):
            lists = {name: Negatives(prepared[name].kept()) for name in names}  # what one rejects, another may take
            top = None if settings.whole_hybrids else settings.per_query
            joined = fuse_sources(lists, method="interleave", top=top)
            known = [Recapture.of_table(prepared[name]) for name in names]
            recapture = Recapture.joined(known, kept=int(joined.keep.sum()))
            prepared[AND.join(names)] = joined.with_provenance({"recapture": recapture.to_json()} if recapture else {})
    return prepared


def _cut(negatives: Negatives, per_query: int | None) -> Negatives:
    if per_query is None:
        return negatives
    query = np.asarray(negatives.table["query_id"].combine_chunks().dictionary_encode().indices)
    rank, keep = np.asarray(negatives.table["rank"]), negatives.keep
    order = np.lexsort((rank, ~keep, query))
    starts = np.searchsorted(query[order], query[order])
    beyond = np.zeros(len(negatives), bool)
    beyond[order] = np.arange(len(order)) - starts >= per_query
    return negatives.reject(beyond & keep, f"after the first {per_query}")


def _whole(negatives: Negatives) -> Negatives:
    """The table, without its recapture where rows were rejected since it was counted: it was that of other rows."""
    if Recapture.of_table(negatives) is not None:
        return negatives
    provenance = {name: value for name, value in negatives.provenance.items() if name != "recapture"}
    return Negatives(negatives.table, provenance)


def table_digest(negatives: Negatives) -> str:
    """Return a digest of the kept rows: queries, documents or their own texts, ranks, weights."""
    kept = negatives.kept()
    names = [name for name in ("query_id", "doc_id", "text", "rank", "weight") if name in kept.column_names]
    hasher = hashlib.blake2b(digest_size=5)
    for name in names:
        for value in kept[name].to_pylist():
            hasher.update(f"{value}\x1f".encode())
    return hasher.hexdigest()


def drawn_queries(collection: Collection, split: str, count: int | None, seed: int) -> Collection:
    """Return the collection with the judgements of `count` queries of a split, drawn by the seed; None: all."""
    drawn = drawn_judgements(collection, split, count, seed)
    return (
        collection
        if drawn is collection.qrels[split]
        else replace(collection, qrels={**collection.qrels, split: drawn})
    )
