"""Do offsets put the ratings of different queries on one scale?

    python benchmarks/run.py rate_between COLLECTION [--queries 150] [--seeds 5]

The collection's judgements must be complete (BANKING77: every message of the query's intent). Each query has twenty
candidates, the nearest of the training's messages by a static encoder; half of the queries, drawn at random, lose every
relevant one. Ratings within a query cannot tell the two kinds apart: both have mean 1500. Judges: oracles that know
which candidate is relevant (a lead of 2 logits) and answer with a vote, or with a fraction with noise of 1 logit, and a
bi-encoder. Each is asked along a graph of degree 6 and between queries 0, 2, 6 or 12 times a query.

AUC over the pairs of a relevant and an irrelevant candidate of different queries: ½ is chance. Means over seeds, which
draw the queries, those that lose their answers, the graphs and the noise; ± the standard error over seeds.
"""

from __future__ import annotations

import os
import tempfile
from typing import Any

import numpy as np
from scipy.special import expit
from scipy.stats import rankdata

import foils
from common import argument_parser, save
from foils.data import Collection, Negatives, load_collection
from foils.data.negatives import negatives_table
from foils.encode import load_encoder
from foils.rating import BiEncoderJudge, Candidates, Judge

BETWEEN = (0, 2, 6, 12)


class Oracle:
    """Knows which candidates are relevant: a lead of 2 logits, as one vote or as a fraction with noise of 1 logit."""

    antisymmetric = True

    def __init__(self, relevant: set[tuple[str, str]], seed: int, *, votes: bool) -> None:
        self.relevant, self.rng, self.votes = relevant, np.random.default_rng(seed), votes
        self.name = self.fingerprint = "oracle, votes" if votes else "oracle, noisy"

    def judge(self, candidates: Candidates, pairs: Any) -> np.ndarray:
        """Return answers from the truth."""
        return self.between(candidates, pairs.first, pairs.second)

    def between(self, candidates: Candidates, first: np.ndarray, second: np.ndarray) -> np.ndarray:
        """Return answers from the truth about documents of any queries."""
        known = [
            [
                (candidates.query_ids[q], candidates.doc_ids[row].as_py()) in self.relevant
                for q, row in zip(candidates.query_of(rows), rows, strict=True)
            ]
            for rows in (first, second)
        ]
        lead = 2 * np.subtract(*np.array(known, float))
        if self.votes:
            return (self.rng.random(len(first)) < expit(lead)).astype(float)
        return expit(lead + self.rng.normal(0, 1, len(first)))


def made(collection: Collection, vectors: np.ndarray, queries: int, seed: int) -> tuple[Collection, Negatives, set]:
    """Unlabelled queries with candidates, half of them without a relevant one, and all relevant pairs."""
    rng, split = np.random.default_rng(seed), collection.splits[0]
    positives = collection.positives(split)
    places = rng.choice(len(positives), queries, replace=False)
    query_ids, doc_ids = (collection.queries["query_id"].to_pylist(), collection.documents["doc_id"].to_pylist())
    asked = load_encoder("static:all-MiniLM-L6-v2").encode(
        collection.query_texts(positives.query_rows[places]), "query"
    )
    rows, relevant = [], set()
    for at, (place, scores) in enumerate(zip(places, asked @ vectors.T, strict=True)):
        own = set(positives.of(int(place)).tolist())
        row = int(positives.query_rows[place])
        order = [int(d) for d in np.argsort(-scores, kind="stable")[:400] if d != collection.identical[row]]
        listed = [d for d in order if at % 2 or d not in own][:20]
        rows += [(query_ids[row], doc_ids[d], rank, float(scores[d])) for rank, d in enumerate(listed)]
        relevant |= {(query_ids[row], doc_ids[d]) for d in listed if d in own}
    queries_, documents, ranks, scores = zip(*rows, strict=True)
    unlabelled = Collection(collection.name, collection.documents, collection.queries, {})
    return unlabelled, Negatives(negatives_table(list(queries_), list(documents), "static", ranks, scores)), relevant


def auc(values: np.ndarray, relevant: np.ndarray, query: np.ndarray) -> float:
    """P(relevant above irrelevant) over pairs of different queries, ties counting half."""

    def wins(rows: np.ndarray) -> tuple[float, int]:
        positive = relevant[rows]
        ranks, count = rankdata(values[rows])[positive].sum(), int(positive.sum())
        return ranks - count * (count + 1) / 2, count * int((~positive).sum())

    parts = np.array([wins(np.flatnonzero(query == each)) for each in np.unique(query)])
    total = np.array(wins(np.arange(len(values)))) - parts.sum(0)
    return float(total[0] / total[1])


def measured(collection: Collection, vectors: np.ndarray, queries: int, seed: int) -> dict[str, dict[str, float]]:
    """AUC by judge and number of comparisons between queries."""
    unlabelled, table, relevant = made(collection, vectors, queries, seed)
    judges: list[Judge] = [
        Oracle(relevant, seed, votes=True),
        Oracle(relevant, seed, votes=False),
        BiEncoderJudge(load_encoder("static:all-MiniLM-L6-v2"), temperature=0.05),
    ]
    found: dict[str, dict[str, float]] = {}
    for judge in judges:
        for between in BETWEEN:
            settings: dict[str, Any] = {"between": between} if between else {}
            settings |= {"judge": judge, "split": "all", "seed": seed}
            with tempfile.TemporaryDirectory() as fresh:
                os.environ["FOILS_CACHE"] = fresh  # so that each rating has answers of its own
                rated = foils.rate(unlabelled, table, **settings).table
            values = rated["elo"].to_numpy() + (rated["offset"].to_numpy() if between else 0)
            ids = list(zip(rated["query_id"].to_pylist(), rated["doc_id"].to_pylist(), strict=True))
            codes = np.unique([q for q, _ in ids], return_inverse=True)[1]
            own = auc(values, np.array([pair in relevant for pair in ids]), codes)
            found.setdefault(judge.name, {})[str(between)] = own
    return found


def main() -> None:
    """Measure, print a table, write JSON."""
    parser = argument_parser(__doc__)
    parser.add_argument("collection")
    parser.add_argument("--queries", type=int, default=150)
    parser.add_argument("--seeds", type=int, default=5)
    args = parser.parse_args()
    collection = load_collection(args.collection)
    texts = collection.document_texts(np.arange(len(collection.documents)))
    vectors = load_encoder("static:all-MiniLM-L6-v2").encode(texts, "document")
    runs = [measured(collection, vectors, args.queries, seed) for seed in range(args.seeds)]
    rows = []
    for name in runs[0]:
        row = {"judge": name}
        for between in map(str, BETWEEN):
            values = [run[name][between] for run in runs]
            row[f"{between} between queries"] = (
                f"{np.mean(values):.3f} ± {np.std(values, ddof=1) / len(values) ** 0.5:.3f}"
            )
        rows.append(row)
    save("rate_between", {}, {f"AUC on {collection.name}, {args.seeds} seeds": rows})
