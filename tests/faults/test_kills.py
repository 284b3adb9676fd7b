"""Verbs that are killed, resumed, and compared: a few kills; `make faults` has fifty of each verb."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

TESTS = Path(__file__).parents[1]
KILLS, POINTS = 2, 4
WHOLE = """
from kill_trials import trials_of
from kill_world import VERBS

print(json.dumps(dict(trials_of(verbs or list(VERBS), kills=kills, points=points))))
"""
GIVEN = """
import json, sys
from pathlib import Path
folder, verbs, kills, points = Path(sys.argv[1]), *map(json.loads, sys.argv[2:5])
sys.path[:0] = sys.argv[5:]
"""


def killed(script: str, folder: Path, verbs: list[str], *, kills: int, points: int) -> Any:
    """Run trials in a process of their own, which forks; return what they found, a verb's under its name."""
    given = [str(folder), json.dumps(verbs), str(kills), str(points), str(TESTS), str(TESTS / "faults")]
    done = subprocess.run([sys.executable, "-c", GIVEN + script, *given], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def check(found: dict[str, object], *, kills: int, points: int) -> None:
    assert found["kills"] == kills
    assert 0 < found["file_points"] <= points  # type: ignore[operator]
    for what in ("different", "half", "left", "failed"):
        assert not found[what], (what, found[what])
    assert found["encoded_again"] <= found["encoded_again_allowed"]  # type: ignore[operator]
    assert found["asked_again"] <= found["asked_again_allowed"]  # type: ignore[operator]
    assert found["sound"]


@pytest.mark.slow
def test_a_few_kills_of_the_cheap_verbs(tmp_path):
    verbs = ["mine dense", "generate", "select", "train"]
    results = killed(WHOLE, tmp_path, verbs, kills=KILLS, points=POINTS)
    assert list(results) == verbs
    assert results["mine dense"]["encoded"]
    for found in results.values():
        check(found, kills=KILLS, points=POINTS)


@pytest.mark.slow
def test_kills_of_every_verb(tmp_path):
    for found in killed(WHOLE, tmp_path, [], kills=5, points=10).values():
        check(found, kills=5, points=10)
