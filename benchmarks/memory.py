"""Mining from a corpus that does not fit: memory beyond the mapped vectors.

    python benchmarks/memory.py [--documents 2000000] [--queries 2000]

Vectors (d 384) lie in a file that is mapped; dense search takes the 20 best of every query. Reports the memory that no
file backs, at its peak, beside the size of the file. Writes benchmarks/results/memory.json.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import numpy as np

from foils.data.store import write_json
from foils.encode import Vectors
from foils.encode.nearest import top_inner_products
from score import anonymous_bytes, seconds, unit, watch

RESULTS = Path(__file__).parent / "results" / "memory.json"
DIMENSION = 384


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--documents", type=int, default=2_000_000)
    parser.add_argument("--queries", type=int, default=2_000)
    given = parser.parse_args()
    rng = np.random.default_rng(0)
    with tempfile.TemporaryDirectory() as folder:
        path, shape = Path(folder) / "documents", (given.documents, DIMENSION)
        written = np.memmap(path, np.float32, "w+", shape=shape)
        for start in range(0, given.documents, 20_000):
            written[start : start + 20_000] = unit(rng, min(20_000, given.documents - start), DIMENSION)
        written.flush()
        del written
        queries = unit(rng, given.queries, DIMENSION)
        documents = Vectors.of(np.memmap(path, np.float32, "r", shape=shape))
        before = anonymous_bytes()
        peak = [before]
        stop = watch(peak)
        spent = seconds(lambda: top_inner_products(queries, documents, 20))
        stop.set()
    found = {
        "documents": given.documents,
        "queries": given.queries,
        "mapped_gib": given.documents * DIMENSION * 4 / 2**30,
        "gib_beyond_mapped_vectors": (max(peak) - before) / 2**30,
        "seconds": spent,
    }
    write_json(RESULTS, found)
    print(found)


if __name__ == "__main__":
    main()
