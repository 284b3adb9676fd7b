"""What is wrong with files in life, and every form of file spoilt: read whole, or refused by file and line."""

import gzip
import json
import os
import shutil
import tracemalloc
from random import Random

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from fuzz_formats import FORMATS, Outcome, damaged_gzip
from fuzz_mutations import spoiled
from hypothesis import given, settings
from hypothesis import strategies as st

from foils.data import Run, load_collection
from foils.data.sources import as_source
from foils.runtime.errors import FoilsError, FormatError
from refusals import refused

pytestmark = pytest.mark.usefixtures("own_cache")

KINDS = {
    "combining": "e\u0301a\u0308",
    "composed": "\u00e9\u00e4",
    "right to left": "\u05d0\u05d1 \u202e abc \u202c",
    "zero width": "a\u200bb\u200c\u200d\ufeffc",
    "beyond the plane": "\U0001f41d\U000e0061",
    "noncharacter": "\uffff\ufdd0",
    "private": "\ue000",
    "NUL and controls": "a\x00b\x07\x1b[31m",
    "line ends of others": "a\u2028b\u2029c\x85d\x0bd\x0c",
    "tab and newline": "a\tb\nc\rd",
    "quotes": "\"'`<script>&",
}


@pytest.fixture
def folder(tmp_path):
    """Return a function that writes a BEIR folder; parts that are not given are small and good."""

    def write(corpus=b"", queries=b"", qrels=b""):
        (tmp_path / "qrels").mkdir(exist_ok=True)
        (tmp_path / "corpus.jsonl").write_bytes(corpus or b'{"_id": "d", "text": "x"}\n')
        (tmp_path / "queries.jsonl").write_bytes(queries or b'{"_id": "q", "text": "x"}\n')
        (tmp_path / "qrels" / "test.tsv").write_bytes(qrels or b"query-id\tcorpus-id\tscore\n")
        return tmp_path

    return write


def line(**record: object) -> bytes:
    return json.dumps(record, ensure_ascii=False).encode() + b"\n"


# Unicode


def test_ids_and_texts_of_every_kind_come_back_as_they_were_and_those_that_look_alike_are_several(folder):
    texts = [*KINDS.values(), "1", "01", "1.0", " 1", "1 ", "\uff11", "\u0661", "1\u200b", "I", "l"]
    lines = (b"".join(line(_id=each, **more, text=each) for each in texts) for more in ({"title": "x"}, {}))
    collection = load_collection(folder(*lines))
    assert collection.documents.to_pylist() == [{"doc_id": each, "title": "x", "text": each} for each in texts]
    assert collection.query_rows(texts).tolist() == list(range(len(texts)))


@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
@pytest.mark.parametrize("end", [b"\n", b"\r\n"])
def test_marks_and_line_ends_change_nothing(folder, mark, end):
    corpus, queries = mark + line(_id="d", text="x"), mark + line(_id="q", text="x")
    qrels = mark + b"query-id\tcorpus-id\tscore\nq\td\t1\n"
    collection = load_collection(folder(*(part.replace(b"\n", end) for part in (corpus, queries, qrels))))
    assert collection.judgements("test").to_pylist() == [{"query_id": "q", "doc_id": "d", "relevance": 1}]


# Size


def test_a_column_whose_name_is_no_unicode_is_a_damaged_table(folder, tmp_path):
    path = tmp_path / "source.parquet"
    pq.write_table(pa.table({"query_id": ["q"], "column": ["d"]}), path)
    path.write_bytes(path.read_bytes().replace(b"column", b"\xff\xfeumn\xff"))
    with pytest.raises(FormatError, match=r"source\.parquet: not a readable Parquet"):
        as_source(str(path), load_collection(folder()))


def test_long_lines(folder):
    long = "word " * 2_000_000
    collection = load_collection(folder(line(_id="d", text=long), line(_id="q" * 1_000_000, text=long)))
    assert collection.document_texts([0]) == [long.strip()]
    with pytest.raises(FormatError, match=r"corpus\.jsonl:1: malformed JSON") as caught:
        load_collection(folder(line(_id="d", text=long)[:-3]))
    assert len(str(caught.value)) < 1000
    with pytest.raises(FormatError, match=r"corpus\.jsonl:2: duplicate id 'dd") as caught:
        load_collection(folder(b"".join(line(_id="d" * 10_000_000, text=text) for text in "xy")))
    assert len(str(caught.value)) < 1000


def test_a_small_file_that_unpacks_to_gigabytes(small, tmp_path):
    bomb = tmp_path / "bomb.jsonl"
    bomb.write_bytes(gzip.compress(bytes(1 << 24)) * 512)  # 8 GiB in one line
    tracemalloc.start()
    try:
        for read in (lambda: as_source(str(bomb), small), lambda: Run.read(bomb)):
            refused(r"bomb\.jsonl:1: a line of more than 64 MiB", read, error=FormatError)
        assert tracemalloc.get_traced_memory()[1] < 1 << 28
    finally:
        tracemalloc.stop()


