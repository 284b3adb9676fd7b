"""Pairs for tests, as files and as tables in every form that is read."""

import csv
import gzip
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from foils.data import Collection

ROWS = [
    {"question": f"what is the {colour} {thing}?", "answer": f'the {thing} is {colour}, "quite" so'}
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


def pair_files(folder: Path, rows: list[dict[str, Any]]) -> list[Path]:
    """The rows as each kind of file, all called `pairs`."""
    write_csv(folder / "pairs.csv", rows)
    write_csv(folder / "pairs.tsv", rows, "\t")
    write_jsonl(folder / "pairs.jsonl", rows)
    (folder / "pairs.json").write_text(json.dumps(rows, indent=1))
    pq.write_table(pa.Table.from_pylist(rows), folder / "pairs.parquet")
    for name in ("pairs.csv", "pairs.jsonl"):
        with gzip.open(folder / f"{name}.gz", "wb") as file:
            file.write((folder / name).read_bytes())
    return sorted(folder.glob("pairs.*"))


TABLES = {
    "arrow": pa.Table.from_pylist,
    "pandas": lambda rows: pytest.importorskip("pandas").DataFrame(rows),
    "polars": lambda rows: pytest.importorskip("polars").DataFrame(rows),
    "datasets": lambda rows: pytest.importorskip("datasets").Dataset.from_list(rows),
    "a dictionary of one split": lambda rows: {"train": pa.Table.from_pylist(rows)},
}


def judged(collection: Collection) -> dict[str, list[tuple[str, str, int]]]:
    texts = dict(zip(*(collection.queries[name].to_pylist() for name in ("query_id", "text")), strict=True))
    answers = dict(zip(*(collection.documents[name].to_pylist() for name in ("doc_id", "text")), strict=True))
    return {
        split: [(texts[row["query_id"]], answers[row["doc_id"]], row["relevance"]) for row in table.to_pylist()]
        for split, table in collection.qrels.items()
    }
