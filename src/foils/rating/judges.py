"""Who says which of two documents answers a query better.

A judge gives a probability for each pair, NaN where it failed: a failure is a missing judgement, never a tie and never
a vote. Another way of judging is another class with these four members. One whose answers depend on the question alone
may have a fifth, `prepared`: it may then be asked on several machines.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from foils.llm import digest
from foils.rating.candidates import Candidates
from foils.rating.pairs import Floats, Pairs
from foils.runtime.errors import InputError


class Judge(Protocol):
    """Prefers one of two documents.

    Attributes:
        name: what to call it in tables and reports.
        fingerprint: a digest of everything that decides its answers.
        antisymmetric: whether P(i ≻ j) = 1 − P(j ≻ i) by construction, so that one order need be asked.
    """

    name: str
    fingerprint: str
    antisymmetric: bool

    def judge(self, candidates: Candidates, pairs: Pairs) -> Floats:
        """Return (m,) P(first ≻ second | query) in [0, 1], the first shown first; NaN where it failed."""
        ...


def prepared(judge: Judge, candidates: Candidates, pairs: Pairs) -> Judge | None:
    """Return the judge ready to be asked about parts of these pairs, in any process; None where it cannot be.

    By its own `prepared(candidates, pairs)`, which does what would be done together for all pairs.
    """
    ready: Judge | None = judge.prepared(candidates, pairs) if hasattr(judge, "prepared") else None
    return ready


class EnsembleJudge:
    """The mean of several judges' probabilities, p = (1/|P|) Σ R_p(q, d_i, d_j) (eq. 29), R_p the mean of both orders.

    A judge that failed in one order of a pair is left out of that pair's mean; NaN where every judge is. `ask` asks
    the judges one after the other, and keeps the answers of each by themselves.

    Raises:
        InputError: no judge.
    """

    antisymmetric = True

    def __init__(self, judges: Sequence[Judge]) -> None:
        if not judges:
            raise InputError("an ensemble needs at least one judge")
        self.judges = tuple(judges)
        self.name = "+".join(judge.name for judge in judges)
        self.fingerprint = digest("ensemble", *(judge.fingerprint for judge in judges))

    def judge(self, candidates: Candidates, pairs: Pairs) -> Floats:
        """Return the mean of the judges' answers, each asked in both orders where order can matter, (m,)."""
        answers = np.stack([_both_orders(judge, candidates, pairs) for judge in self.judges])
        known = np.isfinite(answers)
        total, answered = np.where(known, answers, 0.0).sum(axis=0), known.sum(axis=0)
        return np.asarray(np.divide(total, answered, out=np.full(len(pairs), np.nan), where=answered > 0))


def _both_orders(judge: Judge, candidates: Candidates, pairs: Pairs) -> Floats:
    straight = judge.judge(candidates, pairs)
    return straight if judge.antisymmetric else (straight + 1 - judge.judge(candidates, pairs.turned)) / 2
