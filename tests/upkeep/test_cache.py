"""The cache's size, and what of it is removed: least recently used first, never what is in use."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import foils
from fakes import HashingEncoder
from foils.cli.app import run
from foils.data import load_collection
from foils.data.tables import write_table
from foils.encode import VectorStore
from foils.llm import AnswerStore
from foils.runtime.files import cache_folder, hold, remove_unused, write_whole
from refusals import refused

DAY = 86_400
LOG = "llm/0123456789abcdef"
JUDGED = f"judgements/{'a' * 16}-{'b' * 16}"


@pytest.fixture
def kept(tmp_path, monkeypatch, beir_folder):
    """A cache with an entry of each kind, each used a day after the one before (`placed`), and two other files."""
    folder = tmp_path / "cache"
    monkeypatch.setenv("FOILS_CACHE", str(folder))
    load_collection(str(beir_folder(qrels={"test": {"q1": {"d1": 1}}})))
    VectorStore(folder / "vectors").embed(HashingEncoder(), ["a", "b", "c"], "document")
    with AnswerStore(folder / LOG) as log:
        log.add("k", {"score": 0.25})
    write_table(folder / JUDGED / "part-0.parquet", pa.table({"forward": np.linspace(0, 1, 99)}), {})
    (folder / "notes.txt").write_text("mine")
    (folder / "vectors" / "notes").mkdir()
    (folder / "vectors" / "notes" / "a.txt").write_text("mine too")
    for age, path in enumerate(reversed(placed(folder))):
        for each in (path, *path.rglob("*")):
            os.utime(each, (0, 10_000_000_000 - age * DAY))  # in the future: no clock decides
    return folder


def placed(folder: Path) -> list[Path]:
    """The entries, the least recently used first."""
    (vectors,), (collection,) = folder.glob("vectors/*-*-float32"), folder.glob("collections/*")
    return [folder / LOG, folder / JUDGED, vectors, collection]


def test_what_lies_in_the_cache(kept):
    found = foils.cache()
    assert {each.path for each in found.entries} == set(placed(kept))
    assert {each.kind: each.files for each in found.entries} == {
        "vectors": 2, "collections": 4, "judgements": 1, "llm": 1,
    }  # fmt: skip
    files = [path for entry in placed(kept) for path in entry.rglob("*") if path.is_file()]
    assert found.to_json()["bytes"] == sum(path.stat().st_size for path in files)
    assert "answers of language models" in str(found)
    assert {each.kind for each in foils.cache("size", kind=("llm", "vectors")).entries} == {"llm", "vectors"}


def test_nothing_lies_in_a_cache_that_is_not_there(tmp_path, monkeypatch):
    monkeypatch.setenv("FOILS_CACHE", str(tmp_path / "none"))
    assert foils.cache().entries == []
    assert foils.cache("prune", keep=0).removed == []
    assert not cache_folder().exists()


def test_the_least_recently_used_are_removed_first(kept):
    order = placed(kept)
    sizes = {each.path: each.bytes for each in foils.cache().entries}
    for count in range(len(order) + 1):
        limit = sum(sizes[path] for path in order[count:])
        found = foils.cache("prune", keep=limit, dry_run=True)
        assert [each.path for each in found.removed] == order[:count]
    assert all(path.exists() for path in order), "a dry run removes nothing"
    assert run(["cache", "prune", "--keep", f"{sum(sizes[path] for path in order[2:])}B"]) == 0
    assert [path.exists() for path in order] == [False, False, True, True]
    assert [each.path for each in foils.cache("prune", older_than=0).removed] == [], "used in the future"
    foils.cache("prune", keep=0, kind=("vectors",))
    assert [path.exists() for path in order] == [False, False, False, True]
    foils.cache("prune", keep=0)
    assert not any(path.exists() for path in order)
    assert (kept / "notes.txt").read_text() == "mine"
    assert (kept / "vectors" / "notes" / "a.txt").is_file(), "what is not an entry stays"
    assert not list(kept.rglob("*.part"))


def test_days_since_the_last_use(kept):
    log, judged, *rest = placed(kept)
    for path in (log, log / "answers.sqlite", judged, judged / "part-0.parquet"):
        os.utime(path, (0, 0))
    assert [each.path for each in foils.cache("prune", older_than=1_000).removed] == [judged, log]
    assert all(path.exists() for path in rest)


def test_use_is_seen(kept):
    log, _, vectors, _ = placed(kept)
    with AnswerStore(log):
        pass
    VectorStore(kept / "vectors").embed(HashingEncoder(), ["a"], "document")
    used = {each.path: each.used for each in foils.cache().entries}
    assert log.stat().st_mtime < 9_000_000_000 < used[log], "the time of now"
    assert vectors.stat().st_mtime < 9_000_000_000 < used[vectors], "the files' own times are in the future"


def test_what_is_in_use_stays(kept):
    log, judged, vectors, *_ = order = placed(kept)
    store = VectorStore(kept / "vectors")
    store.embed(HashingEncoder(), ["a"], "document")
    with AnswerStore(log), write_whole(judged / "part-1.parquet") as aside:
        aside.write_bytes(b"")
        found = foils.cache("prune", keep=0)
    assert {each.path for each in found.entries} == {log, judged, vectors}
    assert [path.exists() for path in order] == [True, True, True, False]
    store.embed(HashingEncoder(), ["b"], "document")
    del store
    assert {each.path for each in foils.cache("prune", keep=0).removed} == {log, judged, vectors}


def test_another_process_holds_what_it_uses(tmp_path):
    folder = tmp_path / "entry"
    folder.mkdir()
    program = (
        "import sys; from pathlib import Path; from foils.runtime.files import hold\n"
        "class Owner: pass\n"
        "owner = Owner(); hold(Path(sys.argv[1]), by=owner); print('held', flush=True); sys.stdin.readline()\n"
        "del owner; print('let go', flush=True); sys.stdin.readline()"
    )
    command = [sys.executable, "-c", program, str(folder)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout.readline() == "held\n"
        assert not remove_unused(folder)
        other.stdin.write("\n")
        other.stdin.flush()
        assert other.stdout.readline() == "let go\n"
        assert remove_unused(folder)
        other.stdin.close()
    assert not folder.exists()
    assert remove_unused(folder), "it is gone: nothing is left to do"
    hold(folder, by=test_use_is_seen)


def test_nothing_outside_the_cache_is_touched(kept, tmp_path):
    outside = tmp_path / "outside-float32"
    outside.mkdir()
    (outside / "a.npy").write_bytes(b"precious")
    (kept / "vectors" / "linked-float32").symlink_to(outside)
    (kept / LOG).with_name("1123456789abcdef").symlink_to(outside)
    placed(kept)[2].joinpath("inner").symlink_to(outside)
    foils.cache("prune", keep=0)
    assert (outside / "a.npy").read_bytes() == b"precious"
    assert (kept / "vectors" / "linked-float32").is_symlink()


def test_what_is_refused(kept, capsys):
    refused(r"prune needs keep \(a size\), older_than \(days\), or both", foils.cache, "prune")
    assert run(["cache", "prune", "--keep", "much"]) == 2
    assert "'much' is not a size" in " ".join(capsys.readouterr().err.split())
