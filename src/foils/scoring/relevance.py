"""How likely an unlabelled pair is relevant, up to one constant: labelled pairs against unlabelled ones.

Labelled positives are taken for a sample of the relevant pairs that does not depend on what the pairs look like
(positive-unlabelled learning with labels selected completely at random, at the level of a pair of query and document).
With o unlabelled relevant pairs for each labelled one, and n_L(x), n_U(x) the labelled and the unlabelled pairs at x,

    π(x) = min(1, o · n_L(x)/n_U(x)).

x is the similarity to the query, the rank among the query's unlabelled documents and the resemblance to its labelled
positives, by the frozen encoder. Source: Elkan & Noto 2008; Bekker & Davis 2020, section 3.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from foils.runtime.errors import InputError
from foils.scoring.gates import Float64s
from foils.scoring.pair_features import STEPS, PairFeatures, Surveyed

if TYPE_CHECKING:
    from sklearn.ensemble import HistGradientBoostingClassifier

    _Half = tuple[HistGradientBoostingClassifier | None, float]

FITTED = 60_000  # unlabelled pairs that a classifier sees, at most
TREES = 60
LEAF = 60  # pairs of a leaf, at least
SMOOTHING = 5.0  # pairs that each step of ranks is smoothed by
TAILS = np.linspace(0.02, 0.5, 25)


@dataclass(frozen=True)
class Relevance:
    """The ratio n_L(x)/n_U(x), from classifiers that saw the other half of the queries each.

    Attributes:
        halves: the classifiers for even and for odd records (None: too few pairs, so that ranks alone count), and the
            logarithm of what their odds are short of n_L/n_U by.
        correction: (steps,) observed over expected labelled pairs, by step of ranks.
        most: upper bound of o.
        surveyed: how the pairs were drawn.
    """

    halves: tuple[_Half, _Half]
    correction: Float64s
    most: float
    surveyed: Surveyed

    @classmethod
    def fit(cls, surveyed: Surveyed, *, seed: int = 0) -> Relevance:
        """Fit a monotone gradient boosting on each half of the queries, and correct it by steps of ranks.

        A document nearer the query, of a better rank, or more like a labelled positive is never less likely relevant.
        The correction makes the expected number of labelled pairs in each step of ranks the observed one, smoothed by
        five: so a plain window of the encoder's own ranks gets what counting gives.

        Raises:
            InputError: fewer than two records.
        """
        if surveyed.records < 2:
            raise InputError("a single query with a positive; how likely negatives are false needs at least two")
        halves = (_fitted(surveyed, 1, seed), _fitted(surveyed, 0, seed))
        plain = cls(halves, np.ones(len(_steps(surveyed)) - 1), np.inf, surveyed)
        steps = len(plain.correction)
        of_labelled, of_unlabelled = (plain._step(part) for part in (surveyed.labelled, surveyed.unlabelled))
        seen = np.bincount(of_labelled, surveyed.labelled.count, steps)
        expected = np.bincount(
            of_unlabelled, surveyed.unlabelled.count * plain.ratio(surveyed.unlabelled), minlength=steps
        )
        corrected = cls(halves, (seen + SMOOTHING) / (expected + SMOOTHING), np.inf, surveyed)
        return cls(halves, corrected.correction, corrected.bound(), surveyed)

    def ratio(self, pairs: PairFeatures) -> Float64s:
        """Return (n,) n_L/n_U of each pair: its probability of being relevant is o times that, up to 1."""
        ratios = np.empty(len(pairs))
        for half in (0, 1):
            of = np.flatnonzero(pairs.record % 2 == half)
            if len(of):
                classifier, short = self.halves[half]
                logits = 0.0 if classifier is None else classifier.decision_function(self._columns(pairs.select(of)))
                # Threads sum the classifier's gradients in any order, which changes the last of 16 digits.
                ratios[of] = np.exp(np.round(np.clip(logits + short, -30, 30), 9))
        return ratios / self._stands_for(pairs) * self.correction[self._step(pairs)]

    def bound(self, confidence: float = 0.99) -> float:
        """Return the upper bound ō of o: nowhere may more unlabelled pairs be relevant than there are.

        For every region A of x, o·n_L(A) ≤ n_U(A). The regions are those whose ratio is above a threshold that 2–50 %
        of the labelled pairs exceed; n_U is taken at the upper and n_L at the lower end of its interval. An encoder
        that cannot tell positives from negatives gives a large bound, which says nothing.

        Source: Garg et al., NeurIPS 2021 (best bin estimation).
        """
        from scipy.stats import beta, gamma

        labelled, unlabelled = self.surveyed.labelled, self.surveyed.unlabelled
        of_labelled, of_unlabelled = np.sort(self.ratio(labelled)), self.ratio(unlabelled)
        order = np.argsort(-of_unlabelled, kind="stable")
        total, squares = (np.cumsum(unlabelled.count[order] ** power) for power in (1, 2))
        thresholds, each = np.quantile(of_labelled, 1 - TAILS), float(labelled.count.mean())
        among = np.searchsorted(-of_unlabelled[order], -thresholds, side="right")
        bounds = []
        for threshold, inside in zip(thresholds, among, strict=True):
            n_l = len(of_labelled) - int(np.searchsorted(of_labelled, threshold))
            fewest = float(beta.ppf(1 - confidence, n_l, len(of_labelled) - n_l + 1)) * len(of_labelled) * each
            size = squares[inside - 1] / total[inside - 1] if inside else 1.0
            drawn = total[inside - 1] / size if inside else 0.0
            bounds.append(float(gamma.ppf(confidence, drawn + 1)) * size / max(fewest, 1e-9))
        return min(bounds)

    def _columns(self, pairs: PairFeatures) -> Float64s:
        return _columns(pairs, self.surveyed)

    def _step(self, pairs: PairFeatures) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
        edges = _steps(self.surveyed)
        return np.clip(np.searchsorted(edges, pairs.rank, side="right") - 1, 0, len(edges) - 2)

    def _stands_for(self, pairs: PairFeatures) -> Float64s:
        """How many unlabelled pairs one that was drawn at such a rank stands for."""
        unlabelled = self.surveyed.unlabelled
        step = self._step(unlabelled)
        steps = len(self.correction)
        counts = np.bincount(step, unlabelled.count, steps) / np.maximum(np.bincount(step, minlength=steps), 1)
        return np.where(counts > 0, counts, 1.0)[self._step(pairs)]


def _steps(surveyed: Surveyed) -> Float64s:
    """The edges of the steps of ranks; those beyond the counted ones grow by 1.6."""
    edges = [float(edge) for edge in STEPS]
    scale = max(1.0, float(surveyed.unlabelled.count.min(initial=1.0)))
    edges = [edge * scale for edge in edges]
    return np.array([*edges, max(float(surveyed.documents), edges[-1] + 1) + 1])


def _fitted(surveyed: Surveyed, half: int, seed: int) -> _Half:
    """A classifier of labelled against drawn unlabelled pairs, of one half of the records."""
    from sklearn.ensemble import HistGradientBoostingClassifier

    rng = np.random.default_rng([seed, 5, half])
    columns, each = [], []
    for pairs in (surveyed.labelled, surveyed.unlabelled):
        rows = np.flatnonzero(pairs.record % 2 == half)
        rows = rows if len(rows) else np.arange(len(pairs))
        chosen = np.sort(rng.permutation(rows)[:FITTED])
        columns.append(_columns(pairs.select(chosen), surveyed))
        each.append(len(rows) / max(1, len(chosen)))
    if min(len(part) for part in columns) < 2 * LEAF:
        return None, 0.0
    rising = [1, -1, 1][: columns[0].shape[1]]
    classifier = HistGradientBoostingClassifier(
        max_iter=TREES, max_leaf_nodes=15, min_samples_leaf=LEAF, monotonic_cst=rising, l2_regularization=1.0,
        early_stopping=False, random_state=seed,
    )  # fmt: skip
    seen = np.concatenate(columns)
    seen[:, np.isnan(seen).all(axis=0)] = 0.0  # known in the other half alone; the classifier refuses an empty column
    fitted = classifier.fit(seen, np.repeat([1, 0], [len(part) for part in columns]))
    return fitted, float(np.log(each[0] / each[1]) + np.log(surveyed.labelled.count.mean()))


def _columns(pairs: PairFeatures, surveyed: Surveyed) -> Float64s:
    """(n, 3) what the classifiers see, or (n, 2) where no query has several positives to resemble."""
    columns = [pairs.similarity, np.log1p(pairs.rank)]
    several = bool(np.isfinite(surveyed.labelled.resemblance).any())
    return np.column_stack([*columns, pairs.resemblance] if several else columns)
