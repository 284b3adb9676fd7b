"""Ways of searching that experiments compare, and what they score."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from foils.searching.dimensions import Floats, Mask
from foils.searching.settings import DimensionSettings

Kind = Literal["fixed", "honest", "oracle"]


@dataclass(frozen=True)
class System:
    """One way of searching and what it scores.

    Attributes:
        name: as `PRF Eclipse`.
        kind: `fixed`, `honest` or `oracle`.
        per_query: measure → (n,) values; for honest and oracle, settings were chosen by that same measure.
        settings: measure → the settings behind it, one a fold; empty for fixed ones.
        kept: mean share of dimensions kept, where one mask belongs to all measures.
        short: measure → (n,) queries that kept every dimension for want of feedback or of an answer; empty: none did.
        whole: measure → (n,) queries that kept every dimension, for whatever reason; empty: none did.
    """

    name: str
    kind: Kind
    per_query: dict[str, Floats]
    settings: dict[str, list[DimensionSettings]] = field(default_factory=dict)
    kept: float | None = None
    short: dict[str, Mask] = field(default_factory=dict)
    whole: dict[str, Mask] = field(default_factory=dict)

    @property
    def title(self) -> str:
        """The name, with the kind where settings were chosen."""
        return self.name if self.kind == "fixed" else f"{self.name} ({self.kind})"

    @property
    def means(self) -> dict[str, float]:
        """Mean of each measure over the queries."""
        return {measure: float(values.mean()) for measure, values in self.per_query.items()}

    @property
    def short_counts(self) -> dict[str, int]:
        """How many queries, for each measure, kept every dimension for want of feedback or of an answer."""
        return {measure: int(self.short[measure].sum()) if self.short else 0 for measure in self.per_query}

    @property
    def whole_counts(self) -> dict[str, int]:
        """How many queries, for each measure, kept every dimension for whatever reason."""
        return {measure: int(self.whole[measure].sum()) if self.whole else 0 for measure in self.per_query}


def whole_range(systems: Sequence[System], measures: Sequence[str], queries: int) -> str:
    """Return how many queries kept every dimension and, in brackets, how many for want of feedback: `5 (3) of 225`.

    Where systems or measures differ, because other settings were chosen, the fewest and the most: `0–5 (0–3) of 225`.
    """
    counts = ([of.whole_counts for of in systems], [of.short_counts for of in systems])
    whole, short = (_range([of[measure] for of in each for measure in measures]) for each in counts)
    return f"{whole} ({short}) of {queries:,}"


def _range(counts: Sequence[int]) -> str:
    least, most = min(counts), max(counts)
    return f"{most:,}" if least == most else f"{least:,}–{most:,}"


def deviation(values: Sequence[float]) -> float:
    """Return the standard deviation, n − 1; 0 of one value."""
    return float(np.std(values, ddof=1)) if len(values) > 1 else 0.0
