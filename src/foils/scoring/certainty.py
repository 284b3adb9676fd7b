"""Scoring in growing samples until the ranking is certain, with intervals that hold at every look together.

Looking again and again at a growing sample and stopping when two sources seem apart claims certainty too often. Here
the critical value of every look is found by simulating the whole path of looks for all pairs of targets at once
(a Gaussian multiplier bootstrap of the records' influence). A look at n of N records may have spent √(n/N) of the
error, so that the probability that any pair is ever wrongly called apart is 1 − confidence at most, up to how normal
sums of that many records are; early looks, where they are least so, spend little.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from foils.data.collection import Collection, Rows
from foils.data.negatives import Negatives
from foils.encode.encoder import Encoder
from foils.encode.similarity import check_temperature_of
from foils.encode.vectors import VectorStore
from foils.runtime.errors import InputError
from foils.runtime.parallel import spread_blocks
from foils.runtime.results import Table
from foils.scoring.gates import Float64s, gated
from foils.scoring.information import Moments
from foils.scoring.measure import BLOCK, Geometry, information_matrix
from foils.scoring.prepared import Measured, prepare
from foils.scoring.ranking import score_prepared
from foils.scoring.records import CONTROL, Target
from foils.scoring.results import Scores
from foils.scoring.settings import ScoreSettings

FIRST = 128  # records of the first look; each later one has twice as many
FEWEST = 16  # records of a target in a look before it can be told apart from another
PATHS = 4_000  # simulated


@dataclass(frozen=True)
class Look:
    """One look at a sample.

    Attributes:
        records: in the sample. `critical`: value that |difference|/error must pass.
        ranking: of the targets, best first.
        undecided: neighbours in the ranking that are not apart yet, and targets without a record so far, each with
            the last of the ranking.
    """

    records: int
    critical: float
    ranking: tuple[str, ...]
    undecided: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Certainty:
    """A scoring that stopped when its ranking was certain, or when there were no more records.

    Attributes:
        scores: of the last sample. `looks`: in order. `certain`: whether the ranking is, at `confidence`.
        available: records that there were.
    """

    scores: Scores
    looks: tuple[Look, ...]
    certain: bool
    confidence: float
    available: int

    def to_json(self) -> dict[str, object]:
        """Return how the ranking became certain."""
        return {
            "confidence": self.confidence,
            "certain": self.certain,
            "records_needed": self.looks[-1].records,
            "records_available": self.available,
            "looks": [vars(look) | {"ranking": list(look.ranking)} for look in self.looks],
        }

    def table(self) -> Table:
        """Return which sources were not apart yet at each look."""
        rows = [
            (
                f"{look.records:,} records",
                f"{look.critical:.2f}",
                "; ".join(f"{a} / {b}" for a, b in look.undecided) or "–",
            )
            for look in self.looks
        ]
        verdict = "certain" if self.certain else "not certain"
        used = self.looks[-1].records
        title = f"Ranking {verdict} at {100 * self.confidence:g} % with {used:,} of {self.available:,} records"
        return Table(title, ["look", "critical value", "not yet apart"], rows)


class Boundary:
    """Critical values for differences of several targets, looked at as records come in.

    Args:
        records: N, that the last look may have.
        confidence: that no pair is wrongly called apart at any look.
        rng: of the simulated paths.
        paths: how many.
    """

    def __init__(self, records: int, confidence: float, rng: np.random.Generator, *, paths: int = PATHS) -> None:
        if not 0 < confidence < 1:
            raise InputError(f"confidence {confidence}; expected a share between 0 and 1")
        self._error, self._records = 1 - confidence, records
        self._rng, self._paths = rng, paths
        self._sums: Float64s | None = None
        self._inside = np.ones(paths, bool)
        self._seen = 0

    def next(self, influence: Float64s) -> float:
        """Return the critical value of the next look.

        Args:
            influence: (n, pairs) influence of every record so far on each pair's difference, mean about 0; the records
                of earlier looks come first, in the same order.

        Returns:
            c such that, under no difference at all, the largest |Σ influence|/√(n·variance) over the pairs passes c at
            this look, for the first time, with the probability that this look may spend.
        """
        fresh = influence[self._seen :]
        sums = np.zeros((self._paths, influence.shape[1])) if self._sums is None else self._sums
        for start in range(0, len(fresh), 2_048):
            part = fresh[start : start + 2_048]
            sums = sums + self._rng.standard_normal((self._paths, len(part))) @ part
        self._sums, self._seen = sums, len(influence)
        spread = influence.std(axis=0) * np.sqrt(len(influence))
        largest = np.abs(sums / np.where(spread > 0, spread, np.inf)).max(axis=1)
        spent = self._error * np.sqrt(min(1.0, len(influence) / self._records))
        allowed = round(spent * self._paths) - int((~self._inside).sum())
        ranked = np.sort(largest[self._inside])[::-1]
        critical = float(ranked[min(max(allowed, 0), len(ranked) - 1)])
        self._inside &= largest <= critical
        return critical


def score_until(
    collection: Collection,
    sources: Mapping[str, Negatives],
    encoder: Encoder,
    store: VectorStore,
    settings: ScoreSettings | None = None,
    *,
    confidence: float = 0.95,
    first: int = FIRST,
) -> Certainty:
    """Score samples of 128, 256, 512, … records until every two neighbours in the ranking are apart.

    The records come in a seeded random order; the vectors of records that are never looked at are never computed
    (their texts are tokenised, since idf is counted over all sources). The claim is about the sources' scores over
    records like these, each source on those that it covers; one with fewer than 16 records in a look is not told
    apart. The random control is scored, but not ranked.

    Args:
        collection: documents, queries, judgements.
        sources: name -> negatives.
        encoder: that training starts from.
        store: of vectors.
        settings: as in `score_sources`; `sample` bounds the number of records.
        confidence: of the ranking as a whole, at all looks together.
        first: records of the first look, at least 16.

    Raises:
        InputError: confidence or `first` out of range, or what `score_sources` raises.
    """
    settings = settings or ScoreSettings()
    check_temperature_of(getattr(encoder, "similarity", "cosine"), settings.temperature)
    if first < 16:
        raise InputError(f"a first look at {first} records; expected at least 16")
    prepared = prepare(collection, sources, **settings.preparation())
    order = np.random.default_rng([settings.seed, 7]).permutation(len(prepared.records))
    sizes = sample_sizes(first, len(order))
    targets = [target for target in prepared.records.targets(settings.hybrids) if target.name != CONTROL]
    boundary = Boundary(len(order), confidence, np.random.default_rng([settings.seed, 8]))
    looks: list[Look] = []
    for size in sizes:
        part = prepared.subset(np.sort(order[:size]))
        scores = score_prepared(part, encoder, store, replace(settings, replicates=0))
        place = np.argsort(np.argsort(order[:size]))
        influence = record_influence(scores.measured, targets, settings)[place]
        looks.append(_look(scores, targets, influence, boundary))
        if not looks[-1].undecided:
            break
    scores = score_prepared(part, encoder, store, settings)
    return Certainty(scores, tuple(looks), not looks[-1].undecided, confidence, len(order))


def record_influence(measured: Measured, targets: list[Target], settings: ScoreSettings) -> Float64s:
    """Return the influence of each record on each target's score, (T, targets), mean 0; 0 where it has no triplet.

    With I = S/N, S = Σ w·r·rᵀ, the score's derivative gives T/N·[tr(H·A_t)/λ − K_t·tr(H·I)/λ], H = (Id + I/λ)⁻¹,
    A_t and K_t the record's part of S and N: the infinitesimal jackknife, whose variance over T is the score's.
    """
    records, geometry = measured.records, measured.geometry
    weights = gated(measured.similarities, settings.temperature)
    found = np.zeros((len(records), len(targets)))
    for index, target in enumerate(targets):
        rows = np.flatnonzero(target.of(records.members))
        if not len(rows):
            continue
        moments = Moments(information_matrix(geometry, weights, rows), len(rows)).information()
        regularized = np.eye(len(moments)) + moments / settings.regularization
        solved = np.linalg.inv(regularized).astype(np.float64) / settings.regularization
        amount = np.bincount(
            records.record[rows], weights[rows] * _quadratic(geometry, rows, solved), minlength=len(records)
        )
        count = np.bincount(records.record[rows], minlength=len(records))
        mean = float(np.einsum("ij,ij->", solved, moments))
        found[:, index] = len(records) / len(rows) * (amount - count * mean)
    return found


def _look(scores: Scores, targets: list[Target], influence: Float64s, boundary: Boundary) -> Look:
    value = {score.name: score.eci_sem for score in scores.sources}
    enough = {score.name for score in scores.sources if score.records >= FEWEST}
    names = [target.name for target in targets]
    pairs = [(a, b) for a in range(len(names)) for b in range(a + 1, len(names))]
    ranking = tuple(scores.ranking)
    if not pairs:
        return Look(len(influence), 0.0, ranking, ())
    differences = np.stack([influence[:, a] - influence[:, b] for a, b in pairs], axis=1)
    critical = boundary.next(differences)
    errors = differences.std(axis=0) / np.sqrt(len(influence))
    apart = {
        frozenset((names[a], names[b])): bool(abs(value[names[a]] - value[names[b]]) > critical * error)
        for (a, b), error in zip(pairs, errors, strict=True)
        if names[a] in enough and names[b] in enough
    }
    undecided = tuple((a, b) for a, b in pairwise(ranking) if not apart.get(frozenset((a, b)), False))
    undecided += tuple((ranking[-1], name) for name in names if name not in value)
    return Look(len(influence), critical, ranking, undecided)


def sample_sizes(first: int, available: int) -> list[int]:
    """Return how many records each look has: the first, twice, four times as many, …, and all of them."""
    sizes = []
    size = first
    while size < available:
        sizes.append(size)
        size *= 2
    return [*sizes, available]


def _quadratic(geometry: Geometry, rows: Rows, matrix: Float64s) -> Float64s:
    """rᵀ·matrix·r of the triplets at `rows`, (k,); 0 where positive and negative coincide."""

    def forms(part: Rows) -> Float64s:
        residuals = geometry.documents.take(geometry.positive[geometry.record[part]])
        residuals -= geometry.documents.take(geometry.document[part])
        squared = np.einsum("nd,nd->n", residuals, residuals)
        value = np.einsum("nd,nd->n", residuals @ matrix.astype(residuals.dtype), residuals)
        return np.asarray(np.divide(value, squared, out=np.zeros(len(part)), where=squared > 0), np.float64)

    parts = (rows[start : start + BLOCK] for start in range(0, len(rows), BLOCK))
    return np.concatenate([np.zeros(0), *spread_blocks(forms, parts)])
