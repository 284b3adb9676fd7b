"""The grid of studies: forms and constants chosen on one part of its cells, tried on the other.

    python benchmarks/run.py grid train FOLDER DATA [--part test] [--cell NAME ...] [--seeds N] [--model bert-tiny=PATH]
    python benchmarks/run.py grid decide FOLDER DATA [--part choice] [--cell NAME ...] [--model bert-tiny=PATH]
    python benchmarks/run.py grid labelled FOLDER DATA [--part test] [--cell NAME ...] [--model bert-tiny=PATH]
    python benchmarks/run.py grid summary

DATA holds the collections as folders; pydocs needs none. grid.toml lists the cells: a collection, the share of training
positives that is hidden, a model, its batch size and its seeds; and says which were looked at while the decision's form
was chosen (`choice`), and which were not (`test`). All sources of a cell have `per_query` negatives a query. BERT-tiny
is a folder with a masked language model, which --model names; without it its cells are left out.

`train` works as `foils study` does, in a study of its own for each model in FOLDER, and goes on where it was stopped;
--seeds adds seeds where the order of the sources does not repeat yet. `decide` says what the decision, by its form of
today, and every predictor make of the sources of trained cells; of cells that are not in FOLDER what the results hold
of their trainings stays. `labelled` decides with sixty answers: where the judgements are complete with the truth of
pairs drawn at random, three times, else with those of one reader (benchmarks/evidence/labels). `summary` says of each
cell how far its order repeats, which regime it is, Kendall's τ of every predictor, and what the decision's choice
loses. All of them write benchmarks/results/grid.json.
"""

from __future__ import annotations

import json
import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from grid_tables import PARTS, summarised, tables
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

import foils
from common import answered, argument_parser, hidden, mined, narrowed, pooled
from foils.data import Collection, Negatives, load_collection
from foils.deciding import Decision
from foils.deciding import decide as decide_between
from foils.deciding.benefit import HARM
from foils.encode import VectorStore
from foils.experiments import Cell, read_cells
from foils.experiments.study import StudySettings, open_study, predict, run_cells, source_file
from foils.experiments.tasks import BASELINES, FIRST_STAGE, IN_BATCH, UNTRAINED
from foils.runtime.files import cache_folder, write_json
from foils.scoring import Scores, ScoreSettings, score_sources
from foils.statistics import bootstrap_interval, holm, paired_test

COMPLETE = ("banking77", "clinc150")  # collections all of whose judgements are known
MARGIN, ENCODER = "dense, margin 5 %", "all-MiniLM-L6-v2"
HARDEST = ("bm25", "dense")
LABELS = Path(__file__).parent / "labels"
CELLS = Path(__file__).parent / "grid.toml"
RESULTS = Path(__file__).parents[1] / "results" / "grid.json"


def cells(part: str | None, names: list[str] | None, paths: dict[str, str]) -> list[dict[str, Any]]:
    """The cells of a part, or of these names, with what all of them have in common, and where their model lies.

    Cells of a model that neither the file nor `paths` has a place of are left out.
    """
    grid = tomllib.loads(CELLS.read_text())
    every = [{**grid["all"], **grid["model"][cell["model"]], **cell} for cell in grid["cell"]]
    chosen = [cell for cell in every if part in (None, cell["part"]) and (not names or cell["name"] in names)]
    filled = [{**cell, "path": paths.get(cell["model"], cell["path"])} for cell in chosen]
    return [cell for cell in filled if cell["path"]]


def settings_of(cell: dict[str, Any]) -> StudySettings:
    """Settings of a cell's trainings."""
    return StudySettings(
        seeds=cell["seeds"], queries=cell["queries"], per_query=cell["per_query"], measures=("nDCG@10",),
        training=cell["training"], **cell.get("study", {}),
    )  # fmt: skip


def whole(cell: dict[str, Any], data: Path) -> Collection:
    """The collection of a cell as it is."""
    place = data / cell["collection"]
    return load_collection(str(place) if place.is_dir() else cell["collection"])


