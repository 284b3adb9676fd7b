"""The door of scoring."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated

from foils.data.collection import Collection
from foils.data.negatives import Negatives
from foils.data.read import CollectionLike, CollectionSettings
from foils.data.sources import SourcesLike, as_sources
from foils.encode.encoder import Encoder
from foils.encode.opening import AT_128, EncodingSettings
from foils.encode.vectors import VectorStore
from foils.runtime.doors import door
from foils.runtime.options import Option, Settings, refuse, spelled
from foils.runtime.surroundings import ScaleSettings
from foils.scoring.ablations import ablate
from foils.scoring.audit import audit as find_suspects
from foils.scoring.certainty import score_until
from foils.scoring.curve import checked_windows, curves, sized
from foils.scoring.deciding import decide_sources
from foils.scoring.ranking import score_sources
from foils.scoring.results import Scores
from foils.scoring.settings import DecisionSettings, ScoreSettings
from foils.scoring.until import decide_until

if TYPE_CHECKING:
    Names = str | Sequence[str]
else:
    Names = list[str]


@dataclass(frozen=True)
class AnalysisSettings(Settings):
    """What is said beside the scores.

    Attributes:
        until: Score growing samples until the decision is certain at this confidence, as 0.95, or until more records
            could not make it so; with a ranking by a published score, until that ranking is certain.
        ablations: Score also under other weights, samples, temperatures, tokenizers, idf corpora and λ.
        curve: Show which ten negatives a query of this source are worth most, by rank and by margin to the positive;
            with dense:5, which five. The source has to be mined deep: `foils mine --top 100` for ten negatives a
            query. May be given several times.
        audit: List this many negatives that look most like unlabelled positives.
    """

    heading = "Analyses"

    until: Annotated[float | None, Option(above=0, most=1)] = None
    curve: Annotated[Names, Option(metavar="SOURCE[:K]", parse=list, repeated=True)] = ()
    ablations: bool = False
    audit: Annotated[int, Option(least=0)] = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "curve", (self.curve,) if isinstance(self.curve, str) else tuple(self.curve))


@door
def score(
    collection: CollectionLike,
    sources: SourcesLike,
    *,
    scoring: ScoreSettings,
    deciding: DecisionSettings,
    analyses: AnalysisSettings,
    reading: CollectionSettings,
    scale: ScaleSettings,
    encoding: EncodingSettings = AT_128,
) -> Scores:
    """Decide which negatives to train on, before any training, with the encoder that training starts from.

    Sources are ranked by the benefit of their negatives, given how many of them are probably false. Shown are how
    likely the best one is the best, where the decision would turn, and how many labels would settle it; the published
    scores stand beside it. Use the prompts and the maximum length of the training.

    Raises:
        InputError: a collection or source that cannot be read, sources without a negative, or a confidence of
            intervals where there are none.
    """
    if not scoring.replicates:
        why = f"with {spelled('replicates')} 0, which makes no intervals; leave one of them out"
        refuse(scoring.changed("confidence"), why)
    loaded = reading.open(collection)
    negatives = {source.name: source.negatives for source in as_sources(sources, loaded)}
    asked = [sized(text, negatives) for text in analyses.curve]
    for name, size in asked:
        checked_windows(name, negatives[name].kept()["rank"].to_numpy(), size)
    encoder, store = encoding.open(loaded)
    scores = _scored(loaded, negatives, encoder, store, scoring, deciding, analyses.until)
    return replace(
        scores,
        ablations=ablate(scores) if analyses.ablations else None,
        curves=tuple(curve for name, size in asked for curve in curves(scores, negatives, name, size=size)),
        suspects=find_suspects(scores, negatives, top=analyses.audit) if analyses.audit else (),
    )


def _scored(
    collection: Collection,
    sources: Mapping[str, Negatives],
    encoder: Encoder,
    store: VectorStore,
    scoring: ScoreSettings,
    deciding: DecisionSettings,
    until: float | None,
) -> Scores:
    """Scores with their decision, where one is made."""
    by_benefit = deciding.rank_by == "benefit"
    if until is not None and by_benefit:
        settled = decide_until(collection, sources, encoder, store, scoring, deciding, confidence=until)
        return replace(settled.scores, certainty=settled)
    if until is None:
        scores = score_sources(collection, sources, encoder, store, scoring)
    else:
        certainty = score_until(collection, sources, encoder, store, scoring, confidence=until)
        scores = replace(certainty.scores, certainty=certainty)
    if len(scores.measured.records) > 1 and (by_benefit or deciding.labels is not None):
        return scores.with_decision(decide_sources(scores, sources, encoder, store, deciding), deciding.rank_by)
    return replace(scores, rank_by="eci_sem" if by_benefit else deciding.rank_by)  # one query decides nothing
