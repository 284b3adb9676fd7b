"""Drawing negatives from a window of ranks instead of taking its top."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from foils.data.collection import Collection
from foils.mining.filters import PositiveScores
from foils.mining.pairs import Scores, TextPairs, Unjudged
from foils.runtime.errors import InputError


class Uniform(Unjudged):
    """Every candidate is as likely."""

    def log_weights(self, pairs: TextPairs) -> Scores:
        """Return 0 for each pair, (n,)."""
        return np.zeros(len(pairs))


@dataclass(frozen=True)
class SimANS:
    """Candidates near the positive's score are likely: log p(d) = −a (s(q, d) − s(q, d⁺) − b)², up to a constant.

    Args:
        positives: scores s(q, d⁺), on the candidates' scale.
        a: sharpness, at least 0, per squared unit of the score; 0 is uniform. The default is the authors' (for inner
            products, which differ by several units); cosines, which differ by less, want 100 and more.
        b: which distance from the positive is likeliest; negative: below it.
        against: the `minimum`, `mean` or `maximum` of the query's positives.

    Raises:
        InputError: a negative `a`, values that are not finite, or candidates without scores.

    Source: SimANS (Zhou et al. 2022), p_i ∝ exp(−a (s(q, d_i) − s(q, d̃⁺) − b)²), as also in the authors' code, whose
    defaults are a = 0.5, b = 0. Two differences of that code are not taken over: it adds b (its b = 1 for Natural
    Questions is −1 here, below the positive), and for MS MARCO passages it has exp(−3 |s − s⁺|). There the positive is
    one (the first, or a random one), and the pool has 100 ranks; here `against` and `--ranks` say it. Both draw without
    repetition, this one in a single step.
    """

    positives: PositiveScores
    a: float = 0.5
    b: float = 0.0
    against: str = "mean"
    compares = True

    def __post_init__(self) -> None:
        if not (self.a >= 0 and np.isfinite([self.a, self.b]).all()):
            raise InputError(f"a {self.a}, b {self.b}; expected a at least 0 and finite numbers")

    def log_weights(self, pairs: TextPairs) -> Scores:
        """Return −a (s − s⁺ − b)², (n,)."""
        if np.isnan(pairs.scores).any():
            raise InputError("candidates without a score; SimANS needs a scorer for this source")
        reference = self.positives.reference(pairs.query_rows, self.against)
        return np.asarray(-self.a * (pairs.scores - reference - self.b) ** 2)

    def with_judgements(self, collection: Collection) -> SimANS:
        """Return the draw by the positives that a collection with fewer judgements has."""
        return replace(self, positives=self.positives.with_judgements(collection))
