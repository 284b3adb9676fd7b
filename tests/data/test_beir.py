"""BEIR folders: every form they come in, everything that can be wrong in one, and when the cache is read again."""

import gzip
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from foils.data import Collection, load_collection, read
from foils.data.collection import open_stored
from foils.runtime.errors import FormatError, InputError
from foils.runtime.files import cache_folder

pytestmark = pytest.mark.usefixtures("own_cache")

BeirFolder = Callable[..., Path]


def stored() -> list[Path]:
    return sorted((cache_folder() / "collections").iterdir())


def contents(collection: Collection) -> tuple[object, ...]:
    qrels = {split: table.to_pylist() for split, table in collection.qrels.items()}
    return collection.documents.to_pylist(), collection.queries.to_pylist(), qrels, collection.digest


@pytest.mark.parametrize("gz", [False, True])
def test_a_folder_is_the_collection_of_its_dictionaries(beir_folder, small, gz):
    collection = load_collection(beir_folder(gz=gz))
    assert collection.name == "small"
    assert collection.splits == ["test", "train"]
    documents, queries, qrels, _ = contents(collection)
    assert documents == small.documents.to_pylist()
    assert queries == small.queries.to_pylist()
    assert qrels == {split: table.to_pylist() for split, table in small.qrels.items()}


def test_plain_goes_before_gz_and_other_files_are_none(beir_folder):
    folder = beir_folder()
    for name in ("corpus.jsonl.gz", "queries.jsonl.gz", "qrels/train.tsv.gz", "qrels/dev.tsv.gz"):
        (folder / name).write_bytes(gzip.compress(b"q1\td1\t1\n"))
    for name in (".train.tsv.swp", "._test.tsv", "train.tsv.bak", "train.tsv~", "notes.txt"):
        (folder / "qrels" / name).write_text("not judgements")
    collection = load_collection(folder)
    assert collection.splits == ["dev", "test", "train"]
    assert collection.judgements("train").num_rows == 5
    assert collection.judgements("dev").num_rows == 1


def test_forms_of_lines(tmp_path):
    (tmp_path / "qrels").mkdir()
    first, second = (
        b'{"_id": 7, "text": "integer id, no title", "metadata": {}}',
        b'{"_id": "e", "title": "t", "text": ""}',
    )
    (tmp_path / "corpus.jsonl").write_bytes(b"\xef\xbb\xbf" + first + b"\r\n\r\n" + second)
    (tmp_path / "queries.jsonl").write_bytes(b'{"_id": "q", "text": "a"}\r\n')
    (tmp_path / "qrels" / "test.tsv").write_bytes(b"q\t7\t2\x1c\r\nq\te\t -1 \r\n")  # no header
    collection = load_collection(tmp_path)
    assert collection.document_texts([0, 1]) == ["integer id, no title", "t"]
    assert collection.judgements("test")["relevance"].to_pylist() == [2, -1]


# What is wrong, where


def test_missing_files(tmp_path, beir_folder):
    with pytest.raises(InputError, match="no such folder or file; a BEIR folder holds corpus"):
        load_collection(tmp_path / ("x" * 300))
    folder = beir_folder()
    with pytest.raises(InputError, match="no column is known as query"):
        load_collection(folder / "corpus.jsonl")
    for path in (folder / "qrels").iterdir():
        path.unlink()
    with pytest.raises(InputError, match=r"small: no qrels/\*\.tsv; a BEIR folder"):
        load_collection(folder)
    shutil.rmtree(folder / "qrels")
    assert load_collection(folder).splits == []


