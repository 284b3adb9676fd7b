"""Judged pairs as the belief takes them: by people, who are right, and by programs, which err.

A program calls a relevant pair relevant with probability se, its sensitivity, and another one not relevant with
probability sp, its specificity. People's answers are taken for the truth; a program's answer a to a pair that nobody
else judged has the likelihood π·P(a | relevant) + (1 − π)·P(a | not). Neither se nor sp is known: se is as likely as
its answers to labelled positives make it; sp lies between 1 − se, no better than chance, and what its answers to
documents drawn at random make likely, which are easier to judge than mined negatives. Where people judged the same
pairs, these say the rest.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from scipy.special import betaincinv, expit, ndtr

from foils.data.collection import Rows
from foils.scoring.gates import Float64s

LATENT = 3  # unknowns of a program's errors
SUREST = 1e-4  # of 0 or 1, a rate of errors


@dataclass(frozen=True)
class Programs:
    """Programs that judged.

    Attributes:
        names: of P programs.
        positives: (P, 2) labelled positives that each called relevant, and not.
        random: (P, 2) documents drawn at random that each called not relevant, and relevant.
    """

    names: tuple[str, ...] = ()
    positives: Float64s = field(default_factory=lambda: np.zeros((0, 2)))
    random: Float64s = field(default_factory=lambda: np.zeros((0, 2)))

    def rates(self, latent: Float64s) -> tuple[Float64s, Float64s]:
        """Return sensitivities and specificities, (P,) each.

        Args:
            latent: (3·P,) standard normal before anything is known but the checks.
        """
        if not self.names:
            return np.zeros(0), np.zeros(0)
        u = ndtr(latent.reshape(len(self.names), LATENT))
        sensitivity = betaincinv(1 + self.positives[:, 0], 1 + self.positives[:, 1], u[:, 0])
        checked = self.random.sum(axis=1) > 0
        easiest = np.where(checked, betaincinv(1 + self.random[:, 0], 1 + self.random[:, 1], u[:, 1]), 1.0)
        specificity = 1 - sensitivity + np.maximum(0.0, easiest + sensitivity - 1) * u[:, 2]
        return np.clip(sensitivity, SUREST, 1 - SUREST), np.clip(specificity, SUREST, 1 - SUREST)


@dataclass(frozen=True)
class Labelled:
    """Judged negatives.

    Attributes:
        relevant: (n,) 1 where people call the negative relevant, so that it is false, 0 where they do not, NaN where
            only programs judged it.
        membership: (n, S) 1/(number of its sources) where the source has it, else 0.
        logs: (n,) log n_L/n_U.
        programs: that judged.
        answers: (n, P) 1, 0 or NaN, theirs.
    """

    relevant: Float64s
    membership: Float64s
    logs: Float64s
    programs: Programs = field(default_factory=Programs)
    answers: Float64s = field(default_factory=lambda: np.zeros((0, 0)))

    @classmethod
    def none(cls, sources: int) -> Labelled:
        """Return no label."""
        return cls(np.zeros(0), np.zeros((0, sources)), np.zeros(0))

    def select(self, rows: Rows) -> Labelled:
        """Return these labels."""
        answers = self.answers[rows] if self.programs.names else self.answers
        return Labelled(self.relevant[rows], self.membership[rows], self.logs[rows], self.programs, answers)

    def logits(self, lines: Float64s) -> Float64s:
        """Return the log odds of being false, (…, n), for c and β of each source, (…, S, 2): their sources' mean."""
        return logits_of(self.membership, self.logs, lines)

    def likelihood(self, lines: Float64s, sensitivity: Float64s, specificity: Float64s) -> float:
        """Return the log likelihood of the labels at c and β of each source, (S, 2), and the programs' rates (P,)."""
        if_relevant, if_not = self._evidence(sensitivity, specificity)
        logits = self.logits(lines)
        return float((np.logaddexp(logits + if_relevant, if_not) - np.logaddexp(0.0, logits)).sum())

    def probabilities(self, lines: Float64s, sensitivity: Float64s, specificity: Float64s) -> Float64s:
        """Return (n,) the probability of each judged pair to be relevant, its answers known."""
        if_relevant, if_not = self._evidence(sensitivity, specificity)
        return np.asarray(expit(self.logits(lines) + if_relevant - if_not))

    def _evidence(self, sensitivity: Float64s, specificity: Float64s) -> tuple[Float64s, Float64s]:
        """(n,) log likelihoods of a pair's answers if it is relevant, and if it is not."""
        if_relevant, if_not = self._by_people
        if not self.programs.names:
            return if_relevant, if_not
        yes, no = self._by_programs
        return (
            if_relevant + yes @ np.log(sensitivity) + no @ np.log1p(-sensitivity),
            if_not + yes @ np.log1p(-specificity) + no @ np.log(specificity),
        )

    @cached_property
    def _by_people(self) -> tuple[Float64s, Float64s]:
        return np.where(self.relevant == 0, -np.inf, 0.0), np.where(self.relevant == 1, -np.inf, 0.0)

    @cached_property
    def _by_programs(self) -> tuple[Float64s, Float64s]:
        return (self.answers == 1).astype(np.float64), (self.answers == 0).astype(np.float64)


def logits_of(membership: Float64s, logs: Float64s, lines: Float64s) -> Float64s:
    """Return (…, n) the logits of π of n pairs: the means of their sources'.

    Args:
        membership: (n, S) 1/(number of its sources) where the source has the pair, else 0.
        logs: (n,) log n_L/n_U.
        lines: (…, S, 2) c and β of each source.
    """
    return np.asarray(lines[..., 0] @ membership.T + lines[..., 1] @ membership.T * logs)
