"""Dense mining: against sentence-transformers' mine_hard_negatives, same settings, vectors at hand on both sides.

    python benchmarks/run.py mine COLLECTION [--encoder MODEL] [--split train] [--pairs 3]
    python benchmarks/run.py mine --made-up 10000 | 100000 | 500000
    python benchmarks/run.py mine --made-up 100000 --bm25 [--lucene JAVA ANSERINI.jar]

Each side runs in processes of its own, taking turns, and ends with a dataset of triplets: 10 negatives a query, of the
first 100 ranks, at least 5 % below the positive. Ratios are medians over the pairs; memory is the process's peak, whole
and beyond what it held before it began to mine (model, collection, libraries). Without --encoder the vectors are those
of all-MiniLM-L6-v2's word table, which take seconds. Beside
the time that passed stands the processor's, of all threads: on a busy machine it is the fairer one. A made-up
collection has so many documents of 30 random words, and 2,000 queries of 5 words of theirs; it shows the growth.
With --bm25 the search for each query's first 100 documents by one thread is measured, against bm25s and Lucene (by the
jar that pyserini brings), from texts in memory (Lucene: in a file) to ranks; stop words and stemmer are the same.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from common import load, save
from foils.data import load_collection

TOP, DEPTH, MARGIN = 10, 100, 0.05


def made_up(folder: Path, documents: int, queries: int = 2_000) -> Path:
    """Write a BEIR folder of random words."""
    rng = np.random.default_rng(0)
    words = np.array([f"{a}{b}{c}" for a in "bdfgklmnprst" for b in "aeiou" for c in ("n", "r", "s", "t", "lo", "mi")])
    place = folder / f"made-up {documents:,}"
    (place / "qrels").mkdir(parents=True)
    with (place / "corpus.jsonl").open("w") as corpus, (place / "queries.jsonl").open("w") as asked:
        for row in range(documents):
            text = rng.choice(words, 30).tolist()
            corpus.write(json.dumps({"_id": f"d{row}", "title": "", "text": " ".join(text)}) + "\n")
            if row < queries:
                asked.write(json.dumps({"_id": f"q{row}", "text": " ".join(text[:5])}) + "\n")
    lines = [f"q{row}\td{row}\t1" for row in range(min(queries, documents))]
    (place / "qrels" / "train.tsv").write_text("\n".join(["query-id\tcorpus-id\tscore", *lines, ""]))
    return place


def spent() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def ours(place: str, model: str, split: str, cache: Path) -> dict[str, float]:
    import datasets  # noqa: F401 (both sides hold it before they begin)

    from foils.data.collection import DocumentTexts
    from foils.data.sources import export
    from foils.encode import EncoderSettings, VectorStore, load_encoder
    from foils.mining import DenseRetriever, mine_negatives
    from foils.mining.rules import Margin, PositiveScores

    collection = load_collection(place)
    encoder, store = load_encoder(model, EncoderSettings(max_length=128)), VectorStore(cache / "ours")
    before, worked, start = peak(), spent(), time.perf_counter()
    queries = store.embed(encoder, collection.query_texts(np.arange(len(collection.queries))), "query")
    retriever = DenseRetriever(queries, store.embed(encoder, DocumentTexts(collection), "document"))
    rule = Margin(PositiveScores.of(collection, retriever, collection.positives(split).query_rows), relative=MARGIN)
    found = mine_negatives(
        collection,
        retriever,
        split=split,
        top=TOP,
        ranks=(0, DEPTH),
        rules=[rule],
    )
    rows = len(export(collection, found, form="triplets", split=split).dataset())
    return measured(start, worked, before, rows)


def theirs(place: str, model: str, split: str, cache: Path) -> dict[str, float]:
    from datasets import Dataset
    from sentence_transformers.util import mine_hard_negatives

    from foils.encode import EncoderSettings, load_encoder

    collection = load_collection(place)
    encoder = load_encoder(model, EncoderSettings(max_length=128)).model
    queries, documents = collection.positives(split).pairs()
    pairs = Dataset.from_dict(
        {"anchor": collection.query_texts(queries), "positive": collection.document_texts(documents)}
    )
    corpus = collection.document_texts(np.arange(len(collection.documents)))
    before, worked, start = peak(), spent(), time.perf_counter()
    found = mine_hard_negatives(
        pairs, encoder, corpus=corpus, num_negatives=TOP, range_max=DEPTH, relative_margin=MARGIN, verbose=False,
        cache_folder=str(cache / "theirs"),
    )  # fmt: skip
    return measured(start, worked, before, len(found))


def lexical(place: str, split: str) -> dict[str, float]:
    """BM25 as foils mines by it."""
    from foils.mining.retrievers import BM25Retriever

    collection = replace(load_collection(place), folder=None)  # whose index is not kept
    queries, start = collection.queries_of(split), clock()
    retriever = BM25Retriever(collection)
    indexed = clock()
    retriever.search(queries[:1], DEPTH)  # compiles
    compiled = clock()
    found = retriever.search(queries, DEPTH)[0]
    return of_search(start, indexed, compiled, int((found >= 0).sum()))


def of_bm25s(place: str, split: str) -> dict[str, float]:
    """The same by the package bm25s alone."""
    import bm25s
    import Stemmer

    collection = load_collection(place)
    texts = collection.document_texts(np.arange(len(collection.documents)))
    asked, stemmer = collection.query_texts(collection.queries_of(split)), Stemmer.Stemmer("english")
    cut = partial(bm25s.tokenize, stopwords="english", stemmer=stemmer, show_progress=False)
    index, start = bm25s.BM25(backend="numba"), clock()
    index.index(cut(texts), show_progress=False)
    indexed, tokens = clock(), cut(asked)
    index.retrieve(cut(asked[:1]), k=DEPTH, n_threads=1, show_progress=False)  # compiles
    compiled = clock()
    scores = index.retrieve(tokens, k=DEPTH, n_threads=1, show_progress=False).scores
    return of_search(start, indexed, compiled, int((scores > 0).sum()))


def of_lucene(place: str, split: str, java: str, jar: str, cache: Path) -> dict[str, float]:
    """The same by Lucene, from a file of texts to a file of ranks; each program starts anew."""
    collection, run = load_collection(place), [java, "-cp", jar, "-Xmx8g"]
    texts = collection.document_texts(np.arange(len(collection.documents)))
    (cache / "texts").mkdir(exist_ok=True)
    lines = (json.dumps({"id": str(row), "contents": text}) + "\n" for row, text in enumerate(texts))
    (cache / "texts" / "all.jsonl").write_text("".join(lines))
    asked = enumerate(collection.query_texts(collection.queries_of(split)))
    (cache / "topics.tsv").write_text("".join(f"{row}\t{text}\n" for row, text in asked))
    start, place, found = clock(), str(cache / "lucene"), cache / "lucene.trec"
    call = partial(subprocess.run, check=True, capture_output=True)
    call([*run, "io.anserini.index.IndexCollection", "-collection", "JsonCollection", "-input", str(cache / "texts"),
          "-index", place, "-generator", "DefaultLuceneDocumentGenerator", "-threads", "1"])  # fmt: skip
    indexed = clock()
    call([*run, "io.anserini.search.SearchCollection", "-index", place, "-topics", str(cache / "topics.tsv"),
          "-topicReader", "TsvString", "-output", str(found), "-bm25", "-hits", str(DEPTH), "-parallelism", "1",
          "-threads", "1"])  # fmt: skip
    return of_search(start, indexed, indexed, len(found.read_text().splitlines()))


def clock() -> tuple[float, float]:
    """Time, and the processor's time of this process and of those that it started."""
    times = os.times()
    return time.perf_counter(), sum(times[:4])


