"""The README's table of tunings, from benchmarks/results/tune.json."""

from __future__ import annotations

from typing import Any

SYSTEMS = ("base", "documented", "same rows", "in-batch", "tuned")
MODEL = "static:all-MiniLM-L6-v2"


def tunings(measured: dict[str, Any]) -> str:
    """Return nDCG@10 on test of every collection, tuned and beside what people do today."""
    rows = [f"| collection | queries | {' | '.join(SYSTEMS)} | tuned − in-batch |", f"|---|{'---:|' * 7}"]
    for each in measured["results"]:
        if each["model"] != MODEL:
            continue
        (against,) = (pair for pair in each["comparisons"] if (pair["a"], pair["b"]) == ("in-batch", "tuned"))
        change = f"{-against['difference']:+.4f} [{-against['high']:+.4f}, {-against['low']:+.4f}]"
        means = " | ".join(f"{each['means'][name]:.4f}" for name in SYSTEMS)
        queries = len(each["per_query"]["tuned"])
        rows.append(f"| {each['collection']} | {queries:,} | {means} | {change} |")
    pooled = measured["pooled"][MODEL]["in-batch"]
    change = f"{pooled['difference']:+.4f} [{pooled['low']:+.4f}, {pooled['high']:+.4f}]"
    return "\n".join([*rows, f"| all queries | {pooled['queries']:,} |{' |' * 5} {change} |"])