def loaded(cell: dict[str, Any], data: Path) -> Collection:
    """The collection of a cell, some of its judgements hidden, and as many of its test queries as the cell wants."""
    collection = whole(cell, data)
    if cell["hide"]:
        collection, _ = hidden(collection, cell["hide"])
    if "pooled" in cell:
        collection = pooled(collection, cell["pooled"])
    if "trained" in cell:
        collection = halved(collection, recurs=cell["trained"] == "same")
    if "test" not in cell:
        return collection
    table = collection.qrels["test"]
    queries = np.random.default_rng(5).permutation(np.unique(np.array(table["query_id"].to_pylist(), object)))
    kept = pa.array(queries[: cell["test"]], table["query_id"].type)
    qrels = {**collection.qrels, "test": table.filter(pc.is_in(table["query_id"], value_set=kept))}
    return replace(collection, qrels=qrels, digest=f"{collection.digest[:20]}-{cell['test']}")


def halved(collection: Collection, *, recurs: bool) -> Collection:
    """Training queries of one half of the documents; test queries of the same half where it recurs, else of the other.

    Halves are of groups: documents that are relevant to the same query are in the same, so that none is in both.
    """
    tables = {split: table.filter(pc.greater(table["relevance"], 0)) for split, table in collection.qrels.items()}
    pairs = pa.concat_tables([table.select(["query_id", "doc_id"]) for table in tables.values()])
    queries, docs = (pairs[name].combine_chunks().dictionary_encode() for name in ("query_id", "doc_id"))
    edges = (np.asarray(queries.indices), np.asarray(docs.indices) + len(queries.dictionary))
    shape = 2 * (len(queries.dictionary) + len(docs.dictionary),)
    groups, group = connected_components(coo_array((np.ones(len(pairs), bool), edges), shape=shape), directed=False)
    first = np.random.default_rng(7).permutation(groups) < groups // 2
    inside = pa.array(queries.dictionary).filter(pa.array(first[group[: len(queries.dictionary)]]))
    qrels = {}
    for split, table in tables.items():
        there = pc.is_in(table["query_id"], value_set=inside)
        qrels[split] = table.filter(there if split == "train" or recurs else pc.invert(there))
    half = "same" if recurs else "other"
    return replace(
        collection, name=f"{collection.name}, {half} half", qrels=qrels, digest=f"{collection.digest[:20]}-{half}"
    )


def train(cell: dict[str, Any], folder: Path, data: Path) -> None:
    """Mine the sources of a cell, and train on each with each seed; what is there is not done again."""
    collection = loaded(cell, data)
    opened = open_study(
        folder / cell["model"], collection, sources_of(cell, collection), [cell["path"]], settings_of(cell)
    )
    with narrowed():
        run_cells(opened, _store())


def sources_of(cell: dict[str, Any], collection: Collection) -> dict[str, Negatives]:
    """Mine the sources of a cell."""
    every = mined(collection, cell["per_query"])
    if MARGIN in cell["sources"]:
        every[MARGIN] = foils.mine(
            collection, "dense", encoder=ENCODER, max_length=128, precision="float32", relative_margin=0.05,
            top=cell["per_query"],
        )  # fmt: skip
    wanted = [name.format(*(int(first) + cell["per_query"] for first in _firsts(name))) for name in cell["sources"]]
    return {source: every[source] for source in wanted}


class Made(NamedTuple):
    """What was made of the sources of a cell."""

    scores: Scores
    decision: Decision


def made_of(
    cell: dict[str, Any], collection: Collection, sources: dict[str, Negatives], folder: Path, **believed: Any
) -> Made:
    """Score the sources, and decide; `believed` are settings of the belief."""
    settings, store = settings_of(cell), _store()
    (opened,) = open_study(folder, collection, sources, [cell["path"]], settings)
    encoder = opened.scorer
    scores = score_sources(collection, sources, encoder, store, ScoreSettings(hybrids=1), replicates=0)
    belief = replace(opened.belief, **believed)
    return Made(scores, decide_between(collection, sources, encoder, store, belief, candidates=[*sources, "none"]))


