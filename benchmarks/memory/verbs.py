"""Peak memory of each verb against the size of the corpus, and under a budget.

    python benchmarks/run.py verbs [--documents 10000 100000 1000000] [--verb NAME ...] [--seconds 300]

Made-up short texts (12 words) and a static encoder (d 64), so that a million documents are read and embedded in
minutes; 1,000 queries, of which half are in train. Each verb runs in a process of its own, which starts with nothing in
memory; what earlier runs stored (collection, vectors, tables) is used again. Reports the peak of the memory that no
file backs, read every 20 ms, less what the program takes on an empty plate (`foils --version`, and the imports of a
run on 100 documents). A verb that takes longer than `--seconds` is stopped, and says so.

Writes benchmarks/results/verbs.json.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from kill_world import write_collection

from common import load, peak_of_command, save

LEAST = 100  # documents of the run that shows what the program itself takes
QUERIES = 1_000
DIMENSION = 64

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


def beyond(of: dict[str, dict[str, float | None]]) -> dict[str, Any]:
    """Return the peak of each size of corpus beyond that of the smallest, in MiB; `stopped` where it took too long."""
    least = of[str(LEAST)]["mib"] or 0.0
    return {
        f"{int(size):,} documents": "stopped" if taken["mib"] is None else round(max(0.0, taken["mib"] - least))
        for size, taken in of.items()
        if size != str(LEAST)
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--documents", type=int, nargs="+", default=[10_000, 100_000, 1_000_000])
    parser.add_argument("--verb", action="append", choices=list(VERBS))
    parser.add_argument("--seconds", type=float, default=300.0)
    given = parser.parse_args()
    words = [f"{a}{b}{c}{d}" for a in "bcdfgklmnprst" for b in "aeiou" for c in "bdgklmnprst" for d in "aeiou"]
    words = np.random.default_rng(0).permutation(words).tolist()
    found = {"verbs": {}, **load("verbs"), "queries": QUERIES, "dimension": DIMENSION}
    with tempfile.TemporaryDirectory(prefix="foils-memory-") as folder:
        write_encoder(Path(folder) / "encoder", words)
        for documents in [LEAST, *given.documents]:
            place = Path(folder) / str(documents)
            write_collection(place / "made", documents, min(QUERIES, documents), words=words)
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
            save("verbs", found, {"Peak memory beyond that of 100 documents, MiB": rows})


def rows_of(path: Path) -> object:
    from foils.data import Negatives

    return Negatives.read(path).table


if __name__ == "__main__":
    main()
