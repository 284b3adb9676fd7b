"""Verbs that are killed, resumed, and compared: a small run of benchmarks/faults.py."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "faults.py"
KILLS, POINTS = 2, 4
TINY = """
import json, sys
from importlib import import_module
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from faults import Trials, np
from faults_world import VERBS, World, write_collection

from foils.cli.app import VERBS as PROGRAM

for module in ("bm25s", "foils.cli.mine_methods", *(f"foils.cli.{verb}" for verb in PROGRAM)):
    import_module(module)
folder, kills, points = Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
world = World(folder / "world", "", folder / "prompts.txt")
write_collection(world.folder / "made", 60, 12, words=["boat", "harbour", "tide", "rope", "sail"])
trials = Trials(VERBS["mine bm25"], world, folder)
trials.at_random(kills, np.random.default_rng(0))
trials.at_points(points)
print(json.dumps({**vars(trials.found), "sound": trials.found.sound}))
"""


def killed(verbs: list[str], folder: Path, *, kills: int, points: int) -> dict[str, dict[str, object]]:
    chosen = [word for verb in verbs for word in ("--verb", verb)]
    options = ["--kills", str(kills), "--points", str(points), "--json", str(folder / "faults.json")]
    done = subprocess.run([sys.executable, str(SCRIPT), *chosen, *options], capture_output=True, text=True)
    assert done.returncode in (0, 1), done.stdout + done.stderr
    return json.loads((folder / "faults.json").read_text())  # type: ignore[no-any-return]


def check(found: dict[str, object], *, kills: int, points: int) -> None:
    assert found["kills"] == kills
    assert 0 < found["file_points"] <= points  # type: ignore[operator]
    for what in ("different", "half", "left", "failed"):
        assert not found[what], (what, found[what])
    assert found["encoded_again"] <= found["encoded_again_allowed"]  # type: ignore[operator]
    assert found["asked_again"] <= found["asked_again_allowed"]  # type: ignore[operator]
    assert found["sound"]


def test_kills_of_a_quick_verb(tmp_path: Path) -> None:
    """On sixty documents; the trials of every verb are the slow tests below."""
    command = [sys.executable, "-c", TINY, str(SCRIPT.parent), str(tmp_path), str(KILLS), str(POINTS)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    check(json.loads(done.stdout.splitlines()[-1]), kills=KILLS, points=POINTS)


@pytest.mark.slow
def test_a_few_kills_of_the_cheap_verbs(tmp_path: Path) -> None:
    verbs = ["mine dense", "mine llm", "select", "train"]
    results = killed(verbs, tmp_path, kills=KILLS, points=POINTS)
    assert list(results) == verbs
    for found in results.values():
        check(found, kills=KILLS, points=POINTS)


@pytest.mark.slow
def test_kills_of_every_verb(tmp_path: Path) -> None:
    for found in killed([], tmp_path, kills=5, points=10).values():
        check(found, kills=5, points=10)
