"""Rank random, BM25 and dense negatives of collections, and their hybrids, by ECI_sem.

    python benchmarks/run.py rank_sources COLLECTION...

The first ten negatives of each kind of the training queries are scored with all-MiniLM-L6-v2 at length 128.
"""

from __future__ import annotations

import argparse
from typing import Any

import foils
from common import load, save

SHOWN = ("eci_sem", "eci_sem_low", "eci_sem_high", "rho", "eta", "psi", "inversion_rate", "mnrl_proxy", "eci")


def rank(name: str) -> list[dict[str, Any]]:
    collection = foils.load(name)
    sources = {
        "random": foils.mine(collection, "random", top=10),
        "bm25": foils.mine(collection, "bm25", top=10),
        "dense": foils.mine(collection, "dense", top=10, max_length=128),
    }
    scored = foils.score(collection, sources, hybrids=2, max_length=128).to_json()["sources"]
    scored.sort(key=lambda each: -each["eci_sem"])
    return [{"source": each["name"], **{key: each[key] for key in SHOWN}} for each in scored]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("collection", nargs="+")
    ranked = load("rank_sources").get("ranked", {})
    for name in parser.parse_args().collection:
        ranked[name.rstrip("/").rpartition("/")[2]] = rank(name)
    save("rank_sources", {"ranked": ranked}, ranked)


if __name__ == "__main__":
    main()
