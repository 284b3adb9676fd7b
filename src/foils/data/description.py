"""What a collection is, for who wants to see whether it was understood: counts, lengths, splits, leakage, warnings."""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from foils.data.collection import TRAIN, Collection
from foils.data.splitting import recurrence, twin_pairs
from foils.data.tables import pieces
from foils.data.texts import ColumnTexts
from foils.runtime.results import Result, Table, number

SAMPLE = 2_000  # texts whose scripts are told
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
        scripts: share of the letters by script, in a sample of texts.
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
    scripts: Mapping[str, float]
    splits: Mapping[str, SplitFacts]
    examples: Sequence[tuple[str, str]]
    warnings: Sequence[str]
    read_as: str = ""

    def tables(self) -> list[Table]:
        """Return counts, splits and examples; the warnings stand under the last."""
        scripts = ", ".join(f"{name} {100 * share:.0f} %" for name, share in self.scripts.items())
        rows = [
            ("documents", f"{self.documents:,}", *map(str, self.lengths["documents"]), f"{self.equal_documents:,}"),
            ("queries", f"{self.queries:,}", *map(str, self.lengths["queries"]), f"{self.equal_queries:,}"),
        ]
        columns = f"columns: {self.read_as}\n" if self.read_as else ""
        heads = ("", "count", "words: median", "95 %", "most", "equal to another")
        counts = Table(self.name, heads, rows, f"{columns}scripts: {scripts}")
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
        shown = Table(
            "Examples", ("query", "positive"), self.examples, "\n".join(f"warning: {w}" for w in self.warnings)
        )
        return [counts, Table("Splits", heads, splits), shown]

    def to_json(self) -> dict[str, Any]:
        """Return the attributes."""
        return asdict(self)


def describe_collection(collection: Collection) -> Description:
    """Count, measure and look over a collection.

    Args:
        collection: any; its texts are read once.
    """
    documents, queries = collection.documents, collection.queries
    positives = collection.known_positives
    texts = ColumnTexts(queries["text"])
    pairs = positives.pairs()
    twins = twin_pairs(texts, *pairs)
    splits = {name: _split(collection, name, twins) for name in collection.splits}
    shown = np.unique(np.linspace(0, len(positives) - 1, min(EXAMPLES, len(positives))).astype(int))
    sample = np.unique(np.linspace(0, len(documents) - 1, SAMPLE).astype(int))
    of_queries, of_documents = _measured(queries), _measured(documents)
    described = Description(
        name=collection.name,
        digest=collection.digest,
        documents=len(documents),
        queries=len(queries),
        lengths={"queries": _words(of_queries), "documents": _words(of_documents)},
        equal_documents=_repeated(of_documents),
        equal_queries=_repeated(of_queries),
        wordless={"queries": int(of_queries["wordless"].sum()), "documents": int(of_documents["wordless"].sum())},
        garbled={"queries": int(of_queries["garbled"].sum()), "documents": int(of_documents["garbled"].sum())},
        own_answers=int((of_queries["hash"][pairs[0]] == of_documents["hash"][pairs[1]]).all(axis=1).sum()),
        scripts=_scripts([*collection.document_texts(sample), *texts[:SAMPLE]]),
        splits=splits,
        examples=[
            (
                _short(texts[positives.query_rows[at]]),
                _short(collection.document_texts([positives.doc_rows[positives.offsets[at]]])[0]),
            )
            for at in shown
        ],
        warnings=(),
        read_as=collection.read_as,
    )
    return Description(**{**vars(described), "warnings": list(_warnings(described))})


