"""Making a collection from readers: checks what each yields, writes Arrow files once, maps them into memory.

A reader yields (line, fields); the line is 0 where the records have none. What is wrong is collected per file and
raised together, before anything is stored.
"""

from __future__ import annotations

import hashlib
import json
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from foils import progress
from foils.data.collection import DOCUMENTS, QRELS, QUERIES, Collection, rows_of
from foils.data.lines import Complaints, text_field
from foils.data.store import cache_folder, write_json, write_whole_folder
from foils.errors import FormatError

Record = tuple[int, tuple[Any, ...]]
BATCH = 20_000
_FORMAT = 2  # of the stored Arrow files


@dataclass(frozen=True)
class Source:
    """One file, or stream, of records of a collection.

    Attributes:
        where: the file's path, or another name for complaints.
        records: opens the stream; malformed records are added to the complaints it is given.
    """

    where: str
    records: Callable[[Complaints], Iterator[Record]]


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

    hasher = hashlib.blake2b(digest_size=16)
    document_table, query_table, judged = _read_all(
        listed("documents", documents),
        listed("queries", queries),
        {split: listed(f"qrels {split}", rows) for split, rows in qrels.items()},
        hasher,
        lambda _, schema, batches: pa.Table.from_batches(batches, schema),
    )
    return Collection(name, document_table, query_table, judged, hasher.hexdigest())


def build_stored(
    name: str, folder: Path, documents: Source, queries: Source, qrels: Mapping[str, Source]
) -> Collection:
    """Make a collection as Arrow files in `folder` (which appears whole) and map them into memory.

    Raises:
        FormatError: every complaint of the first file that has any, with lines.
        FailureError: the folder cannot be written.
    """
    hasher = hashlib.blake2b(digest_size=16)
    with write_whole_folder(folder, mark="meta.json") as aside:

        def store(kind: str, schema: pa.Schema, batches: Iterator[pa.RecordBatch]) -> pa.Table:
            path = aside / f"{kind}.arrow"
            with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, schema) as writer:
                for batch in batches:
                    writer.write_batch(batch)
            return _mapped(path)

        _, _, judged = _read_all(documents, queries, qrels, hasher, store)
        write_json(aside / "meta.json", {"name": name, "digest": hasher.hexdigest(), "splits": list(judged)})
    return open_stored(folder)


def open_stored(folder: Path) -> Collection:
    """Map a collection that `build_stored` wrote.

    Raises:
        FormatError: a file of it is missing or damaged.
    """
    try:
        meta = json.loads((folder / "meta.json").read_text(encoding="utf-8"))
        qrels = {split: _mapped(folder / f"qrels-{split}.arrow") for split in meta["splits"]}
        documents, queries = (_mapped(folder / f"{kind}.arrow") for kind in ("documents", "queries"))
        return Collection(meta["name"], documents, queries, qrels, meta["digest"], folder.absolute())
    except (OSError, ValueError, KeyError, TypeError, pa.ArrowException) as error:
        raise FormatError(f"damaged collection in the cache ({error}); remove the folder", folder) from error


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
    documents: Source, queries: Source, qrels: Mapping[str, Source], hasher: Any, keep: _Keep
) -> tuple[pa.Table, pa.Table, dict[str, pa.Table]]:
    document_table = _read_texts("documents", documents, DOCUMENTS, hasher, keep)
    query_table = _read_texts("queries", queries, QUERIES, hasher, keep)
    judged = {
        split: _read_qrels(split, source, document_table["doc_id"], query_table["query_id"], hasher, keep)
        for split, source in qrels.items()
    }
    return document_table, query_table, judged


def _read_texts(kind: str, source: Source, schema: pa.Schema, hasher: Any, keep: _Keep) -> pa.Table:
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
                    complaints.add(f"{identifier!r} has an empty text; remove the record or give it one", line or None)
                else:
                    lines.append(line)
                    yield values
                advance(1)

    table = keep(kind, schema, _batches(checked(), schema, hasher))
    ids = table[schema.names[0]]
    first = rows_of(ids, ids)
    for row in np.flatnonzero(first != np.arange(len(first))):
        before = f" (first on line {lines[first[row]]})" if lines[row] else ""
        complaints.add(f"duplicate id {ids[int(row)].as_py()!r}{before}; ids must be unique", lines[row] or None)
    complaints.settle()
    if not len(table):
        raise FormatError(f"no {kind} in it; expected at least one record", source.where)
    return table


def _read_qrels(
    split: str, source: Source, doc_ids: pa.ChunkedArray, query_ids: pa.ChunkedArray, hasher: Any, keep: _Keep
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

    hasher.update(split.encode())
    table = keep(f"qrels-{split}", QRELS, _batches(checked(), QRELS, hasher))
    queries, documents = rows_of(table["query_id"], query_ids), rows_of(table["doc_id"], doc_ids)
    for column, rows, file in (("query_id", queries, "queries"), ("doc_id", documents, "documents")):
        for row in np.flatnonzero(rows < 0):
            unknown = table[column][int(row)].as_py()
            complaints.add(f"unknown {column} {unknown!r}: it is not among the {file}", lines[row] or None)
    codes = (queries << 32) | documents
    _, first, inverse = np.unique(codes, return_index=True, return_inverse=True)
    for row in np.flatnonzero((first[inverse] != np.arange(len(codes))) & (queries >= 0) & (documents >= 0)):
        complaints.add("the pair is judged twice; keep one judgement", lines[row] or None)
    complaints.settle()
    return table


def _relevance(value: object) -> int | None:
    """A judgement as the whole number that it is, whatever its type, or None."""
    if isinstance(value, bool) or not isinstance(value, (int, float, np.integer)) or value != value // 1:
        return None
    return int(value) if -(2**31) <= value < 2**31 else None


def _batches(rows: Iterable[tuple[Any, ...]], schema: pa.Schema, hasher: Any) -> Iterator[pa.RecordBatch]:
    stream = iter(rows)
    while chunk := list(islice(stream, BATCH)):
        columns = [list(column) for column in zip(*chunk, strict=True)]
        for column in columns:
            hasher.update("\x1f".join(map(str, column)).encode())
            hasher.update(b"\x1e")
        yield pa.record_batch(
            [pa.array(column, kind) for column, kind in zip(columns, schema.types, strict=True)],
            schema=schema,
        )