def test_a_small_file_that_unpacks_to_many_lines_is_read_in_a_stream(tmp_path):
    bomb = tmp_path / "bomb.trec"
    bomb.write_bytes(gzip.compress((b" " * 1023 + b"\n") * 1024) * 64 + gzip.compress(b"q Q0 d 1 2 x\n"))
    tracemalloc.start()
    try:
        assert len(Run.read(bomb).table) == 1  # after 64 MiB
        assert tracemalloc.get_traced_memory()[1] < 1 << 22
    finally:
        tracemalloc.stop()


def test_numbers_without_end(folder, small, tmp_path):
    refused(r"test\.tsv:1: expected", load_collection, folder(qrels=b"q\td\t" + b"1" * 5000), error=FormatError)
    source = tmp_path / "a.jsonl"
    for score in (b"1" + b"0" * 400, b"Infinity", b"-Infinity", b"1e999"):
        passage = b'{"docid": "d2", "score": ' + score + b"}"
        source.write_bytes(b'{"query_id": "q1", "negative_passages": [' + passage + b"]}")
        with pytest.raises(FormatError, match=r"a\.jsonl:1: the negative .* is {'docid': 'd2', 'score"):
            as_source(str(source), small)


# Files that are none


BY_LINE = [name for name, form in FORMATS.items() if form.lines]
VALID = {"beir-corpus": 5, "beir-queries": 3, "beir-qrels": 3, "tevatron": 3, "tuples": 5, "trec-source": 3,
         "trec-run": 3}  # fmt: skip


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        folder = tmp_path_factory.mktemp("fuzz")
        patch.setenv("FOILS_CACHE", str(folder / "cache"))
        yield folder


@pytest.mark.parametrize("name", FORMATS)
def test_valid_files_are_read_whole(name, place):
    for example in FORMATS[name].examples():
        found = FORMATS[name].check(example, place / name)
        assert found.complaints == 0
        assert found.records == VALID.get(name, found.records)


@pytest.mark.parametrize("name", FORMATS)
@settings(max_examples=30, derandomize=True)
@given(seeds=st.lists(st.integers(0, 2**32), min_size=1, max_size=3), which=st.integers(0, 5))
def test_spoiled_files_are_read_whole_or_refused_by_name(name, place, seeds, which):
    form = FORMATS[name]
    examples = form.examples()
    data = examples[which % len(examples)]
    for seed in seeds:
        data = spoiled(form, data, Random(seed), most=1)
    form.check(data, place / name)


@pytest.mark.parametrize("name", FORMATS)
@settings(max_examples=20, derandomize=True)
@given(data=st.binary(max_size=300) | st.text(max_size=100).map(lambda text: text.encode("utf-8", "surrogatepass")))
def test_any_bytes_at_all(name, place, data):
    FORMATS[name].check(data, place / name)


BAD_LINES = [b"{", b"[1]", b"\xff", b'{"_id": "d1", "_id": "d2"}', b"a b", b"[" * 50_000, b"9" * 5000, b"\x00", b"{}"]


@pytest.mark.parametrize("bad", BAD_LINES, ids=range(len(BAD_LINES)))
@pytest.mark.parametrize("name", BY_LINE)
def test_one_bad_line_is_named(name, place, bad):
    form = FORMATS[name]
    lines = form.examples()[0].rstrip(b"\n").split(b"\n")
    path = place / name / form.file
    for at in range(1, len(lines) + 1):
        form.check(b"", place / name)  # makes the folder
        path.write_bytes(b"\r\n".join([*lines[:at], b"", bad, *lines[at:]]))
        with pytest.raises(FormatError) as caught:
            form.read(path)
        assert caught.value.line == at + 2
        assert str(caught.value).startswith(f"{path}:{at + 2}: ")
        assert "\n" not in str(caught.value)  # the others are fine


@pytest.mark.parametrize("name", BY_LINE)
def test_every_bad_line_is_counted(name, place):
    form = FORMATS[name]
    begin = form.examples()[0].split(b"\n")[0] + b"\n"
    assert form.check(begin + b"{\n" * 700, place / name) == Outcome(0, 700)
    assert form.check(begin + b"{\n" * 70_000, place / name) == Outcome(0, 1000)  # plainly of another kind


@pytest.mark.parametrize("name", BY_LINE)
def test_damaged_gzip(name, place):
    for data in damaged_gzip(FORMATS[name].examples()[0]):
        assert FORMATS[name].check(data, place / name).complaints


@pytest.mark.parametrize("name", BY_LINE)
def test_folders_and_pipes_in_the_place_of_files(name, place):
    form = FORMATS[name]
    path = place / f"{name}-special" / form.file
    path.mkdir(parents=True)
    refused(path.name.partition(".")[0], form.read, path, error=FoilsError)
    shutil.rmtree(path)
    os.mkfifo(path)  # opening it to read would wait for a writer for ever
    refused(path.name.partition(".")[0], form.read, path, error=FoilsError)
