"""What labels say of shares of unlabelled answers: one unknown for all sources, one for each, and judges'.

o, the number of unlabelled relevant pairs for each labelled one, has log o ~ N(log ō − 1.5, 2²):
the bound ō is what resemblance makes likely, and no cap, since labelling may prefer what looks
likely; then labels win. Source s has a share near o·r_s·e^δ_s, δ_s ~ N(0, 0.6²) being what its rate
r_s may be wrong by; its negative j is an answer with

    logit π_j = c_s + log(n_L/n_U)_j + (β − 1)·(log(n_L/n_U)_j − m_s),   β ~ N(1, 0.5²),

m_s the mean at that share: among a source's negatives likeness may say more or less than among all
pairs. A pair of several sources has the mean of their logits. A program calls a relevant pair
relevant with probability se, and another one not relevant with probability sp; people's answers are
taken for the truth. se is as likely as the program's answers to labelled positives make it; sp lies
between 1 − se and what its answers to random documents make likely, which are easier to judge than
mined negatives.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from scipy.special import betaincinv, expit, ndtr

from foils.data.collection import Rows, pair_keys
from foils.data.labels import CHECKS, Labels, LabelsLike
from foils.data.negatives import Negatives, negatives_table
from foils.deciding.benefit import DRAWS, MOST, Odds
from foils.runtime.errors import InputError
from foils.scoring.gates import Float64s
from foils.scoring.triplets import Records, triplets_of_rows

BELOW, SPREAD = 1.5, 2.0  # of log o: mean below log ō, standard deviation
RATES = 0.6  # standard deviation of the logarithm of what a source's rate may be wrong by
SLOPES = 0.5  # standard deviation of β
THINNED, WARM_UP, SHRINKINGS = 6, 300, 60
LATENT = 3  # unknowns of a program's errors
SUREST = 1e-4  # of 0 or 1, a rate of errors


@dataclass(frozen=True)
class Judged:
    """Judged triplets.

    Attributes:
        triplets: (j,) ascending, each once.
        relevant: (j,) 1 where people call the negative relevant, 0 where they do not, NaN where
            only programs judged.
        programs: names of the P programs that judged.
        answers: (j, P) theirs, 1, 0 or NaN.
        checks: (P, 2, 2) their answers to labelled positives and to random documents: right, wrong.
    """

    triplets: Rows
    relevant: Float64s
    programs: tuple[str, ...]
    answers: Float64s
    checks: Float64s

    @classmethod
    def of(cls, labels: LabelsLike | None, records: Records) -> Judged | None:
        """Return what labels say of the records' triplets; None without labels.

        Raises:
            InputError: none is judged, or none is of these records.
        """
        if labels is None:
            return None
        labels = Labels.of(labels)
        names = labels.programs()
        table = labels.table
        table = table.filter(pa.array([kind not in CHECKS for kind in table["sources"].to_pylist()]))
        codes = pair_keys(table).combine_chunks().dictionary_encode().indices
        pairs = table.take(pa.array(np.unique(np.asarray(codes), return_index=True)[1]))
        # people's first
        answers = np.stack([labels.match(pairs, judge=judge)[0] for judge in (None, *names)], axis=1)
        anybody = np.isfinite(answers).any(axis=1)
        if not anybody.any():
            raise InputError("labels without a judgement; judge some pairs (foils label), or leave them out")
        zeros = np.zeros(len(pairs), np.int64)
        negatives = negatives_table(pairs["query_id"], pairs["doc_id"], "labels", zeros, zeros)
        triplet = triplets_of_rows(Negatives(negatives.append_column("text", pairs["text"])), records)
        known = np.flatnonzero((triplet >= 0) & anybody)
        if not len(known):
            raise InputError("none of the judged pairs is a negative of these sources; give their labels")
        triplets, first = np.unique(triplet[known], return_index=True)
        answers = answers[known[first]]
        checks = np.array([labels.checks(name) for name in names], np.float64).reshape(-1, 2, 2)
        checks[:, :, 1] -= checks[:, :, 0]
        return cls(triplets, answers[:, 0], tuple(names), answers[:, 1:], checks)

    def rates(self, latent: Float64s) -> tuple[Float64s, Float64s]:
        """Return (P,) sensitivities and specificities; `latent`, (3·P,), standard normal before any answer."""
        u = ndtr(latent.reshape(len(self.programs), LATENT))
        (right, wrong), (spared, accused) = (self.checks[:, at].T for at in (0, 1))
        sensitivity = betaincinv(1 + right, 1 + wrong, u[:, 0])
        easiest = np.where(spared + accused > 0, betaincinv(1 + spared, 1 + accused, u[:, 1]), 1.0)
        specificity = 1 - sensitivity + np.maximum(0.0, easiest + sensitivity - 1) * u[:, 2]
        return np.clip(sensitivity, SUREST, 1 - SUREST), np.clip(specificity, SUREST, 1 - SUREST)

    def evidence(self, latent: Float64s) -> tuple[Float64s, Float64s]:
        """(j,) log likelihoods of a pair's answers if it is relevant, and if it is not."""
        if_relevant = np.where(self.relevant == 0, -np.inf, 0.0)
        if_not = np.where(self.relevant == 1, -np.inf, 0.0)
        if self.programs:
            sensitivity, specificity = self.rates(latent)
            yes, no = (self.answers == 1).astype(np.float64), (self.answers == 0).astype(np.float64)
            if_relevant = if_relevant + yes @ np.log(sensitivity) + no @ np.log1p(-sensitivity)
            if_not = if_not + yes @ np.log1p(-specificity) + no @ np.log(specificity)
        return if_relevant, if_not


