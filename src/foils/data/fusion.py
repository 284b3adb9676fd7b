"""One ranking made of several: by reciprocal ranks, or by a weighted sum of scores that are made comparable.

Arrays hold n (query, document) pairs, those of a query together, and a column for each of m rankings.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from foils.data.pair_index import PairIndex, Rows
from foils.data.records import whole_json
from foils.data.run import Run
from foils.runtime.errors import FormatError, InputError, UnknownNameError
from foils.runtime.files import TUNED_FILE, write_json

FUSED_DEPTH = 1_000  # documents of each ranking that are put together, and more where more are asked for
RANKS = "rrf"  # in the place of a normalisation: by reciprocal ranks
DEPLOYED = ("both", "model", "bm25")
Scores = npt.NDArray[np.float64]
D = TypeVar("D")


def reciprocal_ranks(ranks: npt.NDArray[np.integer], *, k: float = 60.0) -> Scores:
    """Return RRF(d) = Σ_r 1/(k + rank_r(d)), (n,), ranks counted from 1, over the rankings r that have the pair.

    Args:
        ranks: (n, m), counted from 0; below 0 where a ranking does not have the pair.
        k: at least 0; more makes the tops of the lists count less.

    Raises:
        InputError: a negative k.

    Source: ANMI 2.0 eq. 33; Cormack, Clarke and Büttcher, SIGIR 2009.
    """
    if not k >= 0:
        raise InputError(f"k {k}; expected at least 0")
    known = ranks >= 0
    return np.asarray(np.where(known, 1.0 / (k + 1.0 + np.where(known, ranks, 0)), 0.0).sum(axis=1))


def weighted_sum(
    queries: Rows,
    scores: Scores,
    *,
    weights: Sequence[float] | None = None,
    normalisation: str = "min-max",
) -> Scores:
    """Return Σ_r w_r f(s_r), (n,), where f makes the scores of a query's list in r comparable.

    min-max: f(s) = (s − min s)/(max s − min s). theoretical-minimum: (s − least)/(max s − least), with least = 0 where
    no score of the ranking is below 0 (BM25), else −1 (cosines). z: (s − mean)/(standard deviation). Where all scores
    of a list are equal, min-max is 1 and z is 0. A pair that a ranking does not have counts as the lowest of the
    query's list there, with theoretical-minimum as `least`.

    Args:
        queries: (n,) number of each pair's query, equal numbers side by side.
        scores: (n, m), NaN where a ranking does not have the pair.
        weights: (m,) each at least 0, one above; None: 1 each.
        normalisation: min-max, theoretical-minimum or z.

    Raises:
        UnknownNameError: no such normalisation.
        InputError: weights below 0, or none above it.

    Source: Bruch, Gai and Ingber, "An analysis of fusion functions for hybrid retrieval" (TOIS 2023).
    """
    if normalisation not in NORMALISATIONS:
        raise UnknownNameError("normalisation", normalisation, NORMALISATIONS)
    values = np.ones(scores.shape[1]) if weights is None else np.asarray(weights, np.float64)
    if len(values) != scores.shape[1] or not (np.isfinite(values) & (values >= 0)).all() or not values.any():
        raise InputError(f"weights {values.tolist()}; expected {scores.shape[1]} of at least 0, one above")
    total = np.zeros(len(queries))
    for column, weight in enumerate(values):
        here = np.flatnonzero(~np.isnan(scores[:, column]))
        if not len(here):
            continue
        own = scores[here, column]
        starts = _starts(queries[here])
        normal = NORMALISATIONS[normalisation](own, starts)
        absent = np.zeros(int(queries.max()) + 1)
        absent[queries[here][starts]] = np.minimum.reduceat(normal, starts) if normalisation == "z" else 0.0
        of_column = absent[queries]
        of_column[here] = normal
        total += weight * of_column
    return total


def _min_max(values: Scores, starts: Rows) -> Scores:
    return _above(values, starts, _spread(np.minimum.reduceat(values, starts), starts, len(values)))


def _theoretical_minimum(values: Scores, starts: Rows) -> Scores:
    return _above(values, starts, np.full(len(values), 0.0 if values.min() >= 0 else -1.0))


def _above(values: Scores, starts: Rows, low: Scores) -> Scores:
    """How far values lie from the lowest to their list's highest; 1 where these are equal."""
    high = _spread(np.maximum.reduceat(values, starts), starts, len(values))
    return np.asarray(np.divide(values - low, high - low, out=np.ones(len(values)), where=high > low))


