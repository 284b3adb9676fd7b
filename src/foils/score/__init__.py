"""Which source of negatives to train on."""

from foils.score.ranking import Scores, ScoreSettings, SourceScore, score_sources

__all__ = ["ScoreSettings", "Scores", "SourceScore", "score_sources"]
