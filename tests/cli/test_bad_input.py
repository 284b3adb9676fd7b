"""Bad input: one line on stderr that says where and what to do, status 2, no traceback, nothing written."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fakes import HashingEncoder

pytestmark = pytest.mark.usefixtures("loaded")
Spoil = Callable[[Path], None]

GOOD = {"query_id": "q1", "doc_id": "d2", "source": "s", "rank": 0, "score": 1.0}


def append(name: str, line: str) -> Spoil:
    def spoil(folder: Path) -> None:
        with (folder / name).open("a", encoding="utf-8") as out:
            out.write(line + "\n")

    return spoil


def remove(name: str) -> Spoil:
    return lambda folder: (folder / name).unlink()


def without_judgements(folder: Path) -> None:
    for path in (folder / "qrels").iterdir():
        path.unlink()


COLLECTIONS: dict[str, tuple[Spoil, list[str]]] = {
    "no corpus": (remove("corpus.jsonl"), ["no corpus.jsonl", "BEIR folder"]),
    "no queries": (remove("queries.jsonl"), ["no queries.jsonl"]),
    "no judgements": (without_judgements, ["no qrels/*.tsv"]),
    "malformed JSON": (
        append("corpus.jsonl", '{"_id": "x", '),
        ["corpus.jsonl:11: malformed JSON", "must be one JSON object"],
    ),
    "not an object": (append("queries.jsonl", "[1, 2]"), ["queries.jsonl:6: expected a JSON object, found list"]),
    "no id": (append("corpus.jsonl", '{"text": "x"}'), ["corpus.jsonl:11: ", '"_id"']),
    "no text": (append("queries.jsonl", '{"_id": "x"}'), ["queries.jsonl:6: ", '"text"']),
    "empty text": (
        append("corpus.jsonl", '{"_id": "x", "title": " ", "text": ""}'),
        ["corpus.jsonl:11: 'x' has an empty text"],
    ),
    "empty query": (append("queries.jsonl", '{"_id": "x", "text": "  "}'), ["queries.jsonl:6: 'x' has an empty text"]),
    "duplicate document": (
        append("corpus.jsonl", '{"_id": "d2", "text": "x"}'),
        ["corpus.jsonl:11: duplicate id 'd2'", "line 2"],
    ),
    "duplicate query": (
        append("queries.jsonl", '{"_id": "q3", "text": "x"}'),
        ["queries.jsonl:6: duplicate id 'q3'", "line 3"],
    ),
    "unknown query": (append("qrels/train.tsv", "x\td1\t1"), ["train.tsv:7: unknown query_id 'x'"]),
    "unknown document": (append("qrels/train.tsv", "q1\tx\t1"), ["train.tsv:7: unknown doc_id 'x'"]),
    "missing column": (
        append("qrels/train.tsv", "q1\td1"),
        ["train.tsv:7: expected query-id<TAB>corpus-id<TAB>score"],
    ),
    "grade": (append("qrels/train.tsv", "q1\td9\thigh"), ["train.tsv:7: ", "whole number"]),
    "judged twice": (append("qrels/train.tsv", "q1\td1\t1"), ["train.tsv:7: the pair is judged twice"]),
}


def check_one_line(ended: Any, expected: list[str], *, warnings: int = 0) -> None:
    assert ended.status == 2
    assert ended.out == ""
    assert ended.err.splitlines()[warnings].startswith("foils: error: ")
    assert ended.err.count("\n") == 1 + warnings
    assert "Traceback" not in ended.err
    for text in expected:
        assert text in ended.err


@pytest.mark.parametrize(("spoil", "expected"), list(COLLECTIONS.values()), ids=list(COLLECTIONS))
def test_collections(foils, beir_folder, tmp_path, spoil, expected):
    folder = beir_folder()
    spoil(folder)
    out = tmp_path / "out.parquet"
    check_one_line(foils("mine", folder, "-o", out), expected)
    assert not out.exists()
    assert not list(tmp_path.glob(".*"))


def test_several_faults_of_a_file_are_told_together(foils, beir_folder, tmp_path):
    folder = beir_folder()
    append("corpus.jsonl", "{\n{}\n" + json.dumps({"_id": "", "text": "x"}))(folder)
    ended = foils("mine", folder, "-o", tmp_path / "x")
    assert ended.status == 2
    for line in (11, 12, 13):
        assert f"corpus.jsonl:{line}: " in ended.err


@pytest.mark.parametrize(
    ("arguments", "option"),
    [
        (["mine", "FOLDER", "-o", "OUT"], "--split"),
        (["train", "FOLDER", "--model", "static:all-MiniLM-L6-v2", "-o", "OUT"], "--split"),
        (["search", "FOLDER", "--dimensions", "eclipse", "--tune", "train", "--run", "OUT"], "--tune"),
    ],
)
def test_a_collection_of_test_judgements_alone(foils, beir_folder, tmp_path, arguments, option):
    folder = beir_folder(qrels={"test": {"q1": {"d1": 1}}})
    places = {"FOLDER": folder, "OUT": tmp_path / "out"}
    ended = foils(*(places.get(each, each) for each in arguments))
    check_one_line(
        ended, [f"unknown split of the collection small 'train'; expected one of: test. Give one with {option}"]
    )
    assert not (tmp_path / "out").exists()


def test_a_damaged_gzip_file(foils, beir_folder, tmp_path):
    folder = beir_folder(gz=True)
    path = folder / "corpus.jsonl.gz"
    path.write_bytes(path.read_bytes()[:-20])
    check_one_line(foils("mine", folder, "-o", tmp_path / "x"), ["corpus.jsonl.gz:", "damaged", "get the file again"])


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["nowhere"], ["nowhere: no such folder"]),
        (["FOLDER", "--split", "trian"], ["unknown split", "'trian'", "test, train", "Did you mean 'train'"]),
        (["FOLDER", "--with", "bm52"], ["unknown --with 'bm52'", "bm25", "Did you mean 'bm25'"]),
        (
            ["FOLDER", "--with", "dense", "--encoder-args", "precision=int4"],
            ["--encoder-args precision", "int4", "bfloat16"],
        ),
    ],
)
def test_mining(foils, beir_folder, tmp_path, arguments, expected):
    folder = beir_folder()
    given = [str(folder) if argument == "FOLDER" else argument for argument in arguments]
    check_one_line(foils("mine", *given, "-o", tmp_path / "out"), expected)
    assert not (tmp_path / "out").exists()


def table(*rows: dict[str, object], drop: str | None = None) -> pa.Table:
    made = pa.Table.from_pylist([{**GOOD, **row} for row in rows])
    return made.drop_columns([drop]) if drop else made


TABLES: list[tuple[str, pa.Table, list[str]]] = [
    ("missing column", table({}, drop="rank"), ["no column rank", "query_id, doc_id, source, rank, score"]),
    ("unknown document", table({"doc_id": "d 99"}), ["1 doc_ids are not in the collection", "'d 99'"]),
    ("unknown query", table({"query_id": "q99"}), ["1 query_ids are not in the collection", "'q99'"]),
    ("repeated pair", table({}, {"rank": 1}), ["occur more than once", "'q1', 'd2'"]),
    ("type", table({"rank": "first"}), ["column rank is string, expected int32"]),
    ("infinite score", table({"score": float("inf")}), ["of score are infinite"]),
    ("negative rank", table({"rank": -1}), ["negative ranks"]),
    ("no rows", table({}).slice(0, 0), ["no negative left", "s ("]),
    (
        "positives alone",
        table({"doc_id": "d1"}, {"doc_id": "d3"}),
        ["no negative left", "2 negatives (labelled positive)"],
    ),
    (
        "of another split",
        table({"query_id": "q4", "doc_id": "d5"}),
        ["no negative left", "1 negative (query without a positive in the split)"],
    ),
    ("all rejected", table({"keep": False, "reason": "too easy"}), ["no negative left", "1 negative (too easy)"]),
]


@pytest.mark.parametrize(("written", "expected"), [case[1:] for case in TABLES], ids=[case[0] for case in TABLES])
def test_tables_of_negatives(foils, beir_folder, tmp_path, written, expected):
    pq.write_table(written, tmp_path / "s.parquet")
    ended = foils("score", beir_folder(), tmp_path / "s.parquet", "--json", tmp_path / "s.json")
    check_one_line(ended, expected, warnings="labelled positive" in expected[-1])
    assert not (tmp_path / "s.json").exists()


FILES: list[tuple[str, str, list[str]]] = [
    ("malformed JSON", '{"query_id": "q1", "negative_passages": []}\n{"query_id": ', [":2: malformed JSON"]),
    ("unknown query", '{"query_id": "q9", "negative_passages": []}', [":1: unknown query_id 'q9'"]),
    ("unknown document", '{"query_id": "q1", "negative_passages": [{"docid": "x"}]}',
     [":1: the document 'x' is neither in the collection nor given with a text"]),
    ("no negatives", '{"query_id": "q1", "negative_passages": []}', ["no negative left"]),
    ("no passages", '{"query_id": "q1", "positive_passages": []}', [":1: expected query_id and a list"]),
    ("unknown text of a query", '{"query": "never asked", "positive": "x", "negative": "y"}',
     [":1: unknown query 'never asked'"]),
    ("no negative column", '{"query": "how does a boat tack", "positive": "x"}', [":1: expected query (or"]),
    ("short line of a run", "q1 Q0 d2 1 1.5 tag\nq1 Q0 d5 2", [":2: expected 6 fields", "found 4"]),
    ("score of a run", "q1 Q0 d2 1 high tag", [":1: the score 'high' is not a finite number"]),
    ("unknown document of a run", "q1 Q0 x 1 1.5 tag", ["doc_id", "'x'"]),
    ("empty file", "", ["the file is empty", "a source is"]),
    ("something else", "hello world", [":1: not a source of negatives"]),
]  # fmt: skip


@pytest.mark.parametrize(("text", "expected"), [case[1:] for case in FILES], ids=[case[0] for case in FILES])
def test_text_files_of_negatives(foils, beir_folder, tmp_path, text, expected):
    path = tmp_path / "negatives.txt"
    path.write_text(text)
    check_one_line(foils("score", beir_folder(), path), [*expected, "negatives"])


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["missing.parquet"], ["missing.parquet: no such file"]),
        (["."], ["is a folder, not a file"]),
        (["S", "S"], ["several sources are called s", "NAME=PATH"]),
        (["a+b=S"], ["'a+b'", "joins hybrids"]),
        (["random control=S"], ["'random control'"]),
        (["S", "--split", "dev"], ["unknown split", "'dev'", "test, train"]),
    ],
)
def test_scoring(foils, beir_folder, tmp_path, arguments, expected):
    pq.write_table(table({}), tmp_path / "s.parquet")
    given = [argument.replace("S", str(tmp_path / "s.parquet")) for argument in arguments]
    check_one_line(foils("score", beir_folder(), *given), expected)


def test_two_sources_that_are_both_wrong_are_told_together(foils, beir_folder, tmp_path):
    for name, document in (("a", "d1"), ("b", "d3")):
        pq.write_table(table({"doc_id": document}), tmp_path / f"{name}.parquet")
    ended = foils("score", beir_folder(), tmp_path / "a.parquet", tmp_path / "b.parquet")
    check_one_line(ended, ["a (1 negative (labelled positive)", "b (1 negative (labelled positive)"], warnings=2)


def test_a_damaged_table(foils, beir_folder, tmp_path):
    path = tmp_path / "s.parquet"
    pq.write_table(table({}), path)
    path.write_bytes(path.read_bytes()[:-30])
    check_one_line(foils("score", beir_folder(), path), ["s.parquet: not a readable Parquet file", "make it again"])


def test_an_encoder_that_is_not_there(foils, beir_folder, tmp_path, monkeypatch):
    monkeypatch.undo()
    pq.write_table(table({}), tmp_path / "s.parquet")
    for name in (tmp_path / "nowhere", tmp_path):
        check_one_line(
            foils("score", beir_folder(f"c{name.name}"), tmp_path / "s.parquet", "--encoder", name), [str(name)]
        )


def test_a_store_of_another_dimension(foils, beir_folder, tmp_path, monkeypatch):
    folder, out = beir_folder(), tmp_path / "out"
    options = ["--with", "dense", "-o", out, "--encoder-args", f"vectors={tmp_path / 'vectors'}"]
    assert foils("mine", folder, *options).status == 0
    out.unlink()
    other = HashingEncoder(8)
    other.fingerprint = HashingEncoder().fingerprint
    monkeypatch.setattr("foils.encode.load_encoder", lambda name, settings: other)
    monkeypatch.setattr("foils.encode.opening.load_encoder", lambda name, settings: other)
    check_one_line(foils("mine", folder, *options), [".npy: holds", "(8,)", "remove the file"])


def test_vectors_that_are_not_finite_are_a_failure(foils, beir_folder, tmp_path, monkeypatch):
    class Broken(HashingEncoder):
        def encode(self, texts, kind):
            return super().encode(texts, kind) * np.nan

    monkeypatch.setattr("foils.encode.load_encoder", lambda name, settings: Broken())
    monkeypatch.setattr("foils.encode.opening.load_encoder", lambda name, settings: Broken())
    ended = foils(
        "mine", beir_folder(), "--with", "dense", "-o", tmp_path / "x", "--encoder-args", f"vectors={tmp_path / 'v'}"
    )
    assert (ended.status, ended.out) == (1, "")
    assert ended.err.startswith("foils: failed: 3 vectors of hashing are NaN or infinite (first text: ")
    assert not (tmp_path / "x").exists()


def test_a_place_that_cannot_be_written(foils, beir_folder, tmp_path):
    (tmp_path / "file").write_text("x")
    check_one_line(foils("mine", beir_folder(), "-o", tmp_path / "file" / "out.parquet"), ["cannot make the folder"])
    ended = foils("mine", beir_folder("other"), "-o", tmp_path)
    assert ended.status in (1, 2)
    assert ended.err.count("\n") == 1
    assert "Traceback" not in ended.err
