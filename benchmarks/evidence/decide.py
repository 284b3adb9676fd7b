"""What each part of the decision is worth on the grid, and how well labels tell the share of unlabelled answers.

    python benchmarks/run.py decide ablation
    python benchmarks/run.py decide few COLLECTION
    python benchmarks/run.py decide shares COLLECTION [--hide 0.5 0.9 0.98] [--prefer 1 3 8 0.125] [--seeds 2]

`ablation` trains nothing: from what benchmarks/results/grid.json holds of each cell it computes regret, Kendall's τ and
the gain in points with parts of the decision changed or left out. Forms are fitted and chosen on the cells of the part
*choice*, and tried on those of the part *test*; cells whose order does not repeat are left out. The rule of three lines
and *always random* stay in the table, as what any decision has to beat.

It also says how often candidates trained best, by what P(best) said of them after sixty labels.

`shares` hides training positives of a collection whose judgements are complete (banking77, clinc150), the likeliest so
many times as seldom as the least likely, and counts how often the intervals hold the true share after 60 labels.

`few` draws fewer and fewer queries of a collection, 2,000 times, and counts how often their best source is one that
loses at most 5 % of the best benefit of all queries: from how many queries on a choice repeats.

Writes benchmarks/results/decide.json.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import combinations, pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from scipy.optimize import minimize
from scipy.stats import kendalltau
from scipy.stats import t as student

import foils
from common import answered, argument_parser, false_shares, hidden, load, mined, save
from foils.data import Collection, load_collection
from foils.deciding import BeliefSettings, decide
from foils.deciding.benefit import FORM, HARM
from foils.deciding.decision import TOLERANCE
from foils.encode import EncoderSettings, VectorStore, load_encoder
from foils.runtime.files import cache_folder

IN_BATCH, NONE, RANDOM = "in-batch negatives", "none", "random"
MODEL = "static:all-MiniLM-L6-v2"
COSTS = {NONE: 0, RANDOM: 1, "bm25": 2, "dense": 3}
DEGREES = 3
STORED_HARM = 1.5  # κ of the benefits in grid.json


class Cell(NamedTuple):
    """A reliable cell of the grid: of each source what was predicted, and nDCG@10 in points after training."""

    name: str
    starts: str
    recurrence: float | None
    predicted: dict[str, dict[str, float]]
    measured: dict[str, float]


def cells(part: str) -> Iterator[Cell]:
    """The reliable cells of a part that have a benefit and a strength of each source."""
    for name, cell in load("grid")["cells"].items():
        predicted = cell["predictors"]
        known = all({"benefit", "strength"} <= values.keys() for values in predicted.values())
        if cell["part"] != part or not known or cell["reliability"]["verdict"] != "reliable":
            continue
        seeds, recurrence = cell["reliability"]["seeds"], cell["decision"].get("recurrence")
        measured = {source: 100 * float(np.mean(values[:seeds])) for source, values in cell["measured"].items()}
        yield Cell(name, "nothing" if recurrence is None else "encoder", recurrence, predicted, measured)


Values = dict[str, float]
Rule = Callable[[Cell], Values]


def benefits(cell: Cell, harm: float = HARM, name: str = "benefit") -> Values:
    """Source → benefit with another κ, no mined negatives 0: it is linear in 1 + κ."""
    scale = (1 + harm) / (1 + STORED_HARM)
    plain = {
        source: values["strength"] - scale * (values["strength"] - values.get(name, values["benefit"]))
        for source, values in cell.predicted.items()
    }
    return {**plain, NONE: 0.0}


def three_lines(cell: Cell) -> Values:
    """Random from nothing; BM25's deepest window where R < .5; else its shallowest with less than a tenth false."""
    windows = [source for source in cell.predicted if source.startswith("bm25") and " & " not in source]
    windows.sort(key=lambda source: int(source.split()[-1].split("-")[0]))
    sound = [source for source in windows if 1 - cell.predicted[source]["few_false"] < 0.1]
    chosen = sound[0] if sound else windows[-1]
    if cell.starts == "nothing":
        chosen = RANDOM
    elif (cell.recurrence or 0.0) < 0.5:
        chosen = windows[-1]
    return {source: float(source == chosen) for source in cell.predicted}


