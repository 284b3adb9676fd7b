"""The door of mining: negatives of a ranking, from given ranks or from those worth most for the training."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Annotated, Any

import numpy as np

from foils.data.collection import Collection
from foils.data.negatives import Negatives
from foils.data.read import CollectionLike, CollectionSettings
from foils.data.tables import provenance
from foils.data.tokens import BM25Settings
from foils.deciding.decision import decide
from foils.deciding.results import Decision
from foils.encode.encoder import Encoder
from foils.encode.opening import AT_128, EncodingSettings
from foils.encode.vectors import VectorStore
from foils.mining.candidates import PLANTED, Mined, Miner
from foils.mining.methods import (
    BEST,
    METHODS,
    MINING_NEEDS,
    FilterSettings,
    Models,
    RankingSettings,
    WindowSettings,
    check_mining,
)
from foils.runtime.errors import InputError
from foils.runtime.options import Option, door
from foils.runtime.parallel import ScaleSettings
from foils.runtime.results import Table

DEPTH = 10  # times the negatives per query: ranks that are looked at for the best ones
DENSE = 10  # windows without a gap between them; deeper ones lie a fifth of their rank apart


@door(check=check_mining, needs=MINING_NEEDS)
def mine(
    collection: CollectionLike,
    method: Annotated[str, Option(flag="--with", names=METHODS)] = "bm25",
    *,
    window: WindowSettings,
    ranking: RankingSettings,
    lexical: BM25Settings,
    filters: FilterSettings,
    reading: CollectionSettings,
    scale: ScaleSettings,
    encoding: EncodingSettings = AT_128,
) -> Mined:
    """Mine negatives: the best-ranked documents that are not labelled relevant.

    Documents that equal or nearly equal a positive stay in the table, rejected with a reason. With
    the best ranks, it mines deep, shows what each window of ranks is worth for the training, and
    takes the best one.

    Args:
        method: What ranks the documents: random, bm25, dense, cross-encoder, ance or trisampler.

    Example:
        foils mine scifact/ --with bm25 --top 10 --split train -o bm25.parquet

    Raises:
        InputError: a collection that cannot be read, a split without positives, or options that
            have no effect.
        UnknownNameError: no such method.
    """
    loaded = reading.open(collection)
    models = Models(loaded, window.split, filters, encoding, ranking, lexical, window.seed)
    (miner, facts), top = models.miner(method, window), window.top

    def mined(miner: Miner, **more: Any) -> Mined:
        ranks = {"ranks": miner.ranks} if miner.ranks != (0, None) else {}
        settings = {**facts, **ranks, **more}
        history = provenance("mine", settings, inputs={"collection": loaded.digest})
        return miner.mined(window.split, plant=PLANTED, made=history)

    if window.ranks != BEST:
        return mined(miner)
    deep = mined(replace(miner, top=DEPTH * top, ranks=(0, DEPTH * top)))
    decision, best = best_window(
        loaded, deep, *models.encoder, size=top, split=window.split, seed=window.seed,
        window_of=lambda ranks: mined(replace(miner, ranks=ranks)),
    )  # fmt: skip
    best_of = {"depth": DEPTH * top, "source": decision.source, "sentence": decision.sentence,
               "candidates": decision.to_json()["candidates"]}  # fmt: skip
    best_mined = mined(replace(miner, ranks=best), best_of=best_of)
    return MinedOfBest.of(
        best_mined, decision=decision, **{each.name: getattr(best_mined, each.name) for each in fields(best_mined)}
    )


@dataclass(frozen=True, kw_only=True)
class MinedOfBest(Mined):
    """Negatives of the best ranks.

    Attributes:
        decision: between windows of ranks.
    """

    decision: Decision

    def tables(self) -> list[Table]:
        """Return the counts, with the decision that the ranks were chosen by."""
        return [*super().tables(), self.decision.table()]

    def to_json(self) -> dict[str, Any]:
        """Return source, settings, counts and the decision."""
        return {**super().to_json(), "decision": self.decision.to_json()}


def windows_of(start: int, end: int, size: int) -> list[tuple[int, int]]:
    """Return windows of `size` ranks up to `end`, without gaps at first, then a fifth of their rank apart."""
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
    *,
    size: int,
    split: str,
    seed: int,
    window_of: Callable[[tuple[int, int]], Negatives],
) -> tuple[Decision, tuple[int, int]]:
    """Decide between windows of ranks of one source; return the decision, and the window of largest benefit.

    Args:
        collection: documents, queries, judgements.
        deep: negatives mined from all ranks that are looked at.
        encoder: that the training starts from.
        store: of vectors.
        size: negatives of a query in each window.
        split: whose queries are trained on.
        seed: of all draws.
        window_of: mines a window, so that it says what of the labelled positives it would return.

    Raises:
        InputError: fewer than two windows, or what `decide` raises.
    """
    ranks = np.asarray(deep.table["rank"].to_numpy())[deep.keep]
    listed = windows_of(int(ranks.min()), int(ranks.max()) + 1, size) if len(ranks) else []
    if len(listed) < 2:
        raise InputError(
            f"{len(np.unique(ranks))} ranks have negatives; two windows of {size} need {2 * size}: mine deeper"
        )
    windows = {f"ranks {first}–{end}": (first, end) for first, end in listed}
    mined = {name: window_of(ranks) for name, ranks in windows.items()}
    sources = {name: source for name, source in mined.items() if source.keep.any()}
    decision = decide(collection, sources, encoder, store, split=split, seed=seed, candidates=list(sources))
    return decision, windows[str(decision.source)]