def _split(collection: Collection, name: str, twins: np.ndarray[Any, Any]) -> SplitFacts:
    judged = collection.judgements(name)
    relevant = judged.filter(pc.greater(judged["relevance"], 0))
    most = max(pc.value_counts(relevant["query_id"]).field("counts").to_pylist(), default=0)
    shared, near = None, None
    if name != TRAIN and TRAIN in collection.qrels:
        train = collection.judgements(TRAIN)
        shared = recurrence(collection, name) or 0.0
        here, there = (set(collection.query_rows(each["query_id"].unique()).tolist()) for each in (judged, train))
        near = len({a for a, b in [*twins.tolist(), *twins[:, ::-1].tolist()] if a in here and b in there})
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
    measured, at = np.empty(len(table), MEASURED), 0
    for batch in pieces(table.select(columns).to_batches()):
        parts = zip(*(column.to_pylist() for column in batch.columns), strict=True)
        texts = [" ".join(filter(None, each)) for each in parts]
        digests = b"".join(hashlib.blake2b(text.encode(), digest_size=16).digest() for text in texts)
        here = measured[at : at + len(texts)]
        here["words"] = [len(text.split()) for text in texts]
        here["wordless"] = [not any(map(str.isalpha, text)) for text in texts]
        here["garbled"] = [GARBLED.search(text) is not None for text in texts]
        here["hash"] = np.frombuffer(digests, "<u8").reshape(-1, 2)
        at += len(texts)
    return measured


def _words(measured: npt.NDArray[np.void]) -> tuple[int, int, int]:
    counts = measured["words"]
    return int(np.median(counts)), int(np.percentile(counts, 95)), int(counts.max())


def _repeated(measured: npt.NDArray[np.void]) -> int:
    return int(len(measured) - len(np.unique(measured["hash"], axis=0)))


def _scripts(texts: Sequence[str]) -> dict[str, float]:
    """The share of each script among the letters, by the first word of the letters' names in Unicode."""
    letters = Counter(letter for text in texts for letter in text[:1_000] if letter.isalpha())
    scripts: Counter[str] = Counter()
    for letter, count in letters.items():
        scripts[unicodedata.name(letter, "unknown").split()[0].capitalize()] += count
    total = sum(scripts.values()) or 1
    return {name: count / total for name, count in scripts.most_common(5) if count / total >= 0.005}


def _short(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= SHOWN else f"{text[: SHOWN - 1]}…"


def _warnings(of: Description) -> list[str]:
    warnings = []
    if of.splits and TRAIN not in of.splits:
        warnings.append(
            f"There is no split {TRAIN} to mine and train on: foils mine --split {next(iter(of.splits))} takes "
            "another, and foils tune makes three of a single one."
        )
    if "test" not in of.splits:
        warnings.append("There is no split test: nothing can be measured but on what is trained.")
    for name, split in of.splits.items():
        if split.shared is not None and split.shared >= 0.2:
            warnings.append(
                f"{100 * split.shared:.0f} % of the positives of {name} are positives of train too: measures on {name} "
                "tell how well known documents are found, not new ones."
            )
        if split.twins:
            queries = "query" if split.twins == 1 else "queries"
            have = "has a near-twin in train; its" if split.twins == 1 else "have a near-twin in train; their"
            warnings.append(f"{split.twins:,} {queries} of {name} {have} measures may be too high.")
        if not split.pairs:
            warnings.append(f"No document of {name} is relevant: nothing can be trained or measured on it.")
        if split.most >= COMMON:
            warnings.append(f"One query of {name} has {split.most:,} positives; is it a label, and not a question?")
    if of.equal_documents:
        documents = "document is" if of.equal_documents == 1 else "documents are"
        warnings.append(
            f"{of.equal_documents:,} {documents} equal to another: a copy of a positive looks like a hard negative."
        )
    for kind, count in of.wordless.items():
        if 2 * count > getattr(of, kind):
            warnings.append(f"There is no letter in {count:,} of the {kind}; is their column one of ids or numbers?")
    for kind, count in of.garbled.items():
        if count:
            warnings.append(
                f"There are control characters, or letters of a wrong encoding, in {count:,} of the {kind}; was the "
                "file written as UTF-8?"
            )
    if of.own_answers:
        warnings.append(f"The positive is the query, word for word, in {of.own_answers:,} pairs.")
    if of.lengths["documents"][1] > LONG:
        warnings.append(
            f"One document in twenty has more than {of.lengths['documents'][1]:,} words; encoders cut texts at their "
            "maximum length."
        )
    return warnings
