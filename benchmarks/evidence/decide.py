"""How well the decision knows the share of false negatives, with and without labels, and whether it decides rightly.

    python benchmarks/run.py decide shares COLLECTION [--hide 0 0.5 0.9 0.98] [--seeds 2] [--labels 60]
    python benchmarks/run.py decide study STUDY COLLECTION [--hide 0.9] [--labels 60]
    python benchmarks/run.py decide first COLLECTION [--hide 0 0.5 0.9 0.98] [--seeds 3] [--labels 60]
    python benchmarks/run.py decide slopes COLLECTION [--hide 0.5 0.9]
    python benchmarks/run.py decide cost COLLECTION [--repeats 3]
    python benchmarks/run.py decide surety

`shares`: the collection's judgements must be complete (banking77, clinc150). A share of each training query's
positives is hidden, sources are mined in ten ways, two more are unions of them, and a static embedding decides, from
nothing and from labels of pairs that are drawn as `foils label` draws them and judged by what is hidden. Counted is how
often the intervals hold the share of hidden positives, and how wide they are.

`study`: the sources and trainings of a cell of a study that study_first.py made, with the same share hidden. Counted
are Kendall's τ of the benefit with the measure after training, and what the chosen source loses against the best:
with every negative's truth known, from nothing, and from labels. `first`: the same for the trainings of the first
study, as results/study_first.json has them, with sources mined anew and labels drawn with several seeds (--seeds 0,
no labels, where judgements are not complete: `truth` takes what is not labelled for not relevant there).

`slopes`: by how much the log odds that a negative of a source is false grow with log n_L/n_U of its pair (logistic
regression of what is hidden, judgements complete), and the part of the source's pull that false negatives have, in
truth and as believed after labels.

`cost`: processor time of the decision against that of the published scores and of one pass of inner products, four
sources, everything embedded before; medians of several rounds in one process. `surety`: whether decisions without
labels, in this and in grid.json, were as often right as their probabilities say.
Writes benchmarks/results/decide.json.
"""

from __future__ import annotations

import argparse
import json
import time
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from recapture import Models, union, ways
from scipy.stats import kendalltau
from sklearn.linear_model import LogisticRegression

from common import false_shares, hidden, mined
from foils.data import Collection, Negatives, load_collection
from foils.data.labels import Labels
from foils.encode import EncoderSettings, VectorStore, load_encoder
from foils.labelling.drawing import pairs_of
from foils.mining import mine_negatives
from foils.mining.planting import PLANTED
from foils.runtime.files import cache_folder, write_json
from foils.scoring import Decision, DecisionSettings, Scores, ScoreSettings, decide_sources, score_sources
from foils.scoring.deciding import DOCUMENTS, RECORDS
from foils.scoring.evidence import rows_of
from foils.scoring.worth import HARM, added_losses, learnabilities, strengths_of

RESULTS = Path(__file__).parents[1] / "results" / "decide.json"
MODEL = "static:all-MiniLM-L6-v2"
WAYS = ("random", "bm25 0-10", "dense 0-10", "dense 50-60", "ance", "uniform of dense 0-100",
        "relative margin 5 %, minimum", "relative margin 5 %, mean", "cross-encoder of bm25", "trisampler")  # fmt: skip
UNIONS = {"interleave": ("bm25 0-10", "dense 0-10"), "rrf": ("random", "dense 0-10")}


class Decider:
    """A collection with hidden positives, its sources, and the encoder that decides."""

    def __init__(self, collection: Collection, gone: pa.Table | None, sources: dict[str, Negatives]) -> None:
        self.sources = {name.replace("+", " "): table for name, table in sources.items() if table.keep.any()}
        self.encoder = load_encoder(MODEL, EncoderSettings(max_length=128))
        self.store = VectorStore(cache_folder() / "vectors")
        columns = () if gone is None else (gone["query_id"].to_pylist(), gone["doc_id"].to_pylist())
        self.truth = set(zip(*columns, strict=True)) if columns else set()
        settings = ScoreSettings(hybrids=1, replicates=0)
        self.scores: Scores = score_sources(collection, self.sources, self.encoder, self.store, settings)

    def labels(self, count: int, seed: int) -> Labels:
        """Pairs drawn as `foils label` draws them, judged by what is hidden."""
        universe = pairs_of(self.sources)
        table = universe.table.take(pa.array(universe.draw(count, seed=seed).rows)).select(["query_id", "doc_id"])
        pairs = zip(table["query_id"].to_pylist(), table["doc_id"].to_pylist(), strict=True)
        relevant = pa.array([int(pair in self.truth) for pair in pairs], pa.int8())
        return Labels(table.append_column("relevant", relevant))

    def decide(self, labels: Labels | None = None) -> Decision:
        settings = DecisionSettings(labels=labels)
        return decide_sources(self.scores, self.sources, self.encoder, self.store, settings).decision


