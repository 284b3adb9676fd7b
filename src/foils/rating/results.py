"""What a rating returns: the table with `elo, elo_se, gap, gap_se`, and what was asked for it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from foils.data.formats import NegativesResult
from foils.llm import ModelUse
from foils.rating.between import Offsets
from foils.rating.candidates import Candidates
from foils.rating.pairs import Floats, Pairs
from foils.runtime.errors import InputError
from foils.runtime.files import without_nan, write_text
from foils.runtime.results import Table, number

if TYPE_CHECKING:
    from foils.rating.distil import Distilled

PERCENTILES = (10, 25, 50, 75, 90)
ENOUGH, CIRCLES = 20, 0.125  # triples, and the share of them in a circle, that cast doubt: half of what chance gives
LITTLE = 0.05  # share of the deviance that ratings explain


@dataclass(frozen=True)
class JudgeSummary:
    """One of several judges.

    Attributes:
        name: of the judge.
        missing: pairs without its judgement.
        position_bias: see `Judgements`.
        agreement: how often it prefers what the mean of the others prefers.
        sureness: factor on its logits that makes it as sure as the others bear out (`sureness`); below 1: too sure.
        weight: how much it counts.
    """

    name: str
    missing: int
    position_bias: float
    agreement: float
    sureness: float
    weight: float

    def row(self) -> tuple[str, str]:
        """Return it as a row of a table."""
        facts = [
            f"agrees with the others {number(self.agreement, 2)}",
            f"position bias {number(self.position_bias)}",
            f"sureness {number(self.sureness, 2)}",
            f"weight {number(self.weight, 2)}",
            f"missing {self.missing:,}",
        ]
        return f"judge {self.name}", ", ".join(facts)


@dataclass(frozen=True)
class RatingSummary:
    """What a rating did.

    Attributes:
        queries: that were rated.
        without_positive: of them without a labelled positive, whose gaps are against the candidate rated best.
        comparisons: asked for, the direct ones with the positive included.
        missing: of them without a judgement.
        position_bias: see `Judgements`; 0 for a judge that has none by construction.
        position_bias_interval: its 95 % interval, whole queries being what was drawn; NaN for fewer than two.
        unrated: negatives without a gap: none of their judgements, or none of their reference's, succeeded, or the two
            are in parts of the graph that never met.
        skipped: reason -> rows that were not rated at all.
        connectivity: mean algebraic connectivity of the graphs of judged pairs.
        diameter: the largest; inf where a graph fell apart.
        standard_error: median, in Elo points.
        spread: standard deviation of the prior on ratings, in Elo points: that of the ratings themselves, as the
            answers have it, unless it was given.
        dispersion: variance of an answer over that of one yes or no, in (0, 1]; 1 where the prior was given.
        deviance_explained: share of the answers' deviance from coin tosses that the ratings explain.
        intransitive: triples of candidates whose three answers go round in a circle.
        triples: of how many; a judge that tosses coins has a quarter of them in a circle.
        judges: each of several judges; none for a single one.
        alpha: Krippendorff's α of several judges; NaN for a single one.
        between: offsets of queries, where there were comparisons between them.
    """

    queries: int
    without_positive: int
    comparisons: int
    missing: int
    position_bias: float
    position_bias_interval: tuple[float, float]
    unrated: int
    skipped: dict[str, int]
    connectivity: float
    diameter: float
    standard_error: float
    spread: float
    dispersion: float
    deviance_explained: float
    intransitive: int
    triples: int
    judges: Sequence[JudgeSummary] = ()
    alpha: float = float("nan")
    between: Offsets | None = None

    @property
    def doubts(self) -> list[str]:
        """What speaks against the ratings, in words."""
        doubts = []
        if self.triples >= ENOUGH and self.intransitive >= CIRCLES * self.triples:
            doubts.append(
                f"{self._circles()} triples of candidates go round in a circle (coin tosses: 25 %), so that no rating "
                "orders them; the judge guesses, or goes by more than one thing"
            )
        if self.deviance_explained < LITTLE:
            doubts.append(
                f"the ratings explain {100 * self.deviance_explained:.1f} % of the answers' deviance from coin tosses: "
                "they hold little but chance; ask a better judge, or about more pairs"
            )
        return doubts

    def _circles(self) -> str:
        share = f" ({100 * self.intransitive / self.triples:.1f} %)" if self.triples else ""
        return f"{self.intransitive:,} of {self.triples:,}{share}"

    def rows(self) -> list[tuple[str, str]]:
        """Return it as rows of a table."""
        return [
            ("queries", f"{self.queries:,}"),
            *([("of them without a positive", f"{self.without_positive:,}")] if self.without_positive else []),
            ("comparisons", f"{self.comparisons:,}"),
            ("judgements missing", f"{self.missing:,}"),
            ("position bias", self._bias()),
            ("negatives without a gap", f"{self.unrated:,}"),
            *((f"not rated: {why}", f"{count:,}") for why, count in self.skipped.items()),
            ("algebraic connectivity, mean", number(self.connectivity, 2)),
            ("diameter, largest", number(self.diameter, 0)),
            ("standard error, median, Elo", number(self.standard_error, 0)),
            ("spread of ratings (prior), Elo", number(self.spread, 0)),
            ("dispersion of answers", number(self.dispersion, 2)),
            ("deviance explained", number(self.deviance_explained, 2)),
            ("intransitive triples", self._circles()),
            *([("Krippendorff's α of the judges", number(self.alpha, 2))] if self.judges else []),
            *(judge.row() for judge in self.judges),
            *(self.between.rows() if self.between is not None else []),
        ]

    def _bias(self) -> str:
        low, high = self.position_bias_interval
        if max(abs(self.position_bias), abs(low), abs(high)) < 1e-9:
            return f"{number(self.position_bias)} (none by construction)"
        return f"{number(self.position_bias)} (95 % interval {number(low)} to {number(high)})"


@dataclass(frozen=True, kw_only=True)
class Rated(NegativesResult):
    """A table with `elo, elo_se, gap, gap_se`, and every pair that was asked about.

    Attributes:
        source: name of the table that was rated.
        summary: what the rating did.
        candidates: that were compared.
        pairs: that were asked about.
        preference: (m,) of each of them P(first ≻ second); NaN: no answer.
        models: name -> use, of the language models among the judges.
        distilled: the judge that was trained on the answers, or None.
        folder: where that one is.
    """

    source: str
    summary: RatingSummary
    candidates: Candidates = field(repr=False)
    pairs: Pairs = field(repr=False)
    preference: Floats = field(repr=False)
    models: Mapping[str, ModelUse]
    distilled: Distilled | None = field(default=None, repr=False)
    folder: str = ""

    def rows(self) -> list[tuple[str, str]]:
        """Return what the rating did, percentiles of the gaps, and what language models used."""
        gap = self.table["gap"].to_numpy()
        known = gap[np.isfinite(gap)]
        values = np.percentile(known, PERCENTILES) if len(known) else np.full(len(PERCENTILES), np.nan)
        percentiles = f"gap, percentiles {' '.join(map(str, PERCENTILES))}, Elo"
        return [
            *self.summary.rows(),
            (percentiles, "  ".join(number(value, 0) for value in values)),
            *(row for name, use in self.models.items() for row in use.rows(name)),
        ]

    def tables(self) -> list[Table]:
        """Return what the rating did, and how the distilled judge does."""
        rating = Table(self.title, ("", "value"), self.rows())
        if self.distilled is None:
            return [rating]
        return [rating, Table(f"distilled → {self.folder}", ("", "value"), self.distilled.rows())]

    def to_json(self) -> dict[str, Any]:
        """Return the settings, what the rating did, what language models used, and how the distilled judge does."""
        more: dict[str, Any] = {}
        if self.models:
            more["language_models"] = {name: use.usage.to_json(use.price) for name, use in self.models.items()}
        if self.distilled is not None:
            more["distilled"] = self.distilled.to_json()
        settings, seed = self.provenance["settings"], self.provenance["seed"]
        summary = asdict(self.summary)
        summary["between"] = None if self.summary.between is None else self.summary.between.to_json()
        facts = {"source": self.source, "settings": settings, "seed": seed, **summary, **more}
        return dict(without_nan(facts))

    def report(self, path: str | Path) -> None:
        """Write a page: gaps, their errors, signal and risk, and texts to read.

        Raises:
            InputError: fewer than two rows are rated.
        """
        from foils.selection.page import gap_report

        if self.collection is None:
            raise InputError("the texts of this table are not known; name the collection that was rated")
        bias = "Position bias: mean of P(first shown wins) − ½, with its 95 % interval over queries."
        rating, seed = replace(self.tables()[0], title="", caption=bias), int(self.provenance["seed"])
        write_text(path, gap_report(self.collection, self, split=self.split, rating=rating, seed=seed))
