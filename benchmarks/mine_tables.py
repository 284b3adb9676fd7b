"""The tables of docs/mining.md."""

from __future__ import annotations

from typing import Any

WORDS = "words, of the positive's (median)"


def llm(found: dict[str, Any]) -> str:
    """What a small language model wrote for one collection, beside other sources for the same queries."""
    rows = [
        "| source | texts turned away | rows | rejected by a margin of 5 % | cosine to the "
        "query | words, of the positive's | ÷ control | inverted |",
        "|---|" + "---:|" * 7,
    ]
    for name, source in found.items():
        away = sum(source["turned_away"].values()) if "turned_away" in source else None
        scores = source.get("scores")
        cells = (
            name,
            "–" if away is None else str(away),
            str(source["negatives"]),
            str(sum(source["rejected"].values())),
            f"{source['cosine to the query (mean)']:.2f}",
            f"{source[WORDS]:.2f}",
            f"{scores['control_ratio']:.2f}{' (easy)' if scores['easy'] else ''}" if scores else "–",
            f"{100 * scores['inversion_rate']:.0f} %" if scores else "–",
        )
        rows.append(f"| {' | '.join(cells)} |")
    return "\n".join(rows)


def mining(found: dict[str, Any]) -> str:
    """Dense mining against mine_hard_negatives, by collection."""
    rows = [
        "| collection | documents | queries | time, of theirs | memory, of theirs | … beyond what was held before |",
        "|---|" + "---:|" * 5,
    ]
    for name, measured in found.items():
        ratios = measured["to mine_hard_negatives"]
        cells = (
            name,
            f"{measured['documents']:,}",
            f"{measured['queries']:,}",
            *(f"{ratios[f'{key}, ours']:.2f} ×" for key in ("seconds", "peak", "growth")),
        )
        rows.append(f"| {' | '.join(cells)} |")
    return "\n".join(rows)


def drop_in(found: dict[str, Any]) -> str:
    """The same call of mine_hard_negatives on both sides, by collection, encoder and options."""
    rows = ["| pairs, encoder | call | time, of theirs | memory, of theirs |", "|---|---|" + "---:|" * 2]
    for name, measured in found.items():
        size = f"{name} ({measured['queries']:,} queries, {measured['documents']:,} documents)"
        for case, compared in measured["cases"].items():
            options = ", ".join(f"{option}={value!r}" for option, value in compared["options"].items())
            call = (
                f"`{options}`" if options else "defaults, nothing embedded yet" if case == "first call" else "defaults"
            )
            ratios = (f"{compared['ratios'][key]:.2f} ×" for key in ("processor seconds", "growth"))
            rows.append(f"| {' | '.join((size, call, *ratios))} |")
            size = ""
    return "\n".join(rows)
