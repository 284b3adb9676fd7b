"""Which pairs are drawn to be judged: those first that decide most."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from foils.data.labels import BETWEEN, pair_keys
from foils.data.negatives import Negatives
from foils.runtime.errors import InputError
from foils.statistics.survey import Drawn, Rows, draw, importance, permanent_numbers


@dataclass(frozen=True)
class Universe:
    """The pairs that sources hold, each once.

    Attributes:
        table: (N,) rows of `query_id, doc_id, text`; `text` is null for documents of the collection.
        members: source -> rows of the pairs that it holds.
    """

    table: pa.Table
    members: Mapping[str, Rows]

    def __len__(self) -> int:
        return int(self.table.num_rows)

    @cached_property
    def keys(self) -> list[str]:
        """(N,) one text for each pair (see `foils.data.labels.pair_keys`)."""
        keys: list[str] = pair_keys(self.table).to_pylist()
        return keys

    def draw(self, n: int, *, seed: int = 0, belief: npt.ArrayLike | None = None) -> Drawn:
        """Draw n pairs with probabilities in proportion to their `importance`; a larger n keeps what a smaller n drew.

        They come in a random order, so that the first of them, where not all are judged, stand for the others.

        Args:
            n: how many, at least 1; all, where there are fewer.
            seed: of the pairs' permanent random numbers.
            belief: (N,) today's probability that each pair is relevant; None: equal for all.

        Raises:
            InputError: beliefs that are no probabilities, or not one a pair.
        """
        sizes = importance(list(self.members.values()), len(self), belief=belief)
        drawn = draw(sizes, permanent_numbers(self.keys, seed=seed), n)
        turn = permanent_numbers([f"{self.keys[row]}\0turn" for row in drawn.rows.tolist()], seed=seed)
        order = np.argsort(turn, kind="stable")
        return Drawn(drawn.rows[order], drawn.probability[order])

    def holders(self, rows: Rows) -> list[str]:
        """Return (k,) the names of the sources that hold each of these pairs, joined by `|`."""
        inside = {name: np.isin(rows, members) for name, members in self.members.items()}
        return [BETWEEN.join(name for name in inside if inside[name][place]) for place in range(len(rows))]


def pairs_of(sources: Mapping[str, Negatives]) -> Universe:
    """Return the pairs that sources hold, those of kept rows, in the order in which they are first seen.

    Args:
        sources: name -> negatives.

    Raises:
        InputError: none of them keeps a row.
    """
    tables = []
    for negatives in sources.values():
        kept = negatives.kept()
        text = kept["text"] if "text" in kept.column_names else pa.nulls(len(kept), pa.large_string())
        tables.append(kept.select(["query_id", "doc_id"]).append_column("text", text))
    joined = pa.concat_tables(tables)
    if not len(joined):
        raise InputError("the sources keep no negative; there is nothing to label")
    indices = np.asarray(pair_keys(joined).combine_chunks().dictionary_encode().indices, np.int64)
    first = np.flatnonzero(np.diff(np.maximum.accumulate(indices), prepend=-1))  # codes count up as they are met
    ends = np.cumsum([len(table) for table in tables])[:-1]
    members = {}
    for name, part in zip(sources, np.split(indices, ends), strict=True):
        inside = np.zeros(len(first), bool)
        inside[part] = True
        members[name] = np.flatnonzero(inside)
    return Universe(joined.take(pa.array(first)), members)
