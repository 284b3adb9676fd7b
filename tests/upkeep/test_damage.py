"""Whatever lies in the cache may be damaged in any way: it is made again, and the result is the same."""

import json
import logging
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import foils
from fakes import HashingEncoder
from foils.data import Collection, Negatives, load_collection
from foils.data.records import read_sealed
from foils.encode.tokens import kept_tokens
from foils.experiments.tune import kept
from foils.mining import BM25Retriever, candidates
from foils.runtime import files
from foils.runtime.files import write_sealed
from train_models import static_model

GARBAGE = {
    "empty": b"",
    "text": b"no such thing",
    "brackets": b"[" * 100_000,
    "another object": b'{"files": {}, "checksum": "0"}',
    "a list": b"[]",
    "a number": b"7",
}


def spoilings(path: Path, flips: int) -> dict[str, bytes]:
    """Return what a file may hold once it is damaged, by name."""
    whole = path.read_bytes()
    rng = np.random.default_rng(len(whole))
    cut = {f"cut to {part:.0%}": whole[: int(part * len(whole))] for part in (0.1, 0.5, 0.9)}
    flipped = {}
    for at in rng.integers(0, 8 * len(whole), flips).tolist():
        flipped[f"bit {at}"] = whole[: at // 8] + bytes([whole[at // 8] ^ 1 << at % 8]) + whole[at // 8 + 1 :]
    zeros = {"zeros": bytes(len(whole)), "longer": whole + b"\0"}
    return {name: data for name, data in {**GARBAGE, **cut, **flipped, **zeros}.items() if data != whole}


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("FOILS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(files, "_verified", set())
    return tmp_path / "cache"


@pytest.fixture
def folder(tmp_path):
    """A BEIR folder of 1,200 documents, which is enough for BM25's index to be kept."""
    place = tmp_path / "coll"
    (place / "qrels").mkdir(parents=True)
    words = [f"w{at}" for at in range(50)]
    rng = np.random.default_rng(0)
    texts = [" ".join(rng.choice(words, 8)) for _ in range(1_200)]
    records = {"corpus": texts, "queries": [" ".join(text.split()[:3]) for text in texts[:40]]}
    for name, of in records.items():
        lines = [json.dumps({"_id": f"{name[0]}{at}", "text": text}) + "\n" for at, text in enumerate(of)]
        (place / f"{name}.jsonl").write_text("".join(lines), "utf-8")
    judged = "query-id\tcorpus-id\tscore\n" + "".join(f"q{at}\tc{at}\t1\n" for at in range(40))
    (place / "qrels" / "train.tsv").write_text(judged, "utf-8")
    return place


def check_every_damage(place: Path, file: str, work, caplog, *, flips: int = 12, silent: bool = False) -> None:
    """Damage a file in every way; the work gives what it gave, and says what it made again."""
    expected = work()
    (path,) = place.glob(file)
    whole = path.read_bytes()
    for name, data in spoilings(path, flips).items():
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(data)
        files._verified.clear()
        caplog.clear()
        assert work() == expected, name
        assert silent or "is damaged" in caplog.text, name
        assert silent or path.read_bytes() == whole, name


def ids(collection: Collection) -> str:
    return repr(
        [collection.documents.to_pylist(), collection.queries.to_pylist(), collection.qrels["train"].to_pylist()]
    )


@pytest.mark.parametrize("file", ["documents.arrow", "queries.arrow", "qrels-train.arrow", "meta.json"])
def test_collections(cache, folder, caplog, file):
    check_every_damage(cache, f"collections/*/{file}", lambda: ids(load_collection(folder)), caplog)


@pytest.mark.parametrize("file", ["data.npy", "indptr.npy", "meta.json", "vocab.tokenizer.json"])
def test_indexes_of_bm25(cache, folder, caplog, file):
    loaded = load_collection(folder)
    queries = np.arange(40)

    def work():
        rows, scores = BM25Retriever(loaded).search(queries, 5)
        return rows.tolist(), scores.tolist()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("foils.mining.retrievers.LEAST_KEPT", 1)
        check_every_damage(cache, f"bm25/*/{file}", work, caplog, flips=4)


@pytest.mark.parametrize("file", ["ids.npy", "lengths.npy", "meta.json"])
def test_ids_of_texts(cache, caplog, file):
    texts = [f"boat {at} wind" for at in range(20)]

    def work():
        kept = kept_tokens(static_model(dimension=8, words=["boat", "wind"]))
        kept.fill([texts])
        return kept(texts).batch(np.arange(20))["input_ids"].tolist()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("foils.encode.tokens.LEAST_KEPT", 1)
        check_every_damage(cache, f"tokens/*/{file}", work, caplog, flips=4)


@pytest.mark.parametrize("file", ["vectors", "keys"])
def test_vectors(cache, folder, caplog, file):
    loaded = load_collection(folder)

    def work():
        return foils.mine(loaded, "dense", top=3, encoder=HashingEncoder()).table.to_pydict()["doc_id"]

    expected = work()
    (path,) = cache.glob(f"vectors/*/{file}")
    for name, data in spoilings(path, 12).items():
        path.write_bytes(data)
        assert work() == expected, name


def test_mined_blocks(cache, folder, caplog, monkeypatch):
    """A block whose checksum is another one is mined again."""
    monkeypatch.setattr(candidates, "QUERIES", 10)
    loaded, search = load_collection(folder), BM25Retriever.search
    expected = foils.mine(loaded, "bm25", top=3).table
    searched = []

    def stopped(self, rows, depth):
        searched.append(len(rows))
        if len(searched) > 2:
            raise KeyboardInterrupt
        return search(self, rows, depth)

    def left():
        searched.clear()
        shutil.rmtree(cache / "mined", ignore_errors=True)
        monkeypatch.setattr(BM25Retriever, "search", stopped)
        with pytest.raises(KeyboardInterrupt):
            foils.mine(loaded, "bm25", top=3)
        monkeypatch.setattr(BM25Retriever, "search", search)
        return sorted(cache.glob("mined/*/*/document.npy"))

    first, second = left()
    for name, data in {**spoilings(first, 60), "another block": second.read_bytes()}.items():
        caplog.clear()
        left()[0].write_bytes(data)
        assert foils.mine(loaded, "bm25", top=3).table.equals(expected), name
        assert "the mined block" in caplog.text, name
        assert not [*cache.glob("mined/*")]


def test_judgements(cache, folder, caplog):
    loaded = load_collection(folder)
    negatives = foils.mine(loaded, "random", top=3)

    def work():
        rated = foils.rate(loaded, negatives, judge="bi-encoder", encoder=HashingEncoder(), degree=2)
        return rated.table.to_pydict()["elo"]

    expected = work()
    for path in sorted(cache.glob("judgements/*/*")):
        for name, data in spoilings(path, 6).items():
            path.write_bytes(data)
            caplog.clear()
            assert work() == expected, (path.name, name)
            if path.suffix != ".parquet" or not name.startswith("bit"):  # some bits of Parquet say nothing
                assert "is damaged" in caplog.text, (path.name, name)


def test_steps_of_a_tuning(tmp_path, caplog):
    table = foils.mine(
        Collection.from_dicts("c", {"d": "a", "e": "b"}, {"q": "a"}, {"train": {"q": {"d": 1}}}), "random"
    )

    def work():
        facts = {"measure": 0.5, "names": ["a"]}
        read = kept(tmp_path / "facts.json", read_sealed, lambda path: write_sealed(path, facts))
        return read, kept(tmp_path / "mined.parquet", Negatives.read, table.write).table["doc_id"].to_pylist()

    check_every_damage(tmp_path, "facts.json", work, caplog)
    check_every_damage(tmp_path, "mined.parquet", work, caplog, silent=True)  # some bits of Parquet say nothing


PARTS = ("collections", "bm25")


@pytest.mark.parametrize("kind", PARTS)
def test_a_folder_that_is_half_there_or_no_folder(cache, folder, kind, caplog):
    def work():
        loaded = load_collection(folder)
        rows, _ = BM25Retriever(loaded).search(np.arange(5), 3)
        return rows.tolist()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("foils.mining.retrievers.LEAST_KEPT", 1)
        expected = work()
        (place,) = cache.glob(f"{kind}/*")
        for name in sorted(each.name for each in place.iterdir()):
            (place / name).unlink()
            files._verified.clear()
            assert work() == expected, name
            assert (place / name).is_file()
        shutil.rmtree(place)
        place.write_bytes(b"")  # a file in the place of the folder
        assert work() == expected
        assert work() == expected


PRUNED = "import sys; from foils.cli.app import run; sys.exit(run(['cache', 'prune', '--keep', '0']))"


@pytest.mark.parametrize("stop", range(4))
def test_a_prune_that_is_killed_leaves_each_entry_whole_or_none(cache, folder, monkeypatch, stop):
    """A removal that stops after any number of files: the name is gone before the first of them."""
    expected = ids(load_collection(folder))
    removing, unlink = [], os.unlink

    def stopped(*given, **more):
        if len(removing) == stop:
            raise KeyboardInterrupt
        removing.append(given)
        unlink(*given, **more)

    with monkeypatch.context() as patch:
        patch.setattr(os, "unlink", stopped)
        with pytest.raises(KeyboardInterrupt):
            foils.cache("prune", keep=0)
    assert not [*cache.glob("collections/[!.]*")]
    assert ids(load_collection(folder)) == expected
    foils.cache("prune", keep=0)
    assert not [*cache.glob("collections/*"), *cache.glob("collections/.*")]


def test_kills_of_a_prune(cache, folder):
    expected = ids(load_collection(folder))
    for trial in range(4):
        process = subprocess.Popen([sys.executable, "-c", PRUNED], stdout=subprocess.DEVNULL, env=dict(os.environ))
        time.sleep(0.2 * trial)
        process.send_signal(signal.SIGKILL)
        process.wait()
        assert ids(load_collection(folder)) == expected


def test_a_warning_is_one_line(cache, folder, caplog):
    load_collection(folder)
    (meta,) = cache.glob("collections/*/meta.json")
    meta.write_bytes(b"\xff" * 10_000)
    with caplog.at_level(logging.WARNING):
        load_collection(folder)
    (record,) = [each for each in caplog.records if "is damaged" in each.getMessage()]
    assert len(record.getMessage()) < 1_000
