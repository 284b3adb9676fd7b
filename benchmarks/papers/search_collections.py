"""DIME, Eclipse and RDIME on collections, honest and oracle, tested: the tables and figures of Eclipse's paper.

    python benchmarks/run.py search_collections COLLECTION... [--reading few-relevant] [--max-length 256]
        [--experiments] [--answers FILE]

For each collection: the encoder as it comes by exact search; then, ranking again within the 1,000 retrieved, RDIME and
Rocchio as they come and the published grids of DIME and Eclipse (Table 1), chosen by cross-validation over 20
deals of the queries (honest, with the spread over deals) and on the queries themselves (oracle). Differences from all
dimensions, and of Eclipse from the DIME of its sun, are tested two-sided: Shapiro–Wilk, paired t or Wilcoxon, Holm over
the comparisons of a measure, honest ones and oracle ones apart. (The paper tests one-sided, for a gain.)

`--experiments` adds each retained share with the best of its other settings, Eclipse against DIME with half of the
dimensions (Table 2), feedback of 50, 300, 1,000 and 50,000 documents by share (Figures 2 and 3), moons drawn at random
(Table 3) and the queries that Eclipse changes most (Figure 1). With `--answers` (JSONL of query_id and answer) the
filters whose sun is an answer come too, over the queries with an answer alone.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import ttest_rel

from common import argument_parser, load, save
from foils.data import Collection, load_collection
from foils.encode import DEFAULT_MODEL, EncoderSettings, VectorStore, load_encoder
from foils.runtime.files import cache_folder
from foils.searching import (
    DimensionSettings,
    Grid,
    Judged,
    cross_validate,
    dime_grid,
    embed_collection,
    evaluate_grid,
    judged_queries,
    oracle,
    published_grid,
    query_values,
    sharpened_queries,
)
from foils.searching.choosing import READINGS, TENTHS, GridValues, Tuned
from foils.searching.dimensions import FEEDBACK_DEPTH
from foils.searching.doors import read_answers
from foils.searching.runs import Embedded
from foils.statistics import bootstrap_interval, compare_systems, holm, paired_test

MEASURES = ("nDCG@10", "AP")
DEPTHS = (50, 300, 1_000, 50_000)  # published, as are the pools
POOLS = (30, 100, 150)
DRAWS = 5
MARGIN = 0.01  # of a measure: what a moon drawn at random may lose and yet be as good
Values = dict[str, np.ndarray]  # measure -> (n,)


@dataclass
class System:
    """A way of searching: values per query, and how its settings were chosen (`fixed`, `honest`, `oracle`)."""

    name: str
    kind: str
    per_query: Values
    kept: float | None = None
    tuned: Mapping[str, Tuned] | None = None

    @property
    def title(self) -> str:
        return self.name if self.kind == "fixed" else f"{self.name} ({self.kind})"

    @property
    def means(self) -> dict[str, float]:
        return {measure: float(of.mean()) for measure, of in self.per_query.items()}


def spread() -> Grid:
    """A spread of both readings of the published grid: every β/α down to 0.1, and few of the depths."""
    sizes = tuple((plus, minus) for plus in (2, 5, 9, 14) for minus in (2, 4, 6))
    return Grid("eclipse", sizes, tuple((a, b) for a in TENTHS for b in TENTHS if 1.0 in (a, b)))


def masked_with(
    judged: Judged, settings: DimensionSettings, *, answered: bool = False, feedback: Sequence[np.ndarray] | None = None
) -> System:
    answers = judged.answers if answered else None
    lists = judged.feedback if feedback is None else feedback
    made = sharpened_queries(judged.queries, judged.documents, lists, settings, answers=answers)
    return System(settings.method, "fixed", query_values(judged, made.queries), float(made.masks.mean()))


def chosen(name: str, values: GridValues, kind: str) -> System:
    """A grid's settings chosen by each measure, and what they score by it."""
    tuned = {
        m: oracle(values, m) if kind == "oracle" else cross_validate(values, m, rng=np.random.default_rng(0))
        for m in values.values
    }
    return System(name, kind, {m: of.per_query[m] for m, of in tuned.items()}, tuned=tuned)