@dataclass(frozen=True)
class Source:
    """What is known of one source's unlabelled answers before labels.

    Attributes:
        triplets: (k,) places of its negatives among the triplets, ascending.
        odds: of them.
        rate: r, recaptured positives for each negative; NaN where its table does not say: then the
            mean of n_L/n_U.
        spread: standard deviation of the logarithm of what the rate may be wrong by.
        most: bound of o, above which more of its negatives would be answers than there are.
    """

    triplets: Rows
    odds: Odds
    rate: float
    spread: float
    most: float = math.inf

    def share(self, unlabelled: float) -> float:
        """Return φ at o = `unlabelled`, at most .985."""
        if np.isnan(self.rate):
            return float(np.minimum(MOST, unlabelled * np.exp(self.odds.logs)).mean())
        return min(MOST, unlabelled * self.rate)


@dataclass(frozen=True)
class Posterior:
    """What may be true after labels.

    Attributes:
        lines: (D, S, 2) a and β of each source.
        seen_false: (S,) probability that one of the source's judged negatives is an answer.
    """

    lines: Float64s
    seen_false: Float64s


def posterior(
    judged: Judged, sources: list[Source], logs: Float64s, most: float, rng: np.random.Generator
) -> Posterior:
    """Draw from the belief after labels, by elliptical slice sampling (Murray, Adams & MacKay, AISTATS 2010).

    Args:
        judged: the labels.
        sources: of which they are negatives.
        logs: (m,) log n_L/n_U of each triplet.
        most: ō.
        rng: of the draws.
    """
    has = np.column_stack([np.isin(judged.triplets, source.triplets) for source in sources]).astype(np.float64)
    share_of = has / has.sum(axis=1, keepdims=True)
    own_logs = logs[judged.triplets]
    steps = np.linspace(-5, 5, 81)
    ladder = np.exp(np.log(most) - BELOW + SPREAD * steps)
    log_shares = np.log([[max(source.share(o), 1e-12) for source in sources] for o in ladder])

    def lines(state: Float64s) -> Float64s:
        slope = 1 + SLOPES * float(np.clip(state[1], -2, 4))
        at = np.array([np.interp(state[0], steps, column) for column in log_shares.T])
        shares = np.minimum(MOST, np.exp(at + RATES * state[2 : 2 + len(sources)]))
        each = zip(sources, shares.tolist(), strict=True)
        return np.array([source.odds.line(share, slope) for source, share in each])

    def logits(of: Float64s) -> Float64s:
        return np.asarray(share_of @ of[:, 0] + share_of @ of[:, 1] * own_logs)

    def likelihood(state: Float64s) -> float:
        if_relevant, if_not = judged.evidence(state[2 + len(sources) :])
        z = logits(lines(state))
        return float((np.logaddexp(z + if_relevant, if_not) - np.logaddexp(0.0, z)).sum())

    state = np.zeros(2 + len(sources) + LATENT * len(judged.programs))
    value, drawn, none_false = likelihood(state), [], np.zeros(len(sources))
    for step in range(WARM_UP + DRAWS * THINNED):
        state, value = _slice(state, value, likelihood, rng)
        if step >= WARM_UP and (step - WARM_UP) % THINNED == 0:
            drawn.append(lines(state))
            if_relevant, if_not = judged.evidence(state[2 + len(sources) :])
            spared = np.log1p(-np.minimum(expit(logits(drawn[-1]) + if_relevant - if_not), 1 - 1e-12))
            none_false += np.exp(spared @ (share_of > 0)) / DRAWS
    return Posterior(np.array(drawn), 1 - none_false)


def _slice(state: Float64s, value: float, likelihood: Any, rng: np.random.Generator) -> tuple[Float64s, float]:
    direction = rng.standard_normal(len(state))
    level = value + np.log(rng.random())
    angle = rng.uniform(0.0, 2 * np.pi)
    low, high = angle - 2 * np.pi, angle
    for _ in range(SHRINKINGS):
        proposed = state * np.cos(angle) + direction * np.sin(angle)
        if (reached := likelihood(proposed)) > level:
            return proposed, reached
        low, high = (angle, high) if angle < 0 else (low, angle)
        angle = rng.uniform(low, high)
    return state, value
