"""Reading a source of negatives: our Parquet, the forms that training tools have, tables of pairs, or a TREC run."""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from foils.data.collection import Collection
from foils.data.hub_sources import fetched_source
from foils.data.lines import Complaints, json_objects, magic, numbered_lines, text_field
from foils.data.negatives import Negatives, negatives_table
from foils.data.pair_columns import NAMES, SOURCE_NAMES, check_chosen, parsed_columns, plain
from foils.data.pairs import pair_negatives
from foils.data.run import Run, ranks_within
from foils.data.source_forms import holds_training
from foils.data.source_records import add_records, is_folder_of_tables, read_lines, read_pylate, read_tevatron
from foils.data.source_rows import SourceRows, imported, without_own
from foils.data.store import file_digest
from foils.data.tables import DELIMITERS, ENDINGS, Records, arrow_table, parts_of, records_of_file
from foils.runtime.errors import FormatError, InputError

FORMS = (
    "a source is a Parquet table of negatives; JSONL with query_id, query, positive_passages, negative_passages; "
    "JSONL with query (or anchor, question), positive (or pos), and negative, negative_1, negative_2, … or neg; JSONL "
    "with anchor, document and label, or documents and labels; CSV, TSV, Parquet or a JSON list with columns query, "
    "positive and negative; or a TREC run"
)
COLUMNS = re.compile(
    rf"((?:[^=]*=)?hf:[^=]*|.*(?:{'|'.join(map(re.escape, ENDINGS))})(?:\.gz)?):(\w+=.*)", re.IGNORECASE | re.DOTALL
)


@dataclass(frozen=True)
class NamedSource:
    """A source of negatives and what to call it."""

    name: str
    negatives: Negatives
    digest: str


def split_columns(spec: str) -> tuple[str, dict[str, str]]:
    """Split `PATH:query=COLUMN,negative=COLUMN` of a table of pairs: what a column is -> its name, where it is said.

    Raises:
        InputError: the columns are not of this form.
    """
    match = COLUMNS.fullmatch(spec)
    spec, columns = (match[1], parsed_columns(match[2])) if match else (spec, {})
    if unknown := [role for role in columns if role not in SOURCE_NAMES]:
        raise InputError(f"{spec}: {', '.join(unknown)}: a source's column is one of {', '.join(SOURCE_NAMES)}")
    return spec, columns


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
    """Read several sources, each `[NAME=]PATH[:COLUMNS]`.

    Raises:
        InputError: a file is missing, or two sources have one name (give them names).
        FormatError: what is wrong in a file, with lines.
    """
    names = [split_name(split_columns(spec)[0])[0] for spec in specs]
    if repeated := sorted({name for name in names if names.count(name) > 1}):
        raise InputError(f"several sources are called {', '.join(repeated)}; name them apart, as in NAME=PATH")
    return [read_source(spec, collection) for spec in specs]


def read_source(spec: str, collection: Collection) -> NamedSource:
    """Read one source, `[NAME=]PATH`, in whatever form the file has, or `[NAME=]PATH:query=COLUMN,negative=COLUMN`.

    The last is a table of pairs with columns of other names (see `foils.data.pair_columns.NAMES`).

    In a TREC run the documents that are labelled relevant in the collection are left out: its non-positives are the
    negatives. In every other form a document that is a positive of the query, or has the text of one, is rejected,
    with a warning that has its line; in every form one that has the query's own id (`Collection.identical`). In JSONL
    a passage that is not a document of the collection brings its own text.

    Raises:
        InputError: no such file, or `hf:NAME` that cannot be fetched.
        MissingExtraError: pairs of `hf:NAME` without the extra `hub`.
        FormatError: what is wrong in the file, ids that the collection does not know among it, with lines.
    """
    spec, columns = split_columns(spec)
    name, path = split_name(spec)
    fetched = fetched_source(path)
    if columns or not isinstance(fetched, Path):
        records = records_of_file(fetched) if isinstance(fetched, Path) else fetched
        negatives = negatives_of_pairs(records, name, collection, columns)
    else:
        form = _form(fetched, collection)
        negatives = Negatives.read(fetched) if form is None else form(fetched, name, collection)
    try:
        negatives = without_own(negatives, collection, path)
    except InputError as error:
        raise FormatError(str(error), path) from error
    of_file = isinstance(fetched, Path) and not fetched.is_dir()
    return NamedSource(name, negatives, file_digest(str(fetched)) if of_file else negatives.digest)