def _z(values: Scores, starts: Rows) -> Scores:
    counts = np.diff(np.r_[starts, len(values)])
    centred = values - np.repeat(np.add.reduceat(values, starts) / counts, counts)
    deviation = np.repeat(np.sqrt(np.add.reduceat(centred**2, starts) / counts), counts)
    return np.asarray(np.divide(centred, deviation, out=np.zeros(len(values)), where=deviation > 0))


NORMALISATIONS: dict[str, Callable[[Scores, Rows], Scores]] = {
    "min-max": _min_max,
    "theoretical-minimum": _theoretical_minimum,
    "z": _z,
}


def fuse_lists(
    queries: Rows,
    documents: Rows,
    origins: Rows,
    ranks: Rows,
    scores: Scores,
    *,
    method: str = "rrf",
    k: float = 60.0,
    weights: Sequence[float] | None = None,
    normalisation: str = "min-max",
) -> tuple[Rows, Scores]:
    """Fuse the rows of m ≥ 2 rankings, given one after the other.

    Args:
        queries: (n,) number of each row's query.
        documents: (n,) number of its document.
        origins: (n,) which ranking it is of, from 0.
        ranks: (n,) its rank, from 0.
        scores: (n,) its score.
        method: rrf (`reciprocal_ranks`), or weighted (`weighted_sum`).
        k: of rrf.
        weights: of weighted.
        normalisation: of weighted.

    Returns:
        (p,) a row of each distinct pair, query after query, best first, ties by the best rank in any ranking, then by
        the order of the rankings; and (p,) its fused score.

    Raises:
        UnknownNameError: no such method or normalisation.
    """
    if method not in ("rrf", "weighted"):
        raise UnknownNameError("way of fusing", method, ("rrf", "weighted"))
    index = PairIndex(queries, documents)
    first = index.distinct[np.argsort(queries[index.distinct], kind="stable")]
    pair = np.empty(len(queries), np.int64)
    pair[first] = np.arange(len(first))
    pair = pair[index.first]
    columns = int(origins.max(initial=0)) + 1
    own_ranks, own_scores = np.full((len(first), columns), -1), np.full((len(first), columns), np.nan)
    own_ranks[pair, origins], own_scores[pair, origins] = ranks, scores
    if method == "rrf":
        fused = reciprocal_ranks(own_ranks, k=k)
    else:
        of = None if weights is None else weights[:columns]
        fused = weighted_sum(queries[first], own_scores, weights=of, normalisation=normalisation)
    best = np.where(own_ranks < 0, np.iinfo(np.int64).max, own_ranks).min(axis=1)
    order = np.lexsort((best, -fused, queries[first]))
    return first[order], fused[order]


def fuse_runs(runs: Sequence[Run], *, name: str = "", **how: Any) -> Run:
    """Return the run that two or more runs make together.

    Args:
        runs: at least two.
        name: of the new run; empty: the names of the runs, joined.
        how: settings of `fuse_lists`.

    Raises:
        InputError: fewer than two runs.
        UnknownNameError: no such method or normalisation.
    """
    if len(runs) < 2:
        raise InputError(f"fusion needs at least two runs, not {len(runs)}")
    stacked = pa.concat_tables([run.table for run in runs])
    codes = [np.asarray(stacked[each].combine_chunks().dictionary_encode().indices, np.int64)
             for each in ("query_id", "doc_id")]  # fmt: skip
    origins = np.repeat(np.arange(len(runs)), [len(run.table) for run in runs])
    ranks, scores = stacked["rank"].to_numpy(), stacked["score"].to_numpy()
    rows, fused = fuse_lists(codes[0], codes[1], origins, ranks, scores, **how)
    chosen = stacked.take(pa.array(rows))
    return Run.ranked(chosen["query_id"], chosen["doc_id"], fused, name=name or "+".join(run.name for run in runs))


