"""What a collection is: counts, lengths, splits, warnings, recurring documents; parts of it, and several as one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from hashlib import blake2b
from itertools import chain, count
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from foils.data.collection import DEV, SPLITS, TRAIN, Collection, Rows
from foils.data.negatives import KNOWN, REQUIRED, Negatives
from foils.data.pairs import split_queries, split_sizes
from foils.data.read import CollectionLike, CollectionSettings
from foils.data.tables import pieces
from foils.runtime import seeds
from foils.runtime.errors import InputError
from foils.runtime.options import door
from foils.runtime.results import Result, Table, number

EXAMPLES = 3
SHOWN = 160  # characters of an example
LONG = 300  # words beyond which encoders with 512 tokens cut a text


@dataclass(frozen=True)
class SplitFacts:
    """A split's judgements.

    Attributes:
        queries: with a judgement.
        pairs: (query, document), judged relevant.
        not_relevant: judged not relevant.
        shared: share of its pairs whose document is a positive of train, too; None: train itself,
            or no train.
    """

    queries: int
    pairs: int
    not_relevant: int
    shared: float | None


@dataclass(frozen=True)
class Description(Result):
    """A collection, described.

    Attributes:
        name: of the collection.
        digest: of its contents.
        documents: how many.
        queries: how many.
        lengths: `queries` and `documents` -> words of a text: median, 95 of 100 have at most, most.
        equal_documents: documents whose title and text another document has too.
        equal_queries: queries whose text another query has too.
        splits: by name.
        examples: of a query and a positive.
        warnings: what one should know before training, in sentences.
        read_as: what the columns of a file or table of pairs were read as; empty: it is not of pairs.
    """

    name: str
    digest: str
    documents: int
    queries: int
    lengths: Mapping[str, tuple[int, int, int]]
    equal_documents: int
    equal_queries: int
    splits: Mapping[str, SplitFacts]
    examples: Sequence[tuple[str, str]]
    warnings: Sequence[str]
    read_as: str = ""

    def tables(self) -> list[Table]:
        """Return counts, splits and examples; the warnings stand under the last."""
        counts = {"documents": (self.documents, self.equal_documents), "queries": (self.queries, self.equal_queries)}
        rows = [(kind, f"{n:,}", *map(str, self.lengths[kind]), f"{equal:,}") for kind, (n, equal) in counts.items()]
        splits = []
        for name, facts in self.splits.items():
            per_query = number(facts.pairs / max(facts.queries, 1), 2)
            splits.append((name, f"{facts.queries:,}", f"{facts.pairs:,}", per_query, number(facts.shared, 2)))
        heads = ("", "count", "words: median", "95 %", "most", "equal to another")
        of_splits = ("split", "queries", "positives", "per query", "share that train has")
        warnings = "\n".join(f"warning: {each}" for each in self.warnings)
        return [
            Table(self.name, heads, rows, f"columns: {self.read_as}" if self.read_as else ""),
            Table("Splits", of_splits, splits),
            Table("Examples", ("query", "positive"), self.examples, warnings),
        ]

    def to_json(self) -> dict[str, Any]:
        """Return the attributes."""
        return asdict(self)


@door
def describe(collection: CollectionLike, *, reading: CollectionSettings) -> Description:
    """Show what a collection is: counts, lengths, splits, examples, leakage between splits, and warnings.

    Raises:
        InputError: there is no such collection, or it is not well-formed.

    Example:
        foils describe pairs.csv --columns query=question,positive=answer
    """
    loaded = reading.open(collection)
    positives, splits = loaded.known_positives, {name: _split(loaded, name) for name in loaded.splits}
    (documents, equal_documents), (queries, equal_queries) = map(_lengths, (loaded.documents, loaded.queries))
    shown = np.unique(np.linspace(0, len(positives) - 1, min(EXAMPLES, len(positives))).astype(int))
    examples = [loaded.query_texts(positives.query_rows[shown]), loaded.document_texts(positives.first[shown])]
    return Description(
        name=loaded.name,
        digest=loaded.digest,
        documents=len(loaded.documents),
        queries=len(loaded.queries),
        lengths={"documents": documents, "queries": queries},
        equal_documents=equal_documents,
        equal_queries=equal_queries,
        splits=splits,
        examples=[(_short(query), _short(document)) for query, document in zip(*examples, strict=True)],
        warnings=_warnings(splits, equal_documents, documents[1]),
        read_as=loaded.read_as,
    )


def _warnings(splits: Mapping[str, SplitFacts], equal: int, long: int) -> list[str]:
    """Return what one should know before training, in sentences.

    Args:
        splits: by name.
        equal: documents that have copies.
        long: words that 95 of 100 documents have at most.
    """
    warnings = []
    if splits and TRAIN not in splits:
        first = next(iter(splits))
        warnings.append(f"There is no split {TRAIN} to train on: foils mine --split {first} takes another.")
    if "test" not in splits:
        warnings.append("There is no split test: nothing can be measured but on what is trained.")
    for name, split in splits.items():
        if split.shared and split.shared >= 0.2:
            share = f"{100 * split.shared:.0f} %"
            warnings.append(f"{share} of the positives of {name} are in train: known documents.")
        if not split.pairs:
            warnings.append(f"No document of {name} is relevant: nothing can be trained or measured on it.")
    if equal:
        warnings.append(f"{equal:,} documents have copies; a positive's copy looks like a hard negative.")
    if long > LONG:
        warnings.append(f"One document in twenty has more than {long:,} words; encoders cut long texts.")
    return warnings


def _split(collection: Collection, name: str) -> SplitFacts:
    """Count the judgements of a split, and those of documents that train has."""
    judged = collection.judgements(name)
    relevant = int(pc.sum(pc.greater(judged["relevance"], 0)).as_py() or 0)
    shared = (recurrence(collection, name) or 0.0) if name != TRAIN and TRAIN in collection.qrels else None
    return SplitFacts(len(judged["query_id"].unique()), relevant, len(judged) - relevant, shared)


def _lengths(table: pa.Table) -> tuple[tuple[int, int, int], int]:
    """Return the words of texts with their titles (median, 95 of 100 have at most, most), and how many repeat one."""
    columns = table.select([name for name in ("title", "text") if name in table.column_names])
    words, texts = np.empty(len(table), np.int64), set[int]()
    for at, row in enumerate(row for batch in pieces(columns.to_batches()) for row in batch.to_pylist()):
        text = " ".join(filter(None, row.values()))
        words[at] = len(text.split())
        texts.add(hash(text))
    return (int(np.median(words)), int(np.percentile(words, 95)), int(words.max())), len(table) - len(texts)


def _short(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= SHOWN else f"{text[: SHOWN - 1]}…"


def drawn_judgements(collection: Collection, split: str, count: int | None, seed: int) -> pa.Table:
    """Return a split's judgements of `count` queries that have a positive, drawn by the seed; None: all.

    Args:
        collection: with judgements of the split.
        split: its name.
        count: of the queries.
        seed: of the draw.

    Raises:
        UnknownNameError: no such split.
        InputError: the split has no relevant document.
    """
    positives, table = collection.positives(split), collection.judgements(split)
    if count is None or count >= len(positives):
        return table
    drawn = positives.query_rows[np.random.default_rng([seed, seeds.JUDGED]).permutation(len(positives))[:count]]
    return table.filter(pa.array(np.isin(collection.query_rows(table["query_id"]), drawn)))


def with_documents(collection: Collection, rows: Rows) -> Collection:
    """Return the collection of these documents alone, in ascending order, and of the judgements that name them.

    Args:
        collection: any.
        rows: of its documents, each at most once.
    """
    rows = np.sort(np.asarray(rows, np.int64))
    if len(rows) == len(collection.documents):
        return collection
    documents = collection.documents.take(pa.array(rows))
    qrels = {
        split: table.filter(pa.array(np.isin(collection.document_rows(table["doc_id"]), rows)))
        for split, table in collection.qrels.items()
    }
    digest = blake2b(collection.digest.encode() + rows.tobytes(), digest_size=16).hexdigest()
    return replace(collection, documents=documents, qrels=qrels, digest=digest, folder=None)


def with_three_splits(collection: Collection) -> Collection:
    """Return the collection with judgements to train, dev and test; what it lacks is split off from train.

    A collection with one split alone, whatever its name, is split as pairs without splits are
    (`split_queries`).

    Args:
        collection: with one split at least.

    Raises:
        InputError: no judgement at all, or splits of which none is called train.
    """
    splits = collection.splits
    if {*SPLITS} <= {*splits}:
        return collection
    if TRAIN not in splits and len(splits) != 1:
        raise InputError(f"splits of {collection.name}: {splits}; expected a split 'train', or one split alone")
    whole = TRAIN if TRAIN in splits else splits[0]
    kept = {name: table for name, table in collection.qrels.items() if name != whole}
    usual = dict(zip(SPLITS, split_sizes(len(collection.known_positives)), strict=True))
    dev, test = (0.0 if name in kept else usual[name] for name in ("dev", "test"))
    shares = [1 - dev - test, dev, test]
    positives, table = collection.positives(whole), collection.qrels[whole]
    query_rows, doc_rows = positives.pairs()
    texts = collection.query_texts(positives.query_rows)
    chosen = split_queries(texts, positives.places(query_rows), doc_rows, shares)
    split_of = np.array([*chosen, TRAIN])  # the last: of queries without positives
    split_of_row = split_of[positives.places(collection.query_rows(table["query_id"]))]
    qrels = {name: kept.get(name, table.filter(pa.array(split_of_row == name))) for name in SPLITS}
    digest = blake2b(f"{collection.digest} {shares}".encode(), digest_size=16).hexdigest()
    return replace(collection, qrels=qrels | kept, digest=digest)


def recurrence(collection: Collection, split: str, train: str = TRAIN) -> float | None:
    """Return R of a split, in [0, 1]; None where it has no relevant document.

    Args:
        collection: with judgements of both splits.
        split: the queries to come.
        train: the split that is trained on.

    Raises:
        UnknownNameError: no such split.
    """
    pairs, known = collection.labels(split).doc_rows, collection.labels(train).doc_rows
    return float(np.isin(pairs, known).mean()) if len(pairs) else None


def expected_recurrence(collection: Collection, train: str = TRAIN) -> float:
    """Return R as it is expected of queries to come, in [0, 1]; judgements of test are not looked at.

    It is that of the split dev, which stands for the queries to come: where a collection was split
    by its documents, its training pairs cannot tell. Without dev it is 1 − n₁/n, n₁ of the n
    training pairs having a document that no other pair has: the estimate of Good (1953) and Turing
    for the chance that the next document was seen before. It is 1 where the split has no relevant
    document.

    Args:
        collection: with judgements of the split.
        train: the split that is trained on.

    Raises:
        UnknownNameError: no such split.
    """
    share = recurrence(collection, DEV, train) if train != DEV and DEV in collection.qrels else None
    if share is not None:
        return share
    counts = np.bincount(collection.labels(train).doc_rows)
    return 1 - float((counts == 1).sum() / counts.sum()) if counts.sum() else 1.0


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
