"""The tables of ECI_sem and ECI: does the order of the sources agree with training, and what does it rest on?

    python benchmarks/run.py as_published FOLDER DATA --train squad-sent --test-on scifact cranfield banking77 clinc150
        [--model static:all-MiniLM-L6-v2] [--queries N] [--seeds 4] [--batch-size 1024] [--score-with ENCODER]
        [--scores-only]

DATA holds the collections as folders. The protocol is the paper's: sources of ten negatives a query, hybrids of two
with the negatives of both (20), flattened triplets with in-batch negatives, one epoch, τ 0.05, texts of at most 128
tokens; nDCG@10 on collections that were not trained on, and its mean over them. What differs: the paper's third source
is a language model's negatives, here the dense ranks 50-60; it has one seed and 400,000 queries, here there are several
seeds and as many queries as the collection has; and the model is a static embedding, unless --model names another. What
is trained and kept in FOLDER is not trained again.

Of the scores alone (--scores-only: nothing is trained): ECI_sem's Tables 3 and 7, 4 (simplifications), 5 (parts of one
nested sample) and 6 (tokenizers and corpora of idf, one changed at a time); ECI's Tables 1, 4 (the three hardest
negatives) and 5 (the arithmetic mean). With training also ECI's Table 6, Pearson's r of ECI and of two heuristics with
the mean nDCG@10. Writes benchmarks/results/as_published.json, by training collection and model.
"""

from __future__ import annotations

from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

import foils
from common import argument_parser, load, save
from foils.data import Negatives
from foils.data.tokens import TOKENIZERS, inverse_document_frequency
from foils.encode import EncoderSettings, VectorStore, load_encoder
from foils.runtime.files import cache_folder
from foils.scoring import ScoreSettings, score_sources
from foils.scoring.gates import WEIGHTINGS, Lexicon, gated
from foils.scoring.measure import Measured, information_sums, log_det
from foils.scoring.scores import gradient_norm, score_variance, source_eci
from foils.statistics.significance import kendall_tau

TOP, FAR, LENGTH, AND = 10, 50, 128, " & "
TEMPERATURE = 0.05
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
        AND.join(names): foils.fuse(collection, {name: sources[name] for name in names})
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


def table_of_eci(whole: Any) -> list[dict[str, Any]]:
    """Return ECI of each source, of its three hardest negatives and with the arithmetic mean, and the heuristics."""
    rows, measured = [], whole.measured
    for target in measured.records.targets(1):
        member = target.of(measured.records.members)
        record, s_n = measured.records.record[member], measured.similarities.s_n[member]
        plain = source_eci(record, s_n, measured.best_positive)
        highest = float(np.maximum.reduceat(s_n, np.unique(record, return_index=True)[1]).mean())
        order = np.lexsort((-s_n, record))
        hardest = order[np.arange(len(record)) - np.searchsorted(record, record) < 3]
        of_hardest = source_eci(record[hardest], s_n[hardest], measured.best_positive)
        rows.append({
            "source": target.name, "S": plain.signal, "Δ": plain.margin, "N": plain.negatives, "ECI": plain.value,
            "Δ by lists": source_eci(record, s_n, measured.best_positive, margin="list").margin,
            "ECI, 3 hardest": of_hardest.value,
            "ECI, arithmetic": np.log1p(plain.negatives) * (plain.signal + plain.margin) / 2,
            "gradient norm": gradient_norm(plain.signal, plain.negatives, TEMPERATURE),
            "score variance": score_variance(highest, plain.signal),
        })  # fmt: skip
    return rows


def dets_of(measured: Measured, weights: npt.NDArray[np.float64]) -> list[float]:
    """Return log det(Id + I) of each source, with these weights of the triplets."""
    records, targets = measured.records, measured.records.targets(1)
    sums = information_sums(measured.geometry, weights, records.members, targets)
    return [log_det(sums[each.name] / np.count_nonzero(each.of(records.members))) for each in targets]


def eci_sem_by(measured: Measured, tokenizer: str = "alphanumeric", corpus: str = "pooled") -> list[float]:
    """Return ECI_sem of each source with another tokenizer, or idf over other texts: Table 6."""
    records = measured.records
    lexicon = Lexicon.of(records, tokenizer=tokenizer)
    idf = lexicon.idf(records.corpus)
    if corpus == "uniform":
        idf = np.ones(len(idf))
    elif corpus == "pooled+queries":
        parts = [lexicon.texts[records.corpus], lexicon.queries]
        frequencies = sum(np.bincount(part.indices, minlength=part.shape[1]) for part in parts)
        idf = inverse_document_frequency(frequencies, sum(part.shape[0] for part in parts))
    changed = measured.with_coverage(lexicon.coverage(records, idf))
    return dets_of(changed, gated(changed.similarities))


