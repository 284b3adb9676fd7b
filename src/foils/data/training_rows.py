"""The rows that a model is trained on: which positives, with which negatives, of one data set or of several as one.

Training takes its rows from here, and so does the plan of batches that is shown beforehand, so that
the two agree.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from hashlib import blake2b
from itertools import chain, count
from typing import Annotated, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from foils.data.collection import Collection, Rows
from foils.data.negatives import KNOWN, REQUIRED, TOP, Negatives
from foils.data.run import ranks_within
from foils.runtime.errors import InputError
from foils.runtime.options import Option, Settings, refuse

FORMS = ("triplets", "lists", "pairs")

ABSENT = -1  # in place of a document that is not there, in a list that is short
MAX_POSITIVES = 64  # positives of a query that are trained on, at most (HOBIT)


@dataclass(frozen=True, kw_only=True)
class RowSettings(Settings):
    """Which rows are trained on.

    Attributes:
        split: Split of the judgements whose positives are trained on; all: of every split.
        form: What a row holds: triplets (a query, a positive and a negative), lists (a query, a
            positive and all its negatives) or pairs (a query and a positive). Default: triplets;
            without negatives, pairs.
        per_query: Negatives per query at most, by rank. Default: all.
        max_positives: Positives per query at most, the first in the judgements. Default: 64.
    """

    heading = "Rows"

    split: str = "train"
    form: Annotated[str | None, Option(names=FORMS)] = None
    per_query: Annotated[int | None, Option(least=1)] = None
    max_positives: Annotated[int | None, Option(least=1)] = None

    def completed(self, form: str) -> Self:
        """Return the settings with this form, and the most positives, in the place of what is left open.

        Raises:
            InputError: a number of negatives for rows that hold none.
        """
        form = self.form or form
        if form == "pairs":
            why = "with pairs, which have no negatives of their own; leave it out, or give a source and another form"
            refuse({"per_query": self.per_query}, why)
        return replace(self, form=form, max_positives=self.max_positives or MAX_POSITIVES)


@dataclass(frozen=True)
class TrainingRows:
    """Rows to train on, in the order of the judgements, then of the ranks of the negatives.

    Attributes:
        query_rows: (N,) the query of each row, by its row in the collection.
        doc_rows: (N,) the positive of each row, by its row in the collection; of a query that no
            split labels the candidate rated best.
        negatives: (N, k) the negatives of each row, by their rows in the table; −1 where a list is
            short. Pairs have k = 0, triplets k = 1.
        queries: how many queries of the split have a positive.
        pairs: how many (query, positive) pairs the rows are made of.
        capped: pairs left out because their query has more positives than allowed.
        uncovered: pairs left out because their query has no kept negative.
        unlabelled: of the queries without a label, whose positive is the candidate rated best.
        outside: queries without a label that are left out: their candidate rated best is not in the
            collection.
    """

    query_rows: Rows
    doc_rows: Rows
    negatives: Rows
    queries: int
    pairs: int
    capped: int
    uncovered: int
    unlabelled: int = 0
    outside: int = 0

    def __len__(self) -> int:
        return len(self.query_rows)


def training_rows(
    collection: Collection,
    negatives: Negatives | None = None,
    *,
    split: str = "train",
    form: str | None = None,
    per_query: int | None = None,
    max_positives: int = MAX_POSITIVES,
) -> TrainingRows:
    """Return the rows of a split's positives and the kept rows of a table.

    A query that no split labels has a row, too, where the table says which of its candidates was
    rated best (`foils rate`): that one stands where the positive does.

    Args:
        collection: with judgements of the split, unless the table was rated.
        negatives: a table of negatives; pairs need none, and do not look at it.
        split: whose judgements; `all`: those of every split.
        form: `triplets`: a row for each (query, positive, negative), the flattened form of ECI_sem
            eq. 13; `lists`: a row for each (query, positive) with `per_query` negatives, short
            lists marked −1; `pairs`: a row for each (query, positive). None: triplets with a table,
            pairs without.
        per_query: negatives of a query at most, by rank; None: all (for lists: the longest list's length).
        max_positives: positives of a query at most: the first ones, in the order of the judgements.

    Raises:
        InputError: no table for triplets or lists, or no row is left.
        UnknownNameError: no such split.
    """
    form = form or ("pairs" if negatives is None else "triplets")
    best_query, best_document, outside = np.zeros(0, np.int64), np.zeros(0, np.int64), 0
    if negatives is not None and form != "pairs":
        best_query, best_document, outside = _rated_best(negatives, collection)
    positives = collection.labels(split) if len(best_query) else collection.positives(split)
    query_rows, doc_rows = positives.pairs()
    allowed = ranks_within(query_rows) < max_positives
    queries = np.append(query_rows[allowed], best_query)
    documents = np.append(doc_rows[allowed], best_document)
    lists = np.empty((len(queries), 0), np.int64)
    covered = np.ones(len(queries), bool)
    if form != "pairs":
        if negatives is None:
            raise InputError(f"{form} need a table of negatives; give one, or train on pairs")
        lists = negatives.lists_in(collection, queries, per_query)
        covered = np.asarray((lists >= 0).any(axis=1))
        if not covered.any():
            raise InputError(f"nothing to train on: no query of the split {split!r} has a kept negative")
    queries, documents, lists = queries[covered], documents[covered], lists[covered]
    pairs = len(queries)
    if form == "triplets":
        row, column = np.nonzero(lists >= 0)
        queries, documents, lists = queries[row], documents[row], lists[row, column][:, None]
    return TrainingRows(
        query_rows=queries,
        doc_rows=documents,
        negatives=lists,
        queries=len(positives) + len(best_query),
        pairs=pairs,
        capped=int((~allowed).sum()),
        uncovered=int((~covered).sum()),
        unlabelled=len(best_query),
        outside=outside,
    )


def _rated_best(negatives: Negatives, collection: Collection) -> tuple[Rows, Rows, int]:
    """Return queries without a label, the candidate rated best of each, and how many of these the collection lacks."""
    rated = negatives.rejected_for(TOP)
    if not len(rated):
        return rated, rated, 0
    query, document = (rows[rated] for rows in negatives.rows_in(collection))
    unlabelled = collection.known_positives.places(query) < 0  # judgements may have been added since
    inside = unlabelled & (document >= 0)
    return query[inside], document[inside], int((unlabelled & ~inside).sum())


# Several data sets as one


def joined_collections(parts: Mapping[str, Collection]) -> Collection:
    """Return the documents, queries and judgements of several collections as one collection.

    The texts are shared with the parts, not copied. A split has the judgements of every part that
    has the split.

    Args:
        parts: name → collection, at least one; the id `x` of a part becomes `NAME/x`.
    """
    documents, queries = (
        pa.concat_tables(_named(getattr(part, table), name) for name, part in parts.items())
        for table in ("documents", "queries")
    )
    qrels: dict[str, list[pa.Table]] = {}
    for name, part in parts.items():
        for split, table in part.qrels.items():
            qrels.setdefault(split, []).append(_named(table, name))
    digests = "\0".join(f"{name}\0{part.digest}" for name, part in parts.items())
    digest = blake2b(digests.encode(), digest_size=16).hexdigest()
    keep = all(part.keep_identical_ids for part in parts.values())
    judged = {split: pa.concat_tables(tables) for split, tables in qrels.items()}
    return Collection(" + ".join(parts), documents, queries, judged, digest, keep_identical_ids=keep)


def joined_negatives(parts: Mapping[str, Negatives]) -> Negatives:
    """Return several tables of negatives as one, for the collection of `joined_collections`.

    Columns that foils knows are kept. Where a part lacks a column, its rows have none of it; a weight is 1.

    Args:
        parts: name of the collection → table, at least one.
    """
    taken = {*REQUIRED.names, *KNOWN, "offset"}  # the last: of a query's ratings (`foils rate`)
    weighted = any("weight" in part.table.column_names for part in parts.values())
    tables = []
    for name, part in parts.items():
        table = part.reject(np.zeros(len(part), bool), "").table  # with keep and reason, where it has none
        if weighted and "weight" not in table.column_names:
            table = table.append_column("weight", pa.array(np.ones(len(table))))
        tables.append(_named(table.select([each for each in table.column_names if each in taken]), name))
    return Negatives(pa.concat_tables(tables, promote_options="default"))


def distinct_names(names: Iterable[str]) -> list[str]:
    """Return names that are all different: a name that came before gets a number, `nq` and `nq 2`."""
    distinct: list[str] = []
    for name in names:
        numbered = chain([name], (f"{name} {number}" for number in count(2)))
        distinct.append(next(each for each in numbered if each not in distinct))
    return distinct


def _named(table: pa.Table, name: str) -> pa.Table:
    """The table with its ids of queries and documents beginning with a name."""
    for at, column in enumerate(table.column_names):
        if column in ("query_id", "doc_id"):
            ids = pc.binary_join_element_wise(name, table[column], "/")
            table = table.set_column(at, column, ids.cast(table[column].type))
    return table
