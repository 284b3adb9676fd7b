"""What a collection is, for who wants to see whether it was understood: counts, lengths, splits, leakage, warnings."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from foils.data.collection import TRAIN, Collection, Rows
from foils.data.splitting import recurrence, twin_pairs
from foils.data.tables import pieces
from foils.data.texts import ColumnTexts
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
        wordless: `queries` and `documents` -> texts without a letter.
        garbled: `queries` and `documents` -> texts with control characters, or wrongly decoded ones.
        own_answers: positive pairs whose two texts are equal.
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
    wordless: Mapping[str, int]
    garbled: Mapping[str, int]
    own_answers: int
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
            (
                name,
                f"{of.queries:,}",
                f"{of.pairs:,}",
                number(of.pairs / max(of.queries, 1), 2),
                "–" if of.shared is None else f"{100 * of.shared:.0f} %",
                "–" if of.twins is None else f"{of.twins:,}",
            )
            for name, of in self.splits.items()
        ]
        heads = ("split", "queries", "positives", "per query", "positives that train has", "near-twins in train")
        warnings = "\n".join(f"warning: {each}" for each in self.warnings)
        return [
            counts, Table("Splits", heads, splits), Table("Examples", ("query", "positive"), self.examples, warnings)
        ]  # fmt: skip

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
    shown = np.unique(np.linspace(0, len(positives) - 1, min(EXAMPLES, len(positives))).astype(int))
    asked = [texts[row] for row in positives.query_rows[shown]]
    of = {"queries": _measured(collection.queries), "documents": _measured(collection.documents)}
    equal = {kind: int(len(rows) - len(np.unique(rows["hash"], axis=0))) for kind, rows in of.items()}
    described = Description(
        name=collection.name,
        digest=collection.digest,
        documents=len(of["documents"]),
        queries=len(of["queries"]),
        lengths={kind: _words(rows["words"]) for kind, rows in of.items()},
        equal_documents=equal["documents"],
        equal_queries=equal["queries"],
        wordless={kind: int(rows["wordless"].sum()) for kind, rows in of.items()},
        garbled={kind: int(rows["garbled"].sum()) for kind, rows in of.items()},
        own_answers=int((of["queries"]["hash"][pairs[0]] == of["documents"]["hash"][pairs[1]]).all(axis=1).sum()),
        splits={name: _split(collection, name, twins) for name in collection.splits},
        examples=[
            (_short(query), _short(document))
            for query, document in zip(asked, collection.document_texts(positives.first[shown]), strict=True)
        ],
        warnings=(),
        read_as=collection.read_as,
    )
    return replace(described, warnings=list(_remarks(described)))


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


MEASURED = np.dtype([("words", "<i8"), ("hash", "<u8", (2,)), ("wordless", "?"), ("garbled", "?")])
GARBLED = re.compile("[\0-\x08\x0e-\x1f\x7f-\x9f\ufffd]|\u00c3[\u0080-\u00bf]|\u00e2\u20ac")
"""Control characters, what stands for unreadable bytes, and UTF-8 that was read as Latin-1 or Windows-1252."""


def _measured(table: pa.Table) -> npt.NDArray[np.void]:
    """(n,) facts of each text, with its title where the table has titles; read piece by piece.

    Number of words, hash, whether it has no letter, and whether it looks wrongly decoded.
    """
    columns = [name for name in ("title", "text") if name in table.column_names]
    rows = (
        " ".join(filter(None, each))
        for batch in pieces(table.select(columns).to_batches())
        for each in zip(*(column.to_pylist() for column in batch.columns), strict=True)
    )
    facts = (
        (
            len(text.split()),
            np.frombuffer(hashlib.blake2b(text.encode(), digest_size=16).digest(), "<u8"),
            not any(map(str.isalpha, text)),
            GARBLED.search(text) is not None,
        )
        for text in rows
    )
    return np.fromiter(facts, MEASURED, len(table))


def _words(counts: npt.NDArray[np.int64]) -> tuple[int, int, int]:
    return int(np.median(counts)), int(np.percentile(counts, 95)), int(counts.max())


def _short(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= SHOWN else f"{text[: SHOWN - 1]}…"


def _remarks(of: Description) -> Iterator[str]:
    """Yield what one may have to know before training."""
    if of.splits and TRAIN not in of.splits:
        other = f"foils mine --split {next(iter(of.splits))} takes another, and foils tune makes three of a single one."
        yield f"There is no split {TRAIN} to mine and train on: {other}"
    if "test" not in of.splits:
        yield "There is no split test: nothing can be measured but on what is trained."
    for name, split in of.splits.items():
        if (share := split.shared or 0) >= 0.2:
            said = f"measures on {name} tell how well known documents are found, not new ones."
            yield f"{100 * share:.0f} % of the positives of {name} are positives of train too: {said}"
        if split.twins:
            yield f"Queries of {name} with a near-twin in train: {split.twins}; measures may be too high."
        if not split.pairs:
            yield f"No document of {name} is relevant: nothing can be trained or measured on it."
        if split.most >= COMMON:
            yield f"One query of {name} has {split.most:,} positives; is it a label, and not a question?"
    if of.equal_documents:
        said = "a copy of a positive looks like a hard negative."
        yield f"Documents equal to another: {of.equal_documents:,}; {said}"
    for kind, count in of.wordless.items():
        if 2 * count > getattr(of, kind):
            yield f"There is no letter in {count:,} of the {kind}; is their column one of ids or numbers?"
    for kind, count in of.garbled.items():
        if count:
            said = f"There are control characters, or letters of a wrong encoding, in {count:,} of the {kind}"
            yield f"{said}; was the file written as UTF-8?"
    if of.own_answers:
        yield f"The positive is the query, word for word, in {of.own_answers:,} pairs."
    if (words := of.lengths["documents"][1]) > LONG:
        yield f"One document in twenty has more than {words:,} words; encoders cut texts at their maximum length."