@pytest.mark.parametrize(
    ("file", "text", "complaints"),
    [
        ("corpus.jsonl", '{"_id": "d1"}', [":1: expected _id, title, text as text"]),
        ("corpus.jsonl", '{"_id": "d", "text": "\\ud800"}', [":1: expected", "in valid Unicode"]),
        ("corpus.jsonl", '{"_id": "d1", "text": "x"}\n{"_id": "d2", "te', [":2: malformed JSON (Unterminated string"]),
        ("corpus.jsonl", '{"_id": "d1", "title": "  ", "text": "\\n"}', [": no documents in it; expected"]),
        ("corpus.jsonl", '{"_id": "a", "text": "x"}\n\n{"_id": "a", "text": "z"}', [":3: duplicate id 'a' (first"]),
        ("corpus.jsonl", "", [": no documents in it; expected at least one record"]),
        ("queries.jsonl", '{"_id": "q1", "text": " "}\n[]', [":2: expected a JSON object, found list"]),
        ("qrels/train.tsv", "x\tq1\td1\tscore", [":1: expected", "query-id<TAB>corpus-id<TAB>score"]),
        ("qrels/train.tsv", "q1 d1\nq1\td1\nq1\t0\t0\td1\t1", [":1: expected", ":2: expected", ":3: expected"]),
        ("qrels/train.tsv", "q1\td1\t1_0\nq1\td2\t0.5", [":1: expected", ":2: expected", "a whole number"]),
        ("qrels/train.tsv", "q1\td1\t1\nq9\td1\t1\nq1\td99\t1\nq9\td99\t1",
         [":2: unknown query_id 'q9': it is not among the queries", ":4: unknown query_id 'q9'", ":3: unknown doc_id"]),
        ("qrels/train.tsv", "q1\td1\t1\nq2\td4\t1\nq1\td1\t0", [":3: the pair is judged twice; keep one judgement"]),
    ],
)  # fmt: skip
def test_what_is_wrong_in_a_file(beir_folder, file, text, complaints):
    path = beir_folder() / file
    path.write_text(text, encoding="utf-8")
    with pytest.raises(FormatError) as caught:
        load_collection(path.parents[file.count("/")])
    for complaint in complaints:
        assert complaint in str(caught.value)
    assert str(caught.value).startswith(f"{path}:")
    assert not list((cache_folder() / "collections").glob("*"))  # nothing half-read is kept


# The cache


def test_the_second_reading_maps_what_the_first_stored(beir_folder, monkeypatch):
    folder = beir_folder()
    first = load_collection(folder)
    assert len(stored()) == 1
    monkeypatch.setattr(read, "checked_collection", lambda *_, **__: 1 / 0)  # reading again would fail
    again = load_collection(folder)
    assert contents(again) == contents(first)
    assert len(stored()) == 1


def change_text(folder: Path) -> None:
    path = folder / "corpus.jsonl"
    path.write_text(path.read_text().replace("wind", "gale"))


def keep_times(folder: Path) -> None:
    """Same size, same time of writing: only the time of the change itself tells."""
    path = folder / "corpus.jsonl"
    before = path.stat()
    change_text(folder)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def add_split(folder: Path) -> None:
    shutil.copy(folder / "qrels" / "train.tsv", folder / "qrels" / "dev.tsv")


@pytest.mark.parametrize("change", [change_text, keep_times, add_split])
def test_a_changed_folder_is_read_again(beir_folder, change):
    folder = beir_folder()
    before = contents(load_collection(folder))
    change(folder)
    after = load_collection(folder)
    assert contents(after) != before
    assert ("gale" in after.document_texts([0])[0]) != (change is add_split)
    assert ("dev" in after.splits) == (change is add_split)
    assert len(stored()) == 2


@pytest.mark.parametrize("name", ["documents.arrow", "queries.arrow", "qrels-train.arrow", "meta.json"])
def test_nothing_of_a_damaged_cache_is_read(beir_folder, name):
    """Arrow trusts the offsets in its files: what is not checked ends in other texts, or in a segmentation fault."""
    folder = beir_folder()
    load_collection(folder)
    (place,) = stored()
    whole = (place / name).read_bytes()
    damaged = [b"x", b"[]", b'{"splits": [1]}']
    for at in np.random.default_rng(0).integers(0, 8 * len(whole), 20).tolist():
        damaged.append(whole[: at // 8] + bytes([whole[at // 8] ^ 1 << at % 8]) + whole[at // 8 + 1 :])
    for data in damaged:
        (place / name).write_bytes(data)
        with pytest.raises(FormatError, match=r"damaged collection in the cache .*; remove the folder"):
            open_stored(place)  # as another process opens it, which has not read the files
        assert len(load_collection(folder).documents) == 10  # made again
    (place / "meta.json").unlink()  # what is unfinished is made again
    assert len(load_collection(folder).documents) == 10


def test_two_at_once(beir_folder, monkeypatch):
    """Another process stores the same folder while this one is reading."""
    folder = beir_folder()
    read_all = read.checked_collection

    def overtaken(*arguments: object, **more: object) -> object:
        monkeypatch.setattr(read, "checked_collection", read_all)
        load_collection(folder)
        return read_all(*arguments, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(read, "checked_collection", overtaken)
    assert len(load_collection(folder).documents) == 10
    assert len(stored()) == 1
