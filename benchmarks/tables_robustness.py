"""Write the tables of docs/robustness.md from benchmarks/results/{faults,memory_verbs,repeat}.json.

python benchmarks/tables_robustness.py
"""

from __future__ import annotations

from typing import Any

from tables import ROOT, load, put

LEAST = "100"  # documents of the run that shows what the program itself takes


def faults() -> str:
    rows = [
        "| verb | kills | at changes of files | files that differ | half files | left aside | encoded again "
        "| asked again |",
        "|---|---:|---:|---:|---:|---:|---:|---:|",
    ]
    total = dict.fromkeys(("kills", "file_points", "different", "half", "left"), 0)
    for name, found in load("faults").items():
        counts = {key: len(value) if isinstance(value, list) else value for key, value in found.items()}
        total = {key: value + counts[key] for key, value in total.items()}
        again = [(counts[f"{what}_again"], counts[f"{what}_again_allowed"]) for what in ("encoded", "asked")]
        cells = [name, *(f"{counts[key]:,}" for key in total)]
        cells += [f"{count:,} of {allowed:,}" if allowed else "–" for count, allowed in again]
        rows.append(f"| {' | '.join(cells)} |")
    rows.append(f"| all | {' | '.join(f'{value:,}' for value in total.values())} | | |")
    return "\n".join(rows)


def memory() -> str:
    found = load("memory_verbs")
    if not found:
        return "Not measured yet."
    sizes = sorted({int(size) for of in found["verbs"].values() for size in of if size != LEAST})
    rows = [f"| verb | {' | '.join(f'{size:,} documents' for size in sizes)} |", "|---|" + "---:|" * len(sizes)]
    for name, of in found["verbs"].items():
        cells = [_beyond(of.get(str(size)), of.get(LEAST)) for size in sizes]
        rows.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(rows)


def _beyond(taken: dict[str, Any] | None, least: dict[str, Any] | None) -> str:
    if taken is None or least is None:
        return "–"
    return "stopped" if taken["mib"] is None else f"{max(0.0, taken['mib'] - least['mib']):,.0f} MiB"


def repeat() -> str:
    found = load("repeat")
    if not found:
        return "Not measured yet."
    rows = ["| verb | files | other process | other hash seeds | 2 threads |", "|---|---:|---|---|---|"]
    for name, of in found.items():
        cells = ["same bytes" if not of[way] else ", ".join(of[way]) for way in ("process", "hash seed", "threads")]
        if of.get("largest relative difference") is not None:
            cells[2] += f" (numbers within {of['largest relative difference']:.1e})"
        rows.append(f"| {name} | {of['files']} | {' | '.join(cells)} |")
    return "\n".join(rows)


def main() -> None:
    page = ROOT / "docs" / "robustness.md"
    for marker, text in (("faults", faults()), ("memory", memory()), ("repeat", repeat())):
        put(page, marker, text.replace("benchmarks/tables.py", "benchmarks/tables_robustness.py"))


if __name__ == "__main__":
    main()
