"""What the verbs are tried on: a made-up collection, small models, a server that answers; and the verbs themselves."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

import numpy as np

TESTS = Path(__file__).parents[1]
IMPORTED = (
    "bm25s", "faiss", "ir_measures", "openai", "plotly.graph_objects", "sentence_transformers", "sklearn.mixture",
    "foils.batching.doors", "foils.batching.sampler", "foils.cli.app", "foils.evaluation.doors",
    "foils.mining.doors", "foils.rating.doors", "foils.pages", "foils.scoring", "foils.searching.doors",
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
        return str(self.folder / name)


@dataclass(frozen=True)
class Verb:
    """A verb with arguments, written into a folder.

    Attributes:
        name: of the trial.
        arguments: world and output folder → arguments.
        asks: whether it asks the language model.
    """

    name: str
    arguments: Callable[[World, Path], list[str]]
    asks: bool = False


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


def make_world(folder: Path, server: tuple[str, Path], foils_runs: Callable[..., None]) -> World:
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
    write_pairs(world.folder / "other.csv", seed=5)
    for name in ("random", "bm25"):
        foils_runs("mine", world["made"], "--with", name, "--top", "4", "-o", world[f"{name}.parquet"])
    foils_runs("mine", world["little"], "--top", "2", "-o", world["little.parquet"])
    foils_runs("rate", world["made"], world["bm25.parquet"], "--encoder", world["bert"], "-o", world["rated.parquet"])
    foils_runs("search", world["little"], "--model", world["bert"], "--dimensions", "rdime", "--split", "dev",
               "--top", "20", "--run", world["dev.trec"])  # fmt: skip
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


def mining(*more: str, name: str = "mine", sources: Sequence[str] = ()) -> Callable[[World, Path], list[str]]:
    """Arguments of a verb of mining; @NAME is a file of the world. The encoder is given where something is embedded."""
    encoder = ["--encoder", "@bert"] if {"dense", "ance", "trisampler", "encoder"} & set(more) else []
    return lambda world, out: [
        name, world["made"], *(world[word] for word in sources), "-o", str(out / "mined.parquet"), "--json",
        str(out / "mined.json"),
        *(world[word[1:]] if word.startswith("@") else word for word in [*encoder, *more]),
    ]  # fmt: skip


def verb(*words: str) -> Callable[[World, Path], list[str]]:
    """Arguments of a verb; @NAME is a file of the world, =NAME one of the output."""
    places = {"@": lambda world, out, name: world[name], "=": lambda world, out, name: str(out / name)}
    return lambda world, out: [places[word[0]](world, out, word[1:]) if word[0] in places else word for word in words]


def _verbs() -> Iterator[Verb]:
    for name in ("random", "bm25", "dense", "ance", "trisampler"):
        yield Verb(f"mine {name}", mining("--with", name, "--top", "5"))
    yield Verb("mine cross-encoder", mining("--with", "cross-encoder", "--cross-encoder", "@cross", "--top", "5"))
    yield Verb("fuse", mining("--method", "rrf", name="fuse", sources=["random.parquet", "bm25.parquet"]))
    yield Verb("filter", mining("--scorer", "encoder", "--margin", "0.1", name="filter", sources=["bm25.parquet"]))
    yield Verb("generate", lambda world, out: mining("--llm-model", "m", "--base-url", world.server, "--top", "3",
                                                     "--llm-args", f"concurrency={CONCURRENCY}",
                                                     name="generate")(world, out),
               asks=True)  # fmt: skip
    yield Verb("mine with export", lambda world, out: [*mining("--with", "bm25", "--top", "5")(world, out), "--export",
               f"triplets={out / 'triplets.jsonl'}", "--export", f"trec={out / 'mined.trec'}"])  # fmt: skip
    yield Verb("score", verb("score", "@made", "@random.parquet", "@bm25.parquet", "--encoder", "@bert", "--json",
                             "=scores.json", "--report", "=report.html"))  # fmt: skip
    yield Verb("rate bi-encoder", verb("rate", "@made", "@bm25.parquet", "--encoder", "@bert", "-o", "=rated.parquet",
                                       "--json", "=rated.json"))  # fmt: skip
    yield Verb("rate cross-encoder", lambda world, out: [*verb("rate", "@made", "@bm25.parquet", "-o",
               "=rated.parquet")(world, out), "--judge", f"cross-encoder:{world['cross']}"])  # fmt: skip
    yield Verb("select", verb("select", "@rated.parquet", "--by", "percentile", "-o", "=train.parquet", "--json",
                              "=train.json"))  # fmt: skip
    yield Verb("compose", verb("compose", "@made", "@random.parquet", "@bm25.parquet", "--top", "3", "--encoder",
                               "@bert", "-o", "=train.parquet"))  # fmt: skip
    yield Verb("batch", verb("batch", "@made", "@bm25.parquet", "--encoder", "@bert", "--batch-size", "8", "-o",
                             "=plan.parquet", "--json", "=plan.json"))  # fmt: skip
    yield Verb("train", verb("train", "@little", "@little.parquet", "--model", "@bert", "--batch-size", "8", "--epochs",
                             "2", "--set-trainer", "save_steps=4", "--dev", "dev", "--batches", "hobit",
                             "--resume", "-o", "=model", "--json", "=model.json"))  # fmt: skip
    yield Verb("train reranker", verb("train", "@little", "@little.parquet", "--reranker", "--model", "@cross",
                                      "--batch-size", "8", "--epochs", "2", "--set-trainer", "save_steps=2",
                                      "--dev", "dev", "--dev-run", "@dev.trec", "--resume", "-o", "=model", "--json",
                                      "=model.json"))  # fmt: skip
    yield Verb("evaluate", verb("evaluate", "@made", "--model", "@bert", "--split", "test", "--write-runs", "=runs",
                                "--json", "=result.json"))  # fmt: skip
    yield Verb("search", verb("search", "@made", "--model", "@bert", "--dimensions", "eclipse", "--index", "hnsw",
                              "--run", "=out.trec", "--json", "=out.json"))  # fmt: skip
    yield Verb("study", verb("study", "@made", "@random.parquet", "@bm25.parquet", "--model", "@static",
                             "--seeds", "2", "--queries", "16", "--per-query", "4", "--set",
                             "batch_size=8", "--set", "save_steps=3", "-o", "=study"))  # fmt: skip
    yield Verb("tune", verb("tune", "@pairs.csv", "--model", "@static", "--keep", "@other.csv", "-o",
                            "=better", "--json", "=better.json"))  # fmt: skip


VERBS = {each.name: each for each in _verbs()}