def cheapest_of_the_best(values: Values, tolerance: float = TOLERANCE) -> str:
    """The cheapest choice that loses at most 5 % of the best value, as the decision takes it."""
    best = max(values.values())
    near = [source for source, value in values.items() if value >= best - tolerance * max(best, 0.0)]
    return min(near, key=lambda source: (_cost(source), -values[source]))


def _cost(source: str) -> int:
    return max(COSTS[part.split()[0].rstrip(",")] for part in source.split(" & "))


FORMS: dict[str, tuple[Rule, float]] = {
    "the decision": (benefits, TOLERANCE),
    **{f"{share:.0%} for cheaper ones": (benefits, share) for share in (0.0, 0.02, 0.1, 0.2)},
    "κ = 1": (lambda cell: benefits(cell, 1.0), TOLERANCE),
    "κ = 1.5": (lambda cell: benefits(cell, 1.5), TOLERANCE),
    "κ = 3": (lambda cell: benefits(cell, 3.0), TOLERANCE),
    "κ = 5": (lambda cell: benefits(cell, 5.0), TOLERANCE),
    "without recurrence (R = 1)": (lambda cell: benefits(cell, STORED_HARM, "benefit_always"), TOLERANCE),
    "without unlabelled answers": (lambda cell: benefits(cell, -1.0), TOLERANCE),
    "by few unlabelled answers alone": (
        lambda cell: {source: values["few_false"] for source, values in cell.predicted.items()}, 0.0),
    "rule of three lines": (three_lines, 0.0),
    "always random": (lambda cell: {source: float(source == RANDOM) for source in cell.predicted}, 0.0),
}  # fmt: skip


def worth(rule: Rule, tolerance: float, part: str) -> dict[str, float]:
    """Mean and largest regret in nDCG@10, and mean τ over the sources, on the reliable cells of a part."""
    lost, agreed = [], []
    for cell in cells(part):
        values = rule(cell)
        chosen = cheapest_of_the_best(values, tolerance)
        reached = cell.measured[IN_BATCH if chosen == NONE and IN_BATCH in cell.measured else
                                RANDOM if chosen == NONE else chosen]  # fmt: skip
        lost.append((max(cell.measured[source] for source in cell.predicted) - reached) / 100)
        pairs = [(values.get(source, 0.0), cell.measured[source]) for source in cell.predicted]
        agreed.append(float(kendalltau(*zip(*pairs, strict=True)).statistic))
    return {"regret": float(np.mean(lost)), "worst": float(np.max(lost)), "kendall": float(np.mean(agreed))}


def differences(part: str, starts: str, power: float) -> np.ndarray:
    """(n, 2) of every two choices of a cell: the difference of their transformed benefits, and that in points."""
    rows = []
    for cell in (each for each in cells(part) if each.starts == starts):
        measured = {**cell.measured, **({NONE: cell.measured[IN_BATCH]} if IN_BATCH in cell.measured else {})}
        values = {source: value for source, value in benefits(cell).items() if source in measured}
        for a, b in combinations(values, 2):
            x, y = (float(np.sign(values[each]) * abs(values[each]) ** power) for each in (a, b))
            rows.append((x - y, measured[a] - measured[b]))
    return np.array(rows)


