"""How many labelled positives a part of a table's ranks would return as negatives, were they not known.

Where the table says at which ranks planted positives came back, n_w of them (weighted, as effective counts) in a
window w, the positives that the window returns have the expectation λ_w, with a relative standard deviation:

    λ_w = (1/σ² + n_w)/(1/σ² + μ_w) · μ_w,   1/√(1/σ² + n_w).

μ_w is what the pairs lead to expect of the n that came back anywhere: n times the window's share of the sum of n_L/n_U;
σ = 0.6 is what that may be wrong by. It is the gamma prior of a Poisson mean.
"""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from foils.data.collection import Collection
from foils.data.negatives import Negatives
from foils.data.recapture import Recapture, Returned
from foils.scoring.evidence import UNCOUNTED


@dataclass(frozen=True)
class Recaptured:
    """What a table says of the positives that it would return.

    Attributes:
        negatives: the table.
        whole: of all its ranks, with at least one returned.
        returned: planted positives that came back; none where the table does not say.
    """

    negatives: Negatives
    whole: Recapture
    returned: Returned

    @classmethod
    def of(cls, negatives: Negatives, collection: Collection) -> Recaptured | None:
        """Read it from a table's provenance; None where it does not say how many would return, or none would."""
        whole = Recapture.of_table(negatives)
        if whole is None or not whole.returned:
            return None
        return cls(negatives, whole, Returned.of(negatives, collection))

    def window(self, first: int, end: int, likelihood: float) -> Negatives:
        """Return the kept rows of these ranks, with the recapture that they would have had they been mined alone.

        Args:
            first: rank.
            end: rank after the last.
            likelihood: mean n_L/n_U of the window's pairs, over that of the whole table's.
        """
        rank = np.asarray(self.negatives.table["rank"].to_numpy())
        rows = self.negatives.table.filter(pa.array((rank >= first) & (rank < end) & self.negatives.keep))
        share = likelihood * len(rows) / self.whole.kept
        sure = 1 / UNCOUNTED**2
        if total := float(self.returned.counts.sum()):
            ranks = self.returned.ranks
            inside = float(self.returned.counts[(ranks >= first) & (ranks < end)].sum())
            share *= (sure + inside) / (sure + share * total)
            sure += inside
        returned = self.whole.returned * share
        of_whole = self.whole.standard_error or math.sqrt(self.whole.returned)
        error = math.hypot(of_whole / self.whole.returned, sure**-0.5)
        part = replace(self.whole, returned=returned, kept=float(len(rows)), standard_error=error * returned)
        return Negatives(rows, {"recapture": part.to_json(), "planted": self._planted(first, end)})

    def draw(self, drawn: Negatives) -> Negatives:
        """Return rows that were drawn evenly from the table, with their share of its recapture."""
        share = len(drawn) / self.whole.kept
        error = self.whole.standard_error
        part = replace(
            self.whole, returned=share * self.whole.returned, kept=float(len(drawn)),
            standard_error=None if error is None else share * error,
        )  # fmt: skip
        return drawn.with_provenance({"recapture": part.to_json(), "planted": self._planted(0, sys.maxsize)})

    def _planted(self, first: int, end: int) -> dict[str, Any] | None:
        """What the table says of planted positives at these ranks."""
        planted = self.negatives.provenance.get("planted")
        if not planted:
            return None
        inside = [at for at, rank in enumerate(planted["rank"]) if first <= rank < end]
        return {name: [planted[name][at] for at in inside] for name in ("query_id", "doc_id", "rank", "keep")}
