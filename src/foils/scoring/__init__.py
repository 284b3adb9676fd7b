"""The published scores of sources of negatives: ECI_sem, ECI, and what lies behind them."""

from foils.scoring.measure import Measured, measure
from foils.scoring.scores import Scores, ScoreSettings, SourceScore, score_sources
from foils.scoring.triplets import Records, make_records

__all__ = [
    "Measured",
    "Records",
    "ScoreSettings",
    "Scores",
    "SourceScore",
    "make_records",
    "measure",
    "score_sources",
]