def shares(whole: Collection, hide: float, seed: int, labels: int) -> dict[str, Any]:
    """Each source's true share, and its interval without and with labels."""
    collection, gone = hidden(whole, hide, seed) if hide else (whole, None)
    models = Models(collection)
    made = ways(models)
    tables = {
        name: mine_negatives(
            collection, **{"split": "train", "top": 10, "seed": seed, "plant": PLANTED, **made[name]()}
        )
        for name in WAYS
    }
    for method, parts in UNIONS.items():
        tables[f"{method} of {' & '.join(parts)}"] = union(collection, tables, parts, method, top=10)
    case = Decider(collection, gone, tables)
    true = false_shares(case.sources, gone) if gone is not None else dict.fromkeys(case.sources, 0.0)
    decisions = {"none": case.decide(), "labels": case.decide(case.labels(labels, seed))}
    return {
        name: {"true": true[name]}
        | {
            how: [decision.worths[name].false_share_low, decision.worths[name].false_share_high]
            for how, decision in decisions.items()
        }
        for name in case.sources
    }


def summary(cells: dict[str, Any]) -> dict[str, float]:
    """How often the intervals of all cells hold the truth, and their mean width."""
    rows = [row for cell in cells.values() for row in cell.values()]
    facts = {}
    for how in ("none", "labels"):
        held = [row[how][0] - 1e-9 <= row["true"] <= row[how][1] + 1e-9 for row in rows]
        facts |= {
            f"{how} held": float(np.mean(held)),
            f"{how} width": float(np.mean([r[how][1] - r[how][0] for r in rows])),
        }
    return {**facts, "cases": len(rows)}


def hidden_triplets(case: Any) -> np.ndarray:
    """(m,) whether the negative of each triplet of the scoring is a hidden positive."""
    records = case.scores.measured.records
    queries = np.array(records.collection.queries["query_id"].to_pylist(), object)[records.queries]
    documents = np.array(records.collection.documents["doc_id"].to_pylist(), object)
    row = np.asarray(records.texts.rows)[records.document]
    pairs = zip(queries[records.record], documents[row], strict=True)
    return np.array([pair in case.truth for pair in pairs])


def with_truth(case: Any, in_batch: int = 127, recurrence: float | None = None) -> dict[str, float]:
    """The benefit of each source with every negative's truth known, over the scored records, `recurrence` being R."""
    measured, false = case.scores.measured, hidden_triplets(case)
    records, tau = measured.records, case.scores.settings.temperature
    control = records.targets(1)[-1].of(records.members)
    spread = np.exp((measured.similarities.s_n[control] - measured.s_p[records.record[control]]) / tau)
    counts = np.bincount(records.record[control], minlength=len(records))
    odds = np.log(
        in_batch * np.bincount(records.record[control], spread, len(records)) / np.maximum(counts, 1) + 1e-300
    )
    benefits = {}
    for target in records.targets(1)[:-1]:
        own = np.flatnonzero(target.of(records.members))
        record = records.record[own]
        added = added_losses(record, measured.similarities.s_n[own], measured.s_p, odds, tau)
        added = added * learnabilities(measured, own, "encoder", recurrence)
        benefits[target.name] = float((added * (1 - (1 + HARM) * false[own])).sum() / len(np.unique(record)))
    return benefits


def outcomes(cell: Path) -> dict[str, float]:
    """Source → mean measure after training, over seeds."""
    values: dict[str, list[float]] = {}
    for path in sorted(cell.glob("trained/*.json")):
        trained = json.loads(path.read_text())
        values.setdefault(trained["source"], []).append(next(iter(trained["measures"].values())))
    return {name: float(np.mean(each)) for name, each in values.items()}


