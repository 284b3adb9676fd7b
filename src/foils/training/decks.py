"""Rows dealt out in random order, tier by tier."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from foils.runtime.errors import InputError

Rows = NDArray[np.int64]


class Decks:
    """A deck of rows for each tier; when one is used up, all its rows are shuffled and dealt anew.

    At any time two rows of a tier were dealt equally often, or one of them once more; and no hand has a row twice.

    Args:
        rows: of each tier, at least one.

    Raises:
        InputError: a tier without rows.
    """

    def __init__(self, rows: Sequence[Rows]) -> None:
        if not all(map(len, rows)):
            raise InputError(f"tiers of {[len(tier) for tier in rows]} rows; expected at least one row in each")
        self.rows = list(rows)
        self.left: list[Rows] = [np.zeros(0, np.int64) for _ in rows]

    def deal(self, tier: int, size: int, *, rng: np.random.Generator) -> Rows:
        """Return the next `size` rows of a tier, or all its rows where it has fewer."""
        hand, self.left[tier] = np.split(self.left[tier], [size])
        wanted = min(size, len(self.rows[tier])) - len(hand)
        if wanted > 0:
            shuffled = rng.permutation(self.rows[tier])
            more = shuffled[~np.isin(shuffled, hand)][:wanted]
            self.left[tier] = shuffled[~np.isin(shuffled, more)]
            hand = np.concatenate([hand, more])
        return hand