def of_scores(collection: Any, sources: dict[str, Any], encoder: str) -> dict[str, list[dict[str, Any]]]:
    """Return the tables that need no training."""
    opened, store = load_encoder(encoder, EncoderSettings(max_length=LENGTH)), VectorStore(cache_folder() / "vectors")
    settings = ScoreSettings(hybrids=1, temperature=TEMPERATURE)

    def scored(parts: dict[str, Any]) -> Any:
        return score_sources(collection, parts, opened, store, settings, control=False, replicates=0)

    whole = scored(sources)
    values, hybrid = np.array([each.eci_sem for each in whole.sources]), np.array([AND in name for name in sources])

    def agreement(found: Any) -> dict[str, float]:
        kinds = {"non-hybrid": ~hybrid, "hybrid": hybrid}
        return {kind: rank_stability(np.array(found)[of], values[of], 0 * hybrid[of]) for kind, of in kinds.items()}

    diagnostics = [
        {"source": each.name, "ECI_sem": each.eci_sem, "gradient energy": each.gradient_energy,
         "MNRL proxy": each.mnrl_proxy, "ambiguity": each.ambiguity, **each.buckets}
        for each in whole.sources
    ]  # fmt: skip
    simplified, measured = [], whole.measured
    for name in ("gradient_weighted", "margin_hardness", "residual_only"):
        dets = dets_of(measured, WEIGHTINGS[name](measured.similarities))
        simplified.append({"variant": name.replace("_", " "), **agreement(dets)})
    queries = np.random.default_rng(42).permutation(collection.queries["query_id"].to_pylist())
    sizes = []
    for share in (0.25, 0.5, 0.75, 1.0):
        first = pa.array(queries[: round(share * len(queries))])
        parts = {
            name: Negatives(source.table.filter(pc.is_in(source.table["query_id"], value_set=first)))
            for name, source in sources.items()
        }
        found = [each.eci_sem for each in scored(parts).sources]
        order = " > ".join(np.array([*sources])[np.argsort(-np.array(found), kind="stable")])
        sizes.append({"queries": f"{100 * share:.0f} %", "order": order, **agreement(found)})
    changed = {
        "tokenizers": [eci_sem_by(measured, tokenizer=name) for name in TOKENIZERS],
        "idf corpora": [
            *(eci_sem_by(measured, corpus=name) for name in ("pooled", "pooled+queries", "uniform")),
            [scored({name: source}).sources[0].eci_sem for name, source in sources.items()],  # of its own documents
        ],
    }
    lexical = []
    for at, each in enumerate(whole.sources):
        row = {"source": each.name, "ECI_sem": each.eci_sem, "mean C": each.coverage, "mean ψ": each.psi}
        for name, runs in changed.items():
            found = [run[at] for run in runs]
            row[name] = f"{min(found):.4f} to {max(found):.4f}"
        lexical.append(row)
    return {
        "ECI_sem, Tables 3 and 7": diagnostics, "ECI_sem, Table 4, pairs in order": simplified,
        "ECI_sem, Table 5": sizes, "ECI_sem, Table 6": lexical, "ECI, Tables 1, 4 and 5": table_of_eci(whole),
    }  # fmt: skip


def correlations(eci: list[dict[str, Any]], study: dict[str, Any]) -> list[dict[str, Any]]:
    """Return Pearson's r with the mean nDCG@10 over the sources (ECI, Table 6)."""
    reached = {each["source"]: each["mean"] for each in study["cells"][0]["outcomes"]}
    names = ("ECI", "gradient norm", "score variance")
    means = [reached[row["source"]] for row in eci]
    return [{"": name, "r": float(np.corrcoef([row[name] for row in eci], means)[0, 1])} for name in names]


def main() -> None:
    parser = argument_parser(__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("data", type=Path)
    parser.add_argument("--train", nargs="+", required=True)
    parser.add_argument("--test-on", nargs="+", required=True)
    parser.add_argument("--model", default="static:all-MiniLM-L6-v2")
    parser.add_argument("--score-with", help="mines and scores; default: the model itself")
    parser.add_argument("--queries", type=int)
    parser.add_argument("--seeds", type=int, default=4)
    parser.add_argument("--batch-size", type=int, default=1024)
    parser.add_argument("--scores-only", action="store_true")
    given = parser.parse_args()
    known = load("as_published").get("rows", {})
    for name in given.train:
        collection, encoder = foils.load(str(given.data / name)), given.score_with or given.model
        sources, title = sources_of(collection, encoder), f"{name}, {Path(given.model).name}"
        tables = {f"{title}: {caption}": rows for caption, rows in of_scores(collection, sources, encoder).items()}
        known |= tables
        save("as_published", {"rows": known}, known)
        if given.scores_only:
            continue
        analysis = foils.study(
            collection,
            sources,
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
        study, eci = analysis.to_json(), tables[f"{title}: ECI, Tables 1, 4 and 5"]
        known |= {title: rows_of(study), f"{title}: ECI, Table 6": correlations(eci, study)}
        save("as_published", {"rows": known}, known)