def study(folder: Path, whole: Collection, hide: float, labels: int) -> dict[str, Any]:
    """τ and regret of the benefit in the study's cell of this collection and share."""
    collection, gone = hidden(whole, hide) if hide else (whole, None)
    cells = [path for path in folder.glob("cells/*") if _collection_of(path) == collection.name]
    if len(cells) != 1:
        raise SystemExit(f"{len(cells)} cells of {collection.name} in {folder}; expected one")
    after = outcomes(cells[0])
    tables = [Negatives.read(path) for path in sorted(cells[0].glob("sources/*.parquet"))]
    named = {
        path.stem.rsplit("-", 3)[0]: table
        for path, table in zip(sorted(cells[0].glob("sources/*.parquet")), tables, strict=True)
    }
    by_slug = {name.replace(" & ", "-").replace(" ", "-"): name for name in after}
    case = Decider(collection, gone, {by_slug[slug]: table for slug, table in named.items()})
    return compared(case, after, [case.labels(labels, 0)])


def first(whole: Collection, hide: float, labels: int, seeds: int) -> dict[str, Any]:
    """τ and regret of the benefit on a cell of the first study."""
    collection, gone = hidden(whole, hide) if hide else (whole, None)
    cells = json.loads((RESULTS.parent / "study_first.json").read_text())["all"]["cells"]
    cell = next(each for each in cells if each["collection"] == collection.name)
    after = {each["source"]: each["mean"] for each in cell["outcomes"]}
    case = Decider(collection, gone, mined(collection, 10))
    return compared(case, after, [case.labels(labels, seed) for seed in range(seeds)])


def compared(case: Decider, after: dict[str, float], labels: list[Labels]) -> dict[str, Any]:
    """Decisions against the measures after training, by source: with the truth, from nothing, and from labels."""
    none = after["in-batch negatives"]
    names = [name for name in case.sources if name in after]
    trained = [*(after[name] for name in names), none]

    def agreement(benefit: dict[str, float]) -> dict[str, float]:
        of_none = [*(benefit[name] for name in names), 0.0]
        return {
            "kendall": float(kendalltau(of_none, trained)[0]),
            "regret": max(trained) - trained[int(np.argmax(of_none))],
        }

    def decided(given: Labels | None) -> dict[str, Any]:
        decision = case.decide(given)
        chosen = none if decision.source is None else after[decision.source]
        return agreement({name: decision.worths[name].benefit for name in names}) | {
            "regret": max(trained) - chosen, "source": decision.source, "probability": decision.best_with_probability,
            "label_next": decision.label_next,
        }  # fmt: skip

    truth = agreement(with_truth(case, recurrence=case.decide().recurrence))
    return {"truth": truth, "none": decided(None), "labels": [decided(each) for each in labels]}


def slopes(whole: Collection, hide: float, labels: int) -> dict[str, Any]:
    """Of each source the slope of the truth in log n_L/n_U, and its false negatives' part of the pull."""
    collection, gone = hidden(whole, hide)
    made = ways(Models(collection))
    names = ("random", "bm25 0-10", "dense 0-10", "dense 50-60", "uniform of dense 0-100")
    how: dict[str, Any] = {"split": "train", "top": 10, "plant": PLANTED}
    case = Decider(collection, gone, {name: mine_negatives(collection, **how, **made[name]()) for name in names})
    settings = DecisionSettings(labels=case.labels(labels, 0))
    decided = decide_sources(case.scores, case.sources, case.encoder, case.store, settings)
    ground, measured = decided.ground, case.scores.measured
    false = hidden_triplets(case)
    found = {}
    for target in measured.records.targets(1)[:-1]:
        own = np.flatnonzero(rows_of(target, measured, ground.triplets))
        rows = ground.triplets[own]
        tau = case.scores.settings.temperature
        pull, _ = strengths_of(measured, rows, ground.in_batch, tau, ground.starts, ground.recurrence)
        fit = LogisticRegression(C=1e6).fit(ground.logs[rows, None], false[rows])
        found[target.name] = {
            "slope": float(fit.coef_[0, 0]), "false": float(false[rows].mean()),
            "pull of false ones": float(pull @ false[rows] / pull.sum()),
            "believed": float(pull @ decided.expected[own] / pull.sum()),
        }  # fmt: skip
    return found


