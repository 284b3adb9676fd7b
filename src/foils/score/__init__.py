"""Which source of negatives to train on."""

from foils.score.ablations import Ablations, ablate
from foils.score.audit import Suspect, audit
from foils.score.certainty import Certainty, score_until
from foils.score.compose import Composition, compose, composed
from foils.score.prepared import Measured, measure, prepare
from foils.score.ranking import score_sources
from foils.score.results import Scores, SourceScore
from foils.score.settings import ScoreSettings

__all__ = [
    "Ablations",
    "Certainty",
    "Composition",
    "Measured",
    "ScoreSettings",
    "Scores",
    "SourceScore",
    "Suspect",
    "ablate",
    "audit",
    "compose",
    "composed",
    "measure",
    "prepare",
    "score_sources",
    "score_until",
]
