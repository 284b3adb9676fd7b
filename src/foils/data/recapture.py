"""How many labelled positives a way of mining would return as negatives, were they not known.

They stand for the relevant documents without a label. Where a label is no likelier for one relevant document than for
another, a source that would return `returned` of its labelled positives holds o·returned false negatives among its
`kept` ones, o the number of relevant documents without a label for each labelled one: φ = min(1, o·returned/kept).
"""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from foils.data.negatives import Negatives
from foils.runtime.errors import InputError

COUNTS = ("returned", "labelled", "kept")


@dataclass(frozen=True)
class Recapture:
    """What a way of mining does with positives that it does not know.

    Attributes:
        returned: labelled positives that it would keep among its negatives, counted or estimated.
        labelled: labelled positives of its queries.
        kept: negatives.
        way: `counted`, of every labelled positive; `planted`, from one positive of each query of a sample, mined with
            its label taken away.
        queries: whose positives were looked at.
        standard_error: of `returned`, as an estimate for relevant documents like the labelled ones; never 0 where it
            was estimated. None: not known.
    """

    returned: float
    labelled: float
    kept: float
    way: str = "counted"
    queries: int = 0
    standard_error: float | None = None

    @classmethod
    def estimated(
        cls, returned: npt.ArrayLike, looked_at: npt.ArrayLike, *, labelled: float, kept: float, way: str
    ) -> Recapture:
        """Estimate `returned` = labelled·f, f = Σ r_q / Σ k_q, from queries that stand for all.

        Its standard error is labelled·√(Σ (r_q − f·k_q)² + (k̄/2)²) / Σ k_q: a ratio's, over queries as wholes, with
        half of a query's positives added, so that a share of 0 or 1 in a few queries does not look certain.

        Args:
            returned: (n,) how many of the query's positives were returned, r_q.
            looked_at: (n,) for how many positives the query stands, k_q > 0.
            labelled: positives of all queries.
            kept: negatives of all queries.
            way: how it was done.
        """
        r, k = np.asarray(returned, np.float64), np.asarray(looked_at, np.float64)
        share = float(r.sum() / k.sum())
        deviation = math.sqrt(float(((r - share * k) ** 2).sum()) + float(k.mean() / 2) ** 2) / float(k.sum())
        return cls(labelled * share, labelled, kept, way, len(k), labelled * deviation)

    @classmethod
    def of(cls, provenance: Mapping[str, Any]) -> Recapture | None:
        """Read it from a table's provenance; None where the table does not say, or not in which way.

        Raises:
            InputError: what the table says are no counts.
        """
        if (recapture := provenance.get("recapture")) is None:
            return None
        known = dict(recapture) if isinstance(recapture, Mapping) else {}
        optional = {name: known[name] for name in ("queries", "standard_error") if known.get(name) is not None}
        counts: dict[str, Any] = {**{name: known.get(name) for name in COUNTS}, **optional}
        if not all(map(_is_count, counts.values())):
            said = f"a table's recapture is {str(recapture)[:200]}; expected counts returned, labelled, kept"
            raise InputError(f"{said}; mine it again")
        return cls(**counts, way=str(known["way"])) if "way" in known else None

    @classmethod
    def of_table(cls, negatives: Negatives) -> Recapture | None:
        """Read it from a table; None also where rows were rejected since, for then it is that of other rows."""
        recapture = cls.of(negatives.provenance)
        return recapture if recapture is not None and recapture.kept == negatives.keep.sum() else None

    def false_negatives(self, unlabelled: float) -> float:
        """Return φ = min(1, o·returned/kept), o relevant documents being unlabelled for each labelled one."""
        return min(1.0, unlabelled * self.returned / self.kept) if self.kept else math.nan

    def to_json(self) -> dict[str, Any]:
        """Return what provenance says of it."""
        return asdict(self)


def _is_count(value: object) -> bool:
    return isinstance(value, (int, float)) and 0 <= value <= sys.float_info.max
