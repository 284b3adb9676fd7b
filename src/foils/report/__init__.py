"""One self-contained HTML page."""

from foils.report.scores import score_report, write_score_report

__all__ = ["score_report", "write_score_report"]
