"""What the benchmarks share: result files with their tables, collections with hidden positives, and memory in use."""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import foils
from foils.data import Collection, Negatives
from foils.data.labels import Labels
from foils.labelling.doors import pairs_of
from foils.mining.retrievers import BM25Retriever

RESULTS = Path(__file__).parent / "results"
FIRSTS = (0, 10, 20, 50, 100)  # first ranks of windows
Row = Mapping[str, Any]


def argument_parser(description: str | None) -> argparse.ArgumentParser:
    """Return a parser whose help is a script's docstring as it is written."""
    return argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)


def apart(name: str, *arguments: object) -> dict[str, Any]:
    """Run a benchmark in a process of its own; return the JSON object of the last line that it prints."""
    command = [sys.executable, str(Path(__file__).with_name("run.py")), name, *map(str, arguments)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    return dict(json.loads(done.stdout.splitlines()[-1]))


def load(name: str) -> dict[str, Any]:
    """Return what an earlier run of a benchmark wrote; empty where there is none."""
    path = RESULTS / f"{name}.json"
    return dict(json.loads(path.read_text("utf-8"))) if path.is_file() else {}


def save(name: str, result: Mapping[str, Any], tables: Mapping[str, Iterable[Row]] | None = None) -> None:
    """Write a result with the tables that docs/benchmarks.md shows of it, and print these.

    Args:
        name: of the benchmark, and of the file in results/.
        result: what was measured; a later run may add to it.
        tables: caption → rows, each column → value. Default: one table with a row for each entry of the result that
            holds numbers.
    """
    made = {"": flat(result)} if tables is None else tables
    shown = {caption: table(list(rows)) for caption, rows in made.items()}
    RESULTS.mkdir(exist_ok=True)
    text = json.dumps({**result, "tables": shown}, indent=1, ensure_ascii=False)
    (RESULTS / f"{name}.json").write_text(text + "\n", "utf-8")
    for caption, each in shown.items():
        print(caption, markdown(each), sep="\n")


def flat(result: Mapping[str, Any], prefix: str = "") -> list[Row]:
    """Return a row for each mapping of numbers within a result, named by its path."""
    scalars = {key: value for key, value in result.items() if isinstance(value, (int, float, str, bool))}
    rows: list[Row] = [{"": prefix, **scalars}] if scalars else []
    for key, value in result.items():
        if isinstance(value, Mapping) and key != "tables":
            rows += flat(value, f"{prefix}, {key}" if prefix else key)
    return rows


def table(rows: Sequence[Row]) -> dict[str, Any]:
    """Return the columns of some rows in their order, and the cells as texts; a missing value is a dash."""
    columns = list(dict.fromkeys(name for row in rows for name in row))
    return {"columns": columns, "rows": [[cell(row.get(name)) for name in columns] for row in rows]}


def cell(value: Any) -> str:
    """Return a number with four significant digits, and anything else as it is."""
    if value is None or value != value:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
    return f"{value:,}" if isinstance(value, int) else str(value)


def markdown(made: Mapping[str, Any]) -> str:
    """Return a table as the pages show it: numbers to the right, texts to the left."""
    rows = made["rows"]
    right = [all(row[at][:1] in "+-–.0123456789" for row in rows if row[at]) for at in range(len(made["columns"]))]
    lines = [made["columns"], ["---:" if at and number else "---" for at, number in enumerate(right)], *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def hidden(collection: Collection, share: float, seed: int = 0) -> tuple[Collection, pa.Table]:
    """Return the collection without a share of its training judgements, and those; each query keeps one at least."""
    judged = collection.qrels["train"]
    draw = np.random.default_rng(seed).random(len(judged))
    query = np.asarray(judged["query_id"].combine_chunks().dictionary_encode().indices)
    order = np.lexsort((draw, query))
    first = np.zeros(len(judged), bool)
    first[order[np.r_[True, np.diff(query[order]) != 0]]] = True
    gone = (draw < share) & ~first
    qrels = {**collection.qrels, "train": judged.filter(pa.array(~gone))}
    digest = f"{collection.digest[:24]}-{100 * share:g}-{seed}"
    name = f"{collection.name}, {100 * share:g} % hidden"
    return replace(collection, name=name, qrels=qrels, digest=digest), judged.filter(pa.array(gone))


def pooled(collection: Collection, depth: int) -> Collection:
    """Return the collection with those training judgements alone that BM25 has among its first documents."""
    judged = collection.qrels["train"]
    query, document = collection.query_rows(judged["query_id"]), collection.document_rows(judged["doc_id"])
    queries = np.unique(query)
    first, _ = BM25Retriever(collection).search(queries, depth)
    kept = (first[np.searchsorted(queries, query)] == document[:, None]).any(axis=1)
    qrels = {**collection.qrels, "train": judged.filter(pa.array(kept))}
    name, digest = f"{collection.name}, BM25's first {depth} judged", f"{collection.digest[:20]}-pooled-{depth}"
    return replace(collection, name=name, qrels=qrels, digest=digest)


def mined(collection: Collection, per_query: int) -> dict[str, Negatives]:
    """Return random negatives, windows of BM25 and dense ranks (all-MiniLM-L6-v2), and unions by the best rank."""
    sources: dict[str, Negatives] = {"random": foils.mine(collection, "random", top=per_query)}
    for method, how in (("bm25", {}), ("dense", {"encoder": "all-MiniLM-L6-v2", "max_length": 128})):
        for first in FIRSTS:
            ranks = (first, first + per_query)
            sources[f"{method} {first}-{ranks[1]}"] = foils.mine(collection, method, top=per_query, ranks=ranks, **how)
    lexical, hard, far = f"bm25 0-{per_query}", f"dense 0-{per_query}", f"dense 100-{100 + per_query}"
    for a, b in ((lexical, hard), ("random", hard), (hard, far)):
        parts = {name: sources[name] for name in (a, b)}
        sources[f"{a} & {b}"] = foils.fuse(collection, parts, top=per_query)
    return sources


def false_shares(sources: Mapping[str, Negatives], gone: pa.Table) -> dict[str, float]:
    """Return the share of each source's kept negatives that are hidden positives."""
    truth = set(zip(gone["query_id"].to_pylist(), gone["doc_id"].to_pylist(), strict=True))
    shares = {}
    for name, negatives in sources.items():
        kept = negatives.kept()
        pairs = zip(kept["query_id"].to_pylist(), kept["doc_id"].to_pylist(), strict=True)
        shares[name] = float(np.mean([pair in truth for pair in pairs]))
    return shares


def answered(sources: Mapping[str, Negatives], truth: Iterable[tuple[str, str]], count: int, seed: int) -> Labels:
    """Return labels of so many pairs of the sources, drawn as `foils label` does; those of `truth` are answers."""
    universe, answers = pairs_of(sources), set(truth)
    table = universe.table.take(pa.array(universe.draw(count, seed=seed).rows)).select(["query_id", "doc_id"])
    pairs = zip(table["query_id"].to_pylist(), table["doc_id"].to_pylist(), strict=True)
    return Labels(table.append_column("relevant", pa.array([int(pair in answers) for pair in pairs], pa.int8())))


@contextmanager
def words_of(model: Any, texts: Iterable[str]) -> Iterator[None]:
    """Train only those rows of a static embedding's table whose words the texts have; a step costs a fifth.

    A row whose word does not occur has no gradient, and Adam without weight decay leaves it where it is, so that the
    result is that of training on the whole table, but for rounding.
    """
    import torch
    from sentence_transformers.sentence_transformer.modules import StaticEmbedding

    class Narrowed(torch.nn.Module):
        def __init__(self, whole: torch.nn.EmbeddingBag, ids: torch.Tensor) -> None:
            super().__init__()
            rows = whole.weight.detach()[ids].clone()
            self.rows = torch.nn.EmbeddingBag.from_pretrained(rows, freeze=False, mode=whole.mode)
            place = torch.full((whole.num_embeddings,), -1)
            place[ids] = torch.arange(len(ids))
            self.register_buffer("place", place, persistent=False)

        def forward(self, ids: torch.Tensor, offsets: torch.Tensor) -> torch.Tensor:
            return self.rows(self.place[ids], offsets)

    module = model[0]
    if not isinstance(module, StaticEmbedding):
        yield
        return
    ids = {each for text in module.tokenizer.encode_batch(list(texts), add_special_tokens=False) for each in text.ids}
    whole, chosen = module.embedding, torch.from_numpy(np.array(sorted(ids)))
    module.embedding = Narrowed(whole, chosen)
    try:
        yield
        with torch.no_grad():
            whole.weight[chosen] = module.embedding.rows.weight
    finally:
        module.embedding = whole


@contextmanager
def narrowed() -> Iterator[None]:
    """Let trainings of static embeddings read only the rows of the words in their data (`words_of`)."""
    import foils.training.fit as training

    whole = training.train_model

    def train(model: Any, data: Any, *given: Any, **more: Any) -> Any:
        texts = data.texts.collection.query_texts(np.unique(data.rows[:, 0]))
        texts += data.texts.document_texts(np.unique(data.rows[:, 1:]))
        with words_of(model, texts):
            return whole(model, data, *given, **more)

    training.train_model = train
    try:
        yield
    finally:
        training.train_model = whole


def unit(rng: np.random.Generator, count: int, dimension: int) -> np.ndarray:
    """Return made-up unit vectors."""
    vectors = rng.standard_normal((count, dimension), dtype=np.float32)
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def seconds(work: Callable[[], object]) -> float:
    """Return how long a piece of work takes."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def peak_bytes() -> int:
    """Return the largest resident memory of this process so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def anonymous_bytes() -> int:
    """Return the memory of this process that no file backs; Linux only."""
    status = Path("/proc/self/status").read_text()
    return 1024 * int(status.partition("RssAnon:")[2].split()[0])


def resident_bytes() -> int:
    """Return the resident memory of this process, pages of mapped files too; Linux only."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


@contextmanager
def watched(peak: list[int], held: Callable[[], int] = anonymous_bytes) -> Iterator[None]:
    """Append the memory in use to `peak`, every 10 ms, while something works."""
    stop = threading.Event()

    def look() -> None:
        while not stop.wait(0.01):
            peak.append(held())

    peak.append(held())
    threading.Thread(target=look, daemon=True).start()
    try:
        yield
    finally:
        stop.set()
        peak.append(held())


def peak_of_command(command: Sequence[str], cache: Path, limit: float) -> dict[str, float | None]:
    """Run a command; return its peaks of anonymous and resident memory in MiB and its seconds, or None each.

    Resident memory counts the pages of mapped files that happen to be in memory, which the system takes back at need.
    A command that takes longer than `limit` seconds is stopped.
    """
    environment = {**os.environ, "FOILS_CACHE": str(cache), "HF_HUB_OFFLINE": "1"}
    start, peak, resident = time.monotonic(), 0, 0
    with subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as running:
        while running.poll() is None:
            try:
                status = Path(f"/proc/{running.pid}/status").read_text()
            except OSError:
                break
            held = {line.split(":")[0]: int(line.split()[1]) for line in status.splitlines() if line.endswith(" kB")}
            peak, resident = max(peak, held.get("RssAnon", 0)), max(resident, held.get("VmHWM", 0))
            if time.monotonic() - start > limit:
                running.kill()
                return {"mib": None, "resident_mib": None, "seconds": None}
            time.sleep(0.02)
        message = running.stderr.read().decode() if running.stderr else ""
    if running.returncode:
        raise SystemExit(f"{' '.join(command)}: {message}")
    return {"mib": peak / 1024, "resident_mib": resident / 1024, "seconds": time.monotonic() - start}
