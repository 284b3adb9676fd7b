"""What a rule of selection sees, and what it says: arrays over the rows of a table of negatives."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from foils.runtime.errors import InputError

Floats = npt.NDArray[np.float64]
Rows = npt.NDArray[np.int64]
Marks = npt.NDArray[np.bool_]
Words = npt.NDArray[np.object_]

UNRATED = "unrated"


@dataclass(frozen=True)
class RatedRows:
    """Rated negatives.

    Attributes:
        query: (n,) int, the query of each row; equal numbers are one query.
        gap: (n,) e_positive − e_d in Elo points; NaN: unrated, which every rule rejects.
        elo: (n,) e_d in Elo points.
        elo_se: (n,) its standard error.
        preference: (n,) P(positive ≻ d), asked directly; NaN where it was not asked or has no answer.
        gap_se: (n,) standard error of the gap in Elo points; NaN where it is not known.

    Raises:
        InputError: lengths that differ, or preferences outside [0, 1].
    """

    query: Rows
    gap: Floats
    elo: Floats
    elo_se: Floats
    preference: Floats
    gap_se: Floats

    def __post_init__(self) -> None:
        shapes = {name: getattr(self, name).shape for name in ("query", "gap", "elo", "elo_se", "preference", "gap_se")}
        if len(set(shapes.values())) > 1 or len(self.gap.shape) != 1:
            raise InputError(f"rated rows need columns of one length; given {shapes}")
        if ((self.preference < 0) | (self.preference > 1)).any():
            raise InputError("preferences outside [0, 1]; they are probabilities, NaN where there is none")

    def __len__(self) -> int:
        return len(self.gap)

    @classmethod
    def of_gaps(
        cls,
        gap: npt.ArrayLike,
        *,
        query: npt.ArrayLike | None = None,
        elo: npt.ArrayLike | None = None,
        elo_se: npt.ArrayLike | None = None,
        preference: npt.ArrayLike | None = None,
        gap_se: npt.ArrayLike | None = None,
    ) -> RatedRows:
        """Return rows with these gaps; without the others: one query, a positive at 1500, the rest unknown."""
        gaps = np.asarray(gap, np.float64)
        unknown = np.full(len(gaps), np.nan)
        return cls(
            np.zeros(len(gaps), np.int64) if query is None else np.asarray(query, np.int64),
            gaps,
            1500 - gaps if elo is None else np.asarray(elo, np.float64),
            unknown if elo_se is None else np.asarray(elo_se, np.float64),
            unknown if preference is None else np.asarray(preference, np.float64),
            unknown if gap_se is None else np.asarray(gap_se, np.float64),
        )

    @property
    def rated(self) -> Marks:
        """(n,) which rows have a gap."""
        return np.isfinite(self.gap)

    @property
    def positive_elo(self) -> Floats:
        """(n,) the rating of each row's positive."""
        return self.elo + self.gap


@dataclass(frozen=True)
class GapMixture:
    """Normal components of gaps, by rising mean: `share`, `mean`, `sd`, (k,) each, and the `thresholds` between them.

    A threshold is where the component above becomes the likelier one, between the two means.
    """

    share: Floats
    mean: Floats
    sd: Floats
    thresholds: Floats

    def density(self, gap: Floats) -> Floats:
        """Return (n, k) share · N(gap; mean, sd)."""
        z = (np.asarray(gap, np.float64)[:, None] - self.mean) / self.sd
        return np.asarray(self.share * np.exp(-0.5 * z * z) / (np.sqrt(2 * np.pi) * self.sd))


@dataclass(frozen=True)
class Selection:
    """What a rule says of each row.

    Attributes:
        keep: (n,) whether to train on it.
        reason: (n,) why not; None where it is kept.
        weight: (n,) in [0, 1], 0 where it is not kept.
        tier: (n,) how hard it is.
        thresholds: name -> Elo points, where the rule found or used any.
        mixture: that the rule fitted, where it fitted one.
    """

    keep: Marks
    reason: Words
    weight: Floats
    tier: Words
    thresholds: Mapping[str, float] = field(default_factory=dict)
    mixture: GapMixture | None = None


def select(
    rows: RatedRows,
    rejections: Mapping[str, Marks],
    weight: npt.ArrayLike,
    tier: Words,
    thresholds: Mapping[str, float] | None = None,
) -> Selection:
    """Put a selection together.

    Args:
        rows: the rows.
        rejections: reason -> (n,) marks; the first that marks a row is its reason. Unrated rows come before all.
        weight: (n,) or one number; set to 0 where rejected.
        tier: (n,) words; set to `unrated` where there is no gap.
        thresholds: of the rule.
    """
    reason, keep = np.full(len(rows), None, object), np.ones(len(rows), bool)
    for why, marks in {UNRATED: ~rows.rated, **rejections}.items():
        reason[marks & keep] = why
        keep &= ~marks
    weights = np.where(keep, np.broadcast_to(np.asarray(weight, np.float64), len(rows)), 0.0)
    return Selection(keep, reason, weights, np.where(rows.rated, tier, UNRATED).astype(object), dict(thresholds or {}))


def rated_columns(table: pa.Table, *names: str) -> dict[str, Floats]:
    """Return columns of a rated table, (n,) each; NaN where it has none of this name.

    Raises:
        InputError: the table is not rated.
    """
    if missing := [name for name in ("elo", "elo_se", "gap") if name not in table.column_names]:
        raise InputError(f"the table has no {', '.join(missing)}; rate it first: foils rate")
    unknown = np.full(len(table), np.nan)
    return {
        name: np.asarray(table[name].to_numpy(), np.float64) if name in table.column_names else unknown
        for name in names
    }