def of_search(start: Any, indexed: Any, compiled: Any, rows: int) -> dict[str, float]:
    """Seconds of indexing and of searching, and the peak of this process and of those it started."""
    children, end = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024, clock()
    return {
        "index": indexed[0] - start[0], "search": end[0] - compiled[0], "processor, index": indexed[1] - start[1],
        "processor, search": end[1] - compiled[1], "mib": max(peak(), children) / 2**20, "rows": rows,
    }  # fmt: skip


def measured(start: float, worked: float, before: int, rows: int) -> dict[str, float]:
    return {
        "seconds": time.perf_counter() - start,
        "processor seconds": spent() - worked,
        "peak": peak(),
        "growth": peak() - before,
        "triplets": rows,
    }


def side(name: str, arguments: argparse.Namespace, model: str, cache: Path) -> dict[str, float]:
    command = [
        sys.executable, __file__, arguments.collection, "--side", name, "--encoder", model, "--split", arguments.split,
        "--cache", str(cache), *(["--lucene", *arguments.lucene] if arguments.lucene else []),
    ]  # fmt: skip
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return dict(json.loads(done.stdout.splitlines()[-1]))


def one_side(arguments: argparse.Namespace) -> dict[str, float]:
    """Measure a side in this process."""
    name, place, split = arguments.side, arguments.collection, arguments.split
    if name in ("ours", "theirs"):
        return {"ours": ours, "theirs": theirs}[name](place, arguments.encoder, split, arguments.cache)
    if name == "lucene":
        return of_lucene(place, split, *arguments.lucene, arguments.cache)
    return {"foils": lexical, "bm25s": of_bm25s}[name](place, split)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("collection", nargs="?")
    parser.add_argument("--made-up", type=int, metavar="DOCUMENTS")
    parser.add_argument("--encoder", default="")
    parser.add_argument("--split", default="train")
    parser.add_argument("--pairs", type=int, default=3)
    parser.add_argument("--bm25", action="store_true", help="measure BM25")
    parser.add_argument("--lucene", nargs=2, metavar=("JAVA", "JAR"), help="with --bm25: Lucene, too")
    parser.add_argument("--side")
    parser.add_argument("--cache", type=Path)
    arguments = parser.parse_args()
    if arguments.side:
        print(json.dumps(one_side(arguments)))
        return
    if (arguments.collection is None) == (arguments.made_up is None):
        parser.error("give a COLLECTION, or --made-up DOCUMENTS")
    sides = ["foils", "bm25s", *["lucene"] * bool(arguments.lucene)] if arguments.bm25 else ["ours", "theirs"]
    with tempfile.TemporaryDirectory() as folder:
        cache, model = Path(folder), arguments.encoder or "static:all-MiniLM-L6-v2"
        if arguments.made_up:
            arguments.collection = str(made_up(cache, arguments.made_up))
        for name in sides:  # fills the caches
            side(name, arguments, model, cache)
        runs = [{name: side(name, arguments, model, cache) for name in sides} for _ in range(arguments.pairs)]
        collection = load_collection(arguments.collection)
        facts = {"documents": len(collection.documents), "queries": len(collection.positives(arguments.split))}
    medians = {
        name: {key: statistics.median(run[name][key] for run in runs) for key in runs[0][name]} for name in sides
    }
    stored = load("mine")
    if arguments.bm25:
        rows = [{"collection": collection.name, **facts, "with": name, **each} for name, each in medians.items()]
        kept = [each for each in stored.get("bm25", []) if each["collection"] != collection.name]
        stored["bm25"] = [*kept, *rows]
    else:
        ratios = {
            f"{key}, ours": statistics.median(run["ours"][key] / run["theirs"][key] for run in runs)
            for key in ("seconds", "processor seconds", "peak", "growth")
        }
        stored[collection.name] = {
            "collection": collection.name, **facts, "medians": medians, "to mine_hard_negatives": ratios,
        }  # fmt: skip
    columns = {"time": "seconds, ours", "memory": "peak, ours", "memory beyond what was held before": "growth, ours"}
    rows = [
        {"collection": name, **{key: each[key] for key in ("documents", "queries")},
         **{f"{key}, of theirs": f"{each['to mine_hard_negatives'][of]:.2f} ×" for key, of in columns.items()}}
        for name, each in stored.items() if name not in ("tables", "bm25")
    ]  # fmt: skip
    save("mine", stored, {"Ratios to mine_hard_negatives": rows, "BM25": stored.get("bm25", [])})


if __name__ == "__main__":
    main()