def fitted(starts: str, power: float) -> dict[str, float]:
    """Slope and scales of Student's t by maximum likelihood on the choice cells, and how often 95 % intervals hold."""
    choice, test = (differences(part, starts, power) for part in ("choice", "test"))

    def scale(z: np.ndarray, x: np.ndarray) -> np.ndarray:
        return np.asarray(np.exp(z[1]) + np.exp(z[2]) * np.abs(x))

    def loss(z: np.ndarray) -> float:
        spread = scale(z, choice[:, 0])
        return -float((student.logpdf((choice[:, 1] - z[0] * choice[:, 0]) / spread, DEGREES) - np.log(spread)).sum())

    z = minimize(loss, [2.0, 0.0, 0.0], method="Nelder-Mead", options={"maxiter": 4_000}).x
    form = FORM[starts]
    held = np.abs(test[:, 1] - form.slope * test[:, 0]) <= student.ppf(0.975, DEGREES) * np.hypot(
        2**0.5 * form.error, form.slope_error * test[:, 0]
    )
    return {
        "slope": float(z[0]), "error": float(np.exp(z[1])) / 2**0.5, "slope_error": float(np.exp(z[2])),
        "loss": loss(z), "held": float(held.mean()), "pairs": len(test),
    }  # fmt: skip


def ablation() -> dict[str, Any]:
    """Every form on both parts, and the fit of points."""
    forms = {name: {part: worth(*form, part) for part in ("choice", "test")} for name, form in FORMS.items()}
    points = {
        f"{starts}, power {power:g}": fitted(starts, power) for starts in FORM for power in (1.0, 0.75, 0.5, 0.33)
    }
    return {"forms": forms, "points": points}


def calibration() -> list[dict[str, Any]]:
    """How often a candidate trained best, by its P(best) after sixty labels, on reliable cells (`grid labelled`)."""
    told: dict[str, list[tuple[float, bool]]] = {"choice": [], "test": []}
    for cell in load("grid")["cells"].values():
        if cell["part"] not in told or cell["reliability"]["verdict"] != "reliable":
            continue
        measured = {name: float(np.mean(of[: cell["reliability"]["seeds"]])) for name, of in cell["measured"].items()}
        measured[NONE] = measured.get(IN_BATCH, float("nan"))
        for labelled in cell.get("labelled", []):
            known = {name: chance for name, chance in labelled["best"].items() if measured[name] == measured[name]}
            best = max(known, key=lambda name: measured[name])
            told[cell["part"]] += [(chance, name == best) for name, chance in known.items()]
    rows = []
    for low, high in pairwise((0.0, 0.02, 0.1, 0.25, 0.5, 1.01)):
        row: dict[str, Any] = {"P(best)": f"{low:g} to {min(high, 1):g}"}
        for part, of in told.items():
            inside = np.array([each for each in of if low <= each[0] < high]).reshape(-1, 2)
            said, seen = inside.mean(axis=0) if len(inside) else (float("nan"), float("nan"))
            row |= {
                f"{part}, candidates": len(inside),
                f"{part}, mean": round(said, 3),
                f"{part}, best": round(seen, 3),
            }
        rows.append(row)
    return rows


def shares(name: str, hide: float, prefer: float, seed: int, count: int = 60) -> list[tuple[float, float, float]]:
    """True share, and the ends of its interval after labels, of each source."""
    whole = load_collection(name)
    collection, gone = hidden(whole, hide, seed) if prefer == 1 else _preferring(whole, hide, prefer, seed)
    sources = {each.replace("+", " "): table for each, table in mined(collection, 10).items() if table.keep.any()}
    true = false_shares(sources, gone)
    pairs = zip(gone["query_id"].to_pylist(), gone["doc_id"].to_pylist(), strict=True)
    labels = answered(sources, pairs, count, seed)
    encoder, store = load_encoder(MODEL, EncoderSettings(max_length=128)), VectorStore(cache_folder() / "vectors")
    worths = decide(collection, sources, encoder, store, BeliefSettings(labels=labels), seed=seed).worths
    return [(true[each], worths[each].false_share_low, worths[each].false_share_high) for each in sources]


