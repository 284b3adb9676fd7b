"""The door of mining: negatives of a ranking, from given ranks or from those that are worth most for the training."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Annotated, Any

from foils.data.read import CollectionLike, CollectionSettings
from foils.encode.encoder import Encoder
from foils.encode.opening import AT_128, EncodingSettings
from foils.encode.vectors import VectorStore
from foils.mining.methods import Mining, Models
from foils.mining.results import Mined
from foils.mining.settings import FilterSettings, RankingSettings, WindowSettings, check_mining
from foils.runtime.doors import door
from foils.runtime.options import Option
from foils.runtime.results import Table
from foils.runtime.surroundings import ScaleSettings

if TYPE_CHECKING:
    from foils.scoring import Curve

DEPTH = 10  # windows of ranks that are looked at for the best one


@door(check=check_mining)
def mine(
    collection: CollectionLike,
    method: Annotated[str, Option(flag="--with")] = "bm25",
    *,
    window: WindowSettings,
    ranking: RankingSettings,
    filters: FilterSettings,
    reading: CollectionSettings,
    scale: ScaleSettings,
    encoding: EncodingSettings = AT_128,
) -> Mined:
    """Mine negatives: the best-ranked documents that are not labelled relevant.

    Documents that equal or nearly equal a positive stay in the table, rejected with a reason. With the best ranks, it
    mines deep, shows what each window of ranks is worth for the training, and takes the best one.

    Args:
        method: What ranks the documents: random, bm25, dense, cross-encoder, ance, trisampler, or the own similarity of
            the encoder where that is a sparse or multi-vector model (sparse, multi-vector).

    Raises:
        InputError: a collection that cannot be read, a split without positives, or options that have no effect.
        UnknownNameError: no such method.
    """
    loaded = reading.open(collection)
    models = Models(loaded, window.split, filters, encoding, ranking, window.seed)
    mining = Mining.of(models, method, window)
    top, ranks = window.top, mining.window.ranks
    if not isinstance(ranks, str):
        return mining.mined(top=top, ranks=ranks or (0, None))
    depth = DEPTH * top
    curve = curve_of(mining.mined(top=depth, ranks=(0, depth)), *models.encoder, size=top, seed=window.seed)
    best = curve.best or max(curve.parts, key=lambda part: part.worth.benefit)  # where none is better than no negatives
    shown = curve.to_json()
    facts = {"depth": depth, **{name: shown[name] for name in ("best", "sentence", "parts")}}
    mined = mining.mined(top=top, ranks=(int(best.first), best.end), best_of=facts)
    return MinedOfBest.of(mined, curve=curve, **{each.name: getattr(mined, each.name) for each in fields(mined)})


@dataclass(frozen=True, kw_only=True)
class MinedOfBest(Mined):
    """Negatives of the best ranks.

    Attributes:
        curve: what each window of ranks is worth.
    """

    curve: Curve

    def tables(self) -> list[Table]:
        """Return the counts, with the curve that the ranks were chosen by."""
        from foils.scoring.curve_shown import curve_table

        return [*super().tables(), curve_table(self.curve)]

    def to_json(self) -> dict[str, Any]:
        """Return source, settings, counts and the curve."""
        return {**super().to_json(), "curve": self.curve.to_json()}


def curve_of(deep: Mined, encoder: Encoder, store: VectorStore, *, size: int, seed: int) -> Curve:
    """Return what each window of ranks of a deep table is worth for a training that starts from the encoder.

    Args:
        deep: mined from all ranks that are looked at.
        encoder: that similarities are measured with.
        store: of vectors.
        size: negatives of a query in each window.
        seed: of the records that are drawn, and of the belief.

    Raises:
        InputError: fewer than two queries with negatives, or fewer ranks than two windows have.
    """
    from foils.scoring import BeliefSettings, ScoreSettings, curves, decide_sources, score_sources
    from foils.scoring.deciding import RECORDS

    assert deep.collection is not None  # a table that was mined has it
    scoring = ScoreSettings(split=deep.split, hybrids=1, sample=RECORDS, control=False, replicates=0, seed=seed)
    sources = {deep.source: deep}
    scores = score_sources(deep.collection, sources, encoder, store, scoring)
    scores = scores.with_decision(decide_sources(scores, sources, encoder, store, BeliefSettings()), "benefit")
    return curves(scores, sources, deep.source, size=size, by=("rank",))[0]
