"""Mining by BM25 against bm25s alone and Lucene: each query's first 100 documents, by one thread.

    python benchmarks/run.py mine COLLECTION [--split train] [--pairs 3] [--lucene JAVA ANSERINI.jar]
    python benchmarks/run.py mine --made-up 10000 | 100000 | 500000

Each side runs in processes of its own, taking turns, from texts in memory (Lucene, by the jar that pyserini brings: in
a file) to ranks; stop words and stemmer are the same. Medians over the pairs; memory is the process's peak. Beside the
time that passed stands the processor's, of all threads: on a busy machine it is the fairer one. A made-up collection
has this many documents of 30 random words, and 2,000 queries of 5 words of theirs; it shows the growth. Dense mining
is measured by `drop_in`.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import tempfile
import time
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from common import apart, argument_parser, load, peak_bytes, save
from foils.data import load_collection

DEPTH = 100


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
        "processor, search": end[1] - compiled[1], "mib": max(peak_bytes(), children) / 2**20, "rows": rows,
    }  # fmt: skip


def side(name: str, arguments: argparse.Namespace, cache: Path) -> dict[str, float]:
    lucene = ["--lucene", *arguments.lucene] if arguments.lucene else []
    return apart("mine", arguments.collection, "--side", name, "--split", arguments.split, "--cache", cache, *lucene)


def one_side(arguments: argparse.Namespace) -> dict[str, float]:
    """Measure a side in this process."""
    name, place, split = arguments.side, arguments.collection, arguments.split
    if name == "lucene":
        return of_lucene(place, split, *arguments.lucene, arguments.cache)
    return {"foils": lexical, "bm25s": of_bm25s}[name](place, split)


def main() -> None:
    parser = argument_parser(__doc__)
    parser.add_argument("collection", nargs="?")
    parser.add_argument("--made-up", type=int, metavar="DOCUMENTS")
    parser.add_argument("--split", default="train")
    parser.add_argument("--pairs", type=int, default=3)
    parser.add_argument("--lucene", nargs=2, metavar=("JAVA", "JAR"), help="measure Lucene, too")
    parser.add_argument("--side")
    parser.add_argument("--cache", type=Path)
    arguments = parser.parse_args()
    if arguments.side:
        print(json.dumps(one_side(arguments)))
        return
    if (arguments.collection is None) == (arguments.made_up is None):
        parser.error("give a COLLECTION, or --made-up DOCUMENTS")
    sides = ["foils", "bm25s", *["lucene"] * bool(arguments.lucene)]
    with tempfile.TemporaryDirectory() as folder:
        cache = Path(folder)
        if arguments.made_up:
            arguments.collection = str(made_up(cache, arguments.made_up))
        for name in sides:  # fills the caches
            side(name, arguments, cache)
        runs = [{name: side(name, arguments, cache) for name in sides} for _ in range(arguments.pairs)]
        collection = load_collection(arguments.collection)
        facts = {"documents": len(collection.documents), "queries": len(collection.positives(arguments.split))}
    medians = {
        name: {key: statistics.median(run[name][key] for run in runs) for key in runs[0][name]} for name in sides
    }
    rows = [{"collection": collection.name, **facts, "with": name, **each} for name, each in medians.items()]
    kept = [each for each in load("mine").get("bm25", []) if each["collection"] != collection.name]
    save("mine", {"bm25": [*kept, *rows]}, {"BM25": [*kept, *rows]})
