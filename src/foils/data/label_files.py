"""Files of labels: what people write into spreadsheets, and what programs write for them."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

import pyarrow as pa

from foils.data.lines import Complaints, text_field
from foils.data.pair_columns import NAMES, plain
from foils.data.store import Provenance, write_table, write_whole
from foils.data.tables import DELIMITERS, Fields, Records, records_of_file
from foils.runtime.errors import FormatError, InputError

LABELS = pa.schema(
    [
        ("query_id", pa.string()),
        ("doc_id", pa.string()),
        ("text", pa.large_string()),
        ("relevant", pa.int8()),
        ("judge", pa.string()),
        ("probability", pa.float64()),
        ("sources", pa.string()),
    ]
)
PERSON = "person"
"""Name of a judge that has none."""
ENDINGS = (".tsv", ".csv", ".jsonl", ".parquet")
_ANSWERS = {"1": 1, "yes": 1, "y": 1, "true": 1, "0": 0, "no": 0, "n": 0, "false": 0, "": None, "skip": None, "s": None}
_COLUMNS = {
    **{each: (each,) for each in LABELS.names},
    "query_id": NAMES["query_id"],
    "doc_id": NAMES["doc_id"],
    "relevant": ("relevant", "relevance", "label"),
}
_FORMULA = re.compile(r"'*[=+\-@\t]")  # what a spreadsheet takes for a formula, or for one that is quoted already
_NUMBER = re.compile(r"[-+]?[\d.,]+(?:[eE][-+]?\d+)?")


def read_labels(path: str | Path) -> tuple[pa.Table, list[int]]:
    """Return the rows of a file of labels as a table (`LABELS`), and the line of each.

    Rows of empty cells are passed over.

    Raises:
        InputError: no such file.
        FormatError: what is wrong in it, by line: other answers, probabilities out of range, rows without a query or a
            document, one judge's answers to a pair that contradict each other.
    """
    path = Path(path)
    records = records_of_file(path)
    columns = _columns(records)
    complaints, rows, lines = Complaints(path), [], []
    seen: dict[tuple[Any, ...], int] = {}
    quoted = _ending(path) in DELIMITERS
    for line, fields in records.read(complaints):
        if all(value in (None, "") for value in fields.values()):
            continue
        row = _row(fields, columns, complaints, line, quoted=quoted)
        if row is not None:
            _check_against(seen, row, complaints, line)
            rows.append(row)
            lines.append(line)
    complaints.settle()
    return pa.Table.from_pylist(rows, LABELS), lines


def write_labels(path: str | Path, table: pa.Table, provenance: Provenance) -> None:
    """Write a table of labels, whole, in the form that the name's ending says.

    In CSV and TSV a text that a spreadsheet would take for a formula gets a ' before it, which `read_labels`
    takes away.

    Raises:
        InputError: another ending.
        FailureError: the file cannot be written.
    """
    path = Path(path)
    check_ending(path)
    ending = path.suffix.lower()
    if ending == ".parquet":
        write_table(path, table, provenance)
        return
    encoding = "utf-8-sig" if ending == ".csv" else "utf-8"  # Excel knows UTF-8 by its mark alone
    with write_whole(path) as aside, aside.open("w", encoding=encoding, newline="") as opened:
        _write_lines(opened, table, DELIMITERS.get(ending))


def check_ending(path: str | Path) -> None:
    """Raise an InputError where no labels can be written under this name."""
    if Path(path).suffix.lower() not in ENDINGS:
        raise InputError(f"{path}: labels are written as {', '.join(ENDINGS)}; name the file so")


def _ending(path: Path) -> str:
    return Path(path.name.lower().removesuffix(".gz")).suffix


def _columns(records: Records) -> dict[str, str]:
    """The columns of labels in a table: what each is -> its name there."""
    named = {plain(name): name for name in reversed(records.columns)}
    columns = {what: next((named[name] for name in names if name in named), "") for what, names in _COLUMNS.items()}
    missing = [name for name in ("query_id", "relevant") if not columns[name]]
    if not (columns["doc_id"] or columns["text"]):
        missing.append("doc_id (or text)")
    if missing:
        raise FormatError(
            f"no column {', '.join(missing)}; labels have query_id, doc_id (or text), relevant, and may have judge and "
            "probability",
            records.where,
            1,
        )
    return {what: name for what, name in columns.items() if name}


def _row(
    fields: Fields, columns: Mapping[str, str], complaints: Complaints, line: int, *, quoted: bool
) -> dict[str, Any] | None:
    """A record as a row of labels; None where it is none."""
    row: dict[str, Any] = {}
    for what, name in columns.items():
        value = fields.get(name)
        if what in ("relevant", "probability"):
            row[what] = value
            continue
        text = text_field(value)
        row[what] = (_without_quote(text) if quoted else text) if text else None
    if not row["query_id"] or not (row.get("doc_id") or row.get("text")):
        complaints.add("a label needs a query_id, and a doc_id or a text", line)
        return None
    answer = _answer(row["relevant"])
    if answer not in _ANSWERS:
        complaints.add(f"relevant is {row['relevant']!r}; expected 1, 0, yes, no, true, false, or nothing", line)
        return None
    row["relevant"] = _ANSWERS[answer]
    if "probability" in row:
        row["probability"] = _probability(row["probability"], complaints, line)
    return row


def _answer(value: Any) -> str:
    """An answer as `_ANSWERS` has it."""
    if value is None or value != value:
        return ""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return str(value).strip().lower().removesuffix(".0")


def _probability(value: Any, complaints: Complaints, line: int) -> float | None:
    if value in (None, "") or value != value:
        return None
    try:
        number = float(value.strip().replace(",", ".") if isinstance(value, str) else value)
        if 0 < number <= 1:
            return number
    except (TypeError, ValueError):
        pass
    complaints.add(f"probability is {value!r}; expected a number above 0 and at most 1, or nothing", line)
    return None


def _check_against(seen: dict[tuple[Any, ...], int], row: Mapping[str, Any], complaints: Complaints, line: int) -> None:
    """Complain of a judge who said otherwise of the same pair before."""
    if row["relevant"] is None:
        return
    text = row.get("text")
    document = (" ".join(text.split()),) if text else row["doc_id"]
    judge = row.get("judge") or PERSON
    before = seen.setdefault((row["query_id"], document, judge), row["relevant"])
    if before != row["relevant"]:
        complaints.add(
            f"{judge} judged query {row['query_id']!r}, document {row.get('doc_id') or text!r} as {before} above, "
            f"and as {row['relevant']} here; keep one of the two",
            line,
        )


def _write_lines(opened: IO[str], table: pa.Table, delimiter: str | None) -> None:
    if delimiter is None:
        for row in table.to_pylist():
            opened.write(json.dumps(row, ensure_ascii=False) + "\n")
        return
    writer = csv.writer(opened, delimiter=delimiter, lineterminator="\n")
    writer.writerow(table.column_names)
    for row in table.to_pylist():
        writer.writerow(["" if value is None else _quoted(str(value)) for value in row.values()])


def _quoted(text: str) -> str:
    text = text.replace("\r\n", "\n").replace("\r", "\n")  # which a writer of CSV leaves bare
    return f"'{text}" if _FORMULA.match(text) and not _NUMBER.fullmatch(text) else text


def _without_quote(text: str) -> str:
    return text[1:] if text.startswith("'") and _FORMULA.match(text) else text
