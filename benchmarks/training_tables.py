"""The table of docs/training.md, from benchmarks/results/learning_rates.json."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

KINDS = {
    "static": "static embedding",
    "language": "language model (BERT-tiny)",
    "tuned": "encoder (all-MiniLM-L6-v2)",
    "few steps": "encoder (all-MiniLM-L6-v2)",
    "reranker": "reranker (BERT-tiny)",
}


def learning_rates(found: Sequence[dict[str, Any]]) -> str:
    """One row a kind, collection and training: nDCG@10 of held-out queries by learning rate, the best one bold.

    Rows with fewer than three rates, of a measurement that was not finished, are left out.
    """
    rates = sorted({each["learning_rate"] for each in found})
    head = ["kind", "collection", "negatives, batch, epochs", "rows", "untrained", *(f"{rate:g}" for rate in rates)]
    rows = [f"| {' | '.join(head)} |", "|---|---|---|" + "---:|" * (2 + len(rates))]
    for kind, title in KINDS.items():
        trainings: dict[tuple[Any, ...], dict[float, dict[str, Any]]] = {}
        for each in (each for each in found if each["kind"] == kind):
            how = (each["negatives"], each["batch_size"], each["epochs"], each["collection"])
            trainings.setdefault(how, {})[each["learning_rate"]] = each
        for (*how, collection), by_rate in sorted(trainings.items()):
            if len(by_rate) < 3:
                continue
            best = max(each["trained"] for each in by_rate.values())
            values = [by_rate[rate]["trained"] if rate in by_rate else None for rate in rates]
            cells = ["" if v is None else f"**{v:.3f}**" if v == best else f"{v:.3f}" for v in values]
            first = next(iter(by_rate.values()))
            names = [title, collection, ", ".join(map(str, how)), f"{first['rows']:,}", f"{first['untrained']:.3f}"]
            rows.append(f"| {' | '.join([*names, *cells])} |")
    return "\n".join(rows)
