"""Two processes at once on one cache: collection, vectors, judgements."""

import os
import subprocess
import sys
from pathlib import Path

TESTS = Path(__file__).parents[1]
TRIALS = 4
TOGETHER = """
import os, sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from fakes import HashingEncoder
import foils.encode
foils.encode.load_encoder = foils.encode.opening.load_encoder = lambda name, settings=None: HashingEncoder()
from foils.cli.app import run

def both(out, cache):
    os.environ["FOILS_CACHE"] = cache
    status = run(["mine", sys.argv[2], "--with", "dense", "--top", "4", "-o", f"{out}.mined"])
    return status or run(["rate", sys.argv[2], f"{out}.mined", "--judgements", f"{cache}-judged", "-o", f"{out}.rated"])

assert both("alone", "cache") == 0
for trial in range(int(sys.argv[3])):
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


def test_two_processes_on_one_cache(tmp_path, beir_folder):
    """Both end with the bytes of one that was alone, from nothing in the cache; nothing is left aside."""
    folder = beir_folder("made")
    command = [sys.executable, "-c", TOGETHER, str(TESTS), str(folder), str(TRIALS)]
    own = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, env=own, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    for kind in ("mined", "rated"):
        expected = (tmp_path / f"alone.{kind}").read_bytes()
        for name in [f"{name}{trial}.{kind}" for trial in range(TRIALS) for name in "ab"]:
            assert (tmp_path / name).read_bytes() == expected, name
    assert list(tmp_path.rglob("keys")), "the vectors are kept"
    assert list(tmp_path.rglob("judgements.json")), "the judgements are kept"
    assert not list(tmp_path.rglob(".*"))
