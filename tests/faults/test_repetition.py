"""Hash seeds change no byte: verbs in processes of their own, with other values of PYTHONHASHSEED."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
VERBS = """
import os, sys
sys.path.insert(0, sys.argv[1])
from fakes import HashingEncoder
import foils.encode
foils.encode.load_encoder = foils.encode.opening.load_encoder = lambda name, settings=None: HashingEncoder()
from foils.cli.app import run
for line in sys.argv[2:]:
    status = run(line.split())
    assert status == 0, (line, status)
print(hash("a text"))
"""
LINES = (
    "mine {folder} --with random --top 3 -o random.parquet --json random.json",
    "mine {folder} --with bm25 --top 3 -o bm25.parquet --export triplets=triplets.jsonl",
    "mine {folder} --with dense --top 3 -o dense.parquet",
    "score {folder} random.parquet bm25.parquet dense.parquet --json scores.json --report scores.html",
    "rate {folder} dense.parquet -o rated.parquet",
    "select rated.parquet --by percentile -o selected.parquet",
    "batch {folder} --with random --batch-size 2 -o plan.parquet",
)


def made(place: Path, folder: Path, seed: str) -> tuple[dict[str, bytes], str]:
    """The files that the verbs write in a place, and what the hash of a text is there."""
    place.mkdir()
    own = {**os.environ, "PYTHONHASHSEED": seed, "FOILS_CACHE": str(place / "cache"), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", VERBS, str(TESTS), *(line.format(folder=folder) for line in LINES)]
    done = subprocess.run(command, env=own, cwd=place, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    files = {path.name: path.read_bytes() for path in sorted(place.iterdir()) if path.is_file()}
    return files, done.stdout.splitlines()[-1]


@pytest.mark.slow
def test_hash_seeds_change_no_byte(tmp_path, beir_folder):
    folder = beir_folder("made")
    one, hash_of_one = made(tmp_path / "one", folder, "1")
    other, hash_of_other = made(tmp_path / "other", folder, "2")
    assert hash_of_one != hash_of_other, "the seeds do something"
    assert {name.partition(".")[0] for name in one} >= {"random", "triplets", "scores", "rated", "selected", "plan"}
    assert one == other
