"""Curves in words, as a table and as a figure."""

from __future__ import annotations

from foils.pages.page import LEGEND, PALETTE, Figure, axes, ends, scatter
from foils.runtime.results import Table, number
from foils.scoring.curve import Curve, Part
from foils.scoring.settings import ScoreSettings
from foils.scoring.worth import SourceWorth

WEAK = "#8a8f94"
CLEARLY = 1.05  # times the next best that are worth a word


def sentence(curve: Curve) -> str:
    """Return in one sentence which part of the source is worth most, and how sure that is."""
    places = "ranks" if curve.by == "rank" else "margins"
    best, probability = curve.best, curve.decision.best_with_probability
    if best is None:
        if not curve.decision.matters:
            return f"No {places} of {curve.source} are worth more than in-batch negatives alone."
        return (
            f"No {places} of {curve.source} are worth as much as in-batch negatives alone, with probability "
            f"{probability:.2f}."
        )
    named = f"ranks {best.name}" if best.end is not None else f"those {_below(best)} the lowest positive"
    what = f"{curve.size} negatives a query from {curve.source}"
    share = f"{100 * best.worth.false_share_low:.0f}–{100 * best.worth.false_share_high:.0f} % of them false"
    ratio = curve.decision.ratio
    times = f", {ratio:.2g} times as useful as the next best" if ratio > CLEARLY else ""  # not for NaN either
    certainty = f"the best of {len(curve.parts)} with probability {probability:.2f}{times}"
    if not curve.decision.matters:
        return f"Of {what}, {named} are worth most, but others are within 2 % of that; {share}."
    if probability < 0.5:
        return (
            f"Of {what}, it cannot be told which are worth most; the least is risked with {named}, {certainty}; "
            f"{share}."
        )
    return f"Of {what}, {named} are worth most: {certainty}; {share}."


def _below(part: Part) -> str:
    return f"at least {100 * part.first:g} % below" if part.first else "below"


def curve_table(curve: Curve, confidence: float = ScoreSettings.confidence) -> Table:
    """Return what each part is worth, with a draw and the whole source below them."""
    interval = f"{100 * confidence:g} % interval"
    columns = [curve.by, "benefit", interval, "P(best)", "false", interval, "signal", "verdict", "per query"]
    rows = [
        (part.name.removeprefix("margin "), *_cells(part.worth), f"{part.negatives_per_query:.1f}")
        for part in curve.parts
    ]
    rows.append((f"{curve.size} drawn from all", *_cells(curve.drawn, compared=False), ""))
    rows.append(("all of them", *_cells(curve.whole, compared=False), ""))
    best = frozenset(index for index, part in enumerate(curve.parts) if part is curve.best)
    return Table(f"{curve.source} by {curve.by}", columns, rows, sentence(curve), best)


def _cells(worth: SourceWorth, compared: bool = True) -> tuple[str, ...]:
    return (
        number(worth.benefit),
        f"{number(worth.benefit_low)}–{number(worth.benefit_high)}",
        f"{worth.best_with_probability:.2f}" if compared else "",
        f"{100 * worth.false_share:.1f} %",
        f"{100 * worth.false_share_low:.1f}–{100 * worth.false_share_high:.1f} %",
        number(worth.strength),
        worth.verdict,
    )


def curve_figure(curve: Curve) -> Figure:
    """Return benefit and strength by rank or margin, with the share of false negatives on a second axis."""
    place = [_middle(part) for part in curve.parts]
    worths = [part.worth for part in curve.parts]
    benefit = [round(worth.benefit, 5) for worth in worths]
    false = [round(100 * worth.false_share, 3) for worth in worths]
    colours = [PALETTE[1] if part is curve.best else PALETTE[0] for part in curve.parts]
    data = [
        scatter(
            place, benefit, mode="lines+markers", name="benefit", line={"color": PALETTE[0], "width": 3},
            marker={"size": 9, "color": colours},
            error_y=ends(benefit, [worth.benefit_low for worth in worths], [worth.benefit_high for worth in worths]),
        ),
        scatter(
            place, [round(worth.strength, 5) for worth in worths], name="signal: if none were false",
            line={"color": PALETTE[2], "dash": "dot", "width": 2},
        ),
        scatter(
            place, false, mode="lines+markers", name="false negatives (right axis)", yaxis="y2",
            line={"color": WEAK, "width": 2},
            error_y=ends(
                false, [100 * worth.false_share_low for worth in worths],
                [100 * worth.false_share_high for worth in worths],
            ),
        ),
    ]  # fmt: skip
    title = "rank" if curve.by == "rank" else "margin below the lowest positive, % of its similarity"
    layout = {
        **axes(title, "benefit", yaxis={"rangemode": "tozero"}),
        "yaxis2": {"title": {"text": "false, %"}, "overlaying": "y", "side": "right", "range": [0, 100],
                   "showgrid": False, "tickmode": "linear", "dtick": 20},
        "legend": LEGEND,
        "margin": {"r": 70},
        "shapes": [_level(curve.drawn.benefit)],
    }  # fmt: skip
    caption = (
        f"{curve.size} negatives a query from each part of {curve.source}: what they are worth for the training, what "
        "they would be worth if none were false, and how many are believed to be false. The best part is marked; the "
        "grey line is as many drawn from all ranks."
    )
    return Figure(data, layout, caption, height=380)


def _middle(part: Part) -> float:
    return 100 * part.first if part.end is None else (part.first + part.end) / 2


def _level(value: float) -> dict[str, object]:
    return {"type": "line", "xref": "paper", "x0": 0, "x1": 1, "y0": value, "y1": value,
            "line": {"color": WEAK, "width": 1.5, "dash": "dash"}, "layer": "below"}  # fmt: skip
