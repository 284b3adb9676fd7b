"""The door of scoring."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated

from foils.data.resolve import CollectionLike, CollectionSettings, SourcesLike, as_sources
from foils.encode.opening import AT_128, EncodingSettings
from foils.runtime.doors import door
from foils.runtime.options import Option, Settings, refuse, spelled
from foils.runtime.surroundings import ScaleSettings
from foils.scoring.ablations import ablate
from foils.scoring.audit import audit as find_suspects
from foils.scoring.certainty import score_until
from foils.scoring.ranking import score_sources
from foils.scoring.results import Scores
from foils.scoring.settings import ScoreSettings


@dataclass(frozen=True)
class AnalysisSettings(Settings):
    """What is said beside the scores.

    Attributes:
        until: Score growing samples until the ranking is certain at this confidence, as 0.95.
        ablations: Score also under other weights, samples, temperatures, tokenizers, idf corpora and λ.
        audit: List this many negatives that look most like unlabelled positives.
    """

    heading = "Analyses"

    until: Annotated[float | None, Option(above=0, most=1)] = None
    ablations: bool = False
    audit: Annotated[int, Option(least=0)] = 0


@door
def score(
    collection: CollectionLike,
    sources: SourcesLike,
    *,
    scoring: ScoreSettings,
    analyses: AnalysisSettings,
    reading: CollectionSettings,
    scale: ScaleSettings,
    encoding: EncodingSettings = AT_128,
) -> Scores:
    """Rank sources of negatives by ECI_sem, before any training, with the encoder that training starts from.

    Use the prompts and the maximum length of the training. Each source also shows what lies behind its score.

    Raises:
        InputError: a collection or source that cannot be read, sources without a negative, or a confidence of
            intervals where there are none.
    """
    if not scoring.replicates:
        why = f"with {spelled('replicates')} 0, which makes no intervals; leave one of them out"
        refuse(scoring.changed("confidence"), why)
    loaded = reading.open(collection)
    negatives = {source.name: source.negatives for source in as_sources(sources, loaded)}
    encoder, store = encoding.open(loaded)
    if analyses.until is None:
        scores = score_sources(loaded, negatives, encoder, store, scoring)
    else:
        certainty = score_until(loaded, negatives, encoder, store, scoring, confidence=analyses.until)
        scores = replace(certainty.scores, certainty=certainty)
    return replace(
        scores,
        ablations=ablate(scores) if analyses.ablations else None,
        suspects=find_suspects(scores, negatives, top=analyses.audit) if analyses.audit else (),
    )
