"""Bad input: one line on stderr that says where and what to do, status 2, no traceback, nothing written.

What each reader says of each fault is tested beside the readers: tests/data, tests/faults.
"""

import shlex

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fakes import HashingEncoder

pytestmark = pytest.mark.usefixtures("loaded")


def write_table(path, *rows):
    good = {"query_id": "q1", "doc_id": "d2", "source": "s", "rank": 0, "score": 1.0}
    pq.write_table(pa.Table.from_pylist([{**good, **row} for row in rows]), path)


@pytest.fixture
def world(tmp_path, beir_folder, monkeypatch):
    """Change to a folder with a good collection and source, and with some that are not."""
    monkeypatch.chdir(tmp_path)
    judged = {split: {"qrels": {split: {"q1": {"d1": 1}}}} for split in ("train", "test")}
    for name, contents in {"small": {}, "half": judged["train"], "judged": judged["test"], "cut": {"gz": True}}.items():
        beir_folder(name, **contents)
    corpus = tmp_path / "cut" / "corpus.jsonl.gz"
    corpus.write_bytes(corpus.read_bytes()[:-20])
    write_table("s.parquet", {})
    write_table("typed.parquet", {"rank": "first"})
    write_table("p1.parquet", {"doc_id": "d1"})
    write_table("p3.parquet", {"doc_id": "d3"})
    (tmp_path / "half.parquet").write_bytes((tmp_path / "s.parquet").read_bytes()[:-30])
    (tmp_path / "text.txt").write_text("hello world")
    return tmp_path


def check_one_line(ended, *expected, warnings=0):
    assert (ended.status, ended.out) == (2, "")
    lines = [line for line in ended.err.splitlines() if not line.startswith("foils: BM25: ")]  # how it reads texts
    assert lines[warnings].startswith("foils: error: ")
    assert len(lines) == 1 + warnings
    assert [text for text in expected if text not in ended.err] == []


NO_TRAIN = "unknown split of the collection judged 'train'; expected one of: test. Give one with "


@pytest.mark.parametrize(("command", "expected"), [
    ("mine nowhere -o out", ["nowhere: no such folder"]),
    ("mine cut -o out", ["corpus.jsonl.gz:", "cannot be read", "get the file again"]),
    ("mine small --split trian -o out", ["unknown split", "'trian'", "test, train", "Did you mean 'train'"]),
    ("mine small --with bm52 -o out", ['"bm52" for --with', '"bm25"']),
    ("mine small -o text.txt/out", ["cannot make the folder"]),
    ("mine half --split all --with trisampler -o out", ["TriSampler needs queries with a positive"]),
    ("mine half --split all --scorer encoder --margin 0.1 -o out", ["a margin needs one"]),
    ("batch small --set alhpa=1 -o out.parquet", ["unknown setting of hobit 'alhpa'"]),
    ("batch small --set alpha -o out.parquet", ["expected NAME=VALUE"]),
    ("mine judged -o out", [NO_TRAIN + "--split"]),
    ("train judged --model static:all-MiniLM-L6-v2 -o out", [NO_TRAIN + "--split"]),
    ("search judged --dimensions eclipse --tune train --run out", [NO_TRAIN + "--tune"]),
    ("score small missing.parquet --json out", ["error: missing.parquet: no such file"]),
    ("score small . --json out", ["is a folder, a pipe or a device, not a file"]),
    ("score small s.parquet s.parquet --json out", ["s: given twice; leave one out"]),
    ("score small 'random control=s.parquet' --json out", ["'random control'"]),
    ("score small typed.parquet --json out", ["typed.parquet", "column rank is string, expected int32"]),
    ("score small half.parquet --json out", ["half.parquet: not a readable Parquet file", "make it again"]),
    ("score small text.txt --json out", ["text.txt:1: expected 6 fields"]),
])  # fmt: skip
def test_a_line_says_what_is_wrong_and_nothing_is_written(foils, world, command, expected):
    before = sorted(world.rglob("*"))
    check_one_line(foils(*shlex.split(command)), *expected)
    assert sorted(world.rglob("*")) == before


def test_an_encoder_that_is_not_there(foils, world, monkeypatch):
    monkeypatch.undo()
    for name in ("nowhere", "small"):
        check_one_line(foils("score", world / "small", world / "s.parquet", "--encoder", world / name), name)


def test_vectors_that_are_not_finite_are_a_failure(foils, world, monkeypatch):
    class Broken(HashingEncoder):
        def encode(self, texts, kind):
            return super().encode(texts, kind) * np.nan

    monkeypatch.setenv("FOILS_CACHE", str(world / "cache"))
    monkeypatch.setattr("foils.encode.vectors.load_encoder", lambda name, settings: Broken())
    ended = foils("mine", "small", "--with", "dense", "-o", "out")
    assert (ended.status, ended.out) == (1, "")
    assert ended.err.startswith("foils: failed: 3 vectors of hashing are NaN or infinite (first text: ")
    assert not (world / "out").exists()