def suns(judged: Judged) -> dict[str, bool]:
    return {"PRF": False} if judged.answers is None else {"PRF": False, "LLM": True}


def grids_of(judged: Judged, grids: Mapping[str, Grid]) -> dict[str, GridValues]:
    return {
        f"{sun} {name}": evaluate_grid(judged if answered else replace(judged, answers=None), grid)
        for name, grid in grids.items()
        for sun, answered in suns(judged).items()
    }


def filters(judged: Judged, values: Mapping[str, GridValues]) -> list[System]:
    """Table 1: all dimensions, RDIME with every sun, Rocchio, and each grid, honest and oracle."""
    rdime = DimensionSettings("rdime")
    fixed = [replace(masked_with(judged, DimensionSettings("none")), name="baseline")]
    fixed += [replace(masked_with(judged, rdime, answered=of), name=f"{sun} RDIME") for sun, of in suns(judged).items()]
    fixed.append(replace(masked_with(judged, DimensionSettings("rocchio")), name="PRF Rocchio"))
    return [*fixed, *(chosen(name, of, kind) for name, of in values.items() for kind in ("honest", "oracle"))]


def tested(systems: Sequence[System]) -> list[dict[str, Any]]:
    """Every system against all dimensions, and each Eclipse against the DIME of its sun; oracles apart."""
    found = []
    for kinds in (("fixed", "honest"), ("oracle",)):
        named = {each.title: each.per_query for each in systems if each.kind in kinds or each.name == "baseline"}
        pairs = [(name, name.replace("Eclipse", "DIME")) for name in named if "Eclipse" in name]
        if len(named) > 1:
            found += compare_systems(named, rng=np.random.default_rng(0), against=["baseline"], pairs=pairs)
    return [asdict(each) for each in found]


def by_share(values: GridValues, measure: str, kind: str) -> dict[float, System]:
    """The best of the other settings at each share: the curves of Figures 2 and 3, and Table 2 at one half."""
    curve = {}
    for share in sorted({each.share for each in values.settings}):
        columns = [at for at, each in enumerate(values.settings) if each.share == share]
        part = GridValues([values.settings[at] for at in columns], {measure: values.values[measure][:, columns]})
        curve[share] = chosen(f"share {share:g}", part, kind)
    return curve


def at_best(values: GridValues, measure: str) -> dict[str, float]:
    """What the one setting that is best of all scores at each share: Figures 2 and 3, read the other way."""
    best = oracle(values, measure).settings[0]
    same = [at for at, each in enumerate(values.settings) if replace(each, share=best.share) == best]
    return {f"{values.settings[at].share:g}": float(values.values[measure][:, at].mean()) for at in same}


def halves(values: Mapping[str, GridValues]) -> list[dict[str, Any]]:
    """Table 2: Eclipse against DIME with half of the dimensions, by paired t-tests; Holm over the suns."""
    rows = []
    for measure in MEASURES:
        for kind in ("honest", "oracle"):
            names = [name for name in values if name.endswith("Eclipse")]
            pairs = [
                tuple(
                    by_share(values[each], measure, kind)[0.5].per_query[measure]
                    for each in (name, name.replace("Eclipse", "DIME"))
                )
                for name in names
            ]
            tests = [float(ttest_rel(a, b).pvalue) for a, b in pairs]
            for name, (a, b), test, p in zip(names, pairs, tests, holm(tests), strict=True):
                rows.append({
                    "name": name, "kind": kind, "measure": measure, "eclipse": float(a.mean()), "dime": float(b.mean()),
                    "per_cent": 100 * float((a - b).mean()) / float(b.mean() or np.nan), "p": test, "p_holm": float(p),
                })  # fmt: skip
    return rows


