"""What the grid of studies says: reliability, regime, agreement and regret of every cell, and the tables of these."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from foils.experiments.analysis import reliability_of
from foils.experiments.tasks import BASELINES, IN_BATCH
from foils.runtime.files import without_nan
from foils.statistics.significance import kendall_tau

PARTS = {"choice": "chosen on", "test": "tested on", "cause": "cause"}
OURS = ("benefit", "strength", "few_false")
SHOWN = {
    "benefit": "benefit", "benefit_always": "benefit, R = 1", "benefit_true": "benefit, truth known",
    "benefit_labelled": "benefit, 60 labels", "eci_sem": "ECI_sem", "eci": "ECI",
    "mnrl_proxy": "MNRL proxy", "gradient_energy": "gradient energy", "rho": "mean ρ",
}  # fmt: skip
RIVALS = {
    "default": "over the first dense ranks", "margin": "over those below 95 % of the positive", "random": "over random",
    "in-batch": "over none mined", "best": "over the best in hindsight",
}  # fmt: skip
KINDS = {
    "static": "static embeddings", "bert-tiny": "encoders made of a language model", "all-MiniLM": "able encoders",
    "reranker": "rerankers made of a language model",
}  # fmt: skip
HALVES = ("same", "other")  # of the documents: test queries of the training's, or of the other
HARD, EASY = 0, 100  # first ranks of windows that are hard, and that are as easy as random negatives


def summarised(cells: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """The cells with what can be said of each, and the means over the reliable ones of each part.

    Args:
        cells: name → part, `measured` (source or baseline → a value of each seed), `predictors` (source → name →
            value), or `published` (name → Kendall's τ) where the values are not kept, and `decision`.
    """
    every = {name: {**each, **_said(each)} for name, each in cells.items()}
    means = {part: _means([each for each in every.values() if each["part"] == part]) for part in PARTS}
    return {
        "cells": every,
        "means": means,
    }


def tables(result: Mapping[str, Any]) -> dict[str, dict[str, list[Any]]]:
    """The tables of a summary, by caption, as result files hold them."""
    made = {
        "Cells": cells, "Agreement": agreement, "By kind of model and collection": groups,
        "What the choice gains": choices, "The cause": cause, "Predictors": predictors,
    }  # fmt: skip
    shown = {}
    for caption, of in made.items():
        lines = [line for line in of(result).split("\n") if line]
        rows = [[cell.strip() for cell in line.strip()[1:-1].split("|")] for line in lines]
        shown[caption] = {"columns": rows[0], "rows": rows[2:]}
    return shown


def _said(cell: Mapping[str, Any]) -> dict[str, Any]:
    """Reliability, regime, τ of each predictor, regret of each one's first choice, and of the decision's."""
    measured, predictors = cell["measured"], cell["predictors"]
    sources = list(predictors)
    seeds = min(len(measured[source]) for source in sources)
    results = np.array([measured[source][:seeds] for source in sources])
    means = results.mean(axis=1)  # of the seeds that all sources have
    names = [name for name in next(iter(predictors.values())) if all(name in each for each in predictors.values())]
    values = {name: np.array([predictors[source][name] for source in sources]) for name in names}
    reliability = reliability_of(results)
    chosen = cell["decision"]["source"] or IN_BATCH
    told = cell["decision"]["probability"] is not None or "recurrence" in cell["decision"]
    known = chosen in measured and told  # the first cells of the grid hold no decision
    lost = float(means.max() - np.mean(measured[chosen][:seeds])) if known else None
    return {
        "reliability": without_nan({**vars(reliability), "verdict": reliability.verdict}),
        "regime": regime(measured, seeds),
        "spread": float(np.ptp(means)),
        "kendall": without_nan(  # none of a predictor that is the same for all sources
            {**cell.get("published", {}), **{name: kendall_tau(each, means) for name, each in values.items()}}
        ),
        "regret": lost,
        "regrets": {name: float(means.max() - means[each == each.max()].mean()) for name, each in values.items()},
    }


def regime(measured: Mapping[str, list[float]], seeds: int) -> dict[str, Any]:
    """Which sources train best in the mean, hard, middle or easy ones, or no mined negatives; in how many of the seeds.

    Hard are the first ranks of BM25 and of dense retrieval, easy random negatives and ranks from 100 on, middle those
    between; unions and margins are left out.
    """
    groups: dict[str, list[list[float]]] = {}
    for name, values in measured.items():
        if " & " in name or "," in name or (name in BASELINES and name != IN_BATCH):
            continue
        first = EASY if name == "random" else None if name == IN_BATCH else int(name.split()[-1].split("-")[0])
        kind = "none" if first is None else "hard" if first == HARD else "easy" if first >= EASY else "middle"
        groups.setdefault(kind, []).append(values[:seeds])
    kinds = list(groups)
    by_seed = np.array([np.mean(groups[kind], axis=0) for kind in kinds])
    best = int(by_seed.mean(axis=1).argmax())
    return {
        "best": kinds[best],
        "seeds": int((by_seed.argmax(axis=0) == best).sum()),
        "means": {kind: float(each) for kind, each in zip(kinds, by_seed.mean(axis=1), strict=True)},
    }


def _means(cells: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Over reliable cells: the decision's regret, and of each predictor that all have mean τ, worst τ and regret."""
    reliable = [each for each in cells if _reliable(each)]
    if not reliable:
        return {"cells": len(cells), "reliable": 0, "predictors": {}}
    names = [name for name in reliable[0]["kendall"] if all(_tau(each, name) is not None for each in reliable)]
    predictors = {}
    for name in names:
        taus = [each["kendall"][name] for each in reliable]
        regrets = [each["regrets"][name] for each in reliable if name in each["regrets"]]
        predictors[name] = {
            "kendall": float(np.mean(taus)), "worst": float(np.min(taus)),
            "regret": float(np.mean(regrets)) if len(regrets) == len(reliable) else None,
        }  # fmt: skip
    lost = [each["regret"] for each in reliable if each["regret"] is not None]
    best = [each["regime"]["best"] for each in reliable]
    return {
        "cells": len(cells), "reliable": len(reliable), "collections": len({each["collection"] for each in reliable}),
        "models": sorted({each["model"] for each in reliable}), "regret": float(np.mean(lost)),
        "regimes": {kind: best.count(kind) for kind in sorted(set(best))},
        "predictors": predictors,
    }  # fmt: skip


def cells(result: Mapping[str, Any]) -> str:
    """A row a cell: how far its order repeats, and which sources train best."""
    heads = ["cell", "part", "seeds", "τ of halves", "of all seeds", "order", "best are", "best source"]
    heads += ["none mined", "best − worst"]
    rows = [f"| {' | '.join(heads)} |", "|---|---|---:|---:|---:|---|---|---|---:|---:|"]
    for name, each in _by_part(result):
        said, kind = each["reliability"], each["regime"]
        means = {source: float(np.mean(values[: said["seeds"]])) for source, values in each["measured"].items()}
        best = max(each["predictors"], key=lambda source: means[source])
        none = means.get(IN_BATCH)
        row = (
            _called(name), PARTS[each["part"]], str(said["seeds"]), _signed(said["half"]), _signed(said["whole"]),
            said["verdict"], f"{kind['best']} ({kind['seeds']}/{said['seeds']})", f"{best} {means[best]:.4f}",
            "–" if none is None else f"{none:.4f}", f"{each['spread']:.4f}",
        )  # fmt: skip
        rows.append(f"| {' | '.join(row)} |")
    return "\n".join(rows)


def agreement(result: Mapping[str, Any]) -> str:
    """A row a cell: τ of the benefit and of the published scores, the decision's choice, and what that loses."""
    heads = ["cell", "part", *SHOWN.values(), "choice", "P(best)", "it loses"]
    rows = [f"| {' | '.join(heads)} |", "|---|---|" + "---:|" * len(SHOWN) + "---|---:|---:|"]
    for name, each in _by_part(result):
        decision, lost = each["decision"], each["regret"]
        chance = decision["probability"]
        row = (
            _called(name) if _reliable(each) else f"*{_called(name)}*", PARTS[each["part"]],
            *(_signed(each["kendall"].get(predictor)) for predictor in SHOWN),
            "–" if chance is None else decision["source"] or "none", "–" if chance is None else f"{chance:.2f}",
            "–" if lost is None else f"{lost:.4f}",
        )  # fmt: skip
        rows.append(f"| {' | '.join(row)} |")
    return "\n".join(rows)


def predictors(result: Mapping[str, Any], *, names: Sequence[str] = ()) -> str:
    """Every predictor that all reliable cells of the part tested on have, or these alone, over those of each part."""
    parts = {part: each for part, each in result["means"].items() if each["reliable"] and part != "cause"}
    counts = {part: f"{each['reliable']} cell{'s' * (each['reliable'] > 1)}" for part, each in parts.items()}
    heads = [f"{PARTS[part]}, {counts[part]}: τ | worst | loses" for part in parts]
    rows = [f"| predictor | {' | '.join(heads)} |", "|---|" + "---:|---:|---:|" * len(parts)]
    last = next(reversed(parts.values()))["predictors"] if parts else {}
    for name in names or sorted(last, key=lambda name: -last[name]["kendall"]):
        row = [SHOWN.get(name, name) if names else f"**{name}**" if name in SHOWN else name]
        for each in parts.values():
            one = each["predictors"].get(name, {})
            lost = one.get("regret")
            row += [_signed(one.get("kendall")), _signed(one.get("worst")), "–" if lost is None else f"{lost:.4f}"]
        rows.append(f"| {' | '.join(row)} |")
    return "\n".join(rows)


def groups(result: Mapping[str, Any]) -> str:
    """A row a kind of model and a collection: mean τ over its reliable cells that were tested on, and what is lost.

    The last row is the mean of the collections' means, in which none counts more for having more cells.
    """
    tested = [each for _, each in _by_part(result) if each["part"] == "test" and _reliable(each)]
    names = [name for name in SHOWN if all(_tau(each, name) is not None for each in tested)]
    heads = ["cells of", "cells", *(SHOWN[name] for name in names), "it loses"]
    rows = [f"| {' | '.join(heads)} |", "|---|---:|" + "---:|" * (len(names) + 1)]

    def row(label: str, cells: Sequence[Mapping[str, Any]]) -> list[float]:
        means = [float(np.mean([each["kendall"][name] for each in cells])) for name in names]
        means.append(float(np.mean([each["regret"] for each in cells])))
        rows.append(f"| {label} | {len(cells)} | {' | '.join(map(_signed, means[:-1]))} | {means[-1]:.4f} |")
        return means

    for kind, label in KINDS.items():
        if chosen := [each for each in tested if each["model"].startswith(kind)]:
            row(label, chosen)
    collections = dict.fromkeys(each["collection"] for each in tested)
    means = [row(name, [each for each in tested if each["collection"] == name]) for name in collections]
    if means:
        of_all = np.mean(means, axis=0)
        rows.append(f"| **mean of collections** | | {' | '.join(map(_signed, of_all[:-1]))} | {of_all[-1]:.4f} |")
    return "\n".join(rows)


def choices(result: Mapping[str, Any]) -> str:
    """A row a reliable cell: what the decision's choice gains over what one would take else, and the mean of a part."""
    heads = ["cell", "part", "choice", *RIVALS.values()]
    rows = [f"| {' | '.join(heads)} |", "|---|---|---|" + "---:|" * len(RIVALS)]
    for part in PARTS:
        known = [(name, each) for name, each in _by_part(result) if each["part"] == part and each.get("against")]
        known = [(name, each) for name, each in known if _reliable(each)]
        for name, each in known:
            row = [_called(name), PARTS[part], each["decision"]["source"] or "none"]
            rows.append(f"| {' | '.join([*row, *(_gained(each['against'].get(rival)) for rival in RIVALS)])} |")
        made = [(each["collection"], each["against"]) for _, each in known]
        pooled = [_pooled([(of, each[rival]) for of, each in made if rival in each]) for rival in RIVALS]
        rows += [f"| **mean of {len(known)}** | {PARTS[part]} |  | {' | '.join(pooled)} |"] if known else []
    return "\n".join(rows)


def cause(result: Mapping[str, Any]) -> str:
    """A row a cell: the same training queries, tested where documents recur and where they do not."""
    kinds = {
        "none mined": IN_BATCH, "random": "random", "first of BM25": "bm25 0-4", "first dense": "dense 0-4",
        "dense from 20": "dense 20-24", "dense from 100": "dense 100-104",
    }  # fmt: skip
    heads = ["cell", "R", *kinds, "first of BM25 − random", "first dense − random", "τ", "τ, R = 1", "order"]
    rows = [f"| {' | '.join(heads)} |", "|---|" + "---:|" * (len(heads) - 2) + "---|"]
    for name, each in _by_part(result):
        if each["part"] != "cause":
            continue
        means = {source: float(np.mean(values)) for source, values in each["measured"].items()}
        best = max(means[source] for source in kinds.values())
        shown = (f"**{means[source]:.4f}**" if means[source] == best else f"{means[source]:.4f}"
                 for source in kinds.values())  # fmt: skip
        row = (
            _called(name), "1" if "same" in name.split() else "0", *shown,
            *(_interval(each["hardest"][source]) for source in ("bm25 0-4", "dense 0-4")),
            _signed(each["kendall"]["benefit"]), _signed(each["kendall"]["benefit_always"]),
            each["reliability"]["verdict"],
        )  # fmt: skip
        rows.append(f"| {' | '.join(row)} |")
    return "\n".join(rows)


def _interval(one: Mapping[str, float]) -> str:
    return f"{one['difference']:+.4f} [{one['low']:+.4f}, {one['high']:+.4f}]"


def _gained(one: Mapping[str, Any] | None) -> str:
    if one is None:
        return "–"
    marked = "" if one["p_holm"] >= 0.05 else "*" if one["difference"] > 0 else "!"
    return f"{one['difference']:+.4f}{marked} [{one['low']:+.4f}, {one['high']:+.4f}]"


def _pooled(each: Sequence[tuple[str, Mapping[str, Any]]]) -> str:
    """The mean over cells, of a collection each; an interval that takes the cells of one as wholly dependent."""
    if not each:
        return "–"
    mean = float(np.mean([one["difference"] for _, one in each]))
    halves: dict[str, float] = {}
    for collection, one in each:  # the same test queries: their errors add up, those of collections by their squares
        halves[collection] = halves.get(collection, 0.0) + (one["high"] - one["low"]) / 2
    half = float(np.linalg.norm(list(halves.values()))) / len(each)
    return f"**{mean:+.4f}** [{mean - half:+.4f}, {mean + half:+.4f}]"


def _by_part(result: Mapping[str, Any]) -> list[tuple[str, Mapping[str, Any]]]:
    return [(name, each) for part in PARTS for name, each in result["cells"].items() if each["part"] == part]


def _reliable(cell: Mapping[str, Any]) -> bool:
    return bool(cell["reliability"]["verdict"] == "reliable")


def _called(name: str) -> str:
    """A cell's name for readers: banking77, 90 %, static."""
    collection, *rest, model = name.split()
    kinds = (f"{each} half" if each in HALVES else f"{each} %" for each in rest)
    return ", ".join([collection, *kinds, model])


def _tau(cell: Mapping[str, Any], name: str) -> float | None:
    tau: float | None = cell["kendall"].get(name)
    return tau


def _signed(value: float | None) -> str:
    return "–" if value is None else f"{value:+.2f}"
