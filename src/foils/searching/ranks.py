"""Measures from the ranks of the relevant documents alone, for thousands of rankings at once.

A ranking counts only through the places of its relevant documents, so a grid of settings need not write one run a
setting. Values are trec_eval's, as ir_measures gives them; the usual measures are computed here, others by ir_measures.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from foils.runtime.errors import InputError, require
from foils.statistics import parse_measures

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.integer]

UNREACHED = int(np.iinfo(np.int32).max)
AT_ONCE = 256  # rankings that ir_measures is given at once


@dataclass(frozen=True)
class Relevant:
    """The relevant documents of one query.

    Attributes:
        rows: (m,) their positions, m ≥ 1, each once.
        grades: (m,) integers of at least 1.
    """

    rows: npt.NDArray[np.int64]
    grades: npt.NDArray[np.int64]

    def __post_init__(self) -> None:
        if self.rows.shape != self.grades.shape or self.rows.ndim != 1 or len(set(self.rows)) != len(self.rows):
            raise InputError(f"expected each relevant document once, with a grade; found {self.rows}, {self.grades}")
        if not len(self.rows) or (self.grades < 1).any():
            raise InputError("expected at least one relevant document, of grade 1 or more")


def measure_ranks(name: str, ranks: Integers, relevant: Relevant, *, retrieved: int | None = None) -> Floats:
    """Measure rankings of one query, given where its relevant documents stand.

    nDCG@c = Σ_{rank<c} grade/log2(rank + 2), over the same sum for the best order; AP@c = (1/m) Σ_{rank<c} (how many
    relevant up to there)/(rank + 1); RR@c = 1/(1 + least rank) where that is below c; R@c and P@c count ranks below
    c, over m and over c. Without @c: all ranks. `AP(rel=2)` takes grades of 2 and more for relevant; so do RR, R and P.
    A query that has no such document scores 0. ir_measures computes any other measure, ranking by ranking.

    Args:
        name: one of ir_measures' names, as `nDCG@10` or `AP(rel=2)`; not one that counts documents judged not relevant.
        ranks: (…, m) 0-based rank of each relevant document, UNREACHED where it was not retrieved.
        relevant: the m relevant documents.
        retrieved: how many documents each ranking holds; None: no more than down to its last relevant one.

    Returns:
        (…) values.

    Raises:
        InputError: what `check_measure` refuses, or ranks that do not fit the documents.
        MissingExtraError: a measure that is ir_measures' alone, which is not installed.
    """
    if ranks.shape[-1:] != relevant.rows.shape:
        raise InputError(f"expected ranks of {len(relevant.rows)} documents, found shape {ranks.shape}")
    own = _OWN.fullmatch(name)
    if own is None:
        return _by_ir_measures(check_measure(name), ranks, relevant.grades, retrieved)
    counted = relevant.grades >= int(own["least"] or 1)
    if not counted.any():
        return np.zeros(ranks.shape[:-1])
    family = MEASURES[own["graded"] or own["family"]]
    return family(ranks[..., counted], relevant.grades[counted], int(own["cutoff"] or UNREACHED))


def check_measure(name: str) -> Any:
    """Return ir_measures' measure of a name; None for one that is computed here.

    Raises:
        InputError: a name that ir_measures does not know or cannot compute, or a measure that depends on documents
            judged not relevant, as Bpref or Judged do: of rankings, the ranks of relevant documents are kept alone.
        MissingExtraError: ir-measures is not installed.
    """
    if _OWN.fullmatch(name):
        return None
    (measure,) = parse_measures([name])
    run, judged = {"1": {"other": 2.0, "relevant": 1.0}}, {"relevant": 1}
    ir_measures = require("ir_measures", "evaluate")
    without, with_others = (
        ir_measures.calc_aggregate([measure], {"1": qrels}, run) for qrels in (judged, {**judged, "other": 0})
    )
    if without != with_others:
        raise InputError(
            f"{name} depends on documents that are judged not relevant; here rankings are measured by the ranks of "
            "their relevant documents: take another measure, or evaluate a run"
        )
    return measure


def _by_ir_measures(measure: Any, ranks: Integers, grades: npt.NDArray[np.int64], retrieved: int | None) -> Floats:
    """Values of rankings (…, m), each distinct one measured once."""
    ir_measures = require("ir_measures", "evaluate")
    distinct, place = np.unique(ranks.reshape(-1, len(grades)), axis=0, return_inverse=True)
    qrels = {f"r{at}": int(grade) for at, grade in enumerate(grades)}
    values = np.zeros(len(distinct))
    for start in range(0, len(distinct), AT_ONCE):
        part = distinct[start : start + AT_ONCE]
        run = {str(at): of for at, row in enumerate(part, start) if (of := _scores(row, retrieved))}
        for metric in ir_measures.iter_calc([measure], dict.fromkeys(run, qrels), run):
            values[int(metric.query_id)] = metric.value
    return values[place].reshape(ranks.shape[:-1])


def _scores(ranks: Integers, retrieved: int | None) -> dict[str, float]:
    """One ranking as document → score, documents that are not relevant in the places between."""
    reached = {int(rank): f"r{at}" for at, rank in enumerate(ranks) if rank < UNREACHED}
    depth = max(reached, default=-1) + 1 if retrieved is None else retrieved
    return {reached.get(rank, f"n{rank}"): -float(rank) for rank in range(depth)}


def _ndcg(ranks: Integers, grades: npt.NDArray[np.int64], cutoff: int) -> Floats:
    best = np.sort(grades)[::-1][:cutoff]
    ideal = float(np.sum(best / np.log2(np.arange(len(best)) + 2.0)))
    gains = np.where(ranks < cutoff, grades / np.log2(ranks + 2.0), 0.0)
    return np.asarray(gains.sum(axis=-1) / ideal)


def _ap(ranks: Integers, grades: npt.NDArray[np.int64], cutoff: int) -> Floats:
    ordered = np.sort(ranks, axis=-1)
    precision = np.arange(1, len(grades) + 1) / (ordered + 1.0)
    return np.asarray(np.where(ordered < cutoff, precision, 0.0).sum(axis=-1) / len(grades))


def _rr(ranks: Integers, grades: npt.NDArray[np.int64], cutoff: int) -> Floats:
    first = ranks.min(axis=-1)
    return np.where(first < cutoff, 1.0 / (first + 1.0), 0.0)


def _recall(ranks: Integers, grades: npt.NDArray[np.int64], cutoff: int) -> Floats:
    return np.asarray((ranks < cutoff).sum(axis=-1) / len(grades))


def _precision(ranks: Integers, grades: npt.NDArray[np.int64], cutoff: int) -> Floats:
    return np.asarray((ranks < cutoff).sum(axis=-1) / cutoff)


MEASURES: dict[str, Callable[[Integers, npt.NDArray[np.int64], int], Floats]] = {
    "nDCG": _ndcg,
    "AP": _ap,
    "RR": _rr,
    "R": _recall,
    "P": _precision,
}
_OWN = re.compile(
    r"(?:(?P<graded>nDCG)|(?P<family>AP|RR|R(?=.*@)|P(?=.*@))(?:\(rel=(?P<least>[1-9][0-9]*)\))?)"
    r"(?:@(?P<cutoff>[1-9][0-9]*))?"
)
