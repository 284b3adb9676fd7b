"""More judgements for a collection: relevant pairs of a file of labels become positives of its splits."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from foils.data.collection import Collection
from foils.data.labels import Labels, LabelsLike
from foils.runtime.errors import UnknownNameError

log = logging.getLogger(__name__)


def with_judgements(collection: Collection, given: Sequence[LabelsLike], *, split: str = "train") -> Collection:
    """Return the collection with every pair that labels call relevant as a positive of a split.

    People's answers count before those of programs, and a majority before a minority. Pairs that are judged relevant
    already, documents that are not in the collection, and queries that another split judges are left as they are: what
    measures is never changed. The collection's name says how many judgements it gained, and its digest
    is another one.

    Args:
        collection: to be judged.
        given: labels, as `foils.relabel` or `foils.label` writes them.
        split: that the positives join.

    Raises:
        InputError: these are no labels, or name ids that the collection does not know.
        FormatError: the same of a file, by line.
        UnknownNameError: the collection judges other splits alone.
    """
    if collection.qrels and split not in collection.qrels:
        raise UnknownNameError(f"split of the collection {collection.name}", split, collection.splits)
    labels = [Labels.of(each, collection) for each in given]
    pairs = _relevant(labels)
    queries, documents = collection.query_rows(pairs["query_id"]), collection.document_rows(pairs["doc_id"])
    elsewhere = [table["query_id"] for name, table in collection.qrels.items() if name != split]
    measured = np.isin(queries, collection.query_rows(pa.concat_arrays([c.combine_chunks() for c in elsewhere]))
                       if elsewhere else [])  # fmt: skip
    known = collection.known_positives.contain(queries, documents)
    new = pairs.filter(pa.array((documents >= 0) & ~known & ~measured))
    if measured.any():
        log.warning("%d pairs of queries that other splits judge are not added to %s", int(measured.sum()), split)
    if not len(new):
        return collection
    own = collection.qrels.get(split)
    added = new.append_column("relevance", pa.array(np.ones(len(new), np.int32)))
    table = added if own is None else pa.concat_tables([own, added.select(own.column_names).cast(own.schema)])
    digest = hashlib.sha256(collection.digest.encode())
    for column in ("query_id", "doc_id"):
        digest.update("\0".join(new[column].to_pylist()).encode())
    name = f"{collection.name} and {len(new):,} judgements more"
    log.info("%s: %d judgements of %s are added", collection.name, len(new), split)
    return replace(collection, name=name, qrels={**collection.qrels, split: table}, digest=digest.hexdigest())


def _relevant(labels: Sequence[Labels]) -> pa.Table:
    """The pairs that labels call relevant, each once."""
    rows = [each.table.filter(each.table["text"].is_null()).select(["query_id", "doc_id"]) for each in labels]
    pairs = pa.concat_tables(rows)
    pairs = pairs.group_by(["query_id", "doc_id"], use_threads=False).aggregate([])
    people, programs = (_votes(labels, pairs, people) for people in (True, False))
    return pairs.filter(pa.array(np.where(people != 0, people, programs) > 0))


def _votes(labels: Sequence[Labels], pairs: pa.Table, people: bool) -> npt.NDArray[np.float64]:
    """How many judges more call each pair relevant than not."""
    votes = np.zeros(len(pairs))
    for each in labels:
        for judge in [None] if people else each.programs():
            answer = each.match(pairs, judge=judge)[0]
            votes += np.where(np.isfinite(answer), 2 * answer - 1, 0)
    return votes
