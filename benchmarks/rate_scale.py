"""How time and memory of a rating grow with the number of pairs.

    python benchmarks/rate_scale.py [--pairs 10000 100000 1000000] [--memory 256MiB] [--json FILE]

Queries of 100 negatives and one labelled positive, degree 6, so 303 pairs each, over a corpus of 20,000 short made-up
documents. The judge is synthetic (a sigmoid of numbers, with a position bias, asked in both orders), so that what is
measured is the rating itself: graph, asking block by block, keeping judgements on disk, fit, errors, figures of the
graph. Then everything is rated again from the judgements on disk. Each size runs in a process of its own. Memory is
the peak that no file backs, less what the process held before the rating (the collection and the table of negatives);
time is the processor's, which other programs' load disturbs less.

The slope between two sizes is log(y₂/y₁)/log(m₂/m₁): 1 is linear. Writes benchmarks/results/rate_scale.json.
"""

from __future__ import annotations

import argparse
import json
import math
import subprocess
import sys
import tempfile
import time
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
from scipy.special import expit

from foils.data import Collection, Negatives
from foils.data.negatives import negatives_table
from foils.data.store import write_json
from foils.rating import Candidates, JudgementRecord, Pairs, rate_negatives
from foils.runtime import memory
from score import anonymous_bytes, watch

RESULTS = Path(__file__).parent / "results" / "rate_scale.json"
NEGATIVES, DEGREE, DOCUMENTS = 100, 6, 20_000
PAIRS_OF_QUERY = (NEGATIVES + 1) * DEGREE // 2


class NumberedJudge:
    """P(first ≻ second) from a number of each candidate, with a bias for the one shown first."""

    name, fingerprint, antisymmetric = "numbered", "numbered-1", False

    def judge(self, candidates: Candidates, pairs: Pairs) -> np.ndarray:
        candidates.check(pairs)
        first, second = (rows * 7919 % 1009 / 500 for rows in (pairs.first, pairs.second))
        return np.clip(expit(first - second) + 0.02, 0, 1)


def world(queries: int) -> tuple[Collection, Negatives]:
    documents = {f"document-{i}": f"text of document {i}" for i in range(DOCUMENTS + queries)}
    names = {f"query-{i}": f"question {i}" for i in range(queries)}
    qrels = {"train": {f"query-{i}": {f"document-{DOCUMENTS + i}": 1} for i in range(queries)}}
    rng = np.random.default_rng(0)
    rows = np.concatenate([rng.choice(DOCUMENTS, NEGATIVES, replace=False) for _ in range(queries)])
    query_ids = pa.array(list(names)).take(pa.array(np.repeat(np.arange(queries), NEGATIVES)))
    doc_ids = pa.array([f"document-{i}" for i in range(DOCUMENTS)]).take(pa.array(rows))
    rank = np.tile(np.arange(NEGATIVES), queries)
    table = negatives_table(query_ids, doc_ids, "made", rank, np.zeros(len(rank)))
    return Collection.from_dicts("made", documents, names, qrels), Negatives(table)


def measured(pairs: int) -> dict[str, float]:
    """Rate once with the judge and once from the record; report time and peak memory of each."""
    queries = round(pairs / PAIRS_OF_QUERY)
    collection, negatives = world(queries)
    found: dict[str, float] = {"queries": queries}
    with tempfile.TemporaryDirectory() as folder:
        for run in ("asked", "kept"):
            record = JudgementRecord(folder, {"judge": NumberedJudge.fingerprint})
            before = anonymous_bytes()
            peak = [before]
            stop, start = watch(peak), time.process_time()
            rated = rate_negatives(collection, negatives, NumberedJudge(), split="train", degree=DEGREE, record=record)
            found[f"{run}_seconds"] = time.process_time() - start
            stop.set()
            found[f"{run}_mib"] = (max(peak) - before) / 2**20
            found["pairs"] = len(rated.pairs)
            del rated, record
    return found


def slopes(rows: list[dict[str, float]]) -> list[dict[str, float]]:
    """Exponents of growth between neighbouring sizes."""
    names = [name for name in rows[0] if name.endswith(("_seconds", "_mib"))]
    return [
        {
            "from_pairs": one["pairs"],
            "to_pairs": other["pairs"],
            **{name: math.log(other[name] / one[name]) / math.log(other["pairs"] / one["pairs"]) for name in names},
        }
        for one, other in pairwise(rows)
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, nargs="+", default=[10_000, 100_000, 1_000_000])
    parser.add_argument("--memory", default="256MiB")
    parser.add_argument("--json", type=Path, default=RESULTS)
    parser.add_argument("--one", type=int, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one:
        with memory.limited(memory.parsed_size(given.memory)):
            print(json.dumps(measured(given.one)))
        return
    rows = []
    for pairs in given.pairs:
        command = [sys.executable, __file__, "--one", str(pairs), "--memory", given.memory]
        rows.append(json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout))
        print({name: round(value, 2) for name, value in rows[-1].items()}, flush=True)
    result = {"memory": given.memory, "sizes": rows, "slopes": slopes(rows)}
    write_json(given.json, result)
    for each in result["slopes"]:
        print({name: round(value, 2) for name, value in each.items()})


if __name__ == "__main__":
    main()
