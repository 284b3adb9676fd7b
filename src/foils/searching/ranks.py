"""Measures from the ranks of the relevant documents alone, for thousands of rankings at once.

A ranking counts only through the places of its relevant documents, so a grid of settings need not write one run a
setting. Values are trec_eval's, as ir_measures gives them.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from foils.runtime.errors import InputError, UnknownNameError

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.integer]

UNREACHED = int(np.iinfo(np.int32).max)


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


def measure_ranks(name: str, ranks: Integers, relevant: Relevant) -> Floats:
    """Measure rankings of one query, given where its relevant documents stand.

    nDCG@c = Σ_{rank<c} grade/log2(rank + 2), over the same sum for the best order; AP@c = (1/m) Σ_{rank<c} (how many
    relevant up to there)/(rank + 1); RR@c = 1/(1 + least rank) where that is below c; R@c and P@c count ranks below
    c, over m and over c. Without @c: all ranks.

    Args:
        name: `nDCG`, `AP`, `RR`, `R` or `P`, with or without a cut-off (`P` and `R` need one).
        ranks: (…, m) 0-based rank of each relevant document, UNREACHED where it was not retrieved.
        relevant: the m relevant documents.

    Returns:
        (…) values in [0, 1].

    Raises:
        UnknownNameError: another measure.
        InputError: a malformed cut-off, or ranks that do not fit the documents.
    """
    family, cutoff = _parse(name)
    if ranks.shape[-1:] != relevant.rows.shape:
        raise InputError(f"expected ranks of {len(relevant.rows)} documents, found shape {ranks.shape}")
    return MEASURES[family](ranks, relevant.grades, cutoff)


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


def _parse(name: str) -> tuple[str, int]:
    family, at, cutoff = name.partition("@")
    if family not in MEASURES:
        raise UnknownNameError("measure", name, [*MEASURES, *(f"{known}@10" for known in MEASURES)])
    if (at and not re.fullmatch("[1-9][0-9]*", cutoff)) or (not at and family in "RP"):
        raise InputError(f"{name!r}: expected a whole number of at least 1 behind the @, as in {family}@10")
    return family, int(cutoff) if at else UNREACHED
