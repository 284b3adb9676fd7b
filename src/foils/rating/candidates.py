"""What a judge sees: queries, each with its candidate documents."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from foils.rating.pairs import Pairs, Rows
from foils.runtime.errors import InputError


@dataclass(frozen=True)
class Candidates:
    """Candidate documents of queries, numbered through as in `Pairs`.

    Attributes:
        query_ids: (Q,) ids.
        queries: (Q,) texts.
        offsets: (Q + 1,) the candidates of query q are offsets[q] … offsets[q + 1] − 1.
        doc_ids: (N,) ids.
        texts: from rows of candidates to their texts, so that a large set need not lie in memory at once.
    """

    query_ids: Sequence[str]
    queries: Sequence[str]
    offsets: Rows
    doc_ids: Sequence[str]
    texts: Callable[[Rows], Sequence[str]]

    def __post_init__(self) -> None:
        lengths = (len(self.query_ids), len(self.queries), len(self.offsets) - 1)
        if len(set(lengths)) > 1:
            raise InputError(
                f"{lengths[0]} query ids, {lengths[1]} query texts, offsets for {lengths[2]} queries; expected one each"
            )
        if len(self.doc_ids) != int(self.offsets[-1]):
            raise InputError(
                f"{len(self.doc_ids)} document ids for {int(self.offsets[-1])} candidates; expected one each"
            )

    @classmethod
    def of_lists(
        cls, query_ids: Sequence[str], queries: Sequence[str], documents: Sequence[Sequence[tuple[str, str]]]
    ) -> Candidates:
        """Return candidates from (id, text) lists, one list for each query."""
        flat = [pair for listed in documents for pair in listed]
        offsets = np.concatenate([[0], np.cumsum([len(listed) for listed in documents])]).astype(np.int64)
        return cls(query_ids, queries, offsets, [key for key, _ in flat], lambda rows: [flat[row][1] for row in rows])

    def query_of(self, rows: npt.ArrayLike) -> Rows:
        """Return the query of each candidate row."""
        return np.asarray(np.searchsorted(self.offsets, rows, side="right") - 1)

    def ids(self, rows: npt.ArrayLike) -> pa.Array:
        """Return the document ids of these rows, as large strings."""
        return pa.array([self.doc_ids[row] for row in np.asarray(rows).tolist()], pa.large_string())

    def check(self, pairs: Pairs) -> None:
        """Raise an InputError where pairs are not over these candidates; pairs with these very offsets cost nothing."""
        if pairs.offsets is not self.offsets and not np.array_equal(pairs.offsets, self.offsets):
            raise InputError("the pairs were made for other candidates; their offsets differ")
