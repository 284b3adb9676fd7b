"""Pairs for tests, as files and as tables in every form that is read."""

from __future__ import annotations

import csv
import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from foils.data import Collection

ROWS = [
    {"question": f"what is the {thing}?", "answer": f'the {thing} is {colour}, "quite" so'}
    for thing, colour in zip(
        ["boat", "harbour", "tide", "rope", "sail", "mast", "keel", "anchor", "deck", "oar"],
        ["red", "blue", "green", "white", "grey"] * 2,
        strict=True,
    )
]


def write_csv(path: Path, rows: list[dict[str, Any]], delimiter: str = ",", **how: Any) -> Path:
    with path.open("w", newline="", encoding="utf-8", **how) as file:
        writer = csv.DictWriter(file, list(rows[0]), delimiter=delimiter)
        writer.writeheader()
        writer.writerows(rows)
    return path


def write_jsonl(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows), "utf-8")
    return path


def forms(folder: Path, rows: list[dict[str, Any]]) -> Iterator[Any]:
    """The rows as each kind of file, and as each kind of table."""
    yield write_csv(folder / "pairs.csv", rows)
    yield write_csv(folder / "pairs.tsv", rows, "\t")
    yield write_jsonl(folder / "pairs.jsonl", rows)
    (folder / "pairs.json").write_text(json.dumps(rows, indent=1))
    yield folder / "pairs.json"
    pq.write_table(pa.Table.from_pylist(rows), folder / "pairs.parquet")
    yield folder / "pairs.parquet"
    with gzip.open(folder / "pairs.csv.gz", "wb") as file:
        file.write((folder / "pairs.csv").read_bytes())
    yield folder / "pairs.csv.gz"
    yield pa.Table.from_pylist(rows)
    yield pytest.importorskip("pandas").DataFrame(rows)
    yield pytest.importorskip("datasets").Dataset.from_list(rows)


def judged(collection: Collection) -> dict[str, list[tuple[str, str, int]]]:
    texts = dict(zip(*(collection.queries[name].to_pylist() for name in ("query_id", "text")), strict=True))
    answers = dict(zip(*(collection.documents[name].to_pylist() for name in ("doc_id", "text")), strict=True))
    return {
        split: [(texts[row["query_id"]], answers[row["doc_id"]], row["relevance"]) for row in table.to_pylist()]
        for split, table in collection.qrels.items()
    }
