"""The published scores of sources of negatives: ECI_sem, ECI, and what lies behind them."""

from foils.scoring.information import Composition, compose, composed
from foils.scoring.measure import Measured, measure
from foils.scoring.scores import Scores, ScoreSettings, SourceScore, score_sources
from foils.scoring.triplets import Records, make_records

__all__ = [
    "Composition",
    "Measured",
    "Records",
    "ScoreSettings",
    "Scores",
    "SourceScore",
    "compose",
    "composed",
    "make_records",
    "measure",
    "score_sources",
]
