"""Which ranks of a source are worth most: equally many negatives a query from each, decided between as sources."""

from __future__ import annotations

import re

import numpy as np
import pyarrow as pa

from foils.data.collection import Collection
from foils.data.negatives import Negatives
from foils.deciding.decision import BeliefSettings, Decision, decide
from foils.encode.encoder import Encoder
from foils.encode.vectors import VectorStore
from foils.runtime.errors import InputError

DENSE = 10  # windows without a gap between them; deeper ones lie a fifth of their rank apart


def windows_of(start: int, end: int, size: int) -> list[tuple[int, int]]:
    """Return windows of `size` ranks from `start` up to `end`, without gaps at first, then a fifth of their rank apart."""
    windows, at = [], 0
    while start + (at + 1) * size <= end:
        windows.append((start + at * size, start + (at + 1) * size))
        at += max(1, 2 * at // DENSE)
    return windows


def best_window(
    collection: Collection,
    deep: Negatives,
    encoder: Encoder,
    store: VectorStore,
    belief: BeliefSettings | None = None,
    *,
    size: int,
    split: str = "train",
    temperature: float = 0.05,
    seed: int = 0,
) -> tuple[Decision, tuple[int, int]]:
    """Decide between windows of ranks of one source; return the decision, and the window with the largest benefit.

    Args:
        collection: documents, queries, judgements.
        deep: negatives mined from all ranks that are looked at.
        encoder: that the training starts from.
        store: of vectors.
        belief: labels, what the training starts from, and in-batch negatives.
        size: negatives of a query in each window.
        split: whose queries are trained on.
        temperature: τ of the training.
        seed: of all draws.

    Raises:
        InputError: fewer than two windows, or what `decide` raises.
    """
    rank, keep = np.asarray(deep.table["rank"].to_numpy()), deep.keep
    ranks = rank[keep]
    listed = windows_of(int(ranks.min()), int(ranks.max()) + 1, size) if len(ranks) else []
    if len(listed) < 2:
        raise InputError(
            f"{len(np.unique(ranks))} ranks have negatives; two windows of {size} ranks are needed, {2 * size}; mine deeper"
        )
    sources = {
        f"ranks {first}–{end}": Negatives(deep.table.filter(pa.array(keep & (rank >= first) & (rank < end))))
        for first, end in listed
    }
    sources = {name: source for name, source in sources.items() if len(source)}
    decision = decide(
        collection, sources, encoder, store, belief, split=split, temperature=temperature, seed=seed,
        candidates=list(sources),
    )  # fmt: skip
    first, end = re.findall(r"\d+", str(decision.source))
    return decision, (int(first), int(end))
