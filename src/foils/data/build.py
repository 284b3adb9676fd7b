"""Making a collection from readers: checks what each yields, writes Arrow files once, maps them into memory.

A reader yields (line, fields); the line is 0 where the records have none. What is wrong is collected per file and
raised together, before anything is stored. Public data has documents without a text, and judgements of documents that
are not there: a lenient reading leaves these out, and the collection's name says how many.
"""

from __future__ import annotations

import hashlib
from array import array
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from foils.data.chunks import batches_of, take_in
from foils.data.collection import DOCUMENTS, QRELS, QUERIES, Collection, rows_of
from foils.data.in_use import hold
from foils.data.lines import Complaints, text_field, whole_json
from foils.data.store import cache_folder, write_json, write_whole_folder
from foils.runtime import progress
from foils.runtime.errors import FormatError

Record = tuple[int, tuple[Any, ...]]
_FORMAT = 2  # of the stored Arrow files
LENIENT = {False: (), True: ("lenient",)}  # of the facts for `cache_place`
EMPTY = "remove the record, give it a text, or write lenient: before the folder's name to leave such records out"


@dataclass(frozen=True)
class Source:
    """One file, or stream, of records of a collection.

    Attributes:
        where: the file's path, or another name for complaints.
        records: opens the stream; malformed records are added to the complaints it is given.
    """

    where: str
    records: Callable[[Complaints], Iterator[Record]]


Judged = Mapping[str, Source] | Callable[[pa.Table, pa.Table], Mapping[str, Source]]
"""Judgements by split, or what makes them of the tables of documents and queries."""


def build_in_memory(
    name: str,
    documents: Sequence[tuple[str, str, str]],
    queries: Sequence[tuple[str, str]],
    qrels: Mapping[str, Sequence[tuple[str, str, int]]],
) -> Collection:
    """Make a collection from lists, held in memory; the checks are those of a stored one.

    Raises:
        FormatError: empty texts, repeated ids, judgements that name unknown ids.
    """

    def listed(kind: str, rows: Sequence[tuple[Any, ...]]) -> Source:
        return Source(f"{name} ({kind})", lambda _: ((0, tuple(row)) for row in rows))

    judged = {split: listed(f"qrels {split}", rows) for split, rows in qrels.items()}
    return build_held(name, listed("documents", documents), listed("queries", queries), judged)


def build_held(name: str, documents: Source, queries: Source, qrels: Judged) -> Collection:
    """Make a collection as `build_stored` does, held in memory."""
    hasher = hashlib.blake2b(digest_size=16)

    def held(_: str, schema: pa.Schema, batches: Iterator[pa.RecordBatch]) -> pa.Table:
        return pa.Table.from_batches(batches, schema)

    tables = _read_all(documents, queries, qrels, hasher, held)
    return Collection(name, *tables, hasher.hexdigest())


def build_stored(
    name: str,
    folder: Path,
    documents: Source,
    queries: Source,
    qrels: Judged,
    *,
    lenient: bool = False,
) -> Collection:
    """Make a collection as Arrow files in `folder` (which appears whole) and map them into memory.

    One that is there is opened, and nothing is read.

    Args:
        name: what to call it.
        folder: where.
        documents: of `doc_id, title, text`.
        queries: of `query_id, text`.
        qrels: split → judgements, `query_id, doc_id, relevance`, or what makes that of both tables.
        lenient: leave out documents and queries without a text, and judgements of what is not there; the name tells
            their numbers.

    Raises:
        FormatError: every complaint of the first file that has any, with lines.
        FailureError: the folder cannot be written.
    """
    if (folder / "meta.json").is_file():
        return open_stored(folder)
    hasher, left_out = hashlib.blake2b(digest_size=16), Counter[str]() if lenient else None
    with write_whole_folder(folder, mark="meta.json") as aside:

        def store(kind: str, schema: pa.Schema, batches: Iterator[pa.RecordBatch]) -> pa.Table:
            path = aside / f"{kind}.arrow"
            with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, schema) as writer:
                for batch in batches:
                    writer.write_batch(batch)
            return _mapped(path)

        _, _, judged = _read_all(documents, queries, qrels, hasher, store, left_out)
        if left_out:
            name += f" (left out: {', '.join(f'{count:,} {kind}' for kind, count in left_out.items())})"
        write_json(aside / "meta.json", {"name": name, "digest": hasher.hexdigest(), "splits": list(judged)})
    return open_stored(folder)


def open_stored(folder: Path) -> Collection:
    """Map a collection that `build_stored` wrote.

    Raises:
        FormatError: a file of it is missing or damaged.
    """
    try:
        meta = whole_json(folder / "meta.json")
        qrels = {split: _mapped(folder / f"qrels-{split}.arrow") for split in meta["splits"]}
        documents, queries = (_mapped(folder / f"{kind}.arrow") for kind in ("documents", "queries"))
        stored = Collection(meta["name"], documents, queries, qrels, meta["digest"], folder.absolute())
    except (OSError, ValueError, KeyError, TypeError, pa.ArrowException) as error:
        raise FormatError(f"damaged collection in the cache ({error}); remove the folder", folder) from error
    hold(folder, by=stored)
    return stored


def check_stored(folder: Path) -> None:
    """Read a stored collection through, and compare its digest.

    Raises:
        FormatError: a file of it is missing or damaged, or its contents have changed.
    """
    stored, hasher = open_stored(folder), hashlib.blake2b(digest_size=16)
    try:
        for table in (stored.documents, stored.queries):
            take_in(table, hasher)
        for split in stored.splits:
            hasher.update(split.encode())
            take_in(stored.qrels[split], hasher)
    except (pa.ArrowException, ValueError) as error:
        raise FormatError(f"damaged collection in the cache ({error}); remove the folder", folder) from error
    if hasher.hexdigest() != stored.digest:
        raise FormatError("damaged collection in the cache (its contents have changed); remove the folder", folder)


