"""What is believed of the shares of false negatives: one unknown for all sources, one for each, and labels.

o, the number of unlabelled relevant pairs for each labelled one, is anywhere in [0, ō], evenly. Source s has
φ_s = min(.985, o · r_s · e^δ_s): r_s is its rate, recaptured positives for each negative where its table says so, else
the mean of n_L/n_U over its negatives; δ_s ~ N(0, σ_s²) is what the rate may be wrong by. How its false negatives
spread over its negatives is told in `foils.scoring.odds`; a negative of several sources has the mean of their logits.
Labels change the belief by Bayes' rule (`foils.scoring.answers`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import ndtr

from foils.scoring.answers import LATENT, Labelled
from foils.scoring.gates import Float64s
from foils.scoring.odds import MOST, Odds, lines

LEAST_ODDS = 1e-12
LADDER = np.linspace(-9.0, 0.0, 61)  # log o less log ō
THINNED = 6
WARM_UP = 300
SHRINKINGS = 60


@dataclass(frozen=True)
class Evidence:
    """What is known of one source's false negatives before labels.

    Attributes:
        ratios: (k,) n_L/n_U of each of its negatives.
        rate: r, recaptured positives for each negative; NaN where its table does not say.
        spread: σ, standard deviation of the logarithm of what the rate may be wrong by.
        slope: b, how much of what n_L/n_U tells of other pairs it tells of the source's.
    """

    ratios: Float64s
    rate: float
    spread: float
    slope: float = 1.0


@dataclass(frozen=True)
class Draws:
    """What may be true.

    Attributes:
        unlabelled: (D,) o. `shares`: (D, S) φ of each source. `lines`: (D, S, 2) c and β of each source.
        sensitivity: (D, P) of the programs that judged. `specificity`: (D, P).
        some_false: probability that at least one judged negative is relevant; 1 where a person called one so.
    """

    unlabelled: Float64s
    shares: Float64s
    lines: Float64s
    sensitivity: Float64s
    specificity: Float64s
    some_false: float

    def judges(self, labelled: Labelled, confidence: float) -> dict[str, dict[str, float]]:
        """Return how often each program that judged is right: sensitivity and specificity, with their intervals."""
        judges = {}
        for at, name in enumerate(labelled.programs.names):
            own = np.isfinite(labelled.answers[:, at])
            facts: dict[str, float] = {
                "judged": int(own.sum()),
                "judged_by_people_too": int((own & np.isfinite(labelled.relevant)).sum()),
            }
            judges[name] = facts
            for rate, values in (("sensitivity", self.sensitivity), ("specificity", self.specificity)):
                low, high = np.quantile(values[:, at], [(1 - confidence) / 2, (1 + confidence) / 2])
                facts |= {rate: float(values[:, at].mean()), f"{rate}_low": float(low), f"{rate}_high": float(high)}
        return judges


class Belief:
    """The belief on some sources.

    Args:
        evidence: of each source, with at least one negative.
        most: ō, at least 0.
        correlation: (S, S) of what the sources' rates are wrong by; None: they have nothing in common.
    """

    def __init__(self, evidence: Sequence[Evidence], most: float, correlation: Float64s | None = None) -> None:
        self.most = max(float(most), 1e-9)
        self.odds = [Odds(np.log(np.maximum(each.ratios, LEAST_ODDS)), each.slope) for each in evidence]
        spreads = np.array([each.spread for each in evidence])
        values, vectors = np.linalg.eigh(np.eye(len(spreads)) if correlation is None else correlation)
        self._root = spreads[:, None] * vectors * np.sqrt(np.maximum(values, 0.0))
        self._constants = np.array([odds.constants for odds in self.odds])
        self._slopes = np.array([odds.slope for odds in self.odds])
        scales = self.most * np.exp(LADDER)
        self._rates = np.array(
            [
                [np.minimum(MOST / scale, each.ratios).mean() if np.isnan(each.rate) else each.rate for scale in scales]
                for each in evidence
            ]
        )

    def shares(self, unlabelled: float, errors: Float64s | None = None) -> Float64s:
        """Return (S,) φ at o = `unlabelled` and δ = `errors` (None: 0)."""
        at = (np.log(max(unlabelled, 1e-300) / self.most) - LADDER[0]) / (LADDER[1] - LADDER[0])
        index = min(max(int(at), 0), len(LADDER) - 2)
        part = min(max(at - index, 0.0), 1.0)
        rates = (1 - part) * self._rates[:, index] + part * self._rates[:, index + 1]
        return np.asarray(np.minimum(MOST, unlabelled * rates * (1.0 if errors is None else np.exp(errors))))

    def lines(self, shares: Float64s) -> Float64s:
        """Return (…, S, 2) c and β with which the mean of π over each source's negatives is its share, (…, S)."""
        return lines(shares, self._constants, self._slopes)

    def draw(self, labelled: Labelled, rng: np.random.Generator, *, draws: int = 600) -> Draws:
        """Draw from the belief after these labels, by elliptical slice sampling.

        Source: Murray, Adams & MacKay, AISTATS 2010. o = ō·Φ(z) with z ~ N(0, 1) is even over [0, ō].
        """
        errors, programs = len(self._root), LATENT * len(labelled.programs.names)
        state = np.zeros(1 + errors + programs)
        value = self._likelihood(state, labelled)
        states = []
        for step in range(WARM_UP + draws * THINNED):
            direction = rng.standard_normal(len(state))
            direction[1 : 1 + errors] = self._root @ direction[1 : 1 + errors]
            state, value = self._slice(state, value, direction, labelled, rng)
            if step >= WARM_UP and (step - WARM_UP) % THINNED == 0:
                states.append(state)
        unlabelled = self.most * ndtr([each[0] for each in states])
        shares = np.array([self.shares(o, each) for o, each in zip(unlabelled, self._errors(states), strict=True)])
        of_shares = self.lines(shares)
        rates = [labelled.programs.rates(each[1 + len(self.odds) :]) for each in states]
        sensitivity, specificity = (np.array(column) for column in zip(*rates, strict=True))
        none_false = [
            float(np.prod(1 - labelled.probabilities(*each)))
            for each in zip(of_shares, sensitivity, specificity, strict=True)
        ]
        return Draws(unlabelled, shares, of_shares, sensitivity, specificity, 1 - float(np.mean(none_false)))

    def _errors(self, states: Sequence[Float64s]) -> list[Float64s]:
        return [state[1 : 1 + len(self.odds)] for state in states]

    def _likelihood(self, state: Float64s, labelled: Labelled) -> float:
        if not len(labelled.relevant):
            return 0.0
        shares = self.shares(self.most * float(ndtr(state[0])), self._errors([state])[0])
        rates = labelled.programs.rates(state[1 + len(self.odds) :])
        return labelled.likelihood(self.lines(shares), *rates)

    def _slice(
        self, state: Float64s, value: float, direction: Float64s, labelled: Labelled, rng: np.random.Generator
    ) -> tuple[Float64s, float]:
        level = value + np.log(rng.random())
        angle = rng.uniform(0.0, 2 * np.pi)
        low, high = angle - 2 * np.pi, angle
        for _ in range(SHRINKINGS):
            proposed = state * np.cos(angle) + direction * np.sin(angle)
            reached = self._likelihood(proposed, labelled)
            if reached > level:
                return proposed, reached
            low, high = (angle, high) if angle < 0 else (low, angle)
            angle = rng.uniform(low, high)
        return state, value
