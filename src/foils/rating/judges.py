"""Who says which of two documents answers a query better.

A judge gives a probability for each pair, NaN where it failed: a failure is a missing judgement, never a tie and never
a vote. Another way of judging is another class with these four members. One whose answers depend on the question alone
may have a fifth, `prepared`: it may then be asked on several machines.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from foils.llm import WaitingError, digest
from foils.rating.agreement import judge_weights
from foils.rating.candidates import Candidates
from foils.rating.pairs import Floats, Pairs
from foils.runtime.errors import InputError

AUTO = "auto"
Weights = Sequence[float] | str | None


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


def settle(judge: Judge) -> None:
    """Have a judge, or those of an ensemble, finish what was begun for all questions together, by its own `settle`.

    Raises:
        WaitingError: questions wait for answers that come later, as a batch's.
    """
    waiting: list[WaitingError] = []
    for each in members(judge):
        try:
            if hasattr(each, "settle"):
                each.settle()
        except WaitingError as error:
            waiting.append(error)
    if waiting:
        raise WaitingError("; ".join(map(str, waiting)))


class EnsembleJudge:
    """The mean of several judges' probabilities, p = (1/|P|) Σ R_p(q, d_i, d_j) (eq. 29), R_p the mean of both orders.

    With weights it is Σ w_p R_p / Σ w_p. A judge that failed in one order of a pair is left out of that pair's mean;
    NaN where every judge is. `ask` asks the judges one after the other, and keeps the answers of each by themselves.

    Args:
        judges: at least one.
        weights: how much each counts, at least 0; or `auto`: as `judge_weights` finds from the answers at hand. None:
            all count alike.

    Raises:
        InputError: no judge, or weights that are not one of each, or all 0.
    """

    antisymmetric = True

    def __init__(self, judges: Sequence[Judge], weights: Weights = None) -> None:
        if not judges:
            raise InputError("an ensemble needs at least one judge")
        self.judges, self.weights = tuple(judges), weights
        if weights is not None and weights != AUTO:
            given = np.asarray(weights, float)
            if given.shape != (len(judges),) or not (np.isfinite(given) & (given >= 0)).all() or not given.any():
                raise InputError(
                    f"weights {tuple(weights)} of {len(judges)} judges; expected one of each, at least 0, not all 0"
                )
        self.name = "+".join(judge.name for judge in judges)
        weighed = () if weights is None else (tuple(weights),)
        self.fingerprint = digest("ensemble", *(judge.fingerprint for judge in judges), *weighed)

    def weights_of(self, answers: Floats) -> Floats:
        """Return (J,) how much each judge counts, given (J, m) what they prefer."""
        if self.weights is None:
            return np.ones(len(self.judges))
        return judge_weights(answers) if self.weights == AUTO else np.asarray(self.weights, np.float64)

    def mean(self, answers: Floats) -> Floats:
        """Return (m,) the judges' weighted mean of (J, m) answers, a missing one left out; NaN where all are."""
        weights = self.weights_of(answers)[:, None]
        weights = np.where(np.isfinite(answers), weights, 0.0)
        total, weight = (weights * np.where(np.isfinite(answers), answers, 0.0)).sum(axis=0), weights.sum(axis=0)
        return np.asarray(np.divide(total, weight, out=np.full(answers.shape[1], np.nan), where=weight > 0))

    def judge(self, candidates: Candidates, pairs: Pairs) -> Floats:
        """Return the mean of the judges' answers, each asked in both orders where order can matter, (m,)."""
        return self.mean(np.stack([_both_orders(judge, candidates, pairs) for judge in self.judges]))


def members(judge: Judge) -> tuple[Judge, ...]:
    """Return the judges of an ensemble, or the judge alone."""
    return judge.judges if isinstance(judge, EnsembleJudge) else (judge,)


def _both_orders(judge: Judge, candidates: Candidates, pairs: Pairs) -> Floats:
    straight = judge.judge(candidates, pairs)
    return straight if judge.antisymmetric else (straight + 1 - judge.judge(candidates, pairs.turned)) / 2
