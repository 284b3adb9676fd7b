"""ECI_sem's claim as it was published: within a setting, its order of the sources is that of the trained models.

    python benchmarks/run.py as_published FOLDER DATA --train squad-sent --test-on scifact cranfield banking77 clinc150
        [--model static:all-MiniLM-L6-v2] [--queries N] [--seeds 4] [--batch-size 1024] [--score-with ENCODER]

DATA holds the collections as folders. The protocol is the paper's: sources of ten negatives a query, hybrids of two
with the negatives of both (20), flattened triplets with in-batch negatives, one epoch, τ 0.05, texts of at most 128
tokens; nDCG@10 on collections that were not trained on, and its mean over them. What differs: the paper's third source
is a language model's negatives, here the dense ranks 50-60; it has one seed and 400,000 queries, here there are several
seeds and as many queries as the collection has; and the model is a static embedding, unless --model names another. What
is trained and kept in FOLDER is not trained again. Writes benchmarks/results/as_published.json, by training collection
and model.
"""

from __future__ import annotations

import argparse
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

import foils
from common import save
from foils.statistics.agreement import kendall_tau

TOP, FAR, LENGTH, AND = 10, 50, 128, " & "
SHOWN = ("benefit", "eci_sem", "eci", "mnrl_proxy", "gradient_energy", "rho")


def sources_of(collection: Any, encoder: str) -> dict[str, Any]:
    """BM25's first ten, dense retrieval's first ten, its ten from rank 50, and all twenty of each two of these."""
    dense = {"encoder": encoder, "max_length": LENGTH, "top": TOP}
    sources = {
        "bm25": foils.mine(collection, "bm25", top=TOP),
        "dense": foils.mine(collection, "dense", **dense),
        "far": foils.mine(collection, "dense", ranks=(FAR, FAR + TOP), **dense),
    }
    hybrids = {
        AND.join(names): foils.fuse(collection, {name: sources[name] for name in names}, method="interleave")
        for names in combinations(sources, 2)
    }
    return {**sources, **hybrids}


def rank_stability(a: npt.ArrayLike, b: npt.ArrayLike, settings: npt.ArrayLike) -> float:
    """Return the share of pairs of sources of one setting that a and b put in the same order."""
    x, y, of = (np.subtract.outer(each, each) for each in (a, b, np.asarray(settings, int)))
    counted = (of == 0) & ~np.eye(len(of), dtype=bool)
    return float((np.sign(x) == np.sign(y))[counted].mean())


def rows_of(study: dict[str, Any]) -> list[dict[str, Any]]:
    """Return what each predictor says of each source beside what training on it gave, and the agreement below."""
    (cell,) = study["cells"]
    rows = [
        {
            "trained on": each["source"], "mean nDCG@10": each["mean"], **each["tests"],
            **{name: cell["predictors"].get(each["source"], {}).get(name) for name in SHOWN},
        }
        for each in cell["outcomes"]
    ]  # fmt: skip
    sources = [each for each in cell["outcomes"] if each["source"] in cell["predictors"]]
    settings = np.array([AND in each["source"] for each in sources])
    reached, within, in_order = np.array([each["mean"] for each in sources]), {}, {}
    for name in SHOWN:
        predicted = np.array([cell["predictors"][each["source"]][name] for each in sources])
        within[name] = np.mean([kendall_tau(predicted[of], reached[of]) for of in (settings, ~settings)])
        in_order[name] = rank_stability(predicted, reached, settings)
    return [*rows, {"trained on": "τ within settings", **within}, {"trained on": "share of pairs in order", **in_order}]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("data", type=Path)
    parser.add_argument("--train", nargs="+", required=True)
    parser.add_argument("--test-on", nargs="+", required=True)
    parser.add_argument("--model", default="static:all-MiniLM-L6-v2")
    parser.add_argument("--score-with", help="mines and scores; default: the model itself")
    parser.add_argument("--queries", type=int)
    parser.add_argument("--seeds", type=int, default=4)
    parser.add_argument("--batch-size", type=int, default=1024)
    given = parser.parse_args()
    tables = {}
    for name in given.train:
        collection = foils.load(str(given.data / name))
        analysis = foils.study(
            collection,
            sources_of(collection, given.score_with or given.model),
            models=[given.model],
            output=given.folder / name,
            test_on=[str(given.data / each) for each in given.test_on if each != name],
            seeds=given.seeds,
            queries=given.queries,
            per_query=None,
            measures=("nDCG@10",),
            score_with=given.score_with,
            training={"batch_size": given.batch_size, "max_length": LENGTH},
        )
        tables[f"{name}, {Path(given.model).name}"] = rows_of(analysis.to_json())
    save("as_published", {}, tables)


if __name__ == "__main__":
    main()
