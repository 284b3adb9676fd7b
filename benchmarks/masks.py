"""Do masks lower what training reaches where no positive is hidden, and raise it where most are?

    python benchmarks/masks.py COLLECTION ... [--hide 0 0.9] [--seeds 1] [--top 10] [--ways NAME ...]

As `relabel.py train`: a share of each training query's positives is hidden, the first `--top` documents of dense
retrieval by the word table of all-MiniLM-L6-v2 are its negatives, and that word table is trained for one epoch, with
the masks of `WAYS`: by its own similarities, or by a guide's (all-MiniLM-L6-v2). nDCG@10 of each query of the test
split. Writes benchmarks/results/masks.json; what is there is not done again.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

import foils
from foils.data import load_collection
from foils.evaluation.measuring import measure_encoder
from narrowed import narrowed
from relabel import GUIDE, MEASURE, MODEL, STEPS
from study_first import hidden
from written import write_result

RESULTS = Path(__file__).parent / "results" / "masks.json"


def by(whose: str, margin: float, softness: float = 0.0, near: bool = False) -> dict[str, Any]:
    how = {"mask": whose, "mask_margin": margin, "mask_softness": softness, "mask_near_positive": near}
    return {name: value for name, value in how.items() if value or name == "mask_margin"}


OF_GUIDE = f"guide:{GUIDE}"
WAYS: dict[str, dict[str, Any]] = {
    "no mask": {},
    **{f"self, margin {margin:g}": by("self", margin) for margin in (0.2, 0.1, 0.0, -0.1)},
    "self, margin 0.1, soft 0.05": by("self", 0.1, 0.05),
    **{f"guide, margin {margin:g}": by(OF_GUIDE, margin) for margin in (0.2, 0.1, 0.0, -0.1, -0.2)},
    **{f"guide, margin {margin:g}, soft 0.1": by(OF_GUIDE, margin, 0.1) for margin in (0.1, 0.0, -0.1)},
    "guide, margin 0, near the positive": by(OF_GUIDE, 0.0, near=True),
    "guide, margin 0.2, near the positive": by(OF_GUIDE, 0.2, near=True),
}


def train(given: str, hide: float, seed: int, top: int, ways: list[str]) -> dict[str, dict[str, Any]]:
    """What each way reaches: nDCG@10 by query of the test split, and the share that the mask took away."""
    whole, reached = load_collection(given), {}
    collection, _ = hidden(whole, hide, seed)
    mined = foils.mine(collection, "dense", top=top, encoder=MODEL)
    for way in ways:
        with tempfile.TemporaryDirectory() as folder, narrowed():
            start = time.process_time()
            how = {**STEPS, **WAYS[way], "seed": seed}
            trained = foils.train(collection, mined, model=MODEL, output=Path(folder) / "model", **how)
            measures = measure_encoder(trained.model, whole, "test", [MEASURE])
        per_query = np.round(measures.per_query[MEASURE], 5).tolist()
        reached[way] = {"test": per_query, "seconds": round(time.process_time() - start, 1)}
        if trained.run.masked is not None:
            last = trained.run.masked.epochs[-1]
            reached[way] |= {"masked in batch": round(last.in_batch, 4), "masked of mined": round(last.mined, 4)}
        print(given, hide, seed, way, round(float(np.mean(per_query)), 4), reached[way]["seconds"], flush=True)
    return reached


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("collection", nargs="+")
    parser.add_argument("--hide", type=float, nargs="+", default=[0.0, 0.9])
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--top", type=int, default=10)
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=list(WAYS))
    parser.add_argument("--json", type=Path, default=RESULTS)
    given = parser.parse_args()
    known = json.loads(given.json.read_text()) if given.json.is_file() else []
    for collection in given.collection:
        for seed in range(given.seeds):
            for hide in given.hide:
                what = {"collection": Path(collection).name, "hidden": hide, "seed": seed, "top": given.top}
                row = next((each for each in known if what.items() <= each.items()), None)
                if row is None:
                    known.append(row := {**what, "ways": {}})
                ways = [way for way in given.ways if way not in row["ways"]]
                row["ways"] |= train(collection, hide, seed, given.top, ways) if ways else {}
                write_result(given.json, known)


if __name__ == "__main__":
    main()
