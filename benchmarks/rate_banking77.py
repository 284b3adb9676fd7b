"""Does the danger zone hold the false negatives, and does rating find more of them than the similarity it starts from?

    python benchmarks/rate_banking77.py COLLECTION [--queries 1000] [--top 50] [--hide 0.9] [--json FILE]

The collection's judgements must be complete (BANKING77: every message of the query's intent). A share of each
query's positives is hidden; the rest stay known. Dense negatives are mined, hidden positives among them are the
false negatives, and each rule and judge rejects some rows. Each is held against a plain threshold on the cosine that
rejects as many rows (highest cosine first, over all queries; and highest cosine relative to the positive's).

Judges: the bi-encoder that mined; the bag of its own token vectors; their mean; and, with --cross-encoder, a trained
one. `oracle, noisy` answers from the hidden truth with noise: what the machinery does with a judge that knows.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
from scipy.special import expit

from foils.data import Collection, load_collection
from foils.encode import DocumentTexts, VectorStore, load_encoder
from foils.errors import InputError
from foils.mine import DenseRetriever, mine
from foils.rate import BiEncoderJudge, Candidates, EnsembleJudge, Pairs, load_cross_encoder_judge, rate_negatives
from foils.select import select_negatives

RULES = {
    "table": {},
    "percentile": {},
    "mixture": {},
    "relative": {},
    "optimal": {},
    "denoise": {},
}


class OracleJudge:
    """Knows the hidden truth: a relevant document leads another by 2 logits, and every answer has noise of 1 logit."""

    name, fingerprint, antisymmetric = "oracle, noisy", "oracle", True

    def __init__(self, relevant: set[tuple[str, str]], seed: int) -> None:
        self.relevant, self.rng = relevant, np.random.default_rng(seed)

    def judge(self, candidates: Candidates, pairs: Pairs) -> np.ndarray:
        """Return noisy answers from the truth."""
        query = candidates.query_of(pairs.first)
        known = [
            [
                (candidates.query_ids[q], candidates.doc_ids[row]) in self.relevant
                for q, row in zip(query, rows, strict=True)
            ]
            for rows in (pairs.first, pairs.second)
        ]
        lead = np.subtract(*np.array(known, float))
        return expit(2 * lead + self.rng.normal(0, 1, len(pairs)))


class TokenEncoder:
    """The mean of a model's own token vectors, unit length: a bag of words beside the transformer."""

    def __init__(self, model) -> None:
        self.tokenizer = model.tokenizer
        self.table = model[0].auto_model.get_input_embeddings().weight.detach().numpy()
        self.name, self.dimension, self.fingerprint = "token vectors", self.table.shape[1], "tokens"

    def route(self, kind):
        """Return nothing: queries and documents are treated alike."""
        return ""

    def encode(self, texts, kind):
        """Return unit means of token vectors."""
        ids = self.tokenizer(list(texts), add_special_tokens=False, truncation=True, max_length=128)["input_ids"]
        means = np.stack([self.table[row].mean(0) if row else self.table[0] for row in ids])
        return (means / np.linalg.norm(means, axis=1, keepdims=True)).astype(np.float32)


def hidden(collection: Collection, queries: int, share: float, seed: int) -> tuple[Collection, set[tuple[str, str]]]:
    """Return the collection with a share of the positives of some train queries hidden, and all relevant pairs."""
    rng = np.random.default_rng(seed)
    positives = collection.positives("train")
    chosen = np.sort(rng.choice(len(positives), min(queries, len(positives)), replace=False))
    query_ids, doc_ids = collection.queries["query_id"].to_pylist(), collection.documents["doc_id"].to_pylist()
    kept, relevant = [], set()
    for at in chosen:
        query, documents = query_ids[positives.query_rows[at]], [doc_ids[row] for row in positives.of(at)]
        relevant.update((query, document) for document in documents)
        known = max(1, round(len(documents) * (1 - share)))
        kept += [(query, documents[i], 1) for i in rng.permutation(len(documents))[:known]]
    qrels = pa.table([list(column) for column in zip(*kept, strict=True)], schema=collection.qrels["train"].schema)
    return Collection(
        f"{collection.name}, hidden", collection.documents, collection.queries, {"train": qrels}
    ), relevant