def labelled(cell: dict[str, Any], known: dict[str, Any], folder: Path, data: Path) -> None:
    """Put what the decision says with sixty answers into what is known of a cell: a reader's, or the truth's."""
    read, complete = LABELS / f"{cell['collection']}.tsv", cell["collection"] in COMPLETE
    if "decision" not in known or "trained" in cell or not (complete or read.is_file()):
        return
    collection = loaded(cell, data)
    sources = {name: table for name, table in sources_of(cell, collection).items() if name in known["predictors"]}
    truth = hidden_ones(collection, whole(cell, data))
    answers = [answered(sources, truth, 60, seed) for seed in range(3)] if complete else [read]
    decisions = [made_of(cell, collection, sources, folder, labels=each).decision for each in answers]
    known["labelled"] = [
        {"source": each.source, "best": {one.name: round(one.best_with_probability, 3) for one in each.candidates}}
        for each in decisions
    ]
    for source, values in known["predictors"].items():
        values["benefit_labelled"] = float(np.mean([each.worths[source].benefit for each in decisions]))


def decide(cell: dict[str, Any], known: dict[str, Any], folder: Path, data: Path) -> dict[str, Any] | None:
    """What was measured, and what the decision and the predictors say; None where nothing is trained yet.

    Where the trainings are not in the folder, what is known of them stays; a choice that is another now has no tests.
    """
    collection = loaded(cell, data)
    kept = _kept(folder / cell["model"], collection.name, cell["path"])
    if kept is None and not known:
        return None
    if kept is None:
        sources = {name: table for name, table in sources_of(cell, collection).items() if name in known["predictors"]}
    else:
        digests = {name: kept.facts["sources"][name] for name in kept.sources}
        sources = {name: Negatives.read(source_file(kept.folder, name, digest)) for name, digest in digests.items()}
    scores, decision = made_of(cell, collection, sources, folder)
    predicted = predict(scores, {name: decision.worths[name] for name in sources})
    if decision.recurrence is not None:
        truth = hidden_ones(collection, whole(cell, data))
        complete = cell["collection"] in COMPLETE
        for name in sources:
            always, with_truth = benefits_of(decision, name, truth)
            predicted[name] |= {"benefit_always": always, **({"benefit_true": with_truth} if complete else {})}
    made = {
        **{key: cell[key] for key in ("part", "model", "collection", "hide")},
        "predictors": predicted,
        "decision": {
            "source": decision.source, "probability": decision.best_with_probability,
            "recurrence": decision.recurrence,
        },
    }  # fmt: skip
    if kept is None:
        same = known["decision"]["source"] == decision.source
        return {**made, "measured": known["measured"], "against": known.get("against", {}) if same else {}}
    means = kept.means("nDCG@10")
    values = {name: each["nDCG@10"] for name, each in kept.outcomes.items()}
    measured = {
        name: [round(float(each), 5) for each in means[name]] for name in (*BASELINES, *sources) if name in means
    }
    chosen, per_query = decision.source or IN_BATCH, cell["per_query"]
    return {
        **made,
        "measured": measured,
        "against": against(values, chosen, per_query),
        "hardest": {f"{way} 0-{per_query}": compared(values, f"{way} 0-{per_query}", "random") for way in HARDEST},
    }


def benefits_of(decision: Decision, name: str, truth: set[tuple[str, str]]) -> tuple[float, float]:
    """The benefit of a source if all documents recurred, and with every negative's truth known."""
    basis, records = decision.basis, decision.basis.measured.records
    own = np.flatnonzero(records.members >> records.names.index(name) & 1)
    record = records.record[own]
    added = basis.added_losses(own)
    queries = np.array(records.collection.queries["query_id"].to_pylist(), object)[records.queries][record]
    documents = np.array(records.collection.documents["doc_id"].to_pylist(), object)
    ids = documents[np.asarray(records.texts.rows)[records.document[own]]]
    false = np.array([pair in truth for pair in zip(queries, ids, strict=True)])
    learned = basis.learnabilities(own)
    always = (added * (1 - (1 + HARM) * basis.expected[own])).sum() / len(records)
    return float(always), float((added * learned * (1 - (1 + HARM) * false)).sum() / len(records))


