"""Negatives that a language model writes, through any OpenAI-compatible server.

Every finished record is on disk before the next begins to count, so a stopped run asks for what is missing alone. A
failure is a record that says so, never an empty negative.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from foils.data.collection import Collection
from foils.data.negatives import Negatives, negatives_table
from foils.data.tables import Provenance, provenance
from foils.llm import Client, NoAnswerError, Sampling, Session, Usage, ask_missing, digest
from foils.mining.filters import table_pairs
from foils.mining.generation_answers import parse, validated
from foils.mining.generation_prompt import WritingSettings, schema
from foils.mining.look_alikes import NearPositive
from foils.mining.results import Generated
from foils.runtime.errors import InputError

SOURCE = "llm"
SAMPLING = Sampling(0.8)


@dataclass(frozen=True)
class Record:
    """A query, its first positive, and all its positives."""

    key: str
    query_id: str
    query: str
    positive: str
    positives: tuple[str, ...]


@dataclass
class Written:
    """What a record came to: negatives, or why there are none."""

    query_id: str
    usage: Usage
    negatives: list[str] = field(default_factory=list)
    failure: str | None = None
    turned_away: Counter[str] = field(default_factory=Counter)

    def as_record(self) -> dict[str, Any]:
        """Return it as JSON has it."""
        return {
            "query_id": self.query_id, "negatives": self.negatives, "failure": self.failure,
            "turned_away": dict(self.turned_away), **self.usage.as_record(),
        }  # fmt: skip


@dataclass(frozen=True)
class _Task:
    """What is asked for each query."""

    writing: WritingSettings
    sampling: Sampling
    number: int

    def describe(self) -> dict[str, Any]:
        """What provenance says of it; the keys of records have it in this order."""
        return {
            **self.writing.describe(), "number": self.number, "asks": self.writing.asks, **self.sampling.describe(),
            "shortest": self.writing.shortest,
        }  # fmt: skip


def first_prompt(collection: Collection, writing: WritingSettings, *, split: str, top: int) -> str:
    """Return the prompt of the split's first query, as it would be sent (a dry run)."""
    record = _records(collection, _Task(writing, Sampling(), top), None, split, 1)[0]
    return writing.prompt(record.query, record.positive, top)


def generate_negatives(
    collection: Collection,
    client: Client,
    log: str | Path,
    *,
    split: str,
    top: int = 10,
    writing: WritingSettings | None = None,
    sampling: Sampling | None = None,
    limit: int | None = None,
    near_duplicate: float = 0.9,
) -> Generated:
    """Let a model write negatives for every query of a split that has a positive.

    Each record is a query and its first labelled positive. Answers are validated against all positives of the query,
    and asked for again while some are missing. Rows come in the order of the split, whatever order answers come in.

    Args:
        collection: documents, queries, judgements.
        client: of the server.
        log: folder for finished records, one file for each combination of model, server and settings.
        split: whose queries.
        top: negatives per query, at least 1.
        writing: what is asked.
        sampling: how answers are drawn; None: at temperature 0.8.
        limit: ask for the first so many queries alone.
        near_duplicate: reject texts whose token sets have this Jaccard similarity to a positive's, in (0, 1].

    Raises:
        InputError: settings out of range, an unknown split, or a server that refuses key or model.
        FailureError: the server fails record after record; what was finished is kept.
    """
    if top < 1:
        raise InputError(f"top {top}; expected at least 1 negative per query")
    task = _Task(writing or WritingSettings(), sampling or SAMPLING, top)
    records = _records(collection, task, client.identity, split, limit)
    file = Path(log) / f"{digest(client.identity, sorted(task.describe().items()))}.jsonl"

    async def serve(session: Session, record: Record) -> Written:
        return await _write(session, record, task)

    answers = ask_missing(client, file, records, serve, task="asking for negatives", unit="queries")
    counts, turned_away = [len(answer["negatives"]) for answer in answers], Counter[str]()
    for answer in answers:
        turned_away.update(answer["turned_away"])
    facts = {"split": split, "limit": limit, **client.describe(), **task.describe()}
    origin = provenance("generate", facts, inputs={"collection": collection.digest})
    return Generated.of(
        _table(collection, records, answers, near_duplicate, origin),
        title=f"negatives of {collection.name} ({split}) by {client.model}",
        collection=collection,
        split=split,
        top=top,
        queries=len(records),
        answered=sum(count > 0 for count in counts),
        short=sum(0 < count < top for count in counts),
        failed=dict(Counter(str(answer["failure"]) for answer in answers if not answer["negatives"])),
        turned_away=dict(turned_away),
        usage=Usage.total(answers),
    )


def _records(collection: Collection, task: _Task, identity: object, split: str, limit: int | None) -> list[Record]:
    if limit is not None and limit < 1:
        raise InputError(f"limit {limit}; expected at least 1 query")
    positives, known = collection.positives(split), collection.known_positives
    place = {int(row): index for index, row in enumerate(known.query_rows)}
    rows = positives.query_rows[:limit]
    ids = collection.queries["query_id"].take(pa.array(rows)).to_pylist()
    records = []
    for index, (identifier, query) in enumerate(zip(ids, collection.query_texts(rows), strict=True)):
        first = collection.document_texts(positives.of(index)[:1])[0]
        every = collection.document_texts(known.of(place[int(rows[index])]))
        key = digest(identity, task.describe(), query, first, every)
        records.append(Record(key, identifier, query, first, tuple(every)))
    return records


async def _write(session: Session, record: Record, task: _Task) -> Written:
    """Ask until the record has its number of negatives, or has been asked often enough."""
    written, writing, sampling = Written(record.query_id, session.usage), task.writing, task.sampling
    for turn in range(writing.asks):
        wanted = task.number - len(written.negatives)
        try:
            answer = await session.answer(
                writing.prompt(record.query, record.positive, wanted, written.negatives),
                seed=sampling.seed + turn,
                temperature=sampling.temperature,
                schema=schema(wanted),
                name="negatives",
                most_tokens=sampling.most_tokens,
            )
        except NoAnswerError as error:
            written.failure = str(error)
            continue
        texts = parse(answer)
        kept, away = validated(
            texts,
            query=record.query,
            positives=record.positives,
            taken=written.negatives,
            number=wanted,
            prompt=writing.prompt("", "", wanted),
            shortest=writing.shortest,
        )
        written.negatives += kept
        written.turned_away.update(away)
        if len(written.negatives) == task.number:
            break
        written.failure = "no usable negative in any answer" if texts else "an answer that holds no list of texts"
    if written.negatives:
        written.failure = None
    return written


def _table(
    collection: Collection,
    records: Sequence[Record],
    answers: Sequence[dict[str, Any]],
    near_duplicate: float,
    origin: Provenance,
) -> Negatives:
    texts = [text for answer in answers for text in answer["negatives"]]
    counts = [len(answer["negatives"]) for answer in answers]
    queries = [record.query_id for record, count in zip(records, counts, strict=True) for _ in range(count)]
    ids = [f"llm:{hashlib.blake2b(text.encode(), digest_size=8).hexdigest()}" for text in texts]
    ranks = np.concatenate([np.arange(count) for count in counts]) if counts else np.zeros(0)
    table = negatives_table(
        pa.array(queries, pa.string()), pa.array(ids, pa.string()), SOURCE, ranks, np.full(len(texts), np.nan)
    )
    negatives = Negatives(table.append_column("text", pa.array(texts, pa.large_string())), origin)
    near = NearPositive(collection, near_duplicate)
    return negatives.reject(near.marks(table_pairs(negatives, collection)), near.reason)