def found(rejected: np.ndarray, false: np.ndarray) -> dict[str, float]:
    hits = int((rejected & false).sum())
    return {
        "rejected": int(rejected.sum()),
        "precision": hits / max(1, int(rejected.sum())),
        "recall": hits / int(false.sum()),
    }


def most(scores: np.ndarray, count: int) -> np.ndarray:
    rejected = np.zeros(len(scores), bool)
    rejected[np.argsort(-scores, kind="stable")[:count]] = True
    return rejected


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("collection")
    parser.add_argument("--queries", type=int, default=1000)
    parser.add_argument("--top", type=int, default=50)
    parser.add_argument("--hide", type=float, default=0.9)
    parser.add_argument("--positives", type=int, default=1)
    parser.add_argument("--temperature", type=float, default=0.05)
    parser.add_argument("--cross-encoder", type=Path)
    parser.add_argument("--vectors", type=Path, default=Path(tempfile.gettempdir()) / "foils-vectors")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path, default=Path("benchmarks/results/rate_banking77.json"))
    options = parser.parse_args()
    collection, relevant = hidden(load_collection(options.collection), options.queries, options.hide, options.seed)
    encoder, store = load_encoder("all-MiniLM-L6-v2"), VectorStore(options.vectors)
    queries = store.embed(encoder, collection.query_texts(np.arange(len(collection.queries))), "query")
    documents = store.embed(encoder, DocumentTexts(collection), "document")
    negatives = mine(collection, DenseRetriever(queries, documents), split="train", top=options.top).negatives
    pairs = list(zip(negatives.table["query_id"].to_pylist(), negatives.table["doc_id"].to_pylist(), strict=True))
    false = np.array([pair in relevant for pair in pairs]) & negatives.keep
    cosine = negatives.table["score"].to_numpy()
    query_rows, _ = negatives.rows_in(collection)
    first = collection.positives("train")
    of_positive = dict(
        zip(
            first.query_rows.tolist(),
            np.einsum("nd,nd->n", queries.take(first.query_rows), documents.take(first.first)),
            strict=True,
        )
    )
    beside = cosine - np.array([of_positive[row] for row in query_rows.tolist()])
    usable = negatives.keep
    bi = BiEncoderJudge(encoder, temperature=options.temperature, store=store)
    bag = BiEncoderJudge(TokenEncoder(encoder.model), temperature=options.temperature)
    judges = [bi, bag, EnsembleJudge([bi, bag]), OracleJudge(relevant, options.seed)]
    if options.cross_encoder:
        judges.insert(3, load_cross_encoder_judge(options.cross_encoder))
    rows = []
    for judge in judges:
        rated = rate_negatives(
            collection, negatives, judge, split="train", positives=options.positives, validate="all", seed=options.seed
        )
        for rule, settings in RULES.items():
            try:
                selection = select_negatives(rated.negatives, by=rule, settings=settings, seed=options.seed)
            except InputError as error:
                print(f"{judge.name} {rule}: {error}")
                continue
            kept = selection.negatives.keep
            reasons = np.array(selection.negatives.table["reason"].to_pylist(), object)
            rejected = usable & ~kept & (reasons != "tells too little")
            count = int(rejected.sum())
            row = {"judge": judge.name, "rule": rule, **found(rejected, false)}
            row["cosine"] = found(most(np.where(usable, cosine, -np.inf), count), false)
            row["cosine_beside_positive"] = found(most(np.where(usable, beside, -np.inf), count), false)
            rows.append(row)
            print(
                f"{judge.name:31} {rule:10} rejects {count:6}"
                + "  |  ".join(
                    f"  {what}precision {at['precision']:.3f} recall {at['recall']:.3f}"
                    for what, at in (
                        ("", row),
                        ("cosine: ", row["cosine"]),
                        ("beside positive: ", row["cosine_beside_positive"]),
                    )
                )
            )
    facts = {name: getattr(options, name) for name in ("queries", "top", "hide", "positives", "temperature", "seed")}
    result = {**facts, "rows": int(usable.sum()), "false_negatives": int(false.sum()), "table": rows}
    print(f"{result['rows']} rows, {result['false_negatives']} of them hidden positives")
    options.json.parent.mkdir(parents=True, exist_ok=True)
    options.json.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