def depths(judged: Judged, grid: Grid) -> list[dict[str, Any]]:
    """Figures 2 and 3: a grid for several lengths of the feedback, with every sun."""
    count, rows = len(judged.documents), []
    for depth in dict.fromkeys(min(each, count) for each in DEPTHS):
        for name, values in grids_of(replace(judged, feedback_depth=depth), {"Eclipse": grid}).items():
            rows.append({
                "name": name, "depth": depth if depth < count else "all",
                "means": {kind: chosen(name, values, kind).means for kind in ("honest", "oracle")},
                "by_share": {
                    m: {
                        "re-tuned": {f"{s:g}": of.means[m] for s, of in by_share(values, m, "oracle").items()},
                        "fixed": at_best(values, m),
                    }
                    for m in judged.measures
                },
            })  # fmt: skip
    return rows


def with_drawn_end(lists: Sequence[np.ndarray], count: int, pool: int, seed: int) -> list[np.ndarray]:
    """Each list, and after it a number of its last `pool` documents drawn at random, which make the moon."""
    rng = np.random.default_rng(seed)
    return [np.append(rows, rows[np.sort(rng.choice(pool, size=count, replace=False)) - pool]) for rows in lists]


def moons(judged: Judged, settings: Mapping[str, DimensionSettings]) -> list[dict[str, Any]]:
    """Table 3: moons drawn at random from the last documents against the last k⁻: different, and as good?"""
    rows = []
    for measure, setting in settings.items():
        last = masked_with(judged, setting).per_query[measure]
        drawn = {
            pool: [
                masked_with(judged, setting, feedback=ends).per_query[measure]
                for ends in (with_drawn_end(judged.feedback, setting.k_minus, pool, draw) for draw in range(DRAWS))
            ]
            for pool in POOLS
        }
        means = {pool: np.mean(of, axis=0) for pool, of in drawn.items()}
        differ = [paired_test(of, last) for of in means.values()]
        good = [float(ttest_rel(of + MARGIN, last, alternative="greater").pvalue) for of in means.values()]
        rows.append({"measure": measure, "pool": "exact", "mean": float(last.mean()), "settings": setting.to_json()})
        every = zip(drawn.items(), differ, holm([of.p for of in differ]), holm(good), strict=True)
        for (pool, runs), test, p, as_good in every:
            spread = float(np.std([run.mean() for run in runs], ddof=1))
            rows.append({
                "measure": measure, "pool": pool, "mean": float(means[pool].mean()), "deviation": spread,
                "difference": test.difference, "p_holm": float(p), "p_as_good_holm": float(as_good),
            })  # fmt: skip
    return rows


def changed_most(ids: Sequence[str], values: Mapping[str, GridValues], count: int = 3) -> list[dict[str, Any]]:
    """Figure 1: the queries that gain or lose most by Eclipse against DIME, at the oracle's settings."""
    gain = np.subtract(*(oracle(values[f"PRF {name}"], "AP").per_query["AP"] for name in ("Eclipse", "DIME")))
    order = np.argsort(-gain, kind="stable")
    rows = [row for row in (*order[:count], *order[::-1][:count]) if gain[row]]
    return [{"query_id": ids[row], "gain": float(gain[row])} for row in rows]


def embedded_of(collection: Collection, encoder: Any, store: VectorStore, split: str, answers: Path | None) -> Embedded:
    """A split's vectors; with answers, those of the queries that have one."""
    if answers is None:
        return embed_collection(collection, encoder, store, split=split)
    said = read_answers(answers)
    texts = {query: said.get(query) for query in collection.judgements(split)["query_id"].to_pylist()}
    embedded = embed_collection(collection, encoder, store, split=split, answers=texts)
    rows = np.flatnonzero(~np.isnan(embedded.answers).any(axis=1))
    parts = {name: getattr(embedded, name)[rows] for name in ("query_rows", "queries", "answers")}
    return replace(embedded, **parts)


