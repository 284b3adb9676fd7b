"""Dense mining: against sentence-transformers' mine_hard_negatives, same settings, vectors at hand on both sides.

    python benchmarks/run.py mine COLLECTION [--encoder MODEL] [--split train] [--pairs 3]
    python benchmarks/run.py mine --made-up 10000 | 100000 | 500000

Each side runs in processes of its own, taking turns, and ends with a dataset of triplets: 10 negatives a query, of the
first 100 ranks, at least 5 % below the positive. Ratios are medians over the pairs; memory is the process's peak, whole
and beyond what it held before it began to mine (model, collection, libraries). Without --encoder the vectors are those
of all-MiniLM-L6-v2's word table, which take seconds. `rules off` does not reject near-duplicates of positives. Beside
the time that passed stands the processor's, of all threads: on a busy machine it is the fairer one. A made-up
collection has so many documents of 30 random words, and 2,000 queries of 5 words of theirs; it shows the growth.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

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


def static_model(folder: Path) -> None:
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import StaticEmbedding

    from foils.encode import find_model

    model = SentenceTransformer(str(find_model("all-MiniLM-L6-v2")), device="cpu")
    words = model[0].auto_model.embeddings.word_embeddings.weight.detach().numpy()
    static = StaticEmbedding(model.tokenizer.backend_tokenizer, embedding_weights=words)
    SentenceTransformer(modules=[static], device="cpu").save(str(folder))


def ours(place: str, model: str, split: str, cache: Path, near_duplicate: float) -> dict[str, float]:
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
        near_duplicate=near_duplicate,
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
        "--cache", str(cache),
    ]  # fmt: skip
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return dict(json.loads(done.stdout.splitlines()[-1]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("collection", nargs="?")
    parser.add_argument("--made-up", type=int, metavar="DOCUMENTS")
    parser.add_argument("--encoder", default="")
    parser.add_argument("--split", default="train")
    parser.add_argument("--pairs", type=int, default=3)
    parser.add_argument("--side", choices=["ours", "rules off", "theirs"])
    parser.add_argument("--cache", type=Path)
    arguments = parser.parse_args()
    if arguments.side:
        given = (arguments.collection, arguments.encoder, arguments.split, arguments.cache)
        near = {"ours": 0.9, "rules off": 2.0}
        found = theirs(*given) if arguments.side == "theirs" else ours(*given, near[arguments.side])
        print(json.dumps(found))
        return
    if (arguments.collection is None) == (arguments.made_up is None):
        parser.error("give a COLLECTION, or --made-up DOCUMENTS")
    with tempfile.TemporaryDirectory() as folder:
        cache, model = Path(folder), arguments.encoder
        if arguments.made_up:
            arguments.collection = str(made_up(cache, arguments.made_up))
        if not model:
            model = str(cache / "static")
            static_model(Path(model))
        sides = ("ours", "rules off", "theirs")
        for name in sides:  # fills the caches
            side(name, arguments, model, cache)
        runs = [{name: side(name, arguments, model, cache) for name in sides} for _ in range(arguments.pairs)]
        collection = load_collection(arguments.collection)
        facts = {"documents": len(collection.documents), "queries": len(collection.positives(arguments.split))}
    medians = {
        name: {key: statistics.median(run[name][key] for run in runs) for key in runs[0][name]} for name in sides
    }
    ratios = {
        f"{key}, {name}": statistics.median(run[name][key] / run["theirs"][key] for run in runs)
        for name in sides[:2]
        for key in ("seconds", "processor seconds", "peak", "growth")
    }
    result = {"collection": collection.name, **facts, "medians": medians, "to mine_hard_negatives": ratios}
    stored = {**load("mine"), collection.name: result}
    rows = [
        {"collection": name, **{key: each[key] for key in ("documents", "queries")}, **each["to mine_hard_negatives"]}
        for name, each in stored.items()
        if name != "tables"
    ]
    save("mine", stored, {"Ratios to mine_hard_negatives": rows})


if __name__ == "__main__":
    main()
