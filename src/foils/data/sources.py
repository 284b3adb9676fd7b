"""Reading a source of negatives: our Parquet, the forms that training tools have, tables of pairs, or a TREC run."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from foils.data.collection import Collection
from foils.data.hub import fetched_table
from foils.data.lines import Complaints, magic, numbered_lines, text_field
from foils.data.negatives import Negatives, negatives_table
from foils.data.pair_columns import NAMES, plain
from foils.data.pairs import pair_negatives
from foils.data.run import Run, ranks_within
from foils.data.source_forms import holds_training
from foils.data.source_records import is_folder_of_tables, read_lines, read_pylate, read_records, read_tevatron
from foils.data.source_rows import KnownPositives, KnownTexts, SourceRows, imported, without_own
from foils.data.store import file_digest
from foils.data.tables import DELIMITERS, records_of, records_of_file
from foils.runtime.errors import FormatError, InputError

FORMS = (
    "a source is a Parquet table of negatives; JSONL with query_id, query, positive_passages, negative_passages; "
    "JSONL with query (or anchor, question), positive (or pos), and negative, negative_1, negative_2, … or neg; JSONL "
    "with anchor, document and label, or documents and labels; CSV, TSV, Parquet or a JSON list with columns query, "
    "positive and negative; or a TREC run"
)


@dataclass(frozen=True)
class NamedSource:
    """A source of negatives and what to call it."""

    name: str
    negatives: Negatives
    digest: str


def split_name(spec: str) -> tuple[str, Path]:
    """Split `[NAME=]PATH`; without a name it is the file's, less its endings.

    Raises:
        InputError: a name that is not valid Unicode.
    """
    name, equals, path = spec.partition("=")
    if not (equals and name and "/" not in name):
        name, path = Path(spec).name.partition(".")[0], spec
    if text_field(name) is None:
        raise InputError(f"the name {name!r} is not valid Unicode; name the source, as in NAME=PATH")
    return name, Path(path)


def read_sources(specs: list[str], collection: Collection) -> list[NamedSource]:
    """Read several sources, each `[NAME=]PATH`.

    Raises:
        InputError: a file is missing, or two sources have one name (give them names).
        FormatError: what is wrong in a file, with lines.
    """
    names = [split_name(spec)[0] for spec in specs]
    if repeated := sorted({name for name in names if names.count(name) > 1}):
        raise InputError(f"several sources are called {', '.join(repeated)}; name them apart, as in NAME=PATH")
    return [read_source(spec, collection) for spec in specs]


def read_source(spec: str, collection: Collection) -> NamedSource:
    """Read one source, `[NAME=]PATH`, in whatever form the file has.

    In a TREC run the documents that are labelled relevant in the collection are left out: its non-positives are the
    negatives. In every other form a document that is a positive of the query, or has the text of one, is rejected,
    with a warning that has its line; in every form one that has the query's own id (`Collection.identical`). In JSONL
    a passage that is not a document of the collection brings its own text.

    Raises:
        InputError: no such file, or `hf:NAME` that cannot be fetched.
        FormatError: what is wrong in the file, ids that the collection does not know among it, with lines.
    """
    name, path = split_name(spec)
    path = fetched_table(path)
    form = _form(path)
    negatives = Negatives.read(path) if form is None else form(path, name, collection)
    try:
        negatives = without_own(negatives, collection, path)
    except InputError as error:
        raise FormatError(str(error), path) from error
    return NamedSource(name, negatives, negatives.digest if path.is_dir() else file_digest(path))


def _form(path: Path) -> Callable[[Path, str, Collection], Negatives] | None:
    if is_folder_of_tables(path):
        return read_pylate
    if magic(path, 4) == b"PAR1":
        return None if is_of_negatives(records_of_file(path).columns) else _read_pair_table
    if path.name.lower().removesuffix(".gz").endswith(tuple(DELIMITERS)):
        return _read_pair_table
    complaints = Complaints(path)
    line, first = next(numbered_lines(path, complaints), (0, ""))
    complaints.settle()
    if not line:
        raise FormatError(f"the file is empty; {FORMS}", path)
    if first.lstrip().startswith("{"):
        return read_tevatron if '"negative_passages"' in first or '"positive_passages"' in first else read_lines
    if first.lstrip().startswith("[") and path.name.lower().removesuffix(".gz").endswith(".json"):
        return _read_pair_table
    if len(first.split()) == 6:
        return _read_run
    raise FormatError(f"not a source of negatives (begins {first[:40]!r}); {FORMS}", path, line)


def _read_run(path: Path, name: str, collection: Collection) -> Negatives:
    table = Run.read(path).table
    queries, documents = collection.query_rows(table["query_id"]), collection.document_rows(table["doc_id"])
    if (queries < 0).any() or (documents < 0).any():
        _complain_of_ids(path, collection)
    positive = collection.known_positives.contain(queries, documents)
    table = table.filter(pa.array(~positive))
    ranks = ranks_within(queries[~positive])
    made = imported("trec", path, collection, positives=int(positive.sum()))
    return Negatives(negatives_table(table["query_id"], table["doc_id"], name, ranks, table["score"]), made)


def _complain_of_ids(path: Path, collection: Collection) -> None:
    """Read a TREC run again to say on which lines the ids are that the collection does not know."""
    complaints = Complaints(path)
    known = [set(collection.queries["query_id"].to_pylist()), set(collection.documents["doc_id"].to_pylist())]
    for line, text in numbered_lines(path, complaints):
        query, _, document, *_ = text.split()
        for what, identifier, among in (("query_id", query, known[0]), ("doc_id", document, known[1])):
            if identifier not in among:
                complaints.add(f"unknown {what} {identifier!r}: not in the collection {collection.name}", line)
    complaints.settle()


def is_of_negatives(columns: Iterable[str]) -> bool:
    """Tell whether a table with these columns is one of negatives, or means to be, and not of pairs."""
    names = {plain(name) for name in columns}
    return (
        {"query_id", "doc_id"} <= names
        or bool({"source", "rank"} & names)
        or not (names & {*NAMES["query"]} or holds_training(names))
    )


def _read_pair_table(path: Path, name: str, collection: Collection) -> Negatives:
    return negatives_of_pairs(path, name, collection, where=path)


def negatives_of_pairs(given: Any, name: str, collection: Collection, *, where: str | Path = "table") -> Negatives:
    """Return the negatives that a table of pairs names beside its positives (see `foils.data.pairs.read_pairs`).

    Args:
        given: a file, or a table in memory.
        name: of the source.
        collection: whose queries and documents they are, by their ids, or else by their texts; another document
            brings its own text.
        where: for complaints.

    Raises:
        FormatError: what is wrong in it, queries that the collection does not know among it.
    """
    records = records_of(given)
    if holds_training(records.columns):
        return read_records(records, name, collection)
    rows, complaints, known = SourceRows(name, KnownPositives(collection)), Complaints(where), KnownTexts.of(collection)
    queries = set(collection.queries["query_id"].to_pylist())
    for line, query_id, query, negatives in pair_negatives(records):
        own = query_id if query_id in queries else known.query(query)
        if own is None:
            complaints.add(f"unknown query {query[:60]!r}: not a text of the collection {collection.name}", line)
            continue
        for each in negatives:
            text = f"{each.title} {each.text}".strip()
            identifier, inside = known.document(text, each.doc_id)
            rows.add(own, identifier, text, None, line, inside=inside)
    complaints.settle()
    return rows.negatives("pairs", Path(str(where)), collection)