@dataclass(frozen=True)
class Fusion:
    """How BM25's scores and a model's are put together: what `foils tune` found, in a small file beside the model.

    Attributes:
        normalisation: of the scores, as `weighted_sum` takes it; rrf: by reciprocal ranks.
        weight: of the model's, in [0, 1]; BM25's is 1 less it.
        deploys: what was best: both, the model alone, or bm25 alone.
        base: the model, where no tuned one was better: a name, or a folder; empty: it lies in the folder `model`.
    """

    normalisation: str
    weight: float
    deploys: str = "both"
    base: str = ""

    @property
    def how(self) -> dict[str, Any]:
        """Settings of `fuse_lists` for BM25's ranking and the model's, in this order."""
        if self.normalisation == RANKS:
            return {"method": "rrf"}
        weights = (1 - self.weight, self.weight)
        return {"method": "weighted", "weights": weights, "normalisation": self.normalisation}

    def fuse(self, bm25: Mapping[D, float], model: Mapping[D, float]) -> list[tuple[D, float]]:
        """Put two lists of one query together, as a search engine returned them.

        Args:
            bm25: BM25's score of each of its best documents, 1,000 at most where the weight is to be worth what it was.
            model: the similarity of each of the model's best documents.

        Returns:
            Documents, best first, with the fused score; of one list alone where that is what is deployed. A document
            that one list lacks has the lowest score there.
        """
        lists = [sorted(each.items(), key=lambda item: -item[1]) for each in (bm25, model)]
        if self.deploys != "both":
            return lists[self.deploys == "model"]
        found = [document for of in lists for document, _ in of]
        numbers = {document: number for number, document in enumerate(dict.fromkeys(found))}
        rows, fused = fuse_lists(
            np.zeros(len(found), np.int64),
            np.array([numbers[document] for document in found], np.int64),
            np.repeat([0, 1], [len(bm25), len(model)]),
            np.concatenate([np.arange(len(of)) for of in lists]),
            np.array([score for of in lists for _, score in of]),
            **self.how,
        )
        return [(found[row], float(score)) for row, score in zip(rows, fused, strict=True)]

    def write(self, path: str | Path) -> None:
        """Write the file."""
        write_json(path, vars(self))

    @classmethod
    def of(cls, folder: Any) -> Fusion | None:
        """Read the fusion of a folder that `foils tune` wrote; None: it is something else.

        Raises:
            FormatError: the file is damaged.
        """
        if not isinstance(folder, (str, Path)) or not (path := Path(folder) / TUNED_FILE).is_file():
            return None
        try:
            read = whole_json(path)
            made = cls(
                str(read["normalisation"]), float(read["weight"]), str(read["deploys"]), str(read.get("base", ""))
            )
            known = made.normalisation in (*NORMALISATIONS, RANKS) and made.deploys in DEPLOYED
            if known and 0 <= made.weight <= 1:
                return made
            raise ValueError("another normalisation, weight or name")
        except (KeyError, TypeError, ValueError) as error:
            raise FormatError("no retriever as foils tune writes it; tune again", path) from error


def _starts(queries: Rows) -> Rows:
    """Where each stretch of equal neighbouring numbers begins."""
    return np.flatnonzero(np.r_[True, queries[1:] != queries[:-1]][: len(queries)])


def _spread(values: Scores, starts: Rows, length: int) -> Scores:
    return np.repeat(values, np.diff(np.r_[starts, length]))
