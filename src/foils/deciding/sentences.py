"""The decision in words: what to train on, as long as what, and what speaks against relying on it."""

from __future__ import annotations

from dataclasses import replace

from foils.deciding.results import NONE, Decision, TurningPoint, list_length, percent, share_interval

ABLE = 0.75  # share of random documents below the positive from which on a model can learn from hard negatives
RECURRING = 0.995  # share of recurring positives from which on nothing is said of the others
ENOUGH = 50  # queries from which on nine choices of ten are those of all queries (`benchmarks/run.py decide few`)
LONGER = 1.5  # times the shortest source's negatives a query, above which benefits are of different lengths


def explain(decision: Decision) -> Decision:
    """Return the decision with its sentences and cautions."""
    sentences = [sentence_of(decision), *remarks_of(decision)]
    return replace(decision, sentences=tuple(sentences), cautions=tuple(cautions_of(decision)))


def sentence_of(decision: Decision) -> str:
    """Return what to train on, with its gain, and as long as what, or how surely."""
    chosen = decision.candidates[0]
    low, high = f"{chosen.gain_low:.1f}", f"{chosen.gain_high:.1f}"
    gain = f"{chosen.gain:+.1f} points of nDCG@10 [{low}, {high}] over in-batch negatives alone"
    few, queries = decision.queries < ENOUGH, f"{decision.queries:,} queries"
    if few:
        text = f"Too few pairs to tell ({queries}); as a guess, {decision.source or 'in-batch negatives alone'}"
    elif decision.source is None:
        text = "Train without mined negatives, on in-batch negatives alone"
    elif decision.tied:
        text = f"A tie: {chosen.name} is expected to gain {gain}"
    else:
        text = f"Train on {chosen.name}: {gain}"
    if few and decision.source is not None:
        text += f": {gain}"
    if not few:
        text += f" ({queries})"
    if decision.best_with_probability is None:
        return f"{text}{condition_of(decision)}."
    text += f", best with probability {decision.best_with_probability:.2f}"
    shown = "" if decision.source is None else f"; {share_interval(chosen)} of it are unlabelled answers"
    return f"{text}{shown}."


def condition_of(decision: Decision) -> str:
    """Return up to which share of unlabelled answers the choice holds, and what is better beyond, in words."""
    turns = [turn for turn in (decision.turns_below, decision.turns_at) if turn is not None]
    if not turns and decision.pooled:
        return "; no share of unlabelled answers changes the choice"
    if not turns:
        return ", if the labels were not pooled: no possible share of unlabelled answers changes the choice"
    chosen = decision.candidates[0].name
    # The larger share of the two at a turning point is easier to see.
    named = [_larger(turn, chosen) for turn in turns]
    if len({name for name, _ in named}) > 1:
        named = [(chosen, turn.false_share) for turn in turns]
    shares = [percent(share) for _, share in named]
    if len(turns) == 2:
        bound = f"between {shares[0][:-2]} and {shares[1]}"
    else:
        bound = f"{'at most' if turns[0].above else 'at least'} {shares[0]}"
    which = "it" if named[0][0] == chosen else named[0][0]
    others = [f"{'beyond' if turn.above else 'below'} that, {turn.source or NONE}" for turn in turns]
    return f", as long as {bound} of {which} are unlabelled answers; {'; '.join(others)}"


def _larger(turn: TurningPoint, chosen: str) -> tuple[str, float]:
    """The source with the larger share at a turning point, and that share."""
    if turn.share_of_other > turn.false_share:
        return turn.source or NONE, turn.share_of_other
    return chosen, turn.false_share


def remarks_of(decision: Decision) -> list[str]:
    """Return what a reader of the decision has to know beside it, in sentences."""
    lines = []
    if decision.ties:
        names = ", ".join("in-batch negatives alone" if name == NONE else name for name in decision.ties)
        lines.append(f"The interval does not tell {decision.candidates[0].name} from {names}: these are ties.")
    if decision.label_next:
        labels = f"{decision.label_next} {'more ' * (decision.labels > 0)}labels"
        lines.append(f"About {labels} could change the choice (foils label).")
    if decision.recurrence is not None and decision.recurrence < RECURRING:
        lines.append(
            f"Of the positives of queries to come {percent(decision.recurrence)} are expected to be positives of "
            "training queries too, so that hard negatives count for less."
        )
    return lines


def cautions_of(decision: Decision) -> list[str]:
    """Return what speaks against relying on the decision as it stands, and what to do then, in sentences."""
    lines = []
    if decision.tied:
        tell = "Labels would hardly change that; more pairs would, or to train on both (foils study)."
        if decision.label_next:
            count = f"{decision.label_next}{' more' if decision.labels else ''}"
            tell = f"To tell, judge {count} of the negatives (foils label, or --labels-by), or add pairs."
        lines.append(
            f"In-batch negatives alone are the simplest choice and may do as well as {decision.source}. {tell}"
        )
    if decision.queries < ENOUGH:
        lines.append(
            f"A choice among so few as {decision.queries} queries often differs from that of all; from {ENOUGH} on it "
            "repeats nine times in ten."
        )
    if decision.pooled:
        lines.append(
            f"{decision.pooled}: such labels say nothing of the answers that nobody looked at, and any share of "
            "unlabelled answers is possible. Judge some negatives (foils label)."
        )
    if decision.ability < ABLE:
        lines.append(
            f"The encoder puts only {percent(decision.ability)} of random documents below the positive: a model that "
            "starts with so little learns from easy negatives first (--starts nothing)."
        )
    lengths = [list_length(negatives) for negatives in decision.negatives.values()]
    shortest, longest = min(lengths), max(lengths)
    if longest > LONGER * shortest:
        lines.append(
            f"The sources have {shortest:.0f} to {longest:.0f} negatives a query, and a longer list is worth more for "
            "its length alone; decide between lists of equal length."
        )
    return lines
