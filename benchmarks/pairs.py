"""Peak memory of reading a file of pairs for the first time, against the number of pairs and the size of the file.

    python benchmarks/pairs.py [--pairs 50000 100000 200000 400000] [--words 60] [--seconds 300]
    python benchmarks/pairs.py --pairs 5000000 --words 200 --name large     # a file of several gigabytes, once

Made-up pairs: a query of 10 words and a document of its own, of `--words` words, in CSV. Each file is read by
`foils.load` in a process of its own with an empty cache. Reports the peak of the memory that no file backs, read every
20 ms, less that of a file of 100 pairs: the texts, which are mapped from the disk, are not in it. The slope over the
sizes is the memory that a pair takes. Writes benchmarks/results/pairs.json.
"""

from __future__ import annotations

import argparse
import csv
import json
import sys
import tempfile
from pathlib import Path

import numpy as np

from foils.data.store import write_json
from memory_verbs import peak_of_command

RESULTS = Path(__file__).parent / "results" / "pairs.json"
LEAST = 100  # pairs of the file that shows what reading takes of itself
QUERY = 10  # words
WORD = 6  # letters, with the blank
READ = "import sys, foils; assert len(foils.load(sys.argv[1]).queries) == int(sys.argv[2])"


def write_pairs(path: Path, pairs: int, words: int) -> None:
    """Write pairs whose texts are windows of one long text of made-up words, each from a place of its own."""
    rng = np.random.default_rng(0)
    letters = rng.choice(list("abcdefghijklmnoprstuvwyz"), (pairs // 10 + 10_000, WORD))
    letters[:, -1] = " "
    text = "".join(letters.ravel().tolist())
    starts = rng.integers(0, len(text) - (words + 1) * WORD, (pairs, 2))
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["question", "answer"])
        for at, (query, document) in enumerate(starts.tolist()):
            writer.writerow(
                [f"{at} {text[query : query + QUERY * WORD]}", f"{at} {text[document : document + words * WORD]}"]
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, nargs="+", default=[50_000, 100_000, 200_000, 400_000])
    parser.add_argument("--words", type=int, default=60)
    parser.add_argument("--seconds", type=float, default=300.0)
    parser.add_argument("--name", default="growth")
    parser.add_argument("--json", type=Path, default=RESULTS)
    given = parser.parse_args()
    taken: dict[int, dict[str, float | None]] = {}
    with tempfile.TemporaryDirectory(prefix="foils-pairs-") as folder:
        for pairs in [LEAST, *given.pairs]:
            path = Path(folder) / "pairs.csv"
            write_pairs(path, pairs, given.words)
            command = [sys.executable, "-c", READ, str(path), str(pairs)]
            taken[pairs] = {
                "file_mib": path.stat().st_size / 2**20,
                **peak_of_command(command, Path(folder) / f"cache-{pairs}", given.seconds),
            }
            print(pairs, taken[pairs], flush=True)
    least = taken.pop(LEAST)["mib"] or 0.0
    measured = {pairs: (of["mib"] - least) * 2**20 for pairs, of in taken.items() if of["mib"] is not None}
    found = json.loads(given.json.read_text()) if given.json.is_file() else {}
    found[given.name] = {
        "words": given.words,
        "of_itself_mib": least,
        "pairs": {str(pairs): of for pairs, of in taken.items()},
        "bytes_a_pair": float(np.polyfit([0, *measured], [0.0, *measured.values()], 1)[0]) if measured else None,
    }
    write_json(given.json, found)
    print(found[given.name])


if __name__ == "__main__":
    main()
