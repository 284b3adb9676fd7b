"""What a collection is, for who wants to see whether it was understood: counts, lengths, splits, leakage, warnings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from foils.data.collection import TRAIN, Collection
from foils.data.read import CollectionLike, CollectionSettings
from foils.data.splitting import recurrence
from foils.data.tables import pieces
from foils.data.tokens import alphanumeric
from foils.runtime.options import door
from foils.runtime.results import Result, Table, number

EXAMPLES = 3
SAMPLE = 1_000  # documents whose words are counted
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
    some = np.unique(np.linspace(0, len(loaded.documents) - 1, SAMPLE).astype(int))
    single = float(np.mean([len({*alphanumeric(text)}) <= 1 for text in loaded.document_texts(some)]))
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
        warnings=_warnings(splits, equal_documents, single, documents[1]),
        read_as=loaded.read_as,
    )


def _warnings(splits: Mapping[str, SplitFacts], equal: int, single: float, long: int) -> list[str]:
    """Return what one should know before training, in sentences.

    Args:
        splits: by name.
        equal: documents that have copies.
        single: share of the documents that have a single word, in [0, 1].
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
    if single > 0.5:
        warnings.append(f"{100 * single:.0f} % of the documents have a single word: BM25 finds little here.")
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
