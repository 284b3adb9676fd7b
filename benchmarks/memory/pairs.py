"""Peak memory of reading, describing and mining a file of pairs, against the number of pairs and the size of the file.

    python benchmarks/run.py pairs [--pairs 50000 100000] [--words 60] [--seconds 300]
    python benchmarks/run.py pairs --pairs 110000 220000 --words 4000 --name long --seconds 3000     # 2.5 and 4.9 GiB

Made-up pairs: a query of 10 words and a document of its own, of `--words` words, in CSV. Each file is read by
`foils.load` in a process of its own with an empty cache; `foils describe` and `foils mine --with random` then open
what that stored. Reports the peak of the memory that no file backs, read every 20 ms, less that of a file of 100 pairs,
by the pair; `resident_mib` has the pages of mapped files, too.
Writes benchmarks/results/pairs.json.
"""

from __future__ import annotations

import csv
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from common import argument_parser, load, peak_of_command, save

LEAST = 100  # pairs of the file that shows what reading takes of itself
QUERY = 10  # words
WORD = 6  # letters, with the blank
COMMANDS = ("load", "describe", "mine random")
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


def measured(path: Path, pairs: int, folder: Path, seconds: float) -> dict[str, dict[str, float | None]]:
    """Return what each command takes; the first reads the file, the others what it stored."""
    program = [sys.executable, "-c", "from foils.cli import main; main()"]
    commands = {
        "load": [sys.executable, "-c", READ, str(path), str(pairs)],
        "describe": [*program, "describe", str(path)],
        "mine random": [*program, "mine", str(path), "--with", "random", "--top", "5", "-o", str(folder / "r.parquet")],
    }
    return {name: peak_of_command(command, folder / f"cache-{pairs}", seconds) for name, command in commands.items()}


def main() -> None:
    parser = argument_parser(__doc__)
    parser.add_argument("--pairs", type=int, nargs="+", default=[50_000, 100_000])
    parser.add_argument("--words", type=int, default=60)
    parser.add_argument("--seconds", type=float, default=300.0)
    parser.add_argument("--name", default="growth")
    given = parser.parse_args()
    taken: dict[int, dict[str, Any]] = {}
    with tempfile.TemporaryDirectory(prefix="foils-pairs-") as folder:
        for pairs in [LEAST, *given.pairs]:
            path = Path(folder) / "pairs.csv"
            write_pairs(path, pairs, given.words)
            size = path.stat().st_size / 2**20
            taken[pairs] = {"file_mib": size, **measured(path, pairs, Path(folder), given.seconds)}
            shutil.rmtree(Path(folder) / f"cache-{pairs}", ignore_errors=True)
            print(pairs, taken[pairs], flush=True)
    least = taken.pop(LEAST)
    results = load("pairs")
    results[given.name] = {
        "words": given.words,
        "of_itself_mib": {name: least[name]["mib"] for name in COMMANDS},
        "pairs": {str(pairs): of for pairs, of in taken.items()},
        "bytes_a_pair": {name: slope(name, least, taken) for name in COMMANDS},
    }
    save("pairs", results)


def slope(name: str, least: dict[str, Any], taken: dict[int, dict[str, Any]]) -> float | None:
    """Return how many bytes a pair takes, of a line through what the sizes took."""
    known = {pairs: (of[name]["mib"] - least[name]["mib"]) * 2**20 for pairs, of in taken.items() if of[name]["mib"]}
    return float(np.polyfit([0, *known], [0.0, *known.values()], 1)[0]) if known else None
