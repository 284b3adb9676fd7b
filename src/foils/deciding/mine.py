"""The door of mining: negatives of a ranking, from given ranks or from those worth most for the training."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Annotated, Any

import pyarrow.compute as pc

from foils.data.read import CollectionLike, CollectionSettings
from foils.data.tables import provenance
from foils.data.tokens import BM25Settings
from foils.deciding.decision import decide
from foils.deciding.results import Decision
from foils.encode.vectors import AT_128, EncodingSettings
from foils.mining.candidates import PLANTED, Mined, Miner
from foils.mining.methods import (
    BEST,
    METHODS,
    MINING_NEEDS,
    FilterSettings,
    Models,
    WindowSettings,
    check_mining,
)
from foils.runtime.errors import InputError
from foils.runtime.options import Option, door, spelled
from foils.runtime.parallel import ScaleSettings
from foils.runtime.results import Table

WINDOWS = 10  # of as many ranks as negatives per query, that are looked at for the best one


@door(check=check_mining, needs=MINING_NEEDS)
def mine(
    collection: CollectionLike,
    method: Annotated[str, Option(flag="--with", names=METHODS)] = "bm25",
    *,
    window: WindowSettings,
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
    models = Models(loaded, window, filters, encoding, lexical)
    (miner, facts), top = models.miner(method), window.top

    def mined(miner: Miner, **more: Any) -> Mined:
        ranks = {"ranks": miner.ranks} if miner.ranks != (0, None) else {}
        settings = {**facts, **ranks, **more}
        history = provenance("mine", settings, inputs={"collection": loaded.digest})
        return miner.mined(window.split, plant=PLANTED, made=history)

    if window.ranks != BEST:
        return mined(miner)
    windows = {f"ranks {at * top}–{(at + 1) * top}": (at * top, (at + 1) * top) for at in range(WINDOWS)}
    sources = {}
    for name, (first, end) in windows.items():
        source = mined(replace(miner, ranks=(first, end)))
        if pc.max(source.kept()["rank"]).as_py() == end - 1:  # the ranking goes on to its end
            sources[name] = source
    if len(sources) < 2:
        raise InputError(f"{len(sources)} windows of {top} ranks have negatives: lower {spelled('top')}")
    split, seed = window.split, window.seed
    decision = decide(loaded, sources, *models.encoder, split=split, seed=seed, candidates=list(sources))
    best_of = {"depth": WINDOWS * top, "source": decision.source, "sentence": decision.sentence,
               "candidates": decision.to_json()["candidates"]}  # fmt: skip
    best = mined(replace(miner, ranks=windows[str(decision.source)]), best_of=best_of)
    return MinedOfBest.of(best, decision=decision, **{each.name: getattr(best, each.name) for each in fields(best)})


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