def _form(path: Path, collection: Collection) -> Callable[[Path, str, Collection], Negatives] | None:
    if is_folder_of_tables(path):
        return read_pylate
    if magic(path, 4) == b"PAR1":
        columns = records_of_file(path).columns
        return None if is_of_negatives(columns, columns_as_in(collection, columns)) else _read_pair_table
    if path.name.lower().removesuffix(".gz").endswith(tuple(DELIMITERS)):
        return _read_pair_table
    complaints = Complaints(path)
    line, first = next(numbered_lines(path, complaints), (0, ""))
    complaints.settle()
    if not line:
        raise FormatError(f"the file is empty; {FORMS}", path)
    if first.lstrip().startswith("{"):
        if '"negative_passages"' in first or '"positive_passages"' in first:
            return read_tevatron
        _, record = next(json_objects(path, complaints), (0, {}))
        return _read_pair_table if columns_as_in(collection, record) else read_lines
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


def columns_as_in(collection: Collection, columns: Iterable[str]) -> dict[str, str]:
    """Return how the columns of the collection's pairs were named, if all of these are among `columns`; or nothing."""
    named = {role: name for role, name in collection.columns.items() if name}
    return named if {*named.values()} <= {*columns} else {}


def is_of_negatives(columns: Iterable[str], named: Container[str] = ()) -> bool:
    """Tell whether a table is one of negatives, or means to be, and not of pairs.

    Args:
        columns: their names.
        named: what of a table of pairs some are said to be.
    """
    names = {plain(name) for name in columns}
    return (
        {"query_id", "doc_id"} <= names
        or bool({"source", "rank"} & names)
        or not ("query" in named or names & {*NAMES["query"]} or holds_training(names))
    )


def _read_pair_table(path: Path, name: str, collection: Collection) -> Negatives:
    return negatives_of_pairs(records_of_file(path), name, collection)


def negatives_in_memory(given: Any, name: str, collection: Collection) -> Negatives:
    """Return the negatives of a table in memory, or of the splits of a dictionary of tables, one after the other.

    Args:
        given: a table of negatives, or of pairs with negatives; of several, all of the same columns.
        name: of the source, where the table does not say one.
        collection: that they belong to.

    Raises:
        InputError: no table, splits that have other columns than the first, or what is wrong in one.
    """
    parts = parts_of(given)
    first, *others = parts.values()
    for each in others:
        if set(each.columns) != set(first.columns):
            raise InputError(
                f"{each.where} has the columns {', '.join(each.columns)}, {first.where} {', '.join(first.columns)}; "
                "splits that are one source have the same columns. Give one of them alone, or each as a source"
            )
    if not is_of_negatives(first.columns, columns_as_in(collection, first.columns)):
        return negatives_of_pairs(parts, name, collection)
    if not isinstance(given, Mapping):
        return Negatives(arrow_table(given))
    return Negatives(pa.concat_tables(map(_checked_split, given, given.values()), promote_options="default"))


def _checked_split(split: str, given: Any) -> pa.Table:
    try:
        return Negatives(arrow_table(given)).table
    except InputError as error:
        raise InputError(f"{type(given).__name__} ({split}): {error}") from error


def negatives_of_pairs(
    given: Records | Mapping[str, Records], name: str, collection: Collection, columns: Mapping[str, str] | None = None
) -> Negatives:
    """Return the negatives that a table of pairs names beside its positives (see `foils.data.pairs.read_pairs`).

    Args:
        given: the table, or several by split.
        name: of the source.
        collection: whose queries and documents they are, by their ids, or else by their texts; another document
            brings its own text.
        columns: what a column is -> its name. Default: as of the collection's pairs, if all of these columns are there.

    Raises:
        InputError: a column that there is not.
        FormatError: what is wrong in it, queries that the collection does not know among it.
    """
    parts = list(given.values()) if isinstance(given, Mapping) else [given]
    columns = columns or columns_as_in(collection, parts[0].columns)
    rows, training = SourceRows(name, collection, parts[0].where), holds_training(parts[0].columns)
    for records in parts:
        rows.where = records.where
        if training:
            check_chosen(columns, records.columns, records.where)
            add_records(rows, records, {column: role for role, column in columns.items()})
        else:
            _add_pairs(rows, records, columns)
    return rows.negatives("tuples" if training else "pairs", parts[0].files[0] if parts[0].files else Path("table"))


def _add_pairs(rows: SourceRows, records: Records, columns: Mapping[str, str]) -> None:
    complaints = Complaints(records.where)
    queries = set(rows.collection.queries["query_id"].to_pylist())
    for line, query_id, query, negatives in pair_negatives(records, columns):
        own = query_id if query_id in queries else rows.known_texts.query(query)
        if own is None:
            complaints.add(rows.unknown(query), line)
            continue
        for each in negatives:
            text = f"{each.title} {each.text}".strip()
            identifier, inside = rows.known_texts.document(text, each.doc_id)
            rows.add(own, identifier, text, None, line, inside=inside)
    complaints.settle()
