"""The tables of docs/study.md, from benchmarks/results/study_first.json and study_transformers.json."""

from __future__ import annotations

from typing import Any

from foils.studies import PREDICTORS
from grid_tables import OURS

PUBLISHED = ("eci_sem", "eci", "eci_per_query", "mnrl_proxy", "gradient_energy", "rho")
MODELS = {"all-MiniLM-L6-v2": "all-MiniLM", "bert-tiny": "BERT-tiny"}


def leaderboard(result: dict[str, Any], *, every: bool = True) -> str:
    """Every published predictor over all cells, those that are most used in bold; or these, and the probe, alone.

    The studies were made before the decision: the benefits that stand in them are of forms that are no more, and are
    left out.
    """
    cells = [cell["name"] for cell in result["all"]["cells"]]
    short = headers(result)
    rows = [
        f"| predictor | mean τ | worst | regret | {' | '.join(short)} |",
        "|---|---|---:|---:|" + "---:|" * len(cells),
    ]
    ceiling = [_signed(cell["ceiling"]) for cell in result["all"]["cells"]]
    for each in result["all"]["leaderboard"]:
        name = each["predictor"]
        if each["missing"] or name in OURS or name not in PREDICTORS or not (every or name in (*PUBLISHED, "probe")):
            continue
        by_cell = [_signed(each["cells"][name]["kendall"]) for name in cells]
        interval = f"{_signed(each['kendall'])} [{_signed(each['low'])}, {_signed(each['high'])}]"
        name = f"**{name}**" if name in PUBLISHED else name
        rows.append(
            f"| {name} | {interval} | {_signed(each['worst'])} | {each['regret']:.4f} | {' | '.join(by_cell)} |"
        )
    rows.append(f"| *seeds against seeds* |  |  |  | {' | '.join(ceiling)} |")
    return "\n".join(rows)


def published(result: dict[str, Any]) -> str:
    """What each published predictor, and the benefit, say of each source, and what training on it gave.

    The last rows are τ within the settings, the mean of that of single sources and that of hybrids, and the share of
    pairs of one setting that are in the measured order.
    """
    (study,) = result["cells"].values()
    (cell,) = study["cells"]
    names = [name for name in ("benefit", *PUBLISHED) if name != "eci_per_query"]
    tests = list(cell["outcomes"][0]["tests"])
    heads = ["trained on", "mean nDCG@10", *tests, *names]
    rows = [f"| {' | '.join(heads)} |", "|---|" + "---:|" * (len(heads) - 1)]
    for each in cell["outcomes"]:
        known = cell["predictors"].get(each["source"], {})
        values = [f"{known[name]:.3g}" if name in known else "–" for name in names]
        measured = [f"{value:.4f}" for value in (each["mean"], *(each["tests"][test] for test in tests))]
        rows.append(f"| {' | '.join([each['source'], *measured, *values])} |")
    of = {each["predictor"]: each for each in study["leaderboard"]}
    empty = ["" for _ in (0, *tests)]
    rows.append(f"| *τ within settings* | {' | '.join([*empty, *(_signed(of[name]['within']) for name in names)])} |")
    shares = [f"{of[name]['stability']:.0%}".replace("%", " %") for name in names]
    rows.append(f"| *pairs in order* | {' | '.join([*empty, *shares])} |")
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


def _signed(value: float | None) -> str:
    return "–" if value is None else f"{value:+.2f}"
