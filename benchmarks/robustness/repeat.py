"""Whether the same seed gives the same bytes: in other processes, with other hash seeds, with other numbers of threads.

    python benchmarks/run.py repeat [--verb NAME ...] [--json FILE]

Each verb of tests/faults/kill_world.py runs in fresh processes: twice as it is, with three values of PYTHONHASHSEED,
and with 1 and 2 threads (OMP_NUM_THREADS). Digests of the files that it writes are compared (JSON less timings).

Writes benchmarks/results/repeat.json.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

from kill_trials import Place, fresh, prepare
from kill_world import VERBS, Verb, World, answering, make_world

from common import argument_parser, load, save

WAYS: dict[str, list[dict[str, str]]] = {
    "process": [{"PYTHONHASHSEED": "0"}],
    "hash seed": [{"PYTHONHASHSEED": "1"}, {"PYTHONHASHSEED": "12345"}],
    "threads": [{"PYTHONHASHSEED": "0", "OMP_NUM_THREADS": "2"}],
}
BASE = {"PYTHONHASHSEED": "0", "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}


def ran(verb: Verb, world: World, keep: Place, environment: dict[str, str]) -> dict[str, str]:
    """Run a verb with nothing in its cache, always in one place; keep its files, and return their digests."""
    place = fresh(keep.folder.parent / "place")
    command = [sys.executable, "-c", "from foils.cli import main; main()", *verb.arguments(world, place.out)]
    own = {**os.environ, **BASE, **environment, "FOILS_CACHE": str(place.folder / "cache")}
    done = subprocess.run(command, env=own, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{verb.name}: {done.stderr}")
    shutil.rmtree(keep.folder)
    place.folder.rename(keep.folder)
    return keep.contents()


def row_of(name: str, found: dict[str, Any]) -> dict[str, Any]:
    """Return which files of a verb differ where the same command runs otherwise."""
    cells = {way: ", ".join(found[way]) or "same bytes" for way in WAYS if way in found}
    return {"verb": name, "files": found["files"], **cells}


def main() -> None:
    parser = argument_parser(__doc__)
    parser.add_argument("--verb", action="append", choices=list(VERBS))
    parser.add_argument("--way", action="append", choices=list(WAYS))
    given = parser.parse_args()
    results = load("repeat")
    results.pop("tables", None)
    with tempfile.TemporaryDirectory(prefix="foils-repeat-") as folder, answering(Path(folder)) as server:
        world = make_world(Path(folder) / "world", server, partial(prepare, Path(folder)))
        for name in given.verb or VERBS:
            base = fresh(Path(folder) / "base")
            expected = ran(VERBS[name], world, base, {})
            found: dict[str, Any] = {"files": len(expected)}
            for way in given.way or WAYS:
                different: set[str] = set()
                for environment in WAYS[way]:
                    place = fresh(Path(folder) / "other")
                    contents = ran(VERBS[name], world, place, environment)
                    names = expected.keys() | contents.keys()
                    different |= {each for each in names if expected.get(each) != contents.get(each)}
                found[way] = sorted(different)
            results[name] = found
            save("repeat", results, {"": [row_of(name, each) for name, each in results.items()]})
