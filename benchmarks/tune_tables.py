"""The tables of tunings in the README and in docs/tune.md, from benchmarks/results/tune.json."""

from __future__ import annotations

from typing import Any

SYSTEMS = ("base", "documented", "same rows", "in-batch", "tuned")
MODEL = "static:all-MiniLM-L6-v2"
TRANSFORMER, SCRIPTS = "all-MiniLM-L6-v2", ("base", "documented", "in-batch")


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


def same_minutes(measured: dict[str, Any]) -> str:
    """Return nDCG@10 of a transformer, tuned and as scripts that have the same minutes leave it, with the differences.

    A star is a difference with p < .05 after Holm's correction over the three of a collection; ! one against tuned.
    """
    differences = [f"tuned − {name}" for name in SCRIPTS]
    head = ["collection", "queries", *SCRIPTS, "tuned", *differences]
    rows = [f"| {' | '.join(head)} |", f"|---|{'---:|' * (len(head) - 1)}"]
    for each in (each for each in measured["results"] if each["model"] == TRANSFORMER):
        pairs = {pair["a"]: pair for pair in each["comparisons"] if pair["b"] == "tuned"}
        means = [f"{each['means'][name]:.4f}" for name in (*SCRIPTS, "tuned")]
        changes = [_change(-pairs[name]["difference"], pairs[name]["p_holm"], pairs[name]) for name in SCRIPTS]
        queries = f"{len(each['per_query']['tuned']):,}"
        rows.append(f"| {' | '.join([each['collection'], queries, *means, *changes])} |")
    pooled = measured["pooled"][TRANSFORMER]
    changes = [
        f"{pooled[name]['difference']:+.4f} [{pooled[name]['low']:+.4f}, {pooled[name]['high']:+.4f}]"
        for name in SCRIPTS
    ]
    rows.append(f"| all queries | {pooled['base']['queries']:,} | | | | | {' | '.join(changes)} |")
    return "\n".join(rows)


def _change(difference: float, p: float, pair: dict[str, Any]) -> str:
    mark = "" if p >= 0.05 else "*" if difference > 0 else "!"
    return f"{difference:+.4f}{mark} [{-pair['high']:+.4f}, {-pair['low']:+.4f}]"
