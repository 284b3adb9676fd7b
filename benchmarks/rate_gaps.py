"""Where do gaps put hidden positives, by a judge that knows and by the encoder that mined? Draws docs/ratings-gaps.svg.

    python benchmarks/rate_gaps.py [COLLECTION] [--queries 150] [--json benchmarks/results/rate_gaps.json]

The collection's judgements must be complete (BANKING77: every message of the query's intent). 30 % of the positives of
some queries are hidden; the 30 nearest documents by the word table of all-MiniLM-L6-v2 are rated, against the best of
eight known positives, by that word table and by an oracle, which leads a relevant document by 2 logits and has noise of
1 logit in every answer. Without COLLECTION the figure is drawn from the file.
"""

from __future__ import annotations

import argparse
import json
import math
from pathlib import Path

import numpy as np

import foils
from batch_figures import COLOURS, DOCS, GREY, Line, page, panel
from foils.encode import load_encoder
from foils.rating import BiEncoderJudge, rate_negatives
from rate_banking77 import OracleJudge, hidden

MODEL = "static:all-MiniLM-L6-v2"
DANGER = 100  # Elo points: what lies below is rejected by the published table
EDGES = np.arange(-400, 1001, 50)


def measured(options: argparse.Namespace) -> dict[str, object]:
    """Return by judge and kind of row how many gaps lie between EDGES (those beyond in the last) and below DANGER."""
    loaded = foils.load(options.collection)
    collection, relevant = hidden(loaded, options.queries, options.hide, options.seed)
    negatives = foils.mine(collection, "dense", encoder=MODEL, top=options.top)
    judges = {
        "an oracle with noise": OracleJudge(relevant, options.seed),
        "the word table that mined": BiEncoderJudge(load_encoder(MODEL), temperature=0.05),
    }
    found: dict[str, object] = {}
    for name, judge in judges.items():
        asked = {"positives": 8, "validate": "all", "seed": options.seed}  # as in rate_banking77.py
        rated = rate_negatives(collection, negatives, judge, split="train", **asked)
        gap, keep = rated.table["gap"].to_numpy().astype(float), rated.keep
        pairs = zip(rated.table["query_id"].to_pylist(), rated.table["doc_id"].to_pylist(), strict=True)
        false = np.array([pair in relevant for pair in pairs])
        kinds = {}
        for kind, rows in (("hidden positives", keep & false), ("other negatives", keep & ~false)):
            of = gap[rows & np.isfinite(gap)]
            counts, _ = np.histogram(np.clip(of, EDGES[0], EDGES[-1]), EDGES)
            kinds[kind] = {"rows": len(of), "counts": counts.tolist(), "danger": int((of < DANGER).sum())}
        found[name] = kinds
    return {
        "collection": loaded.name,
        "queries": options.queries,
        "top": options.top,
        "hide": options.hide,
        "judges": found,
    }


def figure(results: dict) -> str:
    """A panel for each judge: the share of the hidden positives, and of the other negatives, at each gap."""
    middles = ((EDGES[:-1] + EDGES[1:]) / 2).tolist()
    shares = {
        judge: {kind: [100 * count / of["rows"] for count in of["counts"]] for kind, of in kinds.items()}
        for judge, kinds in results["judges"].items()
    }
    top = 10 * math.ceil(max(max(values) for kinds in shares.values() for values in kinds.values()) / 10)
    ticks = (
        [(v, f"{v:,}".replace("-", "−")) for v in range(-400, 1001, 200)],
        [(v, f"{v} %") for v in range(0, top + 1, 10)],
    )
    danger = Line(f"gap {DANGER}: the danger zone is below it", [DANGER, DANGER], [0, top], GREY, True)
    panels, legend = [], []
    for judge, kinds in shares.items():
        colours = zip(kinds.items(), (COLOURS[1], COLOURS[0]), strict=True)
        legend = [*(Line(kind, middles, values, colour) for (kind, values), colour in colours), danger]
        axes = {"x": "gap to the positive, Elo points", "y": "share of the rows"}
        panels.append(panel(f"judged by {judge}", legend, ticks=ticks, **axes))
    return page(panels, legend)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("collection", nargs="?")
    parser.add_argument("--queries", type=int, default=150)
    parser.add_argument("--top", type=int, default=30)
    parser.add_argument("--hide", type=float, default=0.3)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path, default=Path(__file__).parent / "results" / "rate_gaps.json")
    options = parser.parse_args()
    if options.collection:
        options.json.write_text(json.dumps(measured(options), indent=1) + "\n")
    (DOCS / "ratings-gaps.svg").write_text(figure(json.loads(options.json.read_text())), encoding="utf-8")


if __name__ == "__main__":
    main()
