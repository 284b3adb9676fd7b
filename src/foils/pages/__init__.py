"""One self-contained HTML page."""

from foils.pages.ratings import ratings_report, write_ratings_report
from foils.pages.scores import score_report, write_score_report

__all__ = ["ratings_report", "score_report", "write_ratings_report", "write_score_report"]
