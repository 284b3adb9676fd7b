"""Random negatives: the control against which every source is held."""

from __future__ import annotations

import numpy as np

from foils.data.collection import Collection, Rows
from foils.mining.pairs import Scores
from foils.runtime.errors import InputError

_DRAWS = 256  # at once; fixed, so that a deeper search begins with the same documents


class RandomRetriever:
    """Ranks documents uniformly at random, without repetition, each query by its own seeded generator.

    Args:
        collection: whose documents.
        seed: of all generators, at least 0; a query's draw depends on it and on the query's row alone.

    Raises:
        InputError: a negative seed.
    """

    name = "random"
    portable = True
    short = "the collection has no further document"

    def __init__(self, collection: Collection, *, seed: int = 0) -> None:
        if seed < 0:
            raise InputError(f"seed {seed}; expected 0 or above")
        self._documents, self._seed = len(collection.documents), seed

    def search(self, query_rows: Rows, depth: int) -> tuple[Rows, Scores]:
        """Return (n, depth) distinct document rows and NaN for their scores."""
        if not len(query_rows):
            return np.zeros((0, depth), np.int64), np.zeros((0, depth))
        rows = np.stack([self._draw(int(query), depth) for query in query_rows])
        return rows, np.full(rows.shape, np.nan)

    def _draw(self, query: int, depth: int) -> Rows:
        rng = np.random.default_rng([self._seed, query])
        drawn: dict[int, None] = {}
        while len(drawn) < min(depth, self._documents):
            drawn.update(dict.fromkeys(rng.integers(self._documents, size=_DRAWS).tolist()))
        rows = np.full(depth, -1, np.int64)
        rows[: self._documents] = list(drawn)[:depth]
        return rows
