"""The dialogue: each letter does what it says, every answer is on disk before the next question."""

from __future__ import annotations

import io
import os
import select
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from label_world import counts_of, sheet, source, world_folder

from foils.data import Labels
from foils.labelling.doors import QUESTION, Pair, go_through

pty = pytest.importorskip("pty")


def answers(path: Path) -> list[int | None]:
    labels = Labels.of(path).table
    return [
        row["relevant"] if row["relevant"] is not None else "s" for row in labels.to_pylist() if row["judge"] == "anna"
    ]


def talk(path: Path, keys: str) -> str:
    out = io.StringIO()
    pressed = iter(keys)
    go_through(sheet(path), "anna", lambda: next(pressed, ""), out=out)
    return out.getvalue()


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        ("ynysyn", [1, 0, 1, "s", 1, 0]),
        ("YnxNsq", [1, 0, 0, "s"]),
        ("", []),
    ],
)
def test_keys(tmp_path: Path, keys: str, expected: list[object]) -> None:
    path = tmp_path / "labels.tsv"
    shown = talk(path, keys)
    assert answers(path) == expected if expected else not path.exists()
    assert QUESTION in shown
    assert f"{len(expected)} of 6 pairs" in shown


def test_texts_cannot_steer_the_terminal(tmp_path: Path) -> None:
    page = sheet(tmp_path / "labels.tsv")
    page.shown = [Pair("red \x1b[31m", "", "long " * 1_000)] * 6
    out = io.StringIO()
    go_through(page, "anna", lambda: "q", out=out, width=60)
    assert "\x1b" not in out.getvalue()
    assert "positive" not in out.getvalue()
    assert max(map(len, out.getvalue().split(QUESTION)[0].splitlines())) <= 60
    assert len(out.getvalue()) < 4_000


def on_a_terminal(folder: Path, reply: Callable[[int], str | None]) -> tuple[int, str]:
    """Run `foils label` on a terminal of its own; `reply` gives the answer to the question of this number, or kills."""
    command = ["label", str(folder), str(folder / "a.parquet"), "-n", "8", "-o", str(folder / "labels.tsv")]
    child, handle = pty.fork()
    if child == 0:
        os.execv(sys.executable, [sys.executable, "-m", "foils", *command])
    shown, asked, end = b"", 0, time.monotonic() + 240
    while time.monotonic() < end:
        if not select.select([handle], [], [], 1)[0]:
            continue
        try:
            read = os.read(handle, 65536)
        except OSError:
            break
        shown += read
        while shown.count(b"q quit") > asked:
            asked += 1
            key = reply(asked)
            if key is None:
                os.kill(child, signal.SIGKILL)
            else:
                os.write(handle, f"{key}\n".encode())
        if not read:
            break
    else:
        os.kill(child, signal.SIGKILL)
    os.close(handle)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), shown.decode()


def test_on_a_terminal_a_kill_costs_nothing(tmp_path: Path) -> None:
    folder = world_folder(tmp_path / "world")
    source("a", 1).write(folder / "a.parquet")
    status, _ = on_a_terminal(folder, lambda number: "y" if number < 4 else None)
    assert status == -signal.SIGKILL
    judged = {"judged": 3, "relevant": 3, "skipped": 0}
    assert counts_of(Labels.of(folder / "labels.tsv"), "person") == judged
    status, shown = on_a_terminal(folder, lambda number: "n")
    assert status == 0
    assert "4 of 8" in shown
    assert "false negatives" in shown
    assert counts_of(Labels.of(folder / "labels.tsv"), "person") == {**judged, "judged": 8}


def test_two_people_at_once_keep_both_their_answers(tmp_path: Path) -> None:
    path = tmp_path / "labels.tsv"
    anna, bert = sheet(path), sheet(path)
    for place in range(3):
        anna.record(place, "anna", 1)
        anna.write()
        bert.record(place, "bert", 0)
        bert.write()
    anna.write()
    judged = [row["judge"] for row in Labels.of(path).table.to_pylist()]
    assert (judged.count("anna"), judged.count("bert")) == (3, 3)
