"""What the verbs are tried on: a made-up collection, small models, a server that answers; and the verbs themselves."""

import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

import numpy as np

TESTS = Path(__file__).parents[1]
IMPORTED = (
    "bm25s", "ir_measures", "openai", "sentence_transformers", "sklearn.mixture",
    "foils.batching.plan", "foils.batching.sampler", "foils.cli.app", "foils.evaluation.doors",
    "foils.mining.methods", "foils.rating.doors", "foils.pages", "foils.scoring", "foils.searching.doors",
    "foils.selection.doors", "foils.experiments", "foils.training.models", "foils.training.reranker",
    "foils.experiments.doors",
)  # fmt: skip
"""What verbs import: imported once, before processes are forked."""

CONCURRENCY = 4  # requests at once
DOCUMENTS, QUERIES = 3_000, 120
SERVER = """
import json, sys, time, hashlib
sys.path.insert(0, sys.argv[1])
from llm_server import Reply, Server

def answer(number, asked):
    prompt = asked["messages"][0]["content"]
    key = hashlib.blake2b(prompt.encode(), digest_size=8).hexdigest()
    with open(sys.argv[2], "a") as notes:
        notes.write(key + "\\n")
    time.sleep(0.02)
    return Reply(json.dumps({"negatives": [f"passage {key} number {at}" for at in range(3)]}))

server = Server(answer)
print(server.url, flush=True)
server.serve_forever()
"""


@dataclass(frozen=True)
class World:
    """Files that verbs begin with.

    Attributes:
        folder: holds `made/` and `little/`, BEIR folders; `bert/`, `cross/` and `static/`, models; tables and runs.
        server: address of the language model.
        prompts: file to which the server adds a digest of each prompt.
    """

    folder: Path
    server: str
    prompts: Path

    def __getitem__(self, name: str) -> str:
        return self.server if name == "server" else str(self.folder / name)


@dataclass(frozen=True)
class Verb:
    """A verb with its arguments: {out} is the folder that it writes into, {NAME} a file of the world."""

    name: str
    text: str

    @property
    def asks(self) -> bool:
        """Whether it asks the language model."""
        return "{server}" in self.text

    def arguments(self, world: World, out: Path) -> list[str]:
        return re.sub(r"{(.+?)}", lambda name: str(out) if name[1] == "out" else world[name[1]], self.text).split()


