"""Reading sources of negatives from JSON lines, in the forms that training tools have (see `foils.data.forms`)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from foils.data.collection import Collection
from foils.data.lines import Complaints, json_objects, text_field
from foils.data.negatives import Negatives
from foils.data.source_forms import Given, Said, number, read_record
from foils.data.source_rows import SourceRows, squeezed
from foils.data.tables import Records, records_of_file

PYLATE = ("train", "queries", "documents")
"""The tables of PyLate's form, each a file `.parquet` of a folder."""


def read_lines(path: Path, name: str, collection: Collection) -> Negatives:
    """Read JSON lines: triplets, n-tuples, labelled pairs or lists, FlagEmbedding's, NeMo AutoModel's or ms-swift's.

    Raises:
        FormatError: what is wrong in the file, by line.
    """
    rows, complaints = SourceRows(name, collection, path), Complaints(path)
    stream = ((line, read_record(record)) for line, record in json_objects(path, complaints))
    _add_said(rows, stream, complaints)
    return rows.negatives("tuples", path)


def add_records(rows: SourceRows, records: Records, names: Mapping[str, str]) -> None:
    """Add a table of what `read_lines` reads.

    Args:
        rows: that it is added to.
        records: of the table.
        names: name of a column -> what it is, as "query", where its own name does not say so.

    Raises:
        FormatError: what is wrong in it, by line.
    """

    def said(record: Mapping[str, Any]) -> Said | str:
        return read_record({names.get(key, key): value for key, value in record.items()})

    complaints = Complaints(records.where)
    _add_said(rows, ((line, said(record)) for line, record in records.read(complaints)), complaints)


def is_folder_of_tables(path: Path) -> bool:
    """Tell whether a path is a folder as PyLate's form has it: train, queries and documents, in Parquet."""
    return all((path / f"{table}.parquet").is_file() for table in PYLATE)


def read_pylate(path: Path, name: str, collection: Collection) -> Negatives:
    """Read PyLate's tables: train (query_id, document_ids, scores), queries and documents (their ids, text).

    Raises:
        FormatError: what is wrong in them, by row.
    """
    train, queries, documents = (records_of_file(path / f"{table}.parquet") for table in PYLATE)
    complaints = Complaints(train.where)
    texts: list[dict[Any, Any]] = [
        {record.get(key): record.get("text") for _, record in table.read(complaints)}
        for key, table in (("query_id", queries), ("document_id", documents))
    ]

    def said(record: Mapping[str, Any]) -> Said | str:
        ids, scores = record.get("document_ids") or (), record.get("scores") or ()
        if len(ids) != len(scores) or record.get("query_id") not in texts[0] or not set(ids) <= texts[1].keys():
            return "expected query_id, and as many scores as document_ids, with their texts in queries and documents"
        given = [Given(text_field(texts[1][key]), key, number(of)) for key, of in zip(ids, scores, strict=True)]
        return Said(text_field(texts[0][record["query_id"]]), unlabelled=given)

    rows = SourceRows(name, collection, path)
    _add_said(rows, ((line, said(record)) for line, record in train.read(complaints)), complaints)
    return rows.negatives("tuples", path)


def _add_said(rows: SourceRows, stream: Iterable[tuple[int, Said | str]], complaints: Complaints) -> None:
    for line, said in stream:
        if isinstance(said, str):
            complaints.add(said, line)
        elif (query_id := rows.known_texts.query(str(said.query))) is None:
            complaints.add(rows.unknown(str(said.query)), line)
        elif any(each.text is None or not each.text.strip() for each in (*said.negatives, *said.unlabelled)):
            complaints.add("a negative is empty or no text", line)
        else:
            _add(rows, query_id, said, line)
    complaints.settle()


