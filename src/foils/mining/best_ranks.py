"""The ranks of a retriever that are worth most for the training: mined deep, and decided between."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

from foils.data.labels import LabelsLike
from foils.encode.encoder import Encoder
from foils.encode.vectors import VectorStore
from foils.mining.results import Mined
from foils.runtime.errors import InputError
from foils.runtime.options import Option
from foils.scoring import BeliefSettings, Curve, ScoreSettings, curves, decide_sources, score_sources
from foils.scoring.deciding import RECORDS
from foils.scoring.worth import STARTS

if TYPE_CHECKING:
    LabelsGiven = LabelsLike
else:
    LabelsGiven = str

WITHIN = "best_args"  # option of the program that takes these settings as its keys


@dataclass(frozen=True)
class BestRanksSettings(BeliefSettings):
    """How the best ranks are chosen, with the encoder that mines.

    Attributes:
        temperature: τ of the training, which divides similarities.
        best_depth: Ranks that are looked at. Default: ten times as many as negatives per query.
    """

    heading = "Best ranks"

    labels: Annotated[LabelsGiven | None, Option(metavar="FILE", within=WITHIN)] = None
    starts: Annotated[str, Option(names=STARTS, within=WITHIN)] = "encoder"
    in_batch: Annotated[int, Option(least=0, within=WITHIN)] = 127
    recurrence: Annotated[float | None, Option(least=0, most=1, within=WITHIN)] = None
    temperature: Annotated[float, Option(above=0, within=WITHIN)] = 0.05
    best_depth: Annotated[int | None, Option(flag="depth", least=2, within=WITHIN)] = None

    def depth_of(self, top: int) -> int:
        """Return how many ranks are looked at for so many negatives per query."""
        return self.best_depth or 10 * top

    def curve(self, deep: Mined, encoder: Encoder, store: VectorStore, *, size: int, seed: int) -> Curve:
        """Return what each window of ranks is worth.

        Args:
            deep: mined from all ranks that are looked at.
            encoder: that similarities are measured with.
            store: of vectors.
            size: negatives of a query in each window.
            seed: of the records that are drawn, and of the belief.

        Raises:
            InputError: fewer than two queries with negatives, or fewer ranks than two windows have.
        """
        if deep.collection is None:
            raise InputError("negatives without their collection; mine them anew")
        sample = RECORDS if self.labels is None else None
        scoring = ScoreSettings(
            split=deep.split, hybrids=1, temperature=self.temperature, sample=sample, control=False, replicates=0,
            seed=seed,
        )  # fmt: skip
        sources = {deep.source: deep}
        scores = score_sources(deep.collection, sources, encoder, store, scoring)
        scores = scores.with_decision(decide_sources(scores, sources, encoder, store, self), "benefit")
        return curves(scores, sources, deep.source, size=size, by=("rank",))[0]

    def describe(self, depth: int, curve: Curve) -> dict[str, Any]:
        """Return what provenance says of the choice."""
        facts = {name: getattr(self, name) for name in ("temperature", "starts", "in_batch")}
        facts |= {name: getattr(curve.decision, name) for name in ("recurrence", "labels")}
        shown = curve.to_json()
        return {"depth": depth, **facts} | {name: shown[name] for name in ("best", "sentence", "parts")}


def ranks_of(curve: Curve) -> tuple[int, int | None]:
    """Return the best window, or, where no mined negatives are better than all, the one with the largest benefit."""
    best = curve.best or max(curve.parts, key=lambda part: part.worth.benefit)
    return int(best.first), best.end
