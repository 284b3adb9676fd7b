"""Small files that stand for much: read within the memory budget, or refused in seconds with what to do."""

import gzip
import json
import tracemalloc
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import foils
from fakes import memory_of
from foils.data import Negatives, Run, load_collection
from foils.data.records import whole_json, whole_text
from foils.data.sources import as_source
from foils.runtime import memory
from foils.runtime.errors import FormatError
from refusals import refused

pytestmark = pytest.mark.usefixtures("own_cache")
MANY = gzip.compress(b"a" * (1 << 24))  # 16 MiB in 16 KiB


def test_one_string_of_gigabytes_in_a_small_json(tmp_path):
    bomb = tmp_path / "pairs.json.gz"
    bomb.write_bytes(gzip.compress(b'[{"query": "') + MANY * 192 + gzip.compress(b'"}]'))  # 3 GiB
    for read in (foils.load, whole_json, whole_text, lambda path: foils.describe(str(path))):
        refused(r"pairs\.json\.gz: a text of more than 64 MiB", read, bomb, error=FormatError)


def test_many_values_of_gigabytes_in_a_small_json(tmp_path):
    bomb = tmp_path / "pairs.json.gz"
    bomb.write_bytes(gzip.compress(b"[") + gzip.compress(b'{"query":"a"},' * (1 << 20)) * 40)
    with memory_of(1 << 26):
        refused("more than 64 MiB; save it as JSON lines", foils.load, bomb, error=FormatError)


def dictionary(count: int, text: str) -> pa.Array:
    return pa.DictionaryArray.from_arrays(pa.array(np.zeros(count, np.int32)), pa.array([text]))


def test_a_dictionary_parquet_is_read_within_bounds_or_refused(tmp_path):
    """1,000 rows of one text of 2 MB lie in some hundred bytes; ordinary tables of many rows are read as before."""
    queries = [f"query {at}" for at in range(1_000)]
    small, bomb, plain = (tmp_path / f"{name}.parquet" for name in ("small", "bomb", "plain"))
    pq.write_table(
        pa.table({"query": queries, "positive": dictionary(1_000, "x" * 2_000_000)}), bomb, compression="zstd"
    )
    pq.write_table(pa.table({"query": queries, "positive": dictionary(1_000, "x y")}), plain, compression="zstd")
    pq.write_table(
        pa.table({"query": queries, "positive": dictionary(1_000, "x" * 200_000)}), small, compression="zstd"
    )
    assert bomb.stat().st_size < 20_000
    for read in (foils.load, lambda path: foils.describe(str(path)), lambda path: foils.load(plain, corpus=path)):
        refused(r"bomb\.parquet: its .* bytes unpack to more than 1,024 MiB", read, bomb, error=FormatError)
    tracemalloc.start()
    try:
        for path in (plain, small):  # 200 MB of texts, in pieces
            assert len(load_collection(path).documents) == 1
        assert tracemalloc.get_traced_memory()[1] < 1 << 26
    finally:
        tracemalloc.stop()


BOMBS = {
    "many rows of one value": {"query_id": ["q"], "doc_id": ["d"], "source": ["s"], "rank": [0], "score": [1.0]},
    "a text in each": {
        "query_id": ["q"],
        "doc_id": ["d"],
        "source": ["s"],
        "rank": [0],
        "score": [1.0],
        "text": ["x" * 500_000],
    },
}


@pytest.mark.parametrize("name", BOMBS)
def test_a_table_of_negatives_that_unpacks_to_gigabytes(tmp_path, small, name):
    table, count = pa.table(BOMBS[name]), 3_000_000 if "rows" in name else 5_000
    keyed = pa.table({
        key: pa.DictionaryArray.from_arrays(pa.array(np.zeros(count, np.int32)), column.combine_chunks())
        for key, column in zip(table.column_names, table.columns, strict=True)
    })  # fmt: skip
    path = tmp_path / "bomb.parquet"
    pq.write_table(keyed, path, compression="zstd", row_group_size=count)
    with memory_of(1 << 26):
        for read in (Negatives.read, lambda at: as_source(str(at), small)):
            refused(r"bomb\.parquet: its .* bytes unpack to more than", read, path, error=FormatError)


@pytest.mark.parametrize("record", [False, True])
def test_lists_of_one_text(tmp_path, record):
    values = pa.array(["x" * 1_000] * 10_000)
    if record:
        values = pa.StructArray.from_arrays([values, values], ["text", "title"])
    texts = pa.ListArray.from_arrays(pa.array([0, 10_000]), values)
    path = tmp_path / "lists.parquet"
    pq.write_table(pa.table({"query": ["q"], "positive": texts}), path, compression="zstd")
    assert len(load_collection(path).documents) == 1
    with memory_of(memory.LEAST):
        refused("unpack to more than", foils.load, {"train": path}, error=FormatError)


def test_an_ordinary_table_is_no_bomb(tmp_path):
    rng = np.random.default_rng(0)
    count = 300_000
    documents = rng.integers(0, 1_000_000_000, count).astype(str)
    columns = {"query_id": [f"q{at // 10}" for at in range(count)], "doc_id": documents, "source": ["bm25"] * count}
    table = pa.table({**columns, "rank": np.zeros(count, np.int32), "score": rng.random(count)})
    path = tmp_path / "negatives.parquet"
    with memory_of(1 << 26):
        pq.write_table(table, path)
        assert len(Negatives.read(path)) == count
        own = pa.array([None, "a text of its own", "x" * 20_000] * 1_000)
        pq.write_table(table.slice(0, 3_000).append_column("text", own), path)
        assert len(Negatives.read(path)) == 3_000


DEEP = {
    "lists": "[" * 100_000,
    "objects": '{"a":' * 100_000,
    "both": '[{"a":' * 50_000,
    "closed": "[" * 50_000 + "]" * 50_000,
}


@pytest.mark.parametrize("name", DEEP)
def test_nested_json_is_a_message_wherever_it_is_read(tmp_path, small, name):
    for file, read in {
        "pairs.json": foils.load,
        "pairs.jsonl": foils.load,
        "source.jsonl": lambda path: as_source(str(path), small),
        "retriever.json": whole_json,
    }.items():
        (tmp_path / file).write_text(DEEP[name], "utf-8")
        refused(file.replace(".", r"\."), read, tmp_path / file)


@pytest.mark.parametrize(
    "written", ["1" * 100_000, "-" + "9" * 100_000, "1e" + "9" * 100_000, "0." + "0" * 100_000 + "1x"]
)
def test_digits_without_end_where_a_number_is_read(tmp_path, written):
    run = tmp_path / "run.trec"
    run.write_text(f"q Q0 d 1 {written} x\n", "utf-8")
    refused(r"run\.trec:1: the score '", Run.read, run, error=FormatError)
    Path(tmp_path, "pairs.jsonl").write_text(json.dumps({"query": "a", "positive": "b", "score": written}), "utf-8")
    refused(r"pairs\.jsonl:1: the score", foils.load, tmp_path / "pairs.jsonl", error=FormatError)
