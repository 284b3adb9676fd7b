"""Files of labels: what people write into spreadsheets, and what programs write for them."""

from __future__ import annotations

import csv
import hashlib
import json
import logging
import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from foils.data.collection import QRELS, TRAIN, Collection, pair_keys, rows_of
from foils.data.pairs import READ_AS, ROLES, Columns, Names
from foils.data.records import DELIMITERS, Complaints, records_of, text_field
from foils.data.tables import Provenance, column_or_nulls, with_types, write_table
from foils.runtime.errors import UnknownNameError
from foils.runtime.files import LABEL_FILES, check_output, write_whole

LABEL_COLUMNS = pa.schema(
    {
        "query_id": pa.string(),
        "doc_id": pa.string(),
        "text": pa.large_string(),
        "relevant": pa.int8(),
        "judge": pa.string(),
        "probability": pa.float64(),
        "sources": pa.string(),
    }
)


PERSON = "person"  # name of a judge that has none
SKIPPED = -1  # in the place of an answer, while a file is read
_ANSWERS = {
    **dict.fromkeys(("1", "yes", "y", "true", "x"), 1),
    **dict.fromkeys(("0", "no", "n", "false"), 0),
    **dict.fromkeys(("skip", "s"), SKIPPED),
}


# what a column of a table of labels can be, and its usual names
OF_LABELS: Names = {
    **{each: ROLES.get(each, (each,)) for each in LABEL_COLUMNS.names},
    "relevant": ("relevant", "relevance", "label", "answer"),
}
NEEDED = (("query_id",), ("doc_id",), ("relevant",))  # what such a table has to have
# how a cell begins that a spreadsheet takes for a formula
_FORMULA = r"\s*[=+\-@＝＋－＠]|[\t\r\n]"
# an id that a spreadsheet rewrites, as 007 to 7, 1-2 and MAR1 to dates, 1e5 to 100000
_REWRITTEN = (
    r"(?:0\d+|\d{16,}|\d+(?=.*[^\d\s]).*|true|false|(?:jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)\S*\d+)$"
)
_QUOTED = re.compile(rf"'+(?:{_FORMULA}|{_REWRITTEN})", re.IGNORECASE)


def _answer(value: Any) -> int | None:
    """1, 0, or −1 where the pair was skipped; None: it is no answer."""
    return _ANSWERS.get(str(value).strip().lower().removesuffix(".0").removesuffix(",0"))


def _probability(value: Any) -> float | None:
    try:
        number = float(value.strip().replace(",", ".") if isinstance(value, str) else value)
    except (TypeError, ValueError):
        return None
    return number if 0 < number <= 1 else None


READ_LABELS_AS = {
    **READ_AS,
    "relevant": (_answer, "1, 0, yes, no, y, n, x, true, false, or nothing"),
    "probability": (_probability, "a number above 0 and at most 1, or nothing"),
    **dict.fromkeys(("text", "judge", "sources"), (text_field, "a text")),
}


def cell_of(text: str, *, identifier: bool = False) -> str:
    """Return a text as a cell of CSV that a spreadsheet shows as it is: with a ' before a formula.

    Args:
        text: of the cell.
        identifier: whether it is an id, which gets a ' as well where a spreadsheet would rewrite
            it, as 007 to 7.
    """
    text = text.replace("\r\n", "\n").replace("\r", "\n")  # which a writer of CSV leaves bare
    risky = rf"{_FORMULA}|{_REWRITTEN}" if identifier else _FORMULA
    return f"'{text}" if re.match(risky, text, re.IGNORECASE) or _QUOTED.match(text) else text


def text_of(cell: str) -> str:
    """Return the text that `cell_of` made a cell of."""
    return cell[1:] if _QUOTED.match(cell) else cell


Floats = npt.NDArray[np.float64]


BETWEEN = "|"  # the names of sources


# in `sources`: pairs that a program judged only to show how often it errs
CHECKS = ("labelled positives", "random documents")


