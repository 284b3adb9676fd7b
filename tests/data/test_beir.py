"""BEIR folders: every form they come in, everything that can be wrong in one, and when the cache is read again."""

import gzip
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import foils
from foils.data import Collection, load_collection, read
from foils.data.collection import open_stored
from foils.data.sources import as_sources
from foils.runtime.errors import FormatError, InputError
from foils.runtime.files import cache_folder
from refusals import refused

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
        ("qrels/train.tsv", "q1\td1\t1\nq2\td4\t1\nq1\td1\t0", [":3: duplicate id 'q1', 'd1' (first on line 1)"]),
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


CORPUS = [{"_id": f"d{at}", "title": "", "text": f"text {at}"} for at in range(4)]
QUERIES = [{"_id": f"q{at}", "text": f"query {at}"} for at in range(3)]
QRELS = "query-id\tcorpus-id\tscore\nq0\td0\t1\nq1\td1\t1\nq2\td2\t2\n"


@pytest.fixture
def folder(tmp_path):
    """Return a function that writes a BEIR folder, packed or not, and opens it twice: as read, and as kept."""

    def opened(corpus=CORPUS, queries=QUERIES, qrels=QRELS, *, packed=False):
        place = tmp_path / "fiqa"
        (place / "qrels").mkdir(parents=True, exist_ok=True)
        for name, records in {"corpus": corpus, "queries": queries}.items():
            data = "".join(json.dumps(record) + "\n" for record in records).encode()
            (place / f"{name}.jsonl{'.gz' * packed}").write_bytes(gzip.compress(data) if packed else data)
        (place / "qrels" / "test.tsv").write_text(qrels, "utf-8")
        first, second = load_collection(place), load_collection(place)
        assert first.name == second.name
        assert first.documents.equals(second.documents)
        return second

    return opened


EMPTY = [{"_id": "void", "title": "", "text": ""}, {"_id": "blank", "text": " \n"}, {"_id": "null", "text": None}]


@pytest.mark.parametrize("packed", [False, True])
def test_empty_documents_as_fiqa_has_them(folder, packed):
    """With their judgements; of what was never there a judgement stays a mistake."""
    made = folder([*CORPUS, *EMPTY], qrels=f"{QRELS}q0\tvoid\t1\nq0\tnull\t0\n", packed=packed)
    assert made.documents["doc_id"].to_pylist() == [each["_id"] for each in CORPUS]
    assert made.name == "fiqa (left out: 3 documents without a text, 2 judgements of what is not there)"
    assert len(made.judgements("test")) == 3
    refused("unknown doc_id 'nowhere'", folder, qrels=f"{QRELS}q0\tnowhere\t1\n", error=FormatError)


def test_empty_queries_go_with_their_judgements(folder):
    made = folder(queries=[*QUERIES, {"_id": "mute", "text": "\t"}], qrels=f"{QRELS}mute\td0\t1\n")
    assert made.name == "fiqa (left out: 1 queries without a text, 1 judgements of what is not there)"


def test_a_title_is_enough_where_the_text_is_null(folder):
    titled = [{"_id": "t1", "title": "a title", "text": None}, {"_id": "t2", "title": "alone"}]
    made = folder([*CORPUS, *titled])
    assert made.document_texts([4, 5]) == ["a title", "alone"]
    assert made.name == "fiqa"
    refused("expected _id, title, text as text", folder, [*CORPUS, {"_id": "x", "contents": "?"}], error=FormatError)


def test_lines_that_repeat_are_read_once_and_those_that_contradict_are_mistakes(folder):
    made = folder([CORPUS[0], *CORPUS, CORPUS[2]], [*QUERIES, QUERIES[1]], QRELS + "q1\td1\t1\nq1\td1\t1\n")
    assert made.documents.to_pylist() == folder().documents.to_pylist()
    assert made.queries.to_pylist() == folder().queries.to_pylist()
    assert len(made.judgements("test")) == 3
    said = "2 repeated documents, 1 repeated queries, 2 repeated judgements"
    assert made.name == f"fiqa (left out: {said})"
    for change, message in {
        "corpus": r"corpus\.jsonl:5: duplicate id 'd0' \(first on line 1\) with another text",
        "title": r"corpus\.jsonl:5: duplicate id 'd0'",
        "queries": r"queries\.jsonl:4: duplicate id 'q0'",
        "qrels": r"test\.tsv:5: duplicate id .*first on line 2\) with another relevance",
    }.items():
        other = {
            "corpus": {"corpus": [*CORPUS, {"_id": "d0", "text": "another"}]},
            "title": {"corpus": [*CORPUS, {**CORPUS[0], "title": "x"}]},
            "queries": {"queries": [*QUERIES, {"_id": "q0", "text": "another"}]},
            "qrels": {"qrels": QRELS + "q0\td0\t0\n"},
        }[change]
        refused(message, folder, **other, error=FormatError)