def cost(whole: Collection, repeats: int) -> dict[str, float]:
    """Processor seconds of the published scores, the decision, and one pass of inner products; medians, and ratios."""
    made = ways(Models(whole))
    names = ("random", "bm25 0-10", "dense 0-10", "dense 50-60")
    tables = {name: mine_negatives(whole, **{"split": "train", "top": 10, **made[name]()}) for name in names}
    case = Decider(whole, None, tables)
    case.decide()  # embeds what is missing
    settings, rounds = ScoreSettings(), []
    for _ in range(repeats):
        started = time.process_time()
        scores = score_sources(whole, case.sources, case.encoder, case.store, settings)
        scored = time.process_time()
        decide_sources(scores, case.sources, case.encoder, case.store)
        decided = time.process_time()
        queries = scores.measured.geometry.queries.take(slice(0, RECORDS)).astype(np.float32)
        documents = case.store.embed(case.encoder, whole.document_texts(np.arange(len(whole.documents))), "document")
        vectors = documents.take(slice(0, DOCUMENTS)).astype(np.float32)
        at = time.process_time()
        for start in range(0, len(queries), 256):
            queries[start : start + 256] @ vectors.T
        rounds.append((scored - started, decided - scored, time.process_time() - at))
    score, decision, products = np.median(rounds, axis=0)
    return {
        "queries": len(scores.measured.records), "documents": len(whole.documents), "sources": len(names),
        "score seconds": float(score), "decision seconds": float(decision), "products seconds": float(products),
        "decision / (score + products)": float(decision / (score + products)), "rounds": repeats,
    }  # fmt: skip


def surety() -> dict[str, Any]:
    """Of all decisions without labels in the result files: how many were right, and what their probabilities add up to.

    A choice is right where training on it is within .002 of the best. Beside it, how often the benefit orders a pair of
    sources as training does, the mean over the cells whose benefits are kept.
    """
    own, chosen, ordered = json.loads(RESULTS.read_text()), [], []
    for cells in (own.get(name, {}) for name in ("first", "study")):
        chosen += [(cell["none"]["probability"], cell["none"]["regret"]) for cell in cells.values()]
    for cell in json.loads(RESULTS.with_name("grid.json").read_text())["cells"].values():
        if not all("benefit" in each for each in cell["predictors"].values()):  # those of the first study
            continue
        after = {name: float(np.mean(values)) for name, values in cell["measured"].items()}
        decision, benefit = cell["decision"], {name: each["benefit"] for name, each in cell["predictors"].items()}
        lost = max(after.values()) - after[decision["source"] or "in-batch negatives"]
        chosen.append((decision["probability"], lost))
        pairs = combinations([name for name in benefit if name in after], 2)
        ordered.append(float(np.mean([(benefit[a] - benefit[b]) * (after[a] - after[b]) > 0 for a, b in pairs])))
    return {
        "decisions": len(chosen),
        "right": sum(regret <= 0.002 for _, regret in chosen),
        "probabilities": float(sum(probability for probability, _ in chosen)),
        "pairs ordered rightly": float(np.mean(ordered)),
    }


def _collection_of(cell: Path) -> str:
    return str(json.loads((cell / "cell.json").read_text())["collection"]["name"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("shares", "study", "first", "slopes", "cost", "surety"))
    parser.add_argument("paths", nargs="*", type=Path)
    parser.add_argument("--hide", type=float, nargs="*", default=[0.0, 0.5, 0.9, 0.98])
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--labels", type=int, default=60)
    parser.add_argument("--repeats", type=int, default=3)
    given = parser.parse_args()
    known = json.loads(RESULTS.read_text()) if RESULTS.is_file() else {}
    if given.what == "surety":
        known["surety"] = surety()
        print(known["surety"])
        write_json(RESULTS, known)
        return
    whole = load_collection(given.paths[-1])
    if given.what == "cost":
        known.setdefault("cost", {})[whole.name] = cost(whole, given.repeats)
        print(whole.name, known["cost"][whole.name])
        write_json(RESULTS, known)
        return
    for hide in given.hide:
        key = f"{whole.name}, {100 * hide:g} % hidden"
        if given.what == "study":
            known.setdefault("study", {})[key] = study(given.paths[0], whole, hide, given.labels)
            print(key, known["study"][key], flush=True)
        elif given.what == "slopes":
            if not hide:
                continue  # nothing is false
            known.setdefault("slopes", {})[key] = slopes(whole, hide, given.labels)
            print(key, known["slopes"][key], flush=True)
        elif given.what == "first":
            known.setdefault("first", {})[key] = first(whole, hide, given.labels, given.seeds)
            print(key, known["first"][key], flush=True)
        else:
            for seed in range(given.seeds):
                known.setdefault("shares", {})[f"{key}, seed {seed}"] = shares(whole, hide, seed, given.labels)
                print(key, seed, known["shares"][f"{key}, seed {seed}"], flush=True)
            known["summary"] = summary(known["shares"])
            print(known["summary"], flush=True)
        write_json(RESULTS, known)


if __name__ == "__main__":
    main()
