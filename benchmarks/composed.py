"""Does a composition by expected benefit train better than each of its sources?

    python benchmarks/composed.py FOLDER COLLECTION ... [--hide 0.5 0.9] [--seeds 4] [--labels 60]

A share of each training query's positives is hidden (the judgements must be complete: banking77, clinc150; elsewhere
--hide 0). Five sources of ten negatives are mined. Four tables are made of them before any training: the source that
`foils score` decides for and what `foils select --by benefit` composes, without labels, and with labels of pairs that
are drawn as `foils label` draws them and judged by what is hidden. A static embedding is trained on the sources, on the
compositions and on in-batch negatives alone, in batches of 256, with the same queries. Each composition is compared
with the source that trained best and with the source that was decided for (nothing, where it was decided for none): the
difference of nDCG@10, query by query, means over seeds, with an interval and a paired test. The trainings are kept in
FOLDER. Writes benchmarks/results/composed.json.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np

from decide import MODEL, Decider
from foils.data import Collection, load_collection
from foils.data.labels import Labels
from foils.data.store import write_json
from foils.mining import mine_negatives
from foils.mining.planting import PLANTED
from foils.scoring import BeliefSettings
from foils.selection.benefit import select_by_benefit
from foils.statistics import bootstrap_interval, paired_test
from foils.studies.cells import IN_BATCH, read_cell
from foils.studies.run import run_study
from foils.studies.settings import StudySettings
from narrowed import narrowed
from recapture import Models, ways
from study_first import STATIC, hidden

RESULTS = Path(__file__).parent / "results" / "composed.json"
SOURCES = ("random", "bm25 0-10", "dense 0-10", "dense 50-60", "uniform of dense 0-100")
MEASURE, TOP = "nDCG@10", 10


def composed(whole: Collection, hide: float, folder: Path, seeds: int, count: int) -> dict[str, Any]:
    """The trainings of one collection and share, and how the compositions did."""
    collection, gone = hidden(whole, hide) if hide else (whole, None)
    made = ways(Models(collection))
    mined = {
        name: mine_negatives(collection, split="train", top=TOP, plant=PLANTED, **made[name]()) for name in SOURCES
    }
    case = Decider(collection, gone, mined)
    judged: dict[str, Labels | None] = {"no labels": None, f"{count} labels": case.labels(count, 0)}
    tables, decided, foreseen = dict(mined), {}, {}
    for how, labels in judged.items():
        decision = case.decide(labels)
        decided[how] = {"source": decision.source, "probability": decision.best_with_probability}
        belief = BeliefSettings(labels=labels)
        made_of = select_by_benefit(collection, mined, case.encoder, case.store, belief, top=TOP)
        tables[f"composed, {how}"] = made_of
        foreseen[how] = {"composed": made_of.benefit, **made_of.of_sources}
    study = StudySettings(seeds=seeds, queries=1000, per_query=TOP, measures=(MEASURE,), training=STATIC)
    cell = read_cell(run_study(folder, collection, tables, [MODEL], case.store, study)[0])
    values = {name: each[MEASURE].mean(axis=0) for name, each in cell.outcomes.items()}
    means = {name: float(each.mean()) for name, each in values.items()}
    best = max((*mined, IN_BATCH), key=means.__getitem__)
    compared = {}
    for how in judged:
        own = values[f"composed, {how}"]
        for against, name in (("best", best), ("decided", decided[how]["source"] or IN_BATCH)):
            test = paired_test(own, values[name])
            low, high = bootstrap_interval(own - values[name], rng=np.random.default_rng(0))
            compared[f"{how}, against the {against} source"] = {
                "source": name, "difference": test.difference, "low": low, "high": high, "p": test.p,
            }  # fmt: skip
    return {"means": means, "decided": decided, "benefit": foreseen, "composed": compared, "seeds": seeds}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("collections", nargs="+")
    parser.add_argument("--hide", type=float, nargs="*", default=[0.5, 0.9])
    parser.add_argument("--seeds", type=int, default=4)
    parser.add_argument("--labels", type=int, default=60)
    given = parser.parse_args()
    for path in given.collections:
        whole = load_collection(path)
        for hide in given.hide:
            name = f"{whole.name}, {100 * hide:g} % hidden"
            with narrowed():
                found = composed(whole, hide, given.folder, given.seeds, given.labels)
            known = json.loads(RESULTS.read_text()) if RESULTS.is_file() else {}
            write_json(RESULTS, {**known, name: found})
            print(name, json.dumps(found, indent=1), flush=True)


if __name__ == "__main__":
    main()
