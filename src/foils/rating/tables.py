"""What a rating shows."""

from __future__ import annotations

from foils.rating.stage import RatingReport
from foils.runtime.results import Table


def report_table(rating: RatingReport) -> Table:
    """Return what a rating did, for its page."""
    low, high = rating.position_bias_interval
    rows = [
        ("queries", f"{rating.queries:,}"),
        ("comparisons", f"{rating.comparisons:,}"),
        ("judgements missing", f"{rating.missing:,}"),
        ("position bias, mean of P(first shown wins) − ½", f"{rating.position_bias:.3f} ({low:.3f} to {high:.3f})"),
        ("negatives without a gap", f"{rating.unrated:,}"),
        *((f"not rated: {why}", f"{count:,}") for why, count in rating.skipped.items()),
        ("algebraic connectivity of the graphs, mean", f"{rating.connectivity:.2f}"),
        ("diameter of the graphs, largest", f"{rating.diameter:.0f}"),
    ]
    return Table(
        "", ["", "value"], rows, "Position bias with its 95 % interval over queries; 0 where the judge has none."
    )
