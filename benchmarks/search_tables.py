"""Tables of docs/searching.md, from search_collections.json and search.json; tables.py writes them there."""

from __future__ import annotations

from typing import Any

MEASURES = ("nDCG@10", "AP")
COLLECTIONS = ("cranfield", "scifact", "squad-sent", "banking77", "clinc150", "debian")


def cell(row: dict[str, Any] | None, measure: str) -> str:
    if row is None:
        return "–"
    test = row["against_baseline"].get(measure)
    return f"{row['means'][measure]:.4f}" + (f" ({test['p_holm']:.3f})" if test else "")


def collections(found: dict[str, Any]) -> str:
    """Every system on every collection, with p after Holm's correction, a table a measure; and what it rests on."""
    having = [name for name in COLLECTIONS if name in found]
    systems = {name: {row["name"]: row for row in found[name]["systems"]} for name in having}
    tables = []
    for measure in MEASURES:
        rows = [f"| {measure} | {' | '.join(having)} |", "|---" * (len(having) + 1) + "|"]
        for system in dict.fromkeys(system for name in having for system in systems[name]):
            cells = [cell(systems[name].get(system), measure) for name in having]
            rows.append(f"| {'all dimensions' if system == 'baseline' else system} | {' | '.join(cells)} |")
        tables.append("\n".join(rows))
    notes = " ".join(map(facts, (found[name] for name in having)))
    return "\n\n".join(tables) + "\n\nIn brackets: p after Holm's correction. " + notes


def facts(of: dict[str, Any]) -> str:
    rdime = next(row for row in of["systems"] if row["name"] == "PRF RDIME")
    whole = of.get("queries_of_split", of["queries"])
    drawn = f"{of['queries']:,} of {whole:,} queries" if of["queries"] < whole else f"{of['queries']:,} queries"
    return (
        f"{of['collection']}: {drawn}, texts cut after {of['encoder']['max_length']} tokens, "
        f"{of['grid']['settings']:,} settings of Eclipse; RDIME keeps {100 * rdime['kept']:.0f} % of the dimensions."
    )


def answers(of: dict[str, Any]) -> str:
    """The filters of one collection whose sun is an answer, beside those whose sun is feedback."""
    rows = ["| | nDCG@10 | AP |", "|---|---|---|"]
    for row in of["systems"]:
        name = "all dimensions" if row["name"] == "baseline" else row["name"]
        rows.append(f"| {name} | {' | '.join(cell(row, measure) for measure in MEASURES)} |")
    given = of["answers"]
    answered = f"Of {given['queries']} queries those {given['answered']} that were answered when the model was stopped."
    return "\n".join(rows) + f"\n\n{facts(of)} {answered}"


def second_pass(found: dict[str, Any]) -> str:
    """What the second pass adds to an exact search, and what that search costs beside a plain one."""
    rows = [
        "| documents | + ranking the retrieved again | + searching again | exact search ÷ plain |",
        "|---:|---:|---:|---:|",
    ]
    for row in found["second_pass"]:
        added = [row[f"added_{name}"]["processor"] for name in ("retrieved", "index")]
        plain = row["exact_against_plain"]["processor"]
        rows.append(f"| {row['documents']:,} | {100 * added[0]:.0f} % | {100 * added[1]:.0f} % | {plain:.2f} |")
    return "\n".join(rows)


def selective(rows: list[dict[str, Any]]) -> str:
    """Gains of RDIME and of `selective` over all dimensions, the collections it was chosen on apart from the others."""
    lines = [
        "| | encoder | all dimensions | RDIME | selective | queries masked |",
        "|---|---|---|---|---|---:|",
    ]
    keys = dict.fromkeys((row["side"], row["collection"], row["encoder"]) for row in rows)
    for side, collection, encoder in sorted(keys, key=lambda key: (key[0] == "testing", key[2].startswith("static"))):
        of = [row for row in rows if (row["collection"], row["encoder"]) == (collection, encoder)]
        every = " / ".join(f"{row['all_dimensions']:.4f}" for row in of if row["system"] == "RDIME")
        gains = [" / ".join(gain(row) for row in of if row["system"] == name) for name in ("RDIME", "selective")]
        last = of[-1]
        share = 100 * (1 - last["kept_all"] / last["queries"])
        name = f"**{collection}**" if side == "testing" else collection
        kind = "static" if encoder.startswith("static") else "MiniLM"
        lines.append(f"| {name} | {kind} | {every} | {' | '.join(gains)} | {share:.0f} % |")
    return "\n".join(lines)


def gain(row: dict[str, Any]) -> str:
    """A gain, marked where it is significant: * better, ! worse."""
    mark = "*" if row["p_better_holm"] < 0.05 else "!" if row["p_worse_holm"] < 0.05 else ""
    return f"{row['gain']:+.4f}{mark}"


def latency(found: dict[str, Any]) -> str:
    """Milliseconds of a single query, alone and sharpened, by index."""
    kinds = found["index"]
    heads = [f"{kind} {p}" for kind in kinds for p in ("p50", "p99")]
    rows = [f"| | {' | '.join(heads)} |", "|---" + "|---:" * len(heads) + "|"]
    for way in kinds["flat"]:
        cells = [f"{of[way][p]:.2f}" for of in kinds.values() for p in ("p50", "p99")]
        rows.append(f"| {way} | {' | '.join(cells)} |")
    return "\n".join(rows) + (
        f"\n\n{found['unit'].capitalize()}; {found['collection']}: {found['documents']:,} documents of dimension "
        f"{found['dimension']}, {found['queries']:,} queries, the {found['k']} best of each."
    )


def quantised(rows: list[dict[str, Any]]) -> str:
    """nDCG@10 of a store with all dimensions, and what RDIME and `selective` gain in it."""
    collections = [*dict.fromkeys(row["collection"] for row in rows)]
    heads = [f"{name} {what}" for name in collections for what in ("all", "RDIME", "selective")]
    lines = [f"| documents | {' | '.join(heads)} |", "|---" + "|---:" * len(heads) + "|"]
    for kept in dict.fromkeys(row["store"] for row in rows):
        cells = []
        for name in collections:
            of = [row for row in rows if (row["store"], row["collection"]) == (kept, name)]
            cells += [f"{of[0]['none']:.4f}", *(gain(row) for row in of)]
        lines.append(f"| {kept} | {' | '.join(cells)} |")
    return "\n".join(lines)