def test_many_repeated_lines(folder):
    many = [{"_id": f"d{at}", "text": f"text {at}"} for at in range(45_000)]
    made = folder([*many, *many[::2]])
    assert made.documents["doc_id"].to_pylist() == [each["_id"] for each in many]
    assert made.name == "fiqa (left out: 22,500 repeated documents)"


FORMS = {
    "tabs": "q0\t0\td0\t1\nq1\t0\td1\t1\nq2\tQ0\td2\t2\n",
    "blanks": "q0 0 d0 1\nq1 0  d1 1\nq2 0 d2 2\n",
    "three columns of blanks": "query-id corpus-id score\nq0 d0 1\nq1 d1 1\nq2 d2 2\n",
    "line ends of others": "q0 0 d0 1\r\nq1 0 d1 1\r\nq2 0 d2 2\r\n",
}


@pytest.mark.parametrize("form", FORMS)
def test_judgements_of_four_columns(folder, form):
    assert folder(qrels=FORMS[form]).judgements("test").equals(folder().judgements("test"))


def test_dictionaries_are_read_alike():
    """As mteb and BEIR's own loader give them."""
    documents = {"d1": "text", "d2": "", "d3": ("title", None), "d4": ("", " ")}
    made = Collection.from_dicts("made", documents, {"q": "query", "mute": ""}, {"test": {"q": {"d1": 1, "d2": 1}}})
    assert made.documents["doc_id"].to_pylist() == ["d1", "d3"]
    assert made.name.startswith("made (left out: 2 documents without a text, 1 queries without a text, 1 judgements")


PAIRS = [("what is a keel?", "A boat's spine."), ("who rows?", "The crew."), ("what rises?", "Bread does.")]
TRIPLETS = [(query, positive, PAIRS[at - 1][1]) for at, (query, positive) in enumerate(PAIRS)]


def test_lists_of_tuples_and_of_dictionaries_are_pairs():
    named = [dict(zip(("query", "positive"), pair, strict=True)) for pair in PAIRS]
    read = [foils.load(given) for given in (PAIRS, named, {"train": PAIRS[:2], "dev": named[2:]})]
    for made in read:
        assert made.queries["text"].to_pylist() == [query for query, _ in PAIRS]
        assert made.documents["text"].to_pylist() == [positive for _, positive in PAIRS]
    assert read[2].splits == ["train", "dev"]
    odd = [{"question": "a?", "answer": "b", "id": 1}, {"question": "c?", "answer": "d", "id": None}]
    assert len(foils.load(odd, columns={"query": "question", "positive": "answer"}).queries) == 2


def test_lists_of_triplets_are_one_source_and_a_list_of_lists_several():
    made = foils.load(TRIPLETS)
    named = [dict(zip(("anchor", "positive", "negative"), row, strict=True)) for row in TRIPLETS]
    for given in (TRIPLETS, named):
        (source,) = as_sources(given, made)
        assert source.negatives.keep.sum() == 3
    assert [each.name for each in as_sources({"a": TRIPLETS, "b": named}, made)] == ["a", "b"]
    rows = foils.mine(made, "random", split="all").table.to_pylist()
    assert len(as_sources(rows, made)[0].negatives) == len(rows)


def test_lists_that_are_neither_are_refused():
    refused("no column is known as positive", foils.load, [("a",), ("b",)])
    assert len(foils.load([("a", "b"), ("c", "d", "e")]).documents) == 3, "with negatives, or without"
    refused("expected .*a list of tuples or dictionaries", foils.load, ["a", "b"])
    refused("no column is known as positive", foils.load, [{"query": "a"}])