def _preferring(whole: Collection, hide: float, prefer: float, seed: int) -> tuple[Collection, pa.Table]:
    """Hide training positives, those most like their query so many times as seldom as those least like it."""
    encoder, store = load_encoder(MODEL, EncoderSettings(max_length=128)), VectorStore(cache_folder() / "vectors")
    table = whole.qrels["train"]
    query = store.embed(encoder, whole.query_texts(whole.query_rows(table["query_id"])), "query")
    document = store.embed(encoder, whole.document_texts(whole.document_rows(table["doc_id"])), "document")
    every = np.arange(len(table))
    likeness = np.einsum("nd,nd->n", query.take(every), document.take(every))
    kept = prefer ** (np.argsort(np.argsort(likeness)) / len(table))
    kept = np.minimum(1.0, kept * (1 - hide) / kept.mean()) > np.random.default_rng(seed).random(len(table))
    visible, gone = table.filter(pa.array(kept)), table.filter(pa.array(~kept))
    digest = f"{whole.digest[:16]}-{hide}-{prefer}-{seed}"
    return replace(whole, qrels={**whole.qrels, "train": visible}, digest=digest), gone


def few(name: str, repetitions: int = 2_000) -> dict[str, float]:
    """Queries → how often the source that is best for as many loses at most 5 % of the best benefit of all queries."""
    collection, encoder = load_collection(name), load_encoder(MODEL, EncoderSettings(max_length=128))
    sources = {
        f"{method} {first}-{first + 4}": foils.mine(collection, method, top=4, ranks=(first, first + 4), **how)
        for method, how in (("bm25", {}), ("dense", {"encoder": MODEL, "max_length": 128}))
        for first in (0, 20, 100)
    }
    basis = decide(collection, sources, encoder, VectorStore(cache_folder() / "vectors")).basis
    records = basis.measured.records
    benefits = np.zeros((len(records), len(records.names) + 1))  # the last: none
    for bit in range(len(records.names)):
        own = np.flatnonzero(records.members >> bit & 1)
        worth = basis.added_losses(own) * basis.learnabilities(own) * (1 - (1 + HARM) * basis.expected[own])
        benefits[:, bit] = np.bincount(records.record[own], worth, len(records))
    every, rng = benefits.mean(axis=0), np.random.default_rng(0)
    good = every >= (1 - TOLERANCE) * every.max()
    repeats = {}
    for count in (5, 10, 20, 35, 50, 75, 100, 200, 400):
        drawn = [benefits[rng.permutation(len(benefits))[:count]].mean(axis=0).argmax() for _ in range(repetitions)]
        repeats[f"{count} queries"] = float(good[drawn].mean())
    return repeats


def main() -> None:
    parser = argument_parser(__doc__)
    parser.add_argument("action", choices=["ablation", "few", "shares"])
    parser.add_argument("collection", type=Path, nargs="?")
    parser.add_argument("--hide", type=float, nargs="*", default=[0.5, 0.9, 0.98])
    parser.add_argument("--prefer", type=float, nargs="*", default=[1, 3, 8, 0.125])
    parser.add_argument("--seeds", type=int, default=2)
    given = parser.parse_args()
    result = load("decide")
    if given.action == "ablation":
        result["ablation"] = ablation()
    if given.action == "few":
        result.setdefault("few", {})[given.collection.name] = few(str(given.collection))
    for hide in given.hide if given.action == "shares" else ():
        for prefer in given.prefer:
            rows = [row for seed in range(given.seeds) for row in shares(str(given.collection), hide, prefer, seed)]
            held = [low - 1e-9 <= true <= high + 1e-9 for true, low, high in rows]
            name = f"{given.collection.name}, {hide:g} hidden, {prefer:g} : 1"
            result.setdefault("shares", {})[name] = {"held": float(np.mean(held)), "cases": len(rows)}
            print(name, result["shares"][name])
    rows = [
        {"form": name, **{f"{key}, {part}": round(value, 4) for part, of in each.items() for key, value in of.items()}}
        for name, each in result.get("ablation", {"forms": {}})["forms"].items()
    ]
    repeats = [{"collection": name, **shares} for name, shares in result.get("few", {}).items()]
    tables = {"Parts of the decision": rows, "After sixty labels": calibration(), "How often a choice repeats": repeats}
    save("decide", result, tables)
