"""Does a reranker that `foils tune` makes beat the order that it reranks?

    python benchmarks/run.py rerank TUNED/ ...

Each folder is what `foils tune COLLECTION --model MODEL --reranker --minutes N [--first-stage ENCODER] -o TUNED/`
wrote. Measured are the queries of test that fit into its time: the first stage's first 50 documents in its own order,
in the reranker's, and in that of both together, weighed on dev, with paired tests (*: p < .05).
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from common import argument_parser, load, save
from foils.experiments.tuned import LEVEL, MEASURE, TUNED
from foils.runtime.results import with_ends


def row(folder: Path) -> dict[str, Any]:
    """What a tuning measured on test."""
    made: dict[str, Any] = json.loads((folder / "tune.json").read_text("utf-8"))
    given, systems = made["plan"]["given"], {each["name"]: each for each in made["evaluation"]["systems"]}
    stage = given.get("first_stage", "bm25")
    first, taken = made["evaluation"]["systems"][0], made["taken"]
    together = next(name for name in systems if name.endswith(f" + {TUNED}"))
    found = {
        "collection": Path(given["collection"]).name,
        "first stage": stage if stage == "bm25" else "tuned encoder",
        "minutes": given["minutes"],
        "steps": taken["members"][0]["steps"],
        "queries": len(first["per_query"][MEASURE]),
        "its order": round(first["measures"][MEASURE], 4),
    }
    for column, name in (("reranker", TUNED), ("together", together)):
        found[column] = round(systems[name]["measures"][MEASURE], 4)
        each = next(
            each for each in made["evaluation"]["comparisons"]
            if (each["a"], each["b"], each["measure"]) == (name, first["name"], MEASURE)
        )  # fmt: skip
        gain = with_ends(each["difference"], each["low"], each["high"])
        found[f"{column} − its order"] = gain.replace(" ", "* " if each["p_randomised"] < LEVEL else " ", 1)
    return {**found, "deployed": made["deploys"]}


def main() -> None:
    parser = argument_parser(__doc__)
    parser.add_argument("tuned", nargs="+", type=Path)
    known = load("rerank").get("rows", {})
    for found in map(row, parser.parse_args().tuned):
        known[f"{found['collection']}, {found['first stage']}"] = found
    save("rerank", {"rows": known}, {"": [*known.values()]})