@contextmanager
def answering(folder: Path) -> Iterator[tuple[str, Path]]:
    """Run the server; give its address, and the file of prompts."""
    prompts = folder / "prompts.txt"
    command = [sys.executable, "-c", SERVER, str(TESTS), str(prompts)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as server:
        assert server.stdout is not None
        try:
            yield server.stdout.readline().strip(), prompts
        finally:
            server.kill()


def make_world(folder: Path, server: tuple[str, Path], prepare: Callable[[Verb, World], None]) -> World:
    """Import what verbs need; write collections and models, and run the verbs whose output others begin with."""
    from train_models import WORDS, bert_model, cross_encoder, static_model
    from tune_world import write_pairs

    for module in IMPORTED:
        import_module(module)
    world = World(folder, *server)
    write_collection(folder / "made", DOCUMENTS, QUERIES, words=WORDS)
    write_collection(folder / "little", 200, 64, words=WORDS)
    bert_model(folder / "parts").save_pretrained(world["bert"])
    cross_encoder(folder / "cross").save_pretrained(world["cross"])
    static_model().save_pretrained(world["static"])
    write_pairs(world.folder / "pairs.csv")
    for text in (
        "mine {made} --with random --top 4 -o {random.parquet}",
        "mine {made} --with bm25 --top 4 -o {bm25.parquet}",
        "mine {little} --top 2 -o {little.parquet}",
        "rate {made} {bm25.parquet} --encoder {bert} --accept-judge -o {rated.parquet}",
        "search {little} --model {bert} --dimensions rdime --split dev --top 20 --run {dev.trec}",
    ):
        prepare(Verb("prepared", text), world)
    return world


def write_collection(folder: Path, documents: int, queries: int, *, words: list[str], seed: int = 0) -> None:
    """Write a BEIR folder of short texts; each query shares words with its positive; a quarter of them is dev, test."""
    rng = np.random.default_rng(seed)
    (folder / "qrels").mkdir(parents=True)
    with (folder / "corpus.jsonl").open("w") as out, (folder / "queries.jsonl").open("w") as asked:
        for start in range(0, documents, 10_000):
            for at, row in enumerate(rng.choice(words, (min(10_000, documents - start), 12)).tolist(), start):
                out.write(json.dumps({"_id": f"d{at}", "title": "", "text": " ".join(row)}) + "\n")
                if at < queries:
                    asked.write(json.dumps({"_id": f"q{at}", "text": " ".join(row[:4])}) + "\n")
    half, quarter = queries // 2, 3 * queries // 4
    for split, rows in {"train": range(half), "dev": range(half, quarter), "test": range(quarter, queries)}.items():
        judged = "".join(f"q{at}\td{at}\t1\n" for at in rows)
        (folder / "qrels" / f"{split}.tsv").write_text(f"query-id\tcorpus-id\tscore\n{judged}")


MINED = "-o {out}/mined.parquet --json {out}/mined.json"
TABLES = "{random.parquet} {bm25.parquet}"
LINES = {
    "mine random": f"mine {{made}} --with random --top 5 {MINED}",
    "mine bm25": f"mine {{made}} --with bm25 --top 5 {MINED}",
    "mine dense": f"mine {{made}} --with dense --top 5 --encoder {{bert}} {MINED}",
    "mine ance": f"mine {{made}} --with ance --top 5 --encoder {{bert}} {MINED}",
    "mine trisampler": f"mine {{made}} --with trisampler --top 5 --encoder {{bert}} {MINED}",
    "mine cross-encoder": f"mine {{made}} --with cross-encoder --cross-encoder {{cross}} --top 5 {MINED}",
    "fuse": f"fuse {{made}} {TABLES} --method rrf {MINED}",
    "filter": f"filter {{made}} {{bm25.parquet}} --scorer encoder --margin 0.1 --encoder {{bert}} {MINED}",
    "generate": "generate {made} --llm-model m --base-url {server} --top 3 "
                f"--concurrency {CONCURRENCY} {MINED}",
    "export": "export {made} {bm25.parquet} --form tevatron -o {out}/train.jsonl",
    "score": f"score {{made}} {TABLES} --encoder {{bert}} --json {{out}}/scores.json --report {{out}}/report.html",
    "rate bi-encoder": "rate {made} {bm25.parquet} --encoder {bert} --accept-judge -o {out}/rated.parquet "
                       "--json {out}/rated.json",
    "rate cross-encoder": "rate {made} {bm25.parquet} --judge cross-encoder:{cross} --accept-judge "
                          "-o {out}/rated.parquet",
    "select": "select {rated.parquet} --by percentile -o {out}/train.parquet --json {out}/train.json",
    "batch": "batch {made} {bm25.parquet} --encoder {bert} --batch-size 8 -o {out}/plan.parquet --json {out}/plan.json",
    "train": "train {little} {little.parquet} --model {bert} --batch-size 8 --epochs 2 --set-trainer save_steps=4 "
             "--dev dev --batches hobit --resume -o {out}/model --json {out}/model.json",
    "train reranker": "train {little} {little.parquet} --reranker --model {cross} --batch-size 8 --epochs 2 "
                      "--set-trainer save_steps=2 --dev dev --dev-run {dev.trec} --resume -o {out}/model "
                      "--json {out}/model.json",
    "evaluate": "evaluate {made} --model {bert} --split test --write-runs {out}/runs --json {out}/result.json",
    "search": "search {made} --model {bert} --dimensions eclipse --run {out}/out.trec "
              "--json {out}/out.json",
    "study": f"study {{made}} {TABLES} --model {{static}} --seeds 2 --queries 16 --per-query 4 "
             "--set batch_size=8 --set save_steps=3 -o {out}/study",
    "tune": "tune {pairs.csv} --model {static} -o {out}/better --json {out}/better.json",
}  # fmt: skip
VERBS = {name: Verb(name, text) for name, text in LINES.items()}
