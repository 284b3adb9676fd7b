"""The published scores of sources of negatives: ECI_sem, ECI, and what lies behind them."""

from foils.scoring.measure import measure
from foils.scoring.scores import Scores, ScoreSettings, SourceScore, score_sources
from foils.scoring.triplets import make_records

__all__ = ["ScoreSettings", "Scores", "SourceScore", "make_records", "measure", "score_sources"]
