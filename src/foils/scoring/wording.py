"""A decision in words."""

from __future__ import annotations

import math
from collections.abc import Mapping

from foils.runtime.options import spelled
from foils.scoring.decision import NEXT, Decision
from foils.scoring.worth import SURE, SourceWorth

ABLE = 0.75  # share of random documents below the positive from which on a model can learn from hard negatives
RECURRING = 0.995  # share of recurring positives from which on nothing is said of the others


def sentences(decision: Decision) -> list[str]:
    """Return the decision in words: what to train on, where it would turn, and what to do to be surer."""
    lines = [_advice(decision)]
    chosen = None if decision.source is None else decision.worths[decision.source]
    if chosen is not None and (turn := decision.turns_at) is not None and decision.matters:
        way = "more" if turn.above else "fewer"
        named, share = chosen, turn.false_share  # the share of the two that is larger, and so easier to see
        if turn.source is not None and turn.share_of_other > share:
            named, share = decision.worths[turn.source], turn.share_of_other
        lines.append(
            f"The order turns to {turn.source or 'no mined negatives'} if {way} than {_percent(share)} of {named.name} "
            f"are false (today's belief: {_range(named)})."
        )
    if decision.label_next == 0 and decision.matters and decision.best_with_probability < SURE:
        lines.append(
            "Labels would hardly change it: what is left is how well the benefit foresees training, which foils study "
            "measures."
        )
    if decision.label_next:
        labels = spelled("labels")
        command = "foils label --draw uncertain"
        lines.append(f"To be sure, label about {decision.label_next} pairs ({command}), and decide with {labels}.")
    elif decision.label_next is None:
        lines.append(f"Not even {max(NEXT)} labels are expected to settle it: the sources are worth nearly the same.")
    lines += [_contradiction(worth) for worth in decision.worths.values() if worth.contradicted]
    lines += [_outside(worth) for worth in decision.worths.values() if worth.outside >= 0.005 and "+" not in worth.name]
    for name, rates in decision.judges.items():
        recognised, passed = (_rate(rates, rate) for rate in ("sensitivity", "specificity"))
        more = "." if rates["judged_by_people_too"] else "; judge some of its pairs yourself to know more."
        lines.append(
            f"{name} is believed to recognise {recognised} of the relevant pairs, and {passed} of the others{more}"
        )
    if decision.recurrence is not None and decision.recurrence < RECURRING:
        option = spelled("recurrence", f"{decision.recurrence:.2g}")
        lines.append(
            f"Of the positives of queries to come {_percent(decision.recurrence)} are expected to be positives of "
            f"training queries too, so that hard negatives count for less ({option})."
        )
    if decision.ability < ABLE:
        lines.append(
            f"The encoder puts only {_percent(decision.ability)} of random documents below the positive: a model that "
            f"starts with so little learns from easy negatives first ({spelled('starts', 'nothing')})."
        )
    return lines


def _advice(decision: Decision) -> str:
    if not decision.matters:
        name = "in-batch negatives alone" if decision.source is None else decision.source
        return f"Train on {name}: the cheapest of those whose benefit is within 2 % of the best."
    if decision.source is None:
        return (
            f"Train on in-batch negatives alone: better than every source with probability "
            f"{decision.best_with_probability:.2f}, since too many of their negatives are false."
        )
    chosen = decision.worths[decision.source]
    times = "" if math.isnan(decision.ratio) else f", {decision.ratio:.2g} times as useful as {decision.runner_up}"
    start = "Train on" if decision.best_with_probability >= 0.5 else "It cannot be told; the least is risked with"
    return (
        f"{start} {decision.source}: best with probability {decision.best_with_probability:.2f}{times}; "
        f"{_range(chosen)} of it are false."
    )


def _contradiction(worth: SourceWorth) -> str:
    low, high = worth.false_share_by_labels_low, worth.false_share_by_labels_high
    return (
        f"The labels of {worth.name} by themselves show {_percent(worth.false_share_by_labels)} false ones "
        f"({_percent(low)[:-2]}–{_percent(high)}), where {_range(worth)} are believed: trust the labels, not the "
        "belief."
    )


def _outside(worth: SourceWorth) -> str:
    return (
        f"{_percent(worth.outside)} of {worth.name} are texts that are not in the collection, as a language model's: "
        "how many of them are false is known by their likeness to labelled positives alone, and less surely; label "
        "some of them."
    )


def _rate(rates: Mapping[str, float], name: str) -> str:
    low, high = (_percent(rates[f"{name}_{end}"]) for end in ("low", "high"))
    return f"{_percent(rates[name])} ({low[:-2]}–{high})"


def _range(worth: SourceWorth) -> str:
    low, high = (_percent(share)[:-2] for share in (worth.false_share_low, worth.false_share_high))
    return f"{low}–{high} %"


def _percent(share: float) -> str:
    """Return a share for readers; what is above 0 is 0.01 % at the least."""
    return f"{max(100 * share, 0.01):.2g} %" if 0 < share < 0.1 else f"{100 * share:.0f} %"
