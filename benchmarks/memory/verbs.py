"""Peak memory of each verb against the size of the corpus, and under a budget.

    python benchmarks/run.py verbs [--documents 10000 100000 1000000] [--queries 1000] [--verb NAME ...] [--seconds 300]

Made-up texts of 20 words, drawn by Zipf's law from 100,000, and a static encoder (d 64), so that a million documents
are read and embedded in minutes; a query is four words of its positive, and half of them are in train. Each verb runs
in a process of its own, which starts with nothing in memory; what earlier runs stored (collection, vectors, index,
tables) is used again. Reports the peak of the memory that no file backs, read every 20 ms, less what the program takes
on an empty plate (`foils --version`, and the imports of a run on 100 documents). A verb that takes longer than
`--seconds` is stopped, and says so.

Writes benchmarks/results/verbs.json, or the file that `--result` names.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from common import argument_parser, load, peak_of_command, save

LEAST = 100  # documents of the run that shows what the program itself takes
DIMENSION, WORDS, LENGTH, ASKED = 64, 100_000, 20, 4
BLOCK = 1_000_000  # documents drawn together

# @ is the collection, = the place of the outputs, % the encoder.
VERBS = {
    "mine random": "mine @ --with random --top 5 -o =random.parquet",
    "mine bm25": "mine @ --with bm25 --top 5 -o =bm25.parquet",
    "mine bm25, 64 MiB": "mine @ --with bm25 --top 5 -o =bm25-small.parquet",
    "mine dense": "mine @ --with dense --top 5 --encoder % -o =dense.parquet",
    "mine dense, 64 MiB": "mine @ --with dense --top 5 --encoder % -o =dense-small.parquet",
    "score": "score @ =bm25.parquet =dense.parquet --encoder % --json =scores.json",
    "rate": "rate @ =bm25.parquet --encoder % -o =rated.parquet",
    "select": "select =rated.parquet --by percentile -o =selected.parquet",
    "batch": "batch @ =bm25.parquet --encoder % --batch-size 64 -o =plan.parquet",
    "evaluate": "evaluate @ --model % --json =result.json",
    "search": "search @ --model % --dimensions rdime --run =out.trec",
}
SAME = {"bm25.parquet": "bm25-small.parquet", "dense.parquet": "dense-small.parquet"}


def write_encoder(folder: Path, words: list[str]) -> None:
    """Write a static encoder with a seeded vector a word."""
    import torch
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import StaticEmbedding
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from tokenizers.pre_tokenizers import Whitespace

    tokenizer = Tokenizer(WordLevel({word: at for at, word in enumerate(["[UNK]", *words])}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = Whitespace()
    torch.manual_seed(0)
    SentenceTransformer(modules=[StaticEmbedding(tokenizer, embedding_dim=DIMENSION)], device="cpu").save_pretrained(
        str(folder)
    )


def write_documents(folder: Path, documents: int, queries: int, words: list[str]) -> None:
    """Write a BEIR folder; the queries' positives are spread evenly over the documents."""
    rng, asked = np.random.default_rng(0), np.linspace(0, documents - 1, queries).astype(int).tolist()
    (folder / "qrels").mkdir(parents=True)
    found: list[str] = []
    with (folder / "corpus.jsonl").open("w") as corpus:
        for start in range(0, documents, BLOCK):
            count = min(BLOCK, documents - start)
            drawn = pa.array(words).take(pa.array(rng.zipf(1.1, count * LENGTH).clip(1, WORDS) - 1))
            texts = pc.binary_join(pa.ListArray.from_arrays(np.arange(count + 1) * LENGTH, drawn), " ").to_pylist()
            corpus.writelines(f'{{"_id": "d{start + at}", "text": "{text}"}}\n' for at, text in enumerate(texts))
            found += [texts[at - start] for at in asked if start <= at < start + count]
    lines = [f'{{"_id": "q{at}", "text": "{" ".join(text.split()[:ASKED])}"}}\n' for at, text in enumerate(found)]
    (folder / "queries.jsonl").write_text("".join(lines))
    for split, rows in {"train": range(0, queries, 2), "test": range(1, queries, 2)}.items():
        judged = "".join(f"q{row}\td{asked[row]}\t1\n" for row in rows)
        (folder / "qrels" / f"{split}.tsv").write_text(f"query-id\tcorpus-id\tscore\n{judged}")


def beyond(of: dict[str, dict[str, float | None]]) -> dict[str, Any]:
    """Return the peak of each size of corpus beyond that of the smallest, in MiB; `stopped` where it took too long."""
    least = of[str(LEAST)]["mib"] or 0.0
    return {
        f"{int(size):,} documents": "stopped" if taken["mib"] is None else round(max(0.0, taken["mib"] - least))
        for size, taken in of.items()
        if size != str(LEAST)
    }


def main() -> None:
    parser = argument_parser(__doc__)
    parser.add_argument("--documents", type=int, nargs="+", default=[10_000, 100_000, 1_000_000])
    parser.add_argument("--queries", type=int, default=1_000)
    parser.add_argument("--verb", action="append", choices=list(VERBS))
    parser.add_argument("--seconds", type=float, default=300.0)
    parser.add_argument("--result", default="verbs", help="name of the file in results/")
    given = parser.parse_args()
    words = [np.base_repr(at + 50_000, 36).lower() for at in range(WORDS)]
    found = {"verbs": {}, **load(given.result), "queries": given.queries, "dimension": DIMENSION}
    with tempfile.TemporaryDirectory(prefix="foils-memory-") as folder:
        write_encoder(Path(folder) / "encoder", words)
        for documents in [LEAST, *given.documents]:
            place = Path(folder) / str(documents)
            write_documents(place / "made", documents, min(given.queries, documents), words)
            for name, text in VERBS.items():
                if given.verb and name not in given.verb:
                    continue
                marks = {"@": f"{place}/made", "%": f"{folder}/encoder"}
                arguments = [marks.get(word, word.replace("=", f"{place}/", 1)) for word in text.split()]
                setting = ["env", "FOILS_MEMORY=64MiB"] if name.endswith("64 MiB") else []
                program = [*setting, sys.executable, "-c", "from foils.cli import main; main()"]
                taken = peak_of_command([*program, *arguments], Path(folder) / "cache", given.seconds)
                found["verbs"].setdefault(name, {})[str(documents)] = taken
                print(name, documents, taken, flush=True)
            for one, other in SAME.items():
                if (place / one).is_file() and (place / other).is_file():
                    same = rows_of(place / one) == rows_of(place / other)
                    found.setdefault("same_rows_under_64_mib", {})[f"{one} {documents}"] = same
            rows = [{"verb": name, **beyond(of)} for name, of in found["verbs"].items()]
            taken = [(name, int(size), each) for name, of in found["verbs"].items() for size, each in of.items()]
            each = [{"verb": name, "documents": size, **of} for name, size, of in taken if size != LEAST]
            memory = "Peak memory beyond that of 100 documents, MiB"
            save(given.result, found, {memory: rows, "Seconds, and peak memory": each})


def rows_of(path: Path) -> object:
    from foils.data import Negatives

    return Negatives.read(path).table
