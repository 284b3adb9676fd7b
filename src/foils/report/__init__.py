"""One self-contained HTML page."""

from foils.report.ratings import ratings_report, write_ratings_report
from foils.report.scores import score_report, write_score_report

__all__ = ["ratings_report", "score_report", "write_ratings_report", "write_score_report"]
