"""A plugin of pytest that runs other libraries' own tests against our functions: `make test-peers PEER=CHECKOUT`.

It puts functions of foils where the tests of sentence-transformers, choix, ranx or bm25s import theirs from, and small
models that need no download in the place of theirs. The environment variable FOILS_PEER says which library is tested.
"""

from __future__ import annotations

import os
import sys
import types
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

# sentence-transformers


def _drop_in() -> None:
    import sentence_transformers.util as util

    import foils

    util.mine_hard_negatives = util.hard_negatives.mine_hard_negatives = foils.mine_hard_negatives


@pytest.fixture(scope="session")
def static_retrieval_mrl_en_v1_model() -> Any:
    from foils.encode.models import load_model

    return load_model("static:all-MiniLM-L6-v2", device="cpu")


@pytest.fixture(scope="session")
def paraphrase_distilroberta_base_v1_model() -> Any:
    from foils.encode.models import load_model

    return load_model("all-MiniLM-L6-v2", device="cpu")


@pytest.fixture(scope="session")
def reranker_bert_tiny_model(tmp_path_factory: Any, queries: list[str], passages: list[str]) -> Any:
    from foils.encode.models import load_cross_encoder
    from tiny_models import tiny_cross_encoder

    place = tiny_cross_encoder(tmp_path_factory.mktemp("cross"), [*queries, *passages])
    return load_cross_encoder(place, device="cpu")


# choix


def _ratings() -> None:
    import choix
    from choix import lsr, mm, opt, utils

    from foils.rating import Pairs, bradley_terry
    from foils.rating.estimators import BRADLEY_TERRY

    def pairs_of(items: int, data: Any) -> Pairs:
        first, second = np.array([*data], np.int64).reshape(-1, 2).T
        return Pairs(np.array([0, items]), first, second)

    def pairwise(n_items: int, data: Any, alpha: float = 0.0, **_: Any) -> Any:
        """Its penalty is α‖e‖², which is a prior of variance 1/(2α)."""
        pairs = pairs_of(n_items, data)
        spread = (2 * alpha) ** -0.5 if alpha else np.inf
        return bradley_terry(pairs, np.ones(len(pairs)), prior_sd=spread).rating

    def dense(matrix: Any, **_: Any) -> Any:
        wins = np.argwhere(matrix > 0)
        repeated = np.repeat(wins, matrix[tuple(wins.T)].astype(int), axis=0)
        return pairwise(len(matrix), repeated)

    def likelihood(data: Any, params: Any) -> float:
        pairs = pairs_of(len(params), data)
        lead = np.asarray(params)[pairs.first] - np.asarray(params)[pairs.second]
        return float(BRADLEY_TERRY.terms(lead, np.ones(len(pairs))).value.sum())

    mm.mm_pairwise = lsr.ilsr_pairwise = opt.opt_pairwise = choix.opt_pairwise = pairwise
    lsr.ilsr_pairwise_dense, utils.log_likelihood_pairwise = dense, likelihood


# ranx


class _Run:
    """What ranx' tests ask of its `Run`, over ours."""

    def __init__(self, run: Any, name: str = "run") -> None:
        self.run, self.name, self.size = run, name, len(run)

    def __len__(self) -> int:
        return len(self.run)

    def __getitem__(self, query: str) -> dict[str, float]:
        return self.run[query]


def _runs() -> None:
    """Modules of the names that ranx' tests import."""
    from foils.data import Run
    from foils.data.run import fuse_runs, weighted_sum
    from foils.statistics.measures import measure_rankings

    def by_query(run: Any) -> dict[str, dict[str, float]]:
        rows: dict[str, dict[str, float]] = {}
        for row in run.table.to_pylist():
            rows.setdefault(row["query_id"], {})[row["doc_id"]] = row["score"]
        return rows

    def rrf(runs: Any, k: int = 60) -> _Run:
        fused = fuse_runs([Run.from_dict(each.run) for each in runs], method="rrf", k=k)
        return _Run(by_query(fused), "rrf")

    def normalised(run: Any) -> _Run:
        rows = [(query, each) for query, scores in run.run.items() for each in scores]
        numbers = np.array([[*run.run].index(query) for query, _ in rows])
        scores = np.array([[run.run[query][each]] for query, each in rows], float)
        made: dict[str, dict[str, float]] = {}
        for (query, each), value in zip(rows, weighted_sum(numbers, scores, [1.0]).tolist(), strict=True):
            made.setdefault(query, {})[each] = value
        return _Run(made)

    def measured(name: str) -> Callable[..., Any]:
        def values(truth: Any, ranked: Any, k: int = 0) -> Any:
            ids = [str(number) for number in range(len(truth))]
            qrels = {each: {str(d): int(grade) for d, grade in rows} for each, rows in zip(ids, truth, strict=True)}
            rankings = {each: [str(d) for d, _ in rows] for each, rows in zip(ids, ranked, strict=True)}
            measure = name if name == "Rprec" else f"{name}@{k or 1000}"
            return measure_rankings(rankings, qrels, [measure]).per_query[measure]

        return values

    def module(name: str, **names: Any) -> None:
        sys.modules[name] = made = types.ModuleType(name)
        made.__dict__.update(names)

    measures = {"hit_rate": "Success", "precision": "P", "average_precision": "AP", "reciprocal_rank": "RR"}
    measures |= {"r_precision": "Rprec", "recall": "R", "ndcg": "nDCG"}
    module("ranx.fusion", rrf=rrf)
    module("ranx.normalization", zmuv_norm=normalised, norm_switch=None)
    module("ranx.metrics", **{name: measured(ours) for name, ours in measures.items()})
    module("ranx", Run=_Run, Qrels=dict, metrics=sys.modules["ranx.metrics"])


# bm25s


def _bm25() -> None:
    import bm25s

    from foils.data import Collection
    from foils.mining import BM25Retriever

    def texts_of(tokens: Any) -> list[str]:
        """Texts of which our analyser makes these tokens again."""
        if hasattr(tokens, "ids"):
            tokens = (tokens.ids, tokens.vocab)
        if isinstance(tokens, tuple) and isinstance(tokens[1], dict):
            words = {number: word for word, number in tokens[1].items()}
            tokens = [[words[number] for number in ids if number in words] for ids in tokens[0]]
        return [" ".join(map(str, words)) for words in tokens]

    class BM25(bm25s.BM25):  # whose own search is not asked
        def index(self, corpus: Any, **options: Any) -> None:
            self.indexed = corpus
            super().index(corpus, **options)

        def retrieve(self, query_tokens: Any, k: int = 10, **_: Any) -> Any:
            documents = {f"d{at}": ("", text) for at, text in enumerate(texts_of(self.indexed))}
            queries = {f"q{at}": text or "-" for at, text in enumerate(texts_of(query_tokens))}
            collection = Collection.from_dicts("peer", documents, queries, {})
            rows, scores = BM25Retriever(collection).search(np.arange(len(queries)), k)
            return bm25s.Results(documents=rows, scores=scores)

    bm25s.BM25 = BM25


REDIRECTS = {"sentence-transformers": _drop_in, "choix": _ratings, "ranx": _runs, "bm25s": _bm25}


def pytest_configure(config: pytest.Config) -> None:
    """Put our functions in the place of those of the library that is tested."""
    if name := os.environ.get("FOILS_PEER"):
        REDIRECTS[name]()
