"""Which source of negatives to train on."""

from foils.scoring.ablations import Ablations, ablate
from foils.scoring.audit import Suspect, audit
from foils.scoring.certainty import Certainty, score_until
from foils.scoring.compose import Composition, compose, composed
from foils.scoring.curve import Curve, Part, curves
from foils.scoring.deciding import Decided, decide_sources
from foils.scoring.decision import Decision, Turn
from foils.scoring.prepared import Measured, measure, prepare
from foils.scoring.ranking import score_sources
from foils.scoring.results import Scores, SourceScore
from foils.scoring.settings import BeliefSettings, DecisionSettings, ScoreSettings
from foils.scoring.until import Settled, decide_until
from foils.scoring.worth import SourceWorth

__all__ = [
    "Ablations",
    "BeliefSettings",
    "Certainty",
    "Composition",
    "Curve",
    "Decided",
    "Decision",
    "DecisionSettings",
    "Measured",
    "Part",
    "ScoreSettings",
    "Scores",
    "Settled",
    "SourceScore",
    "SourceWorth",
    "Suspect",
    "Turn",
    "ablate",
    "audit",
    "compose",
    "composed",
    "curves",
    "decide_sources",
    "decide_until",
    "measure",
    "prepare",
    "score_sources",
    "score_until",
]