def hidden_ones(collection: Collection, complete: Collection) -> set[tuple[str, str]]:
    """The judgements of the split train that the collection has no more."""
    tables = [
        each.qrels["train"].filter(pc.greater(each.qrels["train"]["relevance"], 0)) for each in (complete, collection)
    ]
    first, second = (set(zip(each["query_id"].to_pylist(), each["doc_id"].to_pylist(), strict=True)) for each in tables)
    return first - second


def against(values: dict[str, Any], chosen: str, per_query: int) -> dict[str, Any]:
    """The chosen source against what else one would take, by nDCG@10 of the test queries, averaged over the seeds.

    `mine_hard_negatives` without further options takes the first dense ranks, with `relative_margin=0.05` those below
    95 % of the positive; best is the source that trained best. Sources that were not trained on are left out.
    """
    queries = _queries(values)
    best = max(queries, key=lambda name: float(queries[name].mean()))
    rivals = {
        "random": "random",
        "in-batch": IN_BATCH,
        "default": f"dense 0-{per_query}",
        "margin": MARGIN,
        "best": best,
    }
    if chosen not in queries:
        return {}
    made = {}
    for name, source in rivals.items():
        if source in queries:
            made[name] = {"source": source, **compared(values, chosen, source)}
    for name, p in zip(made, holm([each["p"] for each in made.values()]), strict=True):
        made[name]["p_holm"] = float(p)
    return made


def compared(values: dict[str, Any], source: str, other: str) -> dict[str, float]:
    """What one source gains over another, with an interval over test queries and a paired test."""
    queries = _queries(values)
    difference = queries[source] - queries[other]
    low, high = bootstrap_interval(difference, rng=np.random.default_rng(0))
    p = float(paired_test(queries[source], queries[other]).p)
    return {"difference": float(difference.mean()), "low": low, "high": high, "p": p}


def _queries(values: dict[str, Any]) -> dict[str, Any]:
    """Measures of the test queries, averaged over the seeds that every source has."""
    trained = {name: each for name, each in values.items() if name not in (UNTRAINED, FIRST_STAGE)}
    seeds = min(len(each) for each in trained.values())
    return {name: each[:seeds].mean(axis=0) for name, each in trained.items()}


def _kept(folder: Path, collection: str, model: str) -> Cell | None:
    there = read_cells(folder) if any(folder.glob("cells/*/cell.json")) else []
    chosen = [
        each for each in there
        if each.facts["collection"]["name"] == collection and each.facts["model"]["name"] == model and each.outcomes
    ]  # fmt: skip
    return chosen[0] if chosen else None


def _store() -> VectorStore:
    return VectorStore(cache_folder() / "vectors")


def _firsts(name: str) -> list[str]:
    return [part.split("-")[0].split()[-1] for part in name.split("{}")[:-1]]


def main() -> None:
    parser = argument_parser(__doc__)
    parser.add_argument("action", choices=["train", "decide", "labelled", "summary"])
    parser.add_argument("folder", type=Path, nargs="?")
    parser.add_argument("data", type=Path, nargs="?")
    parser.add_argument("--part", choices=list(PARTS))
    parser.add_argument("--cell", nargs="*", dest="names")
    parser.add_argument("--seeds", type=int)
    parser.add_argument("--model", action="append", default=[], metavar="NAME=PATH")
    given = parser.parse_args()
    known = json.loads(RESULTS.read_text())["cells"] if RESULTS.is_file() else {}
    for cell in cells(given.part, given.names, dict(each.split("=", 1) for each in given.model)):
        cell["seeds"] = given.seeds or cell["seeds"]
        before = known.get(cell["name"], {})
        if given.action == "train":
            train(cell, given.folder, given.data)
        elif given.action == "labelled":
            labelled(cell, before, given.folder, given.data)
        elif given.action == "decide" and (made := decide(cell, before, given.folder, given.data)) is not None:
            known[cell["name"]] = made
        summary = summarised(known)
        write_json(RESULTS, {**summary, "tables": tables(summary)})