def cache_place(*facts: object) -> Path:
    """Return the folder in the cache for the collection that these facts determine."""
    state = hashlib.blake2b(repr((_FORMAT, facts)).encode(), digest_size=16).hexdigest()
    return cache_folder() / "collections" / state


def file_facts(path: Path) -> tuple[str, int, int, int]:
    """Return which file this is and when it was last written or replaced, for `cache_place`."""
    state = path.stat()
    return str(path.resolve()), state.st_size, state.st_mtime_ns, state.st_ctime_ns


def _mapped(path: Path) -> pa.Table:
    return pa.ipc.open_file(pa.memory_map(str(path))).read_all()


_Keep = Callable[[str, pa.Schema, Iterator[pa.RecordBatch]], pa.Table]


def _read_all(
    documents: Source,
    queries: Source,
    qrels: Judged,
    hasher: Any,
    keep: _Keep,
    left_out: Counter[str] | None = None,
) -> tuple[pa.Table, pa.Table, dict[str, pa.Table]]:
    document_table = _read_texts("documents", documents, DOCUMENTS, hasher, keep, left_out)
    query_table = _read_texts("queries", queries, QUERIES, hasher, keep, left_out)
    ids = document_table["doc_id"], query_table["query_id"]
    qrels = qrels(document_table, query_table) if callable(qrels) else qrels
    judged = {split: _read_qrels(split, source, *ids, hasher, keep, left_out) for split, source in qrels.items()}
    return document_table, query_table, judged


def _read_texts(
    kind: str, source: Source, schema: pa.Schema, hasher: Any, keep: _Keep, left_out: Counter[str] | None
) -> pa.Table:
    complaints, lines = Complaints(source.where), array("q")

    def checked() -> Iterator[tuple[Any, ...]]:
        with progress.task(f"reading {kind}", unit=kind) as advance:
            for line, fields in source.records(complaints):
                identifier, *texts = values = tuple(map(text_field, fields))
                if None in values:
                    complaints.add(f"expected {', '.join(schema.names)} as text in valid Unicode", line or None)
                elif not identifier:
                    complaints.add("empty id; give every record an id", line or None)
                elif not any(text and text.strip() for text in texts):
                    if left_out is None:
                        complaints.add(f"{identifier!r} has an empty text; {EMPTY}", line or None)
                    else:
                        left_out[f"{kind} without a text"] += 1
                else:
                    lines.append(line)
                    yield values
                advance(1)

    table = keep(kind, schema, batches_of(checked(), schema))
    ids = table[schema.names[0]]
    first = rows_of(ids, ids)
    for row in np.flatnonzero(first != np.arange(len(first))):
        before = f" (first on line {lines[first[row]]})" if lines[row] else ""
        complaints.add(f"duplicate id {ids[int(row)].as_py()!r}{before}; ids must be unique", lines[row] or None)
    complaints.settle()
    if not len(table):
        raise FormatError(f"no {kind} in it; expected at least one record", source.where)
    take_in(table, hasher)
    return table


def _read_qrels(
    split: str,
    source: Source,
    doc_ids: pa.ChunkedArray,
    query_ids: pa.ChunkedArray,
    hasher: Any,
    keep: _Keep,
    left_out: Counter[str] | None,
) -> pa.Table:
    complaints, lines = Complaints(source.where), array("q")

    def checked() -> Iterator[tuple[Any, ...]]:
        for line, (query, document, grade) in source.records(complaints):
            values = text_field(query), text_field(document), _relevance(grade)
            if None in values:
                complaints.add("expected two ids as text and the relevance as a whole number", line or None)
            else:
                lines.append(line)
                yield values

    judged = pa.Table.from_batches(batches_of(checked(), QRELS), QRELS)
    queries, documents = rows_of(judged["query_id"], query_ids), rows_of(judged["doc_id"], doc_ids)
    known = (queries >= 0) & (documents >= 0)
    if left_out is not None and not known.all():
        left_out["judgements of what is not there"] += int((~known).sum())
        judged = judged.filter(pa.array(known))
        lines = array("q", np.asarray(lines)[known].tolist())
        queries, documents, known = queries[known], documents[known], known[known]
    for column, rows, file in (("query_id", queries, "queries"), ("doc_id", documents, "documents")):
        for row in np.flatnonzero(rows < 0):
            unknown = judged[column][int(row)].as_py()
            complaints.add(f"unknown {column} {unknown!r}: it is not among the {file}", lines[row] or None)
    codes = (queries << 32) | documents
    _, first, inverse = np.unique(codes, return_index=True, return_inverse=True)
    for row in np.flatnonzero((first[inverse] != np.arange(len(codes))) & known):
        complaints.add("the pair is judged twice; keep one judgement", lines[row] or None)
    complaints.settle()
    hasher.update(split.encode())
    take_in(judged, hasher)
    return keep(f"qrels-{split}", QRELS, iter(judged.to_batches()))


def _relevance(value: object) -> int | None:
    """A judgement as the whole number that it is, whatever its type, or None."""
    if isinstance(value, bool) or not isinstance(value, (int, float, np.integer)) or value != value // 1:
        return None
    return int(value) if -(2**31) <= value < 2**31 else None