def _add(rows: SourceRows, query_id: str, said: Said, line: int) -> None:
    """Add what a record says of a query; of unlabelled documents those that are no labelled positives are negatives."""
    for each in said.positives:
        identifier, _ = rows.known_texts.document(each.text or "", each.doc_id)
        if each.score is not None and (query_id, identifier) in rows.known:
            rows.positives.setdefault((query_id, identifier), each.score)
    for at, each in enumerate((*said.negatives, *said.unlabelled)):
        identifier, inside = rows.known_texts.document(str(each.text), each.doc_id)
        if at >= len(said.negatives) and (query_id, identifier) in rows.known:
            rows.positives.setdefault((query_id, identifier), float("nan") if each.score is None else each.score)
        else:
            rows.add(query_id, identifier, str(each.text), each.score, line, inside=inside)


def read_tevatron(path: Path, name: str, collection: Collection) -> Negatives:
    """Read Tevatron's records: query_id, positive_passages, negative_passages.

    Raises:
        FormatError: what is wrong in the file, by line.
    """
    rows, complaints = SourceRows(name, collection, path), Complaints(path)
    queries = set(collection.queries["query_id"].to_pylist())
    documents = {identifier: row for row, identifier in enumerate(collection.documents["doc_id"].to_pylist())}
    for line, record in json_objects(path, complaints):
        query_id = text_field(record.get("query_id"))
        passages, positives = record.get("negative_passages"), record.get("positive_passages")
        if query_id is None or not isinstance(passages, list):
            complaints.add("expected query_id and a list negative_passages", line)
        elif query_id not in queries:
            complaints.add(f"unknown query_id {query_id!r}: the collection {collection.name} has no such query", line)
        else:
            known = [documents.get(identifier or "", -1) for identifier in map(_docid, passages)]
            _add_passages(rows, query_id, passages, known, collection, complaints, line)
            for each in positives if isinstance(positives, list) else []:
                score = number(each.get("score")) if isinstance(each, dict) else None
                if score is not None and (query_id, str(identifier := _docid(each))) in rows.known:
                    rows.positives.setdefault((query_id, str(identifier)), score)
    complaints.settle()
    return rows.negatives("tevatron", path)


def _docid(passage: Any) -> str | None:
    return text_field(passage.get("docid")) if isinstance(passage, dict) else None


def _add_passages(
    rows: SourceRows,
    query_id: str,
    passages: list[Any],
    known: list[int],
    collection: Collection,
    complaints: Complaints,
    line: int,
) -> None:
    """Add passages; `known` has the row in the collection of each, −1 where it is not there."""
    stored = iter(collection.document_texts([row for row in known if row >= 0]))
    for passage, row in zip(passages, known, strict=True):
        identifier, text = _docid(passage), _passage_text(passage)
        document = next(stored) if row >= 0 else rows.texts.get(identifier or "")
        given = passage.get("score") if isinstance(passage, dict) else None
        score = None if given is None else number(given)
        if given is not None and score is None:
            complaints.add(f"the score {given!r:.40} of {identifier!r} is not a finite number", line)
        elif not identifier:
            complaints.add("a negative passage has no docid; expected {docid, title, text}", line)
        elif text is None:
            complaints.add(f"title or text of {identifier!r} is not a text in valid Unicode", line)
        elif document is None and not text:
            complaints.add(f"the document {identifier!r} is neither in the collection nor given with a text", line)
        elif document is not None and text and squeezed(text) != squeezed(document):
            where = "in the collection" if row >= 0 else "on an earlier line"
            complaints.add(f"the document {identifier!r} has another text {where}; give it an id of its own", line)
        else:
            if row < 0:
                rows.texts.setdefault(identifier, text)
            rows.add(query_id, identifier, text or str(document), score, line, inside=row >= 0)


def _passage_text(passage: Any) -> str | None:
    """Title and text of a passage, "" where it has none, None where they are no text."""
    if not isinstance(passage, dict):
        return None
    parts = ["" if passage.get(key) is None else text_field(passage[key]) for key in ("title", "text")]
    return None if None in parts else " ".join(map(str, parts)).strip()
