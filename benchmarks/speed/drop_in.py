"""foils.mine_hard_negatives against sentence-transformers' function of this name: the same call, the same negatives.

    python benchmarks/run.py drop_in [COLLECTION] [--encoder MODEL] [--split train] [--pairs 3] [--case NAME …]

The pairs are those of the collection's split, its documents the corpus; without COLLECTION, pydocs. Each side runs in
processes of its own, taking turns, and each pair of processes does one case of CASES. Ratios are medians over the pairs
of processes; memory is the process's peak, whole and beyond what it held before the call (model, pairs, libraries).
`first call` has no vectors, all others find those of an earlier call in their `cache_folder`. Beside the time that
passed stands the processor's, of all threads: on a busy machine it is the fairer one. Without --encoder the vectors are
those of all-MiniLM-L6-v2's word table, which take seconds. That both sides return the same rows is counted.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import random
import resource
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from common import apart, argument_parser, load, peak_bytes, save
from foils.data import load_collection

WIDE = {"relative_margin": 0.05, "num_negatives": 10, "range_max": 100}
CASES: dict[str, dict[str, Any]] = {
    "first call": {},
    "defaults": {},
    "defaults, faiss": {"use_faiss": True},
    "margin": WIDE,
    "margin, random, with scores": {**WIDE, "sampling_strategy": "random", "output_scores": True},
    "margin, labeled-list": {**WIDE, "output_format": "labeled-list"},
}
FIRST = "first call"


def spent() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def side(name: str, arguments: argparse.Namespace) -> dict[str, Any]:
    """Mine once in this process."""
    from datasets import Dataset
    from sentence_transformers.util import mine_hard_negatives

    import foils
    from foils.encode import EncoderSettings, load_encoder

    collection = load_collection(arguments.collection)
    queries, documents = collection.positives(arguments.split).pairs()
    texts = {"query": collection.query_texts(queries), "positive": collection.document_texts(documents)}
    corpus = collection.document_texts(np.arange(len(collection.documents)))
    pairs, model = Dataset.from_dict(texts), load_encoder(arguments.encoder, EncoderSettings(max_length=128)).model
    del texts
    mine = foils.mine_hard_negatives if name == "ours" else mine_hard_negatives
    kept: dict[str, Any] = {"cache_folder": str(arguments.cache / name)}
    if arguments.case[0] == FIRST:
        kept = {"cache_folder": str(arguments.cache / f"first {random.getrandbits(64)}")} if name == "ours" else {}
    before, worked, start = peak_bytes(), spent(), time.perf_counter()
    mined = mine(pairs, model, corpus=corpus, verbose=False, **kept, **CASES[arguments.case[0]])
    seconds, last = time.perf_counter() - start, peak_bytes()
    times = {"seconds": seconds, "processor seconds": spent() - worked}
    rows = [digest(row) for row in without_scores(mined)]
    return {**times, "peak": last, "growth": last - before, "rows": len(mined), "digests": rows}


def digest(row: dict[str, Any]) -> str:
    return hashlib.sha256("\x1f".join(map(str, row.values())).encode()).hexdigest()[:12]


def without_scores(mined: Any) -> Any:
    return mined.remove_columns([name for name in mined.column_names if name in ("scores", "score")])


def run(name: str, case: str, arguments: argparse.Namespace) -> dict[str, Any]:
    options = {"encoder": arguments.encoder, "split": arguments.split, "cache": arguments.cache}
    given = [text for option, value in options.items() for text in (f"--{option}", value)]
    return apart("drop_in", arguments.collection, "--side", name, "--case", case, *given)


def compared(case: str, arguments: argparse.Namespace) -> dict[str, Any]:
    """Run both sides in turns; return medians, ratios, and the share of rows that are the same."""
    sides = ("ours", "theirs")
    if case != FIRST:
        for name in sides:  # fills the caches
            run(name, case, arguments)
    runs = [{name: run(name, case, arguments) for name in sides} for _ in range(arguments.pairs)]
    digests = {name: runs[0][name].pop("digests") for name in sides}
    keys = ("seconds", "processor seconds", "peak", "growth", "rows")
    same = set(digests["ours"]) & set(digests["theirs"])
    return {
        "options": CASES[case],
        "medians": {name: {key: statistics.median(each[name][key] for each in runs) for key in keys} for name in sides},
        "ratios": {
            key: statistics.median(each["ours"][key] / each["theirs"][key] for each in runs) for key in keys[:4]
        },
        "same rows": len(same) / max(1, len(set(digests["theirs"]))),
    }


def main() -> None:
    parser = argument_parser(__doc__)
    parser.add_argument("collection", nargs="?", default="pydocs")
    parser.add_argument("--encoder", default="static:all-MiniLM-L6-v2")
    parser.add_argument("--split", default="train")
    parser.add_argument("--pairs", type=int, default=3)
    parser.add_argument("--case", nargs="+", choices=CASES, default=list(CASES))
    parser.add_argument("--side", choices=["ours", "theirs"])
    parser.add_argument("--cache", type=Path)
    arguments = parser.parse_args()
    if arguments.side:
        print(json.dumps(side(arguments.side, arguments)))
        return
    with tempfile.TemporaryDirectory() as folder:
        arguments.cache = Path(folder)
        cases = {case: compared(case, arguments) for case in arguments.case}
    collection = load_collection(arguments.collection)
    facts = {"documents": len(collection.documents), "queries": len(collection.positives(arguments.split))}
    stored = load("drop_in")
    name = f"{collection.name}, {arguments.encoder}"
    before = stored.get(name, {}).get("cases", {})
    every = {**before, **cases}
    result = {**facts, "pairs": arguments.pairs, "cases": {case: every[case] for case in CASES if case in every}}
    stored[name] = result
    rows = [
        {"collection": of, "call": case, **each["ratios"], "same rows": each["same rows"]}
        for of, known in stored.items()
        if of != "tables"
        for case, each in known["cases"].items()
    ]
    save("drop_in", stored, {"Ratios to sentence-transformers": rows})
