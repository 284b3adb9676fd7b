"""What a collection is, for who wants to see whether it was understood: counts, lengths, splits, leakage, warnings."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from foils.data.collection import TRAIN, Collection, ColumnTexts, Rows
from foils.data.pairs import hash_of
from foils.data.splitting import recurrence, twin_pairs
from foils.data.tables import pieces
from foils.runtime.results import Result, Table, number

EXAMPLES = 3
SHOWN = 160  # characters of an example
LONG = 300  # words beyond which encoders with 512 tokens cut a text
COMMON = 100  # positives of a query from which on it is pointed out


@dataclass(frozen=True)
class SplitFacts:
    """A split's judgements.

    Attributes:
        queries: with a judgement.
        pairs: (query, document), judged relevant.
        not_relevant: judged not relevant.
        most: positives of the query that has most.
        shared: share of its pairs whose document is a positive of train, too; None: train itself, or no train.
        twins: queries that have a near-twin in train: of one document, and alike in their words.
    """

    queries: int
    pairs: int
    not_relevant: int
    most: int
    shared: float | None
    twins: int | None


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
        rows = [
            (kind, f"{getattr(self, kind):,}", *map(str, self.lengths[kind]), f"{getattr(self, f'equal_{kind}'):,}")
            for kind in ("documents", "queries")
        ]
        columns = f"columns: {self.read_as}" if self.read_as else ""
        heads = ("", "count", "words: median", "95 %", "most", "equal to another")
        counts = Table(self.name, heads, rows, columns)
        splits = [
            (name, f"{of.queries:,}", f"{of.pairs:,}", number(of.pairs / max(of.queries, 1), 2), number(of.shared, 2),
             number(of.twins, 0))
            for name, of in self.splits.items()
        ]  # fmt: skip
        heads = ("split", "queries", "positives", "per query", "share that train has", "near-twins in train")
        warnings = "\n".join(f"warning: {each}" for each in self.warnings)
        examples = Table("Examples", ("query", "positive"), self.examples, warnings)
        return [counts, Table("Splits", heads, splits), examples]

    def to_json(self) -> dict[str, Any]:
        """Return the attributes."""
        return asdict(self)


def describe_collection(collection: Collection) -> Description:
    """Count, measure and look over a collection.

    Args:
        collection: any; its texts are read once.
    """
    positives, texts = collection.known_positives, ColumnTexts(collection.queries["text"])
    pairs = positives.pairs()
    twins = twin_pairs(texts, *pairs)
    splits = {name: _split(collection, name, twins) for name in collection.splits}
    facts = {"documents": _facts(collection.documents), "queries": _facts(collection.queries)}
    equal = {f"equal_{kind}": len(rows) - len(np.unique(rows["hash"])) for kind, rows in facts.items()}
    own_answers = int((facts["queries"]["hash"][pairs[0]] == facts["documents"]["hash"][pairs[1]]).sum())
    shown = np.unique(np.linspace(0, len(positives) - 1, min(EXAMPLES, len(positives))).astype(int))
    asked, found = (texts[row] for row in positives.query_rows[shown]), positives.first[shown]
    return Description(
        name=collection.name,
        digest=collection.digest,
        documents=len(collection.documents),
        queries=len(collection.queries),
        lengths={kind: _quantiles(rows["words"]) for kind, rows in facts.items()},
        **equal,
        splits=splits,
        examples=[(_short(q), _short(d)) for q, d in zip(asked, collection.document_texts(found), strict=True)],
        warnings=[*_of_splits(splits), *_of_texts(facts, equal["equal_documents"], own_answers)],
        read_as=collection.read_as,
    )


def _split(collection: Collection, name: str, twins: Rows) -> SplitFacts:
    judged = collection.judgements(name)
    relevant = judged.filter(pc.greater(judged["relevance"], 0))
    most = max(pc.value_counts(relevant["query_id"]).field("counts").to_pylist(), default=0)
    shared, near = None, None
    if name != TRAIN and TRAIN in collection.qrels:
        train = collection.judgements(TRAIN)
        shared = recurrence(collection, name) or 0.0
        here, there = (collection.query_rows(each["query_id"].unique()) for each in (judged, train))
        both = np.concatenate([twins, twins[:, ::-1]])
        near = len(np.unique(both[np.isin(both[:, 0], here) & np.isin(both[:, 1], there), 0]))
    queries = len(judged["query_id"].unique())
    return SplitFacts(queries, len(relevant), len(judged) - len(relevant), most, shared, near)


FACTS = np.dtype([("words", "<i8"), ("hash", "<u8"), ("wordless", "?"), ("garbled", "?")])
GARBLED = re.compile("[\0-\x08\x0e-\x1f\x7f-\x9f\ufffd]|\u00c3[\u0080-\u00bf]|\u00e2\u20ac")
"""Control characters, what stands for unreadable bytes, and UTF-8 that was read as Latin-1 or Windows-1252."""


def _facts(table: pa.Table) -> npt.NDArray[np.void]:
    """(n,) words, hash, whether no letter is there, whether it looks wrongly decoded, of texts with their titles."""
    columns = table.select([name for name in ("title", "text") if name in table.column_names])
    texts = (
        " ".join(filter(None, row.values())) for batch in pieces(columns.to_batches()) for row in batch.to_pylist()
    )
    facts = (
        (len(text.split()), hash_of(text), not any(map(str.isalpha, text)), bool(GARBLED.search(text)))
        for text in texts
    )
    return np.fromiter(facts, FACTS, len(table))


def _quantiles(counts: npt.NDArray[np.int64]) -> tuple[int, int, int]:
    return int(np.median(counts)), int(np.percentile(counts, 95)), int(counts.max())


def _short(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= SHOWN else f"{text[: SHOWN - 1]}…"


def _of_splits(splits: Mapping[str, SplitFacts]) -> Iterator[str]:
    """Yield what one may have to know of the splits before training."""
    if splits and TRAIN not in splits:
        other = f"foils mine --split {next(iter(splits))} takes another, and foils tune makes three of a single one."
        yield f"There is no split {TRAIN} to mine and train on: {other}"
    if "test" not in splits:
        yield "There is no split test: nothing can be measured but on what is trained."
    for name, split in splits.items():
        if (share := split.shared or 0) >= 0.2:
            said = f"measures on {name} tell how well known documents are found, not new ones."
            yield f"{100 * share:.0f} % of the positives of {name} are positives of train too: {said}"
        if split.twins:
            yield f"Queries of {name} with a near-twin in train: {split.twins}; measures may be too high."
        if not split.pairs:
            yield f"No document of {name} is relevant: nothing can be trained or measured on it."
        if split.most >= COMMON:
            yield f"One query of {name} has {split.most:,} positives; is it a label, and not a question?"


def _of_texts(facts: Mapping[str, npt.NDArray[np.void]], equal_documents: int, own_answers: int) -> Iterator[str]:
    """Yield what one may have to know of the texts."""
    if equal_documents:
        yield f"Documents equal to another: {equal_documents:,}; a copy of a positive looks like a hard negative."
    for kind, rows in facts.items():
        wordless, garbled = (int(rows[each].sum()) for each in ("wordless", "garbled"))
        if 2 * wordless > len(rows):
            yield f"There is no letter in {wordless:,} of the {kind}; is their column one of ids or numbers?"
        if garbled:
            said = f"There are control characters, or letters of a wrong encoding, in {garbled:,} of the {kind}"
            yield f"{said}; was the file written as UTF-8?"
    if own_answers:
        yield f"The positive is the query, word for word, in {own_answers:,} pairs."
    if (words := _quantiles(facts["documents"]["words"])[1]) > LONG:
        yield f"One document in twenty has more than {words:,} words; encoders cut texts at their maximum length."
