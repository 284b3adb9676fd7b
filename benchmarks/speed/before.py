"""Seconds and memory of this tree against another one of foils: encoding, making batches, and training.

    git worktree add ../before v0.3-before
    python benchmarks/run.py before ../before COLLECTION [--repeats 3]

Each measurement is a process of its own, the trees in turns; medians. COLLECTION is a BEIR folder with training queries
judgements, of whose documents 28,000 at most are used. Making batches of 6,000 texts is compared with the model's own
`preprocess` of 32 texts at a time. Nothing else may run on the machine.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

from common import argument_parser, save

HERE = Path(__file__).resolve().parents[2]
JOBS = {"a word table": ("static", 28_000), "all-MiniLM": ("encode", 400), "training all-MiniLM": ("train", 320)}

WORK = """
import json, resource, sys, tempfile, time
import numpy as np
import torch
import foils
from foils.data import load_collection
from foils.encode import EncoderSettings, load_encoder

job, given, count, threads = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
torch.set_num_threads(threads)
collection = load_collection(given)
rows = np.random.default_rng(0).permutation(len(collection.documents))[:count]
if job == "train":
    qrels = collection.qrels["train"].slice(0, count).to_pylist()
    every = collection.document_texts(np.arange(len(collection.documents)))
    documents = dict(zip(collection.documents["doc_id"].to_pylist(), every))
    asked = collection.query_texts(np.arange(len(collection.queries)))
    queries = dict(zip(collection.queries["query_id"].to_pylist(), asked))
    others = collection.document_texts(rows)
    triplets = [
        {"anchor": queries[each["query_id"]], "positive": documents[each["doc_id"]], "negative": other}
        for each, other in zip(qrels, others)
    ]
    place = tempfile.mkdtemp() + "/triplets.jsonl"
    with open(place, "w") as file:
        file.writelines(json.dumps(each) + "\\n" for each in triplets)
    settings = dict(max_length=64, batch_size=32, epochs=1, learning_rate=2e-5)
    work = lambda: foils.train(place, model="all-MiniLM-L6-v2", output=place + "-model", **settings)
elif job == "batches":
    from foils.encode.encoder import token_batches, tokenized_windows
    from foils.encode.tokens import plain_tokenizer

    texts = collection.document_texts(rows)
    model = load_encoder("all-MiniLM-L6-v2", EncoderSettings(max_length=128, precision="float32", device="cpu")).model
    tokenizer = plain_tokenizer(model)
    begin = time.process_time()
    for at in range(0, len(texts), 32):
        model.preprocess(texts[at : at + 32])
    theirs, begin = time.process_time() - begin, time.process_time()
    for _ in token_batches(tokenized_windows(texts, tokenizer, 32_768), lambda: 8_192):
        pass
    print(json.dumps({"preprocess": theirs, "foils": time.process_time() - begin}))
    raise SystemExit
else:
    name = "static:all-MiniLM-L6-v2" if job == "static" else "all-MiniLM-L6-v2"
    encoder = load_encoder(name, EncoderSettings(max_length=128, precision="float32", device="cpu"))
    texts = collection.document_texts(rows)
    encoder.encode(texts[:64], "document")
    work = lambda: encoder.encode(texts, "document")
seconds, processor = time.perf_counter(), time.process_time()
work()
facts = {"seconds": time.perf_counter() - seconds, "processor": time.process_time() - processor}
print(json.dumps({**facts, "MB": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024}))
"""


def measured(tree: Path, job: str, collection: str, count: int, threads: int) -> dict[str, float]:
    """What one job says in a process of its own: seconds, the processor's seconds and the peak of memory."""
    number = str(threads)
    environment = {
        **os.environ, "PYTHONPATH": str(tree / "src"), "OMP_NUM_THREADS": number, "RAYON_NUM_THREADS": number,
        "TOKENIZERS_PARALLELISM": "true" if threads > 1 else "false",
    }  # fmt: skip
    command = [sys.executable, "-c", WORK, job, collection, str(count), number]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return dict(json.loads(done.stdout.splitlines()[-1]))


def main() -> None:
    """Measure the trees in turns, and write the ratios."""
    parser = argument_parser(__doc__)
    parser.add_argument("before", type=Path)
    parser.add_argument("collection")
    parser.add_argument("--repeats", type=int, default=3)
    given = parser.parse_args()
    rows: list[dict[str, Any]] = []
    for name, (job, count) in JOBS.items():
        for threads in (1, 2):
            pairs = [
                [measured(tree, job, given.collection, count, threads) for tree in (HERE, given.before.resolve())]
                for _ in range(given.repeats)
            ]
            row: dict[str, Any] = {"job": name, "threads": threads}
            for what in ("seconds", "processor", "MB"):
                now, before = (statistics.median(pair[side][what] for pair in pairs) for side in (0, 1))
                row |= {f"{what} before": round(before, 2), f"{what} now": round(now, 2)}
                row[f"{what}, now / before"] = round(now / before, 3)
            rows.append(row)
    made = [measured(HERE, "batches", given.collection, 6_000, 1) for _ in range(given.repeats)]
    ours, theirs = (statistics.median(each[name] for each in made) for name in ("foils", "preprocess"))
    batches = [{"preprocess": round(theirs, 2), "foils": round(ours, 2), "foils / preprocess": round(ours / theirs, 3)}]
    tables = {"Against the release before": rows, "Seconds of making batches of 6,000 texts, one thread": batches}
    save("before", {"rows": rows, "batches": batches}, tables)