@dataclass(frozen=True)
class Labels:
    """Judgements of (query, document) pairs, a row for each pair and judge.

    Attributes:
        table: `query_id`; `doc_id`; `text` of a document that is not in the collection, null
            elsewhere; `relevant`, 1 or 0, null where it is not judged; `judge`, who judged, null
            where nobody did; `probability` in (0, 1] with which the pair was drawn, null where it
            was not; `sources` from which it was drawn, their names joined by `|`. Columns that are
            missing are added. The name of a program that judges has a colon in it, as `llm:NAME`;
            other names are people's.
        provenance: what made it.

    Raises:
        InputError: columns of other types, rows without a query or a document, values out of range, or two
            judgements of one pair by one judge that contradict each other.
    """

    table: pa.Table
    provenance: Provenance = field(default_factory=dict)

    def __post_init__(self) -> None:
        columns = {each.name: column_or_nulls(self.table, each.name, each.type) for each in LABEL_COLUMNS}
        table = with_types(pa.table(columns), dict(zip(LABEL_COLUMNS.names, LABEL_COLUMNS.types, strict=True)))
        named = pc.if_else(pc.is_valid(table["relevant"]), pc.fill_null(table["judge"], PERSON), table["judge"])
        table = table.set_column(LABEL_COLUMNS.names.index("judge"), "judge", named)
        object.__setattr__(self, "table", table.take(pa.array(_check(table, "labels"))))

    def __len__(self) -> int:
        return int(self.table.num_rows)

    @classmethod
    def of(cls, labels: LabelsLike, collection: Collection | None = None, *, written: Sequence[str] = ()) -> Labels:
        """Return labels as they are, or those of a file, a DataFrame or an Arrow table.

        Files are TSV, CSV (divided by commas, semicolons or tabs), JSON, JSONL or Parquet. Columns
        come in any order, others are passed over. `relevant`, or `answer`, is 1, 0, yes, no, y, n,
        x (yes), true or false; empty or skip: not judged. Rows of empty cells are passed over.

        Args:
            labels: labels, the path of a file, or a table.
            collection: whose ids they name; None: the ids are not looked at.
            written: ids of further documents, that a language model wrote.

        Raises:
            InputError: no such file, or no table.
            FormatError: what is wrong in it, by line: other answers, probabilities out of range,
                rows without a query or a document, ids that the collection does not know, one
                judge's answers to a pair that contradict each other.
        """
        if isinstance(labels, Labels):
            _check(labels.table, "labels", collection)
            return labels
        records = records_of(labels)
        columns, complaints = Columns.of(records, {}, OF_LABELS, NEEDED), Complaints(records.where)
        quoted = records.where.lower().removesuffix(".gz").endswith(tuple(DELIMITERS))
        rows, lines = list[dict[str, Any]](), list[int]()
        for line, fields in records.read(complaints):
            with complaints.at(line):
                values = {role: columns.values(fields, role, READ_LABELS_AS) for role in LABEL_COLUMNS.names}
                row = {role: listed[0] for role, listed in values.items() if listed}
                answer = None if row.get("relevant") == SKIPPED else row.get("relevant")
                judge = row.get("judge") or (None if answer is None else PERSON)
                texts = {role: text_of(text) for role, text in row.items() if quoted and isinstance(text, str)}
                if row:
                    rows.append({**row, **texts, "relevant": answer, "judge": judge})
                    lines.append(line)
        complaints.raise_if_any()
        table = pa.Table.from_pylist(rows, LABEL_COLUMNS)
        _check(table, records.where, collection, lines, written)
        return cls(table)

    def write(self, path: str | Path) -> None:
        """Write the labels, whole, in the form that the name's ending says: .tsv, .csv, .jsonl or .parquet.

        In CSV and TSV a text that a spreadsheet would take for a formula gets a ' before it, which
        `read` takes away.

        Args:
            path: of the file.

        Raises:
            InputError: another ending.
            FailureError: the file cannot be written.
        """
        check_output(path, LABEL_FILES)
        ending = Path(path).suffix.lower()
        if ending == ".parquet":
            write_table(path, self.table, self.provenance)
            return
        encoding = "utf-8-sig" if ending == ".csv" else "utf-8"  # Excel knows UTF-8 by its mark alone
        with write_whole(path) as aside, aside.open("w", encoding=encoding, newline="") as opened:
            rows = self.table.to_pylist()
            if ending == ".jsonl":
                opened.writelines(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
                return
            writer = csv.writer(opened, delimiter=DELIMITERS[ending], lineterminator="\n")
            writer.writerow(self.table.column_names)
            writer.writerows(["" if value is None else cell_of(str(value)) for value in row.values()] for row in rows)

    def programs(self) -> list[str]:
        """Return the names of the programs that judged, in the order in which they come."""
        return [name for name in self.table["judge"].unique().to_pylist() if is_program(name)]

    def checks(self, judge: str) -> tuple[tuple[int, int], tuple[int, int]]:
        """Return how often a program was right where the truth is known.

        Returns:
            How many answers were right, and of how many: of labelled positives, which it should
            call relevant, and of documents drawn at random, which it should not. The rows of both
            are those whose `sources` say so.
        """
        mine = self.table.filter(pc.and_(pc.equal(self.table["judge"], judge), pc.is_valid(self.table["relevant"])))
        positives, others = (mine.filter(pc.equal(mine["sources"], kind))["relevant"].to_pylist() for kind in CHECKS)
        return (positives.count(1), len(positives)), (others.count(0), len(others))

    def match(self, pairs: pa.Table, *, judge: str | None = None) -> tuple[Floats, Floats]:
        """Return what is known of other pairs: (n,) 1, 0 or NaN, and (n,) the probability of being drawn and judged.

        Where several people judged a pair the majority counts, and a tie is no judgement. The
        probability is that of being drawn times the share of the drawn pairs that were judged; NaN
        for pairs that are not judged, or were not drawn.

        Args:
            pairs: `query_id, doc_id`.
            judge: whose judgements count; None: people's.
        """
        judges = self.table["judge"].to_pylist()
        counted = [not is_program(name) if judge is None else name == judge for name in judges]
        # what is known of a pair is in its first row
        first, balance = _balance(self.table, np.array(counted, bool))
        relevant = np.select([balance > 0, balance < 0], [1.0, 0.0], np.nan)
        probabilities = self.table["probability"].fill_null(np.nan).to_numpy()
        has_one = np.isfinite(probabilities)
        drawn = np.full(len(self), np.nan)
        drawn[first[has_one]] = probabilities[has_one]
        judged = np.isfinite(relevant) & np.isfinite(drawn)
        probability = np.where(judged, drawn * judged.sum() / max(int(np.isfinite(drawn).sum()), 1), np.nan)
        rows = rows_of(pair_keys(pairs), pair_keys(self.table))
        place = np.where(rows >= 0, np.append(first, -1)[rows], -1)
        return np.append(relevant, np.nan)[place], np.append(probability, np.nan)[place]


LabelsLike = str | Path | Labels | Any  # a file of labels, labels, a DataFrame or an Arrow table


def is_program(judge: str | None) -> bool:
    """Tell whether a judge's name is a program's: it has a colon."""
    return judge is not None and ":" in judge


def _check(
    table: pa.Table,
    where: str,
    collection: Collection | None = None,
    lines: Sequence[int] = (),
    written: Sequence[str] = (),
) -> npt.NDArray[np.int64]:
    """Return the rows to keep, one of each pair and judge.

    A row in which a judge skipped the pair gives way to one in which it answered.

    Raises:
        FormatError: values out of range, unknown ids, and contradictions, by line where lines are given.
    """
    complaints, line_of, unknown = Complaints(where), dict(enumerate(lines)), dict[str, npt.NDArray[np.bool_]]()
    if collection is not None:
        outside = pc.or_(table["text"].is_valid(), pc.is_in(table["doc_id"], pa.array(written, pa.string())))
        unknown["query_id"] = collection.query_rows(table["query_id"]) < 0
        unknown["doc_id"] = (collection.document_rows(table["doc_id"]) < 0) & ~outside.to_numpy()
    rows, first = table.to_pylist(), dict[tuple[str | None, ...], int]()
    for row, each in enumerate(rows):
        key = each["query_id"], each["doc_id"], each["judge"]
        before = rows[first.setdefault(key, row)]
        unknown_ids = [f"{name} {each[name]!r}" for name, is_unknown in unknown.items() if is_unknown[row]]
        answers, probability = {before["relevant"], each["relevant"]} - {None}, each["probability"]
        if before["relevant"] is None:
            first[key] = row
        if each["query_id"] is None or each["doc_id"] is None:
            complaints.add("a label needs a query_id and a doc_id", line_of.get(row))
        elif not answers <= {0, 1} or not (probability is None or 0 < probability <= 1):
            problem = "relevant is 0, 1 or empty, and a probability of being drawn is in (0, 1] or empty"
            complaints.add(problem, line_of.get(row))
        elif len(answers) > 1:
            problem = f"{each['judge']} judged query {each['query_id']!r}, document {each['doc_id']!r} as"
            problem += f" {before['relevant']} above, and as {each['relevant']} here; keep one of the two"
            complaints.add(problem, line_of.get(row))
        elif unknown_ids:
            problem = f"unknown {' and '.join(unknown_ids)} (a spreadsheet may have changed it, as 007 to 7)"
            complaints.add(problem, line_of.get(row))
    complaints.raise_if_any()
    return np.sort(np.array(list(first.values()), np.int64))


log = logging.getLogger(__name__)


def with_judgements(collection: Collection, labels: Sequence[LabelsLike]) -> Collection:
    """Return the collection with every pair that labels call relevant as a positive of the split `train`.

    People's answers count before those of programs, and a majority before a minority. Pairs that
    are judged relevant already, documents that are not in the collection, and queries that another
    split judges are left as they are: what measures is never changed. The collection's name says
    how many judgements it gained, and its digest is another one.

    Args:
        collection: to be judged.
        labels: labels, as `foils.relabel` or `foils.label` writes them.

    Raises:
        InputError: these are no labels, or name ids that the collection does not know.
        FormatError: the same of a file, by line.
        UnknownNameError: the collection judges other splits alone.
    """
    if collection.qrels and TRAIN not in collection.qrels:
        raise UnknownNameError(f"split of the collection {collection.name}", TRAIN, collection.splits)
    table = pa.concat_tables([Labels.of(each, collection).table for each in labels])
    table = table.filter(table["text"].is_null())  # of documents in the collection
    program = np.array([is_program(judge) for judge in table["judge"].to_pylist()], bool)
    people, programs = (_balance(table, counted)[1] for counted in (~program, program))
    pairs = table.filter(pa.array(np.where(people != 0, people, programs) > 0)).select(["query_id", "doc_id"])
    queries, documents = collection.query_rows(pairs["query_id"]), collection.document_rows(pairs["doc_id"])
    elsewhere = [collection.query_rows(table["query_id"]) for name, table in collection.qrels.items() if name != TRAIN]
    measured = np.isin(queries, np.concatenate([np.zeros(0, np.int64), *elsewhere]))
    known = collection.known_positives.contain(queries, documents)
    new = pairs.filter(pa.array((documents >= 0) & ~known & ~measured))
    if measured.any():
        log.warning("%d pairs of queries that other splits judge are not added to %s", int(measured.sum()), TRAIN)
    if not len(new):
        return collection
    of_train = collection.qrels.get(TRAIN, QRELS.empty_table())
    judged = pa.concat_tables([of_train, new.append_column("relevance", pa.repeat(1, len(new))).cast(of_train.schema)])
    columns = ("\0".join(new[column].to_pylist()) for column in ("query_id", "doc_id"))
    digest = hashlib.sha256("".join([collection.digest, *columns]).encode())
    name = f"{collection.name} and {len(new):,} judgements more"
    return replace(collection, name=name, qrels={**collection.qrels, TRAIN: judged}, digest=digest.hexdigest())


def _balance(table: pa.Table, counted: npt.NDArray[np.bool_]) -> tuple[npt.NDArray[np.int64], Floats]:
    """(n,) the first row of each row's pair, and (n,) how many more of the counted answers to it are 1 than 0."""
    keys, relevant = pair_keys(table), table["relevant"]
    first = rows_of(keys, keys)
    votes = np.where(counted & relevant.is_valid().to_numpy(), 2.0 * relevant.fill_null(0).to_numpy() - 1, 0.0)
    return first, np.bincount(first, votes, len(table)).astype(np.float64)
