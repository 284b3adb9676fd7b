"""Stored collections: written once, read by all, whole after a power cut."""

import hashlib
import json
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from foils.data.tables import provenance, read_table, write_table
from foils.runtime.errors import FailureError, FormatError, InputError
from foils.runtime.files import (
    cache_folder,
    existing_file,
    file_digest,
    fill_folder,
    write_json,
    write_text,
    write_whole,
)  # fmt: skip
from refusals import refused

TABLE = pa.table({"query_id": ["q1", "q2"], "score": [0.5, float("nan")]})


@contextmanager
def full_disk(after: int = 1_000) -> Iterator[None]:
    """No file grows past so many bytes: the system itself refuses, as it does on a full disk."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (after, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


# Whole files


def test_a_file_takes_the_place_of_the_old_one(tmp_path):
    path = tmp_path / "new" / "folder" / "a.txt"
    write_text(path, "old\n")
    write_text(path, "gr\u00fcn\n")
    assert path.read_bytes() == b"gr\xc3\xbcn\n"
    assert names(path.parent) == ["a.txt"]


def test_a_kill_in_the_middle_leaves_the_old_file(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("old")
    program = (
        "import os, signal, sys; from foils.runtime.files import write_whole\n"
        "with write_whole(sys.argv[1]) as aside:\n"
        "    aside.write_text('half'); os.kill(os.getpid(), signal.SIGKILL)"
    )
    assert subprocess.run([sys.executable, "-c", program, str(path)]).returncode == -signal.SIGKILL
    assert path.read_text() == "old"
    (left,) = (name for name in names(tmp_path) if name.endswith(".part"))
    write_text(tmp_path / "b.txt", "another file of the folder")  # what a dead writer left aside is removed
    assert path.read_text() == "old"
    assert names(tmp_path) == ["a.txt", "b.txt"], left


def test_what_a_living_writer_has_aside_stays(tmp_path):
    with write_whole(tmp_path / "a.txt") as aside:
        aside.write_text("half")
        write_text(tmp_path / "b.txt", "b")
        (tmp_path / ".not ours.part").write_text("x")
        write_text(tmp_path / "a.txt", "by another")
        assert aside.read_text() == "half"
    assert names(tmp_path) == [".not ours.part", "a.txt", "b.txt"]
    assert (tmp_path / "a.txt").read_text() == "half"


def test_a_folder_appears_whole(tmp_path):
    program = (
        "import os, signal, sys; from foils.runtime.files import fill_folder\n"
        "with fill_folder(sys.argv[1], mark='done') as aside:\n"
        "    (aside / 'half').write_text('half'); os.kill(os.getpid(), signal.SIGKILL)"
    )
    path = tmp_path / "a"
    assert subprocess.run([sys.executable, "-c", program, str(path)]).returncode == -signal.SIGKILL
    assert not path.exists()
    for text in ("first", "second"):  # where another was first, its folder stays
        with fill_folder(path, mark="done") as aside:
            (aside / "done").write_text(text)
    assert names(tmp_path) == ["a"]
    assert (path / "done").read_text() == "first"
    with (
        full_disk(),
        pytest.raises(FailureError, match="nothing was changed"),
        fill_folder(tmp_path / "b", mark="done") as aside,
    ):
        (aside / "done").write_text("x" * 5_000)
    assert names(tmp_path) == ["a"]


def test_the_files_of_a_folder_take_their_places_when_all_are_there(tmp_path):
    path = tmp_path / "model"
    path.mkdir()
    (path / "old").write_text("old")
    (path / "config").write_text("old")
    with fill_folder(path) as aside:
        (aside / "inner").mkdir()
        for name in ("config", "inner/weights"):
            (aside / name).write_text("new")
        assert (path / "config").read_text() == "old"
        assert names(path) == ["config", "old"]
    assert {each.name: each.read_text() for each in path.rglob("*") if each.is_file()} == {
        "old": "old", "config": "new", "weights": "new",
    }  # fmt: skip

    def fill() -> None:
        with fill_folder(path) as aside:
            (aside / "a").write_text("a")
            (aside / "config").write_text("x" * 5_000)

    with full_disk(), pytest.raises(FailureError, match=r"cannot write .*model: File too large"):
        fill()
    assert (path / "config").read_text() == "new"
    assert names(path) == ["config", "inner", "old"]
    assert names(tmp_path) == ["model"]


@pytest.mark.parametrize("write", [lambda p: write_text(p, "x" * 5_000), lambda p: write_table(p, big_table(), {})])
def test_a_full_disk(tmp_path, write):
    path = tmp_path / "a"
    path.write_text("old")
    with full_disk(), pytest.raises(FailureError, match=r"cannot write .*/a: .*File too large; nothing was changed"):
        write(path)  # type: ignore[operator]
    assert path.read_text() == "old"
    assert names(tmp_path) == ["a"]


def big_table() -> pa.Table:
    return pa.table({"x": [hashlib.sha256(str(i).encode()).hexdigest() for i in range(500)]})


def test_a_pipe_is_not_replaced_by_a_file(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    refused("is a folder, a pipe or a device; give the name of a file", write_json, pipe, {"a": 1})
    assert pipe.is_fifo()
    assert names(tmp_path) == ["pipe"]


def test_a_file_that_may_not_be_replaced(tmp_path, monkeypatch):
    path = tmp_path / "a.txt"
    path.write_text("old")

    def refuse(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "replace", refuse)
    with pytest.raises(FailureError, match="Permission denied; nothing was changed"):
        write_text(path, "new")
    assert path.read_text() == "old"
    assert names(tmp_path) == ["a.txt"]


def test_json_has_no_nan(tmp_path):
    path = tmp_path / "a.json"
    write_json(path, {"score": None, "name": "gr\u00fcn"})
    assert json.loads(path.read_text("utf-8")) == {"score": None, "name": "gr\u00fcn"}
    assert "gr\u00fcn" in path.read_text("utf-8")
    with pytest.raises(ValueError, match="not JSON compliant"):
        write_json(path, {"score": float("nan")})
    assert json.loads(path.read_text("utf-8"))["score"] is None


# Tables


def test_a_table_and_its_provenance_come_back(tmp_path):
    path = tmp_path / "t.parquet"
    made = provenance("mine", {"top": 10, "with": "bm25"}, inputs={"collection": "abc"}, seed=3)
    write_table(path, TABLE, made)
    table, said = read_table(path)
    assert said == made
    assert table.schema.equals(TABLE.schema, check_metadata=True)
    assert table["query_id"].to_pylist() == ["q1", "q2"]
    assert (said["stage"], said["settings"]["top"], said["inputs"], said["seed"]) == (
        "mine", 10, {"collection": "abc"}, 3,
    )  # fmt: skip
    assert said["versions"]["pyarrow"] == pa.__version__


def test_the_same_work_gives_the_same_bytes(tmp_path):
    paths = [tmp_path / "one" / "a.parquet", tmp_path / "two" / "b.parquet"]
    settings = {"top": 10, "with": "bm25"}
    write_table(paths[0], TABLE, provenance("mine", settings))
    write_table(paths[1], TABLE, provenance("mine", dict(reversed(settings.items()))))
    assert paths[0].read_bytes() == paths[1].read_bytes()
    assert file_digest(paths[0]) == hashlib.sha256(paths[0].read_bytes()).hexdigest()
    write_table(paths[1], TABLE, provenance("mine", {**settings, "top": 11}))
    assert file_digest(paths[0]) != file_digest(paths[1])


@pytest.mark.parametrize("damage", [b"PAR1", None])
def test_a_damaged_table(tmp_path, damage):
    path = tmp_path / "t.parquet"
    write_table(path, big_table(), {})
    path.write_bytes(path.read_bytes()[:-20] if damage is None else damage)
    with pytest.raises(FormatError, match=r"t\.parquet: not a readable Parquet file"):
        read_table(path)


def test_damaged_provenance(tmp_path):
    path = tmp_path / "t.parquet"
    pq.write_table(TABLE.replace_schema_metadata({b"foils": b"{"}), path)
    with pytest.raises(FormatError, match=r"t\.parquet"):
        read_table(path)


def test_what_is_not_there(tmp_path):
    for read in (existing_file, file_digest, read_table):
        with pytest.raises(InputError, match=r"none\.txt: no such file"):
            read(tmp_path / "none.txt")
        with pytest.raises(InputError, match="is a folder, a pipe or a device, not a file"):
            read(tmp_path)


def test_the_cache_is_where_the_environment_says(monkeypatch):
    monkeypatch.setenv("FOILS_CACHE", "/a/b")
    assert cache_folder() == Path("/a/b")
    monkeypatch.delenv("FOILS_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", "/c")
    assert cache_folder() == Path("/c/foils")
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert cache_folder() == Path.home() / ".cache" / "foils"


def test_the_cache_is_for_its_user_alone(tmp_path, monkeypatch):
    monkeypatch.setenv("FOILS_CACHE", str(tmp_path / "cache"))
    write_text(tmp_path / "cache" / "vectors" / "x", "x")
    assert (tmp_path / "cache").stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("write", [write_whole, lambda path: fill_folder(path, mark="m")])
def test_what_another_process_takes_for_dead_before_it_is_opened_is_made_again(tmp_path, monkeypatch, write):
    opened, original = [], os.open

    def open_late(path: Any, *how: Any, **more: Any) -> int:
        if str(path).endswith(".part") and not how[0] & os.O_CREAT and not opened:
            opened.append(path)
            path.rmdir() if path.is_dir() else path.unlink()
        return original(path, *how, **more)

    monkeypatch.setattr(os, "open", open_late)
    with write(tmp_path / "x") as aside:
        (aside / "m" if aside.is_dir() else aside).write_text("whole")
    assert len(opened) == 1
    assert (tmp_path / "x").exists()


Event = tuple[str, str]


@pytest.fixture
def events(monkeypatch):
    """The order of flushes and renames: ("flush", what), ("name", what got its name)."""
    seen: list[Event] = []
    flush, replace, rename = os.fsync, Path.replace, Path.rename

    def flushed(handle: int) -> None:
        flush(handle)
        seen.append(("flush", str(Path(f"/proc/self/fd/{handle}").readlink())))

    def named(move: Callable[[Path, Path], Path]) -> Callable[[Path, Path], Path]:
        def moved(self: Path, target: Path) -> Path:
            seen.append(("name", f"{self} > {target}"))
            return move(self, target)

        return moved

    monkeypatch.setattr(os, "fsync", flushed)
    monkeypatch.setattr(Path, "replace", named(replace))
    monkeypatch.setattr(Path, "rename", named(rename))
    return seen


def one_file(path: Path) -> None:
    write_text(path, "text")


def one_table(path: Path) -> None:
    write_table(path, pa.table({"a": [1, 2]}), {})


def whole_folder(path: Path) -> None:
    with fill_folder(path, mark="meta") as aside:
        (aside / "inner").mkdir()
        (aside / "inner" / "data").write_text("data")
        (aside / "meta").write_text("{}")


def filled_folder(path: Path) -> None:
    with fill_folder(path) as aside:
        (aside / "inner").mkdir()
        (aside / "inner" / "data").write_text("data")
        (aside / "config").write_text("{}")


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="needs /proc to name what is flushed")
@pytest.mark.parametrize("write", [one_file, one_table, whole_folder, filled_folder])
def test_contents_are_flushed_before_the_name_and_the_folder_after_it(write, tmp_path, events):
    write(tmp_path / "made")
    names = [at for at, (what, _) in enumerate(events) if what == "name"]
    assert names
    for at in names:
        source, _, target = events[at][1].partition(" > ")
        assert ("flush", source) in events[:at], "its contents come first"
        assert ("flush", str(Path(target).parent)) in events[at:], "its name is flushed too"
    if write in (whole_folder, filled_folder):
        flushed = [what for kind, what in events[: names[0]] if kind == "flush"]
        inner = next(at for at, what in enumerate(flushed) if what.endswith("/inner/data"))
        assert any(what.endswith("/inner") for what in flushed[inner:]), "a folder after what lies in it"
