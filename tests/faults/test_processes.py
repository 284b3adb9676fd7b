"""Verbs in processes of their own: with other hash seeds, two on one cache, and killed (`make faults`: fifty times)."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from kill_world import write_collection

from train_models import WORDS

TESTS = Path(__file__).parents[1]
HASHING = f"""
import json, os, sys
sys.path[:0] = [{str(TESTS)!r}, {str(TESTS / "faults")!r}]
from fakes import HashingEncoder
import foils.encode.vectors
foils.encode.load_encoder = foils.encode.vectors.load_encoder = lambda name, settings=None: HashingEncoder()
from foils.cli.app import run
"""
LINES = (
    "mine {folder} --with random --top 3 -o random.parquet --json random.json",
    "mine {folder} --with bm25 --top 3 -o bm25.parquet",
    "mine {folder} --with dense --top 3 -o dense.parquet",
    "score {folder} random.parquet bm25.parquet dense.parquet --json scores.json --report scores.html",
    "rate {folder} dense.parquet -o rated.parquet",
    "select rated.parquet --by percentile -o selected.parquet",
    "batch {folder} --with random --batch-size 2 -o plan.parquet",
)
TRIALS = 4
TOGETHER = """
def both(out, cache):
    os.environ["FOILS_CACHE"] = cache
    status = run(["mine", sys.argv[1], "--with", "dense", "--top", "4", "-o", f"{out}-mined.parquet"])
    return status or run(["rate", sys.argv[1], f"{out}-mined.parquet", "-o", f"{out}-rated.parquet"])

assert both("alone", "cache") == 0
for trial in range(int(sys.argv[2])):
    children = []
    for name in "ab":
        if not (child := os.fork()):
            try:
                os._exit(both(f"{name}{trial}", f"cache{trial}"))
            finally:
                os._exit(99)
        children.append(child)
    for child in children:
        assert os.waitpid(child, 0)[1] == 0
"""
KILLED = f"""
import json, sys
sys.path[:0] = [{str(TESTS)!r}, {str(TESTS / "faults")!r}]
from kill_trials import trials_of
from kill_world import VERBS

verbs, kills, points = map(json.loads, sys.argv[1:])
print(json.dumps(dict(trials_of(verbs or list(VERBS), kills=kills, points=points))))
"""


def output(script, *arguments, place, **variables):
    """Run a script in a process of its own, in a place; return the last line that it prints."""
    own = {**os.environ, "OMP_NUM_THREADS": "1", **variables}
    command = [sys.executable, "-c", script, *map(str, arguments)]
    done = subprocess.run(command, env=own, cwd=place, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.splitlines()[-1]


@pytest.mark.slow
def test_hash_seeds_change_no_byte(tmp_path, beir_folder):
    folder = beir_folder("made")
    lines = [line.format(folder=folder) for line in LINES]
    script = HASHING + "for line in sys.argv[1:]:\n    assert run(line.split()) == 0, line\nprint(hash('a text'))"
    hashes, written = set(), []
    for seed in "12":
        place = tmp_path / seed
        place.mkdir()
        hashes.add(output(script, *lines, place=place, PYTHONHASHSEED=seed, FOILS_CACHE=str(place / "cache")))
        written.append({path.name: path.read_bytes() for path in sorted(place.iterdir()) if path.is_file()})
    assert len(hashes) == 2, "the seeds do something"
    assert len(written[0]) == 9
    assert written[0] == written[1]


def test_two_processes_on_one_cache(tmp_path, beir_folder):
    """Both end with the bytes of one that was alone, from nothing in the cache; nothing is left aside."""
    output(HASHING + TOGETHER, beir_folder("made"), TRIALS, place=tmp_path)
    for kind in ("mined", "rated"):
        expected = (tmp_path / f"alone-{kind}.parquet").read_bytes()
        for name in [f"{name}{trial}-{kind}.parquet" for trial in range(TRIALS) for name in "ab"]:
            assert (tmp_path / name).read_bytes() == expected, name
    assert list(tmp_path.rglob("keys")), "the vectors are kept"
    assert not list(tmp_path.rglob(".*"))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("verbs", "kills", "points"), [(["mine dense", "generate", "select", "train"], 2, 4), ([], 5, 10)]
)
def test_killed_verbs_end_as_undisturbed_ones(tmp_path, verbs, kills, points):
    """In a process of their own, which forks."""
    found = json.loads(output(KILLED, json.dumps(verbs), kills, points, place=tmp_path))
    assert not verbs or list(found) == verbs
    for name, each in found.items():
        assert each["sound"], (name, each)
        assert each["kills"] == kills
        assert 0 < each["file_points"] <= points


MINING = """
import sys, time
import foils
from foils.mining import BM25Retriever, candidates

candidates.QUERIES, search = 10, BM25Retriever.search

def noted(self, rows, depth):
    time.sleep(0.05)
    found = search(self, rows, depth)
    with open(sys.argv[3], "a") as notes:
        notes.write(f"{rows[0]}\\n")
    return found

BM25Retriever.search = noted
foils.mine(sys.argv[1], method="bm25", top=3).write(sys.argv[2])
"""


@pytest.mark.slow
def test_a_killed_mining_loses_at_most_the_block_it_was_at(tmp_path, monkeypatch):
    monkeypatch.setenv("FOILS_CACHE", str(tmp_path / "cache"))
    write_collection(tmp_path / "made", 500, 400, words=WORDS)
    notes, rng, killed = tmp_path / "notes", np.random.default_rng(0), 0

    def begun(name):
        return subprocess.Popen([sys.executable, "-c", MINING, tmp_path / "made", tmp_path / name, notes])

    assert begun("whole.parquet").wait(timeout=120) == 0
    blocks = len(notes.read_text().split())
    assert blocks >= 20
    notes.write_text("")
    for _ in range(10):
        before, process = len(notes.read_text().split()), begun("killed.parquet")
        for _ in range(600):  # until some block is done
            if len(notes.read_text().split()) > before or process.poll() is not None:
                break
            time.sleep(0.05)
        time.sleep(rng.uniform(0, 0.1))
        process.kill()
        killed += process.wait(timeout=60) != 0
    assert begun("killed.parquet").wait(timeout=120) == 0
    assert (tmp_path / "killed.parquet").read_bytes() == (tmp_path / "whole.parquet").read_bytes()
    assert killed >= 5
    assert blocks <= len(notes.read_text().split()) <= blocks + killed
