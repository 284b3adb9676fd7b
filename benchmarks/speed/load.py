"""How long it takes to load a CSV file of pairs: this version against the sources of another one.

    python benchmarks/run.py load [--rows 100000] [--words 60] [--before path/to/src] [--repeats 3]

Each side runs in processes of its own, taking turns, with an empty cache. Seconds are the processor's, of all threads,
and medians; the ratio says how many times as fast this version is. Both must make the same collection.
"""

from __future__ import annotations

import argparse
import csv
import os
import random
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

LOAD = """
import sys, time
from foils.data import load_collection
start = time.process_time()
collection = load_collection(sys.argv[1])
print(time.process_time() - start, collection.digest)
"""


def write_pairs(path: Path, rows: int, words: int) -> None:
    """Write queries of 10 words and documents of `words`, all distinct."""
    draw, vocabulary = random.Random(1), [f"w{number}" for number in range(5000)]
    with path.open("w", newline="", encoding="utf-8") as out:
        writer = csv.writer(out)
        writer.writerow(["query", "positive"])
        for row in range(rows):
            texts = (draw.choices(vocabulary, k=9), draw.choices(vocabulary, k=words - 1))
            writer.writerow([" ".join([*text, str(row)]) for text in texts])


def loaded(path: Path, source: Path) -> tuple[float, str]:
    """Load it in a process of its own; return the seconds and the collection's digest."""
    with tempfile.TemporaryDirectory() as cache:
        environment = {**os.environ, "PYTHONPATH": str(source), "XDG_CACHE_HOME": cache}
        command = [sys.executable, "-c", LOAD, str(path)]
        seconds, digest = subprocess.check_output(command, env=environment, text=True).split()
    return float(seconds), digest


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--words", type=int, default=60)
    parser.add_argument("--before", type=Path)
    parser.add_argument("--repeats", type=int, default=3)
    arguments = parser.parse_args()
    sides = {"now": Path(__file__).parents[2] / "src", **({"before": arguments.before} if arguments.before else {})}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "pairs.csv")
        write_pairs(path, arguments.rows, arguments.words)
        runs: dict[str, list[tuple[float, str]]] = {side: [] for side in sides}
        for _ in range(arguments.repeats):
            for side, source in sides.items():
                runs[side].append(loaded(path, source))
    seconds = {side: statistics.median(time for time, _ in of) for side, of in runs.items()}
    print(", ".join(f"{side} {time:.2f} s" for side, time in seconds.items()))
    if len(seconds) > 1:
        print(f"{seconds['before'] / seconds['now']:.1f} times as fast")
    if len({digest for of in runs.values() for _, digest in of}) > 1:
        raise SystemExit("the sides made different collections")


if __name__ == "__main__":
    main()
