"""Does the danger zone hold the false negatives, and does rating find more of them than plainer signals do?

    python benchmarks/rate_banking77.py COLLECTION --base MODEL [--seeds 5] [--hide 0.3] [--json FILE]

The collection's judgements must be complete (BANKING77: every message of the query's intent). A share of each
query's positives is hidden; the rest stay known. Dense negatives are mined, hidden positives among them are the
false negatives, and each rule and judge rejects some rows. Each is held against plain thresholds that reject as many
rows over all queries:

- cosine: of query and negative;
- beside positive: that cosine less the first positive's;
- like positives: the mean cosine to the query and its nearest known positives (the audit's suspicion);
- reranker: the trained reranker's logit, without any rating.

Judges: the bi-encoder that mined; the bag of its own token vectors; a reranker trained from MODEL on the known pairs
of all queries, against random and lower-ranked dense negatives; means of them. `oracle, noisy` answers from the hidden
truth with noise: what the machinery does with a judge that knows.

The queries are divided at random among the seeds; each has its own graphs and thresholds. Intervals are a bootstrap
over seeds and, within them, queries; the one training of the reranker is not in them. Rules that are not in the table
reject what `table` does (curriculum, progress, simans: gaps below 100).
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import torch
from scipy.special import expit
from sentence_transformers import CrossEncoder

from foils.data import Collection, Negatives, load_collection
from foils.data.negatives import negatives_table
from foils.data.texts import DocumentTexts
from foils.encode import EncoderSettings, VectorStore, load_encoder
from foils.mining import DenseRetriever, RandomRetriever, mine_negatives
from foils.mining.sampling import Uniform
from foils.rating import (
    BiEncoderJudge,
    Candidates,
    CrossEncoderJudge,
    EnsembleJudge,
    Judge,
    Pairs,
    load_cross_encoder_judge,
    rate_negatives,
)
from foils.runtime.errors import InputError
from foils.scoring.audit import NEAREST, suspicion
from foils.selection import select_negatives
from foils.training.data import training_set
from foils.training.reranker import train_reranker
from foils.training.settings import TrainSettings

RULES = ("table", "percentile", "mixture", "relative", "optimal", "denoise")
BASELINES = ("cosine", "beside positive", "like positives", "reranker")


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


class Memory:
    """A reranker that scores each pair of texts once."""

    def __init__(self, model) -> None:
        self.model, self.known = model, {}

    def __getattr__(self, name: str):
        return getattr(self.model, name)

    def predict(self, texts, **settings):
        """Return the logits, those that are known from memory."""
        new = list(dict.fromkeys(pair for pair in map(tuple, texts) if pair not in self.known))
        if new:
            self.known |= dict(zip(new, self.model.predict(new, **settings).tolist(), strict=True))
        return np.array([self.known[tuple(pair)] for pair in texts], np.float32)


class Setting:
    """The collection with hidden positives, its mined negatives, plain scores of each row, and the judges."""

    def __init__(self, options: argparse.Namespace) -> None:
        loaded = load_collection(options.collection)
        self.collection, self.relevant = hidden(loaded, options.queries, options.hide, options.seed)
        self.encoder = load_encoder("all-MiniLM-L6-v2", EncoderSettings(max_length=128))
        self.store, self.options = VectorStore(options.vectors), options
        queries = self.store.embed(self.encoder, self.collection.query_texts(np.arange(len(loaded.queries))), "query")
        documents = self.store.embed(self.encoder, DocumentTexts(self.collection), "document")
        self.retriever = DenseRetriever(queries, documents)
        found = mine_negatives(self.collection, self.retriever, split="train", top=options.top)
        rows, _ = found.rows_in(self.collection)
        rated = np.random.default_rng(options.seed).permutation(np.unique(rows))[: options.rated]
        self.negatives = Negatives(found.table.filter(pa.array(np.isin(rows, rated))))
        table, self.usable = self.negatives.table, self.negatives.keep
        pairs = zip(table["query_id"].to_pylist(), table["doc_id"].to_pylist(), strict=True)
        self.false = np.array([pair in self.relevant for pair in pairs]) & self.usable
        self.query, document = self.negatives.rows_in(self.collection)
        self.scores = self._cosines(queries, documents, document)
        self.judge = self._trained()
        texts = zip(self.collection.query_texts(self.query), self.collection.document_texts(document), strict=True)
        self.scores["reranker"] = self.judge.model.predict(
            list(texts), batch_size=64, show_progress_bar=False, activation_fn=torch.nn.Identity()
        )

    def judges(self, seed: int) -> dict[str, Judge]:
        """Return the judges by what to call them."""
        bi = BiEncoderJudge(self.encoder, temperature=self.options.temperature, store=self.store)
        bag = BiEncoderJudge(TokenEncoder(self.encoder.model), temperature=self.options.temperature)
        return {
            "bi-encoder": bi,
            "token vectors": bag,
            "reranker": self.judge,
            "bi-encoder + token vectors": EnsembleJudge([bi, bag]),
            "bi-encoder + reranker": EnsembleJudge([bi, self.judge]),
            "oracle, noisy": OracleJudge(self.relevant, seed),
        }

    def _cosines(self, queries, documents, document: np.ndarray) -> dict[str, np.ndarray]:
        """The baselines that need no more than the vectors."""
        known = self.collection.positives("train")
        place = np.full(len(self.collection.queries), -1)
        place[known.query_rows] = np.arange(len(known))
        cosine = self.negatives.table["score"].to_numpy()
        found = documents.take(np.arange(len(self.collection.documents)))
        first = np.einsum("nd,nd->n", queries.take(known.query_rows), found[known.first])
        near = np.empty(len(cosine))
        for at in range(len(known)):
            rows = np.flatnonzero(place[self.query] == at)
            alike = np.sort(found[document[rows]] @ found[known.of(at)].T, axis=1)[:, ::-1]
            near[rows] = alike[:, :NEAREST].mean(axis=1)
        of_row = place[self.query]
        return {
            "cosine": cosine,
            "beside positive": cosine - first[of_row],
            "like positives": suspicion(cosine, near, known.counts[of_row]),
        }

    def _trained(self) -> CrossEncoderJudge:
        """Train a reranker on the known pairs, unless it is there, and load it as --judge cross-encoder does."""
        options = self.options
        folder = options.keep / f"{options.queries}-{options.hide}-{options.seed}"
        if not folder.is_dir():
            seed, collection, retriever = options.seed, self.collection, self.retriever
            easy = mine_negatives(collection, RandomRetriever(collection, seed=seed), split="train", top=8)
            lower = mine_negatives(
                collection, retriever, split="train", top=8, ranks=(100, 300), draw=Uniform(), seed=seed
            )
            seen: dict[tuple[str, str], None] = {}
            for part in (easy, lower):
                kept = part.kept()
                seen |= dict.fromkeys(zip(kept["query_id"].to_pylist(), kept["doc_id"].to_pylist(), strict=True))
            rows = list(seen)
            np.random.default_rng(seed).shuffle(rows)
            ids = [pa.array(column) for column in zip(*rows, strict=True)]
            source = Negatives(negatives_table(*ids, "both", np.arange(len(rows)), np.zeros(len(rows))))
            data = training_set(collection, source, split="train", form="lists", max_positives=4, per_query=4)
            settings = TrainSettings(loss="binary", epochs=options.epochs, batch_size=32, learning_rate=3e-4, seed=seed)
            model = CrossEncoder(str(options.base), num_labels=1, max_length=64, device="cpu")
            with tempfile.TemporaryDirectory() as checkpoints:
                train_reranker(model, data, checkpoints, settings=settings)
            model.save_pretrained(str(folder))
        judge = load_cross_encoder_judge(folder)
        judge.model = Memory(judge.model)
        return judge


def most(scores: np.ndarray, count: int) -> np.ndarray:
    rejected = np.zeros(len(scores), bool)
    rejected[np.argsort(-scores, kind="stable")[:count]] = True
    return rejected


def measured(setting: Setting, mine: np.ndarray, seed: int) -> dict[tuple[str, str], dict[str, np.ndarray]]:
    """Return judge and rule → what it and each baseline rejected of the rows `mine`, by query."""
    found = {}
    negatives, usable = Negatives(setting.negatives.table.filter(pa.array(mine))), setting.usable[mine]
    _, query = np.unique(setting.query[mine], return_inverse=True)
    false, scores = setting.false[mine], {what: values[mine] for what, values in setting.scores.items()}

    def by_query(rejected: np.ndarray) -> np.ndarray:
        """(queries, 2): hidden positives among the rejected rows, and rejected rows."""
        return np.stack([np.bincount(query, rejected & false), np.bincount(query, rejected)], axis=1)

    for name, judge in setting.judges(seed).items():
        rated = rate_negatives(
            setting.collection,
            negatives,
            judge,
            split="train",
            positives=setting.options.positives,
            validate="all",
            seed=seed,
        )
        for rule in RULES:
            try:
                selected = select_negatives(rated, by=rule, seed=seed)
            except InputError as error:
                print(f"{name} {rule}: {error}")
                continue
            kept = Negatives(selected.table.slice(0, len(usable)))  # the rows of rated positives come after
            reasons = np.array(kept.table["reason"].to_pylist(), object)
            rejected = usable & ~kept.keep & (reasons != "tells too little")
            count = int(rejected.sum())
            plain = {what: by_query(most(np.where(usable, of, -np.inf), count)) for what, of in scores.items()}
            found[name, rule] = {"rule": by_query(rejected), **plain}
    return found


def summary(
    draws: list[dict[str, np.ndarray]], hidden_rows: list[int], replicates: int, seed: int
) -> dict[str, object]:
    """Return precision and recall of a rule, and its precision less each baseline's, with 95 % intervals."""
    rng = np.random.default_rng(seed)
    names = list(draws[0])
    totals = np.empty((replicates, len(names), 2))
    for at in range(replicates):
        totals[at] = sum(
            np.stack([draws[d][name] for name in names])[
                :, rng.integers(len(draws[d]["rule"]), size=len(draws[d]["rule"]))
            ].sum(axis=1)
            for d in rng.integers(len(draws), size=len(draws))
        )
    exact = np.array([sum(draw[name].sum(axis=0) for draw in draws) for name in names])
    precision = exact[:, 0] / np.maximum(1, exact[:, 1])
    drawn = totals[:, :, 0] / np.maximum(1, totals[:, :, 1])

    def interval(values: np.ndarray) -> list[float]:
        return np.percentile(values, [2.5, 97.5]).round(4).tolist()

    return {
        "rejected_per_seed": round(float(exact[0, 1]) / len(draws), 1),
        "precision": round(float(precision[0]), 4),
        "precision_interval": interval(drawn[:, 0]),
        "recall": round(float(exact[0, 0]) / sum(hidden_rows), 4),
        "baselines": {
            name: {
                "precision": round(float(precision[at]), 4),
                "difference": round(float(precision[0] - precision[at]), 4),
                "difference_interval": interval(drawn[:, 0] - drawn[:, at]),
            }
            for at, name in enumerate(names)
            if at
        },
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("collection")
    parser.add_argument("--base", type=Path, required=True, help="transformer that the reranker begins with")
    parser.add_argument("--queries", type=int, default=400, help="whose known pairs the reranker learns from")
    parser.add_argument("--rated", type=int, default=200, help="of them, at random")
    parser.add_argument("--epochs", type=int, default=3, help="of the reranker")
    parser.add_argument("--seed", type=int, default=0, help="of queries and hidden positives")
    parser.add_argument("--top", type=int, default=50)
    parser.add_argument("--hide", type=float, default=0.3)
    parser.add_argument("--positives", type=int, default=8)
    parser.add_argument("--temperature", type=float, default=0.05)
    parser.add_argument("--replicates", type=int, default=1000)
    parser.add_argument("--vectors", type=Path, default=Path(tempfile.gettempdir()) / "foils-vectors")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument(
        "--keep", type=Path, default=Path(tempfile.gettempdir()) / "foils-rate-banking77", help="trained rerankers"
    )
    parser.add_argument("--json", type=Path, default=Path("benchmarks/results/rate_banking77.json"))
    options = parser.parse_args()
    options.keep.mkdir(parents=True, exist_ok=True)
    start = time.perf_counter()
    setting = Setting(options)
    print(f"{time.perf_counter() - start:.0f} s until judges and negatives are there", flush=True)
    divided = np.random.default_rng(options.seed).permutation(np.unique(setting.query))
    draws, false, rows = [], [], []
    for seed, chosen in enumerate(np.array_split(divided, options.seeds)):
        mine = np.isin(setting.query, chosen)
        draws.append(measured(setting, mine, seed))
        false.append(int(setting.false[mine].sum()))
        rows.append(int(setting.usable[mine].sum()))
        print(f"seed {seed}: {rows[-1]} rows, {false[-1]} hidden, {time.perf_counter() - start:.0f} s", flush=True)
    table = []
    for judge, rule in draws[0]:
        mine = [draw[judge, rule] for draw in draws if (judge, rule) in draw]
        if len(mine) < len(draws):
            continue
        table.append({"judge": judge, "rule": rule, **summary(mine, false, options.replicates, 0)})
        found = table[-1]
        print(
            f"{judge:27} {rule:10} rejects {found['rejected_per_seed']:8.0f}  precision {found['precision']:.3f}",
            end="",
        )
        for name in BASELINES:
            against = found["baselines"][name]
            low, high = against["difference_interval"]
            print(f"  | {name} {against['precision']:.3f} ({low:+.3f} to {high:+.3f})", end="")
        print()
    names = ("queries", "rated", "top", "hide", "positives", "temperature", "seeds", "seed", "epochs", "replicates")
    facts = {name: getattr(options, name) for name in names} | {"base": options.base.name}
    result = {**facts, "rows": rows, "false_negatives": false, "table": table}
    options.json.parent.mkdir(parents=True, exist_ok=True)
    options.json.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
