"""The tables of docs/study.md, from benchmarks/results/study_first.json and study_transformers.json."""

from __future__ import annotations

from typing import Any

PUBLISHED = ("eci_sem", "eci", "eci_per_query", "mnrl_proxy", "gradient_energy", "rho")
MODELS = {"all-MiniLM-L6-v2": "all-MiniLM", "bert-tiny": "BERT-tiny"}
BENEFITS = ("benefit_energy", "benefit_loss", "benefit_posterior", "few_false")


def leaderboard(result: dict[str, Any], *, every: bool = True) -> str:
    """Every predictor over all cells, the published ones and ours in bold; or these, and the probe, alone."""
    cells = [cell["name"] for cell in result["all"]["cells"]]
    short = headers(result)
    rows = [
        f"| predictor | mean τ | worst | regret | {' | '.join(short)} |",
        "|---|---|---:|---:|" + "---:|" * len(cells),
    ]
    ceiling = [_signed(cell["ceiling"]) for cell in result["all"]["cells"]]
    for each in result["all"]["leaderboard"]:
        if each["missing"] or not (every or each["predictor"] in (*PUBLISHED, *BENEFITS, "probe")):
            continue
        by_cell = [_signed(each["cells"][name]["kendall"]) for name in cells]
        interval = f"{_signed(each['kendall'])} [{_signed(each['low'])}, {_signed(each['high'])}]"
        name = f"**{each['predictor']}**" if each["predictor"] in PUBLISHED + BENEFITS else each["predictor"]
        rows.append(
            f"| {name} | {interval} | {_signed(each['worst'])} | {each['regret']:.4f} | {' | '.join(by_cell)} |"
        )
    rows.append(f"| *seeds against seeds* |  |  |  | {' | '.join(ceiling)} |")
    return "\n".join(rows)


def short(result: dict[str, Any]) -> str:
    """The benefit beside the published scores, over all cells, and over those with and without known judgements."""
    parts = {
        name: {each["predictor"]: each for each in result[name]} for name in ("as they come", "complete judgements")
    }
    every = {each["predictor"]: each for each in result["all"]["leaderboard"]}
    rows = [
        "| predictor | mean τ over all | worst | scifact, squad-sent, debian | banking77, 0–98 % hidden |",
        "|---|---:|---:|---:|---:|",
    ]
    for name in ("benefit_loss", "benefit_energy", "eci_sem", "eci_per_query", "gradient_energy", "mnrl_proxy"):
        each = every[name]
        interval = f"{_signed(each['kendall'])} [{_signed(each['low'])}, {_signed(each['high'])}]"
        split = " | ".join(_signed(parts[part][name]["kendall"]) for part in parts)
        rows.append(f"| {name} | {interval} | {_signed(each['worst'])} | {split} |")
    return "\n".join(rows)


def headers(result: dict[str, Any]) -> list[str]:
    """A heading for each cell: the collection, and the model where there are several."""
    named = [cell["name"].replace(" % hidden", " %").partition(" · ")[::2] for cell in result["all"]["cells"]]
    if len({model for _, model in named}) == 1:
        return [collection for collection, _ in named]
    return [f"{collection}, {MODELS.get(model, model)}" for collection, model in named]


def outcomes(result: dict[str, Any]) -> str:
    """What training on each source gave in each cell."""
    cells, short = result["all"]["cells"], headers(result)
    names = list(dict.fromkeys(each["source"] for cell in cells for each in cell["outcomes"]))
    order = ["untrained", "in-batch negatives", "random"]
    names = [*(name for name in order if name in names), *sorted(name for name in names if name not in order)]
    rows = [f"| trained on | {' | '.join(short)} |", "|---|" + "---:|" * len(cells)]
    for name in names:
        found = []
        for cell in cells:
            means = {each["source"]: each["mean"] for each in cell["outcomes"]}
            best = max(value for source, value in means.items())
            value = means.get(name)
            found.append("" if value is None else f"**{value:.4f}**" if value == best else f"{value:.4f}")
        rows.append(f"| {name} | {' | '.join(found)} |")
    return "\n".join(rows)


def rates(result: dict[str, Any]) -> str:
    """How well recapture finds the share of false negatives, where it is known."""
    rows = [
        "| hidden | o, true | o, estimated | τ of the sources' rates with φ | mean error of φ | "
        "τ of the benefit (energy): true φ | estimated φ |",
        "|---|---:|---:|---:|---:|---:|---:|",
    ]
    for name, found in result["false negatives"].items():
        share = name.partition(", ")[2].removesuffix(" hidden") or "0 %"
        key = "kendall of (1 − 2φ) · gradient_energy, "
        cells = (
            share,
            f"{found['unlabelled_true']:.2f}",
            f"{found['unlabelled_estimated']:.2f}",
            "" if found["kendall_of_rates"] is None else f"{found['kendall_of_rates']:.2f}",
            f"{found['mean_error']:.3f}",
            _signed(found[key + "true φ"]),
            _signed(found[key + "estimated φ"]),
        )
        rows.append(f"| {' | '.join(cells)} |")
    return "\n".join(rows)


def _signed(value: float | None) -> str:
    return "–" if value is None else f"{value:+.2f}"