def one(collection: Collection, encoder: Any, store: VectorStore, given: argparse.Namespace) -> dict[str, Any]:
    """Everything of one collection."""
    embedded = embedded_of(collection, encoder, store, given.split, given.answers)
    longest = min(len(collection.documents), max(DEPTHS)) if given.experiments else 0
    judged = judged_queries(embedded, feedback_depth=max(FEEDBACK_DEPTH, longest), measures=MEASURES)
    judged = replace(judged, feedback_depth=FEEDBACK_DEPTH)
    grid = published_grid(given.reading)
    values = grids_of(judged, {"DIME": dime_grid(), "DIME, k⁺ 1..14": dime_grid(range(1, 15)), "Eclipse": grid})
    systems = filters(judged, values)
    comparisons = tested(systems)
    rows = [
        {
            "name": system.title, "kept": system.kept, "means": system.means,
            "intervals": {m: bootstrap_interval(v, rng=np.random.default_rng(0)) for m, v in system.per_query.items()},
            "spread": {m: of.spread[m] for m, of in (system.tuned or {}).items()},
            "against_baseline": {
                c["measure"]: c for c in comparisons if (c["a"], c["b"]) == (system.title, "baseline")
            },
            "against_dime": {c["measure"]: c for c in comparisons if c["a"] == system.title and c["b"] != "baseline"},
        }
        for system in systems
    ]  # fmt: skip
    size = len(grid.depths) * len(grid.weights) * len(grid.shares)
    result = {
        "collection": collection.name, "split": given.split, "queries": len(judged.lists),
        "encoder": encoder.describe(), "grid": {"reading": given.reading, "settings": size}, "systems": rows,
    }  # fmt: skip
    if given.experiments:
        eclipse = values["PRF Eclipse"]
        result["experiments"] = {
            "halves": halves({name: of for name, of in values.items() if "k⁺" not in name}),
            "depths": depths(judged, spread()),
            "moons": moons(judged, {m: oracle(eclipse, m).settings[0] for m in MEASURES}),
            "queries_changed_most": changed_most([embedded.query_ids[row] for row in judged.rows], values),
        }  # fmt: skip
    return result


def tables(results: Mapping[str, Any]) -> dict[str, list[dict[str, Any]]]:
    """Means of each method on each collection, with Holm's p against all dimensions."""

    def shown(system: Mapping[str, Any], measure: str) -> str:
        test = system["against_baseline"].get(measure)
        return f"{system['means'][measure]:.4f}" + (f" ({test['p_holm']:.3f})" if test else "")

    names = dict.fromkeys(system["name"] for each in results.values() for system in each["systems"])
    of = {(at, system["name"]): system for at, each in results.items() for system in each["systems"]}
    return {
        f"{measure} of each method": [
            {"": name, **{at: shown(of[at, name], measure) for at in results if (at, name) in of}} for name in names
        ]
        for measure in MEASURES
    }


def main() -> None:
    parser = argument_parser(__doc__)
    parser.add_argument("collections", nargs="+")
    parser.add_argument("--split", default="test")
    parser.add_argument("--model", default=DEFAULT_MODEL)
    parser.add_argument("--max-length", type=int, default=256)
    parser.add_argument("--reading", default="few-relevant", choices=READINGS)
    parser.add_argument("--experiments", action="store_true")
    parser.add_argument("--answers", type=Path)
    given = parser.parse_args()
    encoder = load_encoder(given.model, EncoderSettings(max_length=given.max_length))
    store = VectorStore(cache_folder() / "vectors")
    done = load("search_collections").get("collections", {})
    for path in given.collections:
        result = one(load_collection(path), encoder, store, given)
        done[f"{result['collection']}{', answers' if given.answers else ''}"] = result
        save("search_collections", {"collections": done}, tables(done))
