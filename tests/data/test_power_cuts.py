"""What a power cut can undo: every file is on disk before it gets its name, and the name before the work goes on."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from foils.data.tables import write_table
from foils.runtime.files import fill_folder, write_text, write_whole_folder

Event = tuple[str, str]


@pytest.fixture
def events(monkeypatch: pytest.MonkeyPatch) -> list[Event]:
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
    with write_whole_folder(path, mark="meta") as aside:
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
def test_contents_are_flushed_before_the_name_and_the_folder_after_it(
    write: Callable[[Path], None], tmp_path: Path, events: list[Event]
) -> None:
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
