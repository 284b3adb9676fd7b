"""What a decision is and says: candidates, where the choice turns, what speaks against it; table and JSON."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Annotated, Any

from foils.data.labels import LabelsLike
from foils.data.negatives import Negatives
from foils.deciding.benefit import STARTS, Basis
from foils.runtime.files import without_nan
from foils.runtime.options import Option, Settings
from foils.runtime.results import Result, Table

NONE, RANDOM = "none", "random"
ALONE = "in-batch negatives alone"  # what none is called in sentences
ABLE = 0.75  # share of random documents below the positive from which a model can learn from hard negatives
RECURRING = 0.995  # share of recurring positives from which on nothing is said of the others
ENOUGH = 50  # queries from which nine choices of ten are those of all (`benchmarks/run.py decide few`)
LONGER = 1.5  # times the shortest source's negatives a query, above which benefits are of different lengths


@dataclass(frozen=True)
class BeliefSettings(Settings):
    """What is known of the training and of unlabelled answers.

    Attributes:
        labels: File of judged pairs, as `foils label` writes it. In Python also Labels, or a DataFrame.
        starts: What the training starts from: the encoder that scores, or nothing, as a reranker
            from a masked language model does.
        in_batch: Negatives that a query has in its batch anyway, as random documents; 0 for a loss
            of the list alone.
    """

    heading = "Decision"

    labels: Annotated[LabelsLike | None, Option(metavar="FILE")] = None
    starts: Annotated[str, Option(names=STARTS)] = "encoder"
    in_batch: Annotated[int, Option(least=0)] = 127


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """What is expected of one source, of random negatives, or of none.

    Attributes:
        records: that it has a negative for, of those looked at.
        benefit: B, a mean over all records; without labels at half of what the pairs cannot
            exclude or, where labels end with a pool, at all of it.
        benefit_low, benefit_high: its interval, without labels over all that they cannot exclude.
        strength: what the benefit would be without unlabelled answers.
        learnability: mean ℓ, weighted by a.
        gain: points of nDCG@10 expected over in-batch negatives alone, with its interval.
        false_share: φ, its share of unlabelled answers; NaN without labels. `false_share_low`,
            `false_share_high`: its interval; without labels from 0 to what the pairs cannot
            exclude.
        best_with_probability: of all candidates; NaN without labels.
        verdict: good, tie with the chosen one, worse, harmful, or no better than none.
    """

    name: str
    records: int
    benefit: float
    benefit_low: float
    benefit_high: float
    strength: float
    learnability: float
    gain: float
    gain_low: float = math.nan
    gain_high: float = math.nan
    false_share: float
    false_share_low: float
    false_share_high: float
    best_with_probability: float = math.nan
    verdict: str = ""


@dataclass(frozen=True)
class TurningPoint:
    """Where the decision would be another.

    Attributes:
        unlabelled: o there.
        false_share: φ of the chosen source there.
        source: that is better then; None: no mined negatives.
        above: whether it is better with more unlabelled answers.
        share_of_other: φ of that source there.
    """

    unlabelled: float
    false_share: float
    source: str | None
    above: bool
    share_of_other: float = 0.0


@dataclass(frozen=True)
class Decision(Result):
    """What to train on.

    Attributes:
        source: the one to train on, `random` where no source of the name was given too; None: no
            mined negatives.
        candidates: sources, random negatives and none, best first.
        best_with_probability: of the chosen one, with labels; None without. `runner_up`: the second
            of the candidates.
        ties: candidates that the interval does not tell from the chosen one.
        turns_at: where another is better with more unlabelled answers than is believed, or, where
            none is, with fewer; None: nowhere up to the bound of o. `turns_below`: the end towards
            fewer answers, where there are two.
        pooled: why the labels look pooled, as the judged first documents of a retriever; empty:
            they do not. Then the bound of o means nothing, and all shares are thought possible.
        pool: how many documents of each query were judged there; 0: none, or nobody knows.
        queries: of the split, with a positive. Fewer than 50 are too few to tell.
        label_next: labels that could change the choice by more than a tenth of a point; 0: none.
        labels: judged pairs that the decision rests on.
        unlabelled_most: ō, the bound of o, relevant documents without a label for each that has one.
        ability: share of random negatives that the encoder puts below the positive.
        recurrence: R, the share of the queries to come whose relevant documents are positives of
            training queries too; None: the training starts from nothing.
        negatives: sources and random negatives, as tables to train on. `basis`: what it rests on.
    """

    source: str | None
    candidates: tuple[Candidate, ...]
    best_with_probability: float | None
    runner_up: str | None
    ties: tuple[str, ...]
    turns_at: TurningPoint | None
    label_next: int
    labels: int
    unlabelled_most: float
    ability: float
    recurrence: float | None
    negatives: Mapping[str, Negatives] = field(repr=False)
    basis: Basis = field(repr=False)
    turns_below: TurningPoint | None = None
    pooled: str = ""
    pool: int = 0
    queries: int = 0

    @property
    def worths(self) -> dict[str, Candidate]:
        """The candidates by name, none left out."""
        return {each.name: each for each in self.candidates if each.name != NONE}

    @property
    def tied(self) -> bool:
        """Whether the chosen source may be no better than in-batch negatives alone."""
        return NONE in self.ties

    @property
    def sentence(self) -> str:
        """What to train on, with its gain, and as long as what, or how surely: one sentence."""
        chosen, queries = self.candidates[0], f"{self.queries:,} queries"
        gain = f"{chosen.gain:+.1f} points of nDCG@10 [{chosen.gain_low:.1f}, {chosen.gain_high:.1f}] over {ALONE}"
        if self.queries < ENOUGH:
            text = (
                f"Too few pairs to tell ({queries}); as a guess, {f'{self.source}: {gain}' if self.source else ALONE}"
            )
        elif self.source is None and self.pooled and not self.labels:
            text = f"The labels look pooled: until some negatives are judged, train on {ALONE} ({queries})"
        elif self.source is None:
            text = f"Train without mined negatives, on {ALONE} ({queries})"
        elif self.tied:
            text = f"A tie: {chosen.name} is expected to gain {gain} ({queries})"
        else:
            text = f"Train on {chosen.name}: {gain} ({queries})"
        if self.best_with_probability is None:
            return f"{text}{self.condition}."
        shown = "" if self.source is None else f"; {share_interval(chosen)} of it are unlabelled answers"
        return f"{text}, best with probability {self.best_with_probability:.2f}{shown}."

    @property
    def condition(self) -> str:
        """Up to which share of unlabelled answers the choice holds, and what is better beyond: words."""
        turns = [turn for turn in (self.turns_below, self.turns_at) if turn is not None]
        if not turns and self.pooled:
            return "; no share of unlabelled answers changes the choice"
        if not turns:
            return ", if the labels were not pooled: no possible share of unlabelled answers changes the choice"
        chosen = self.candidates[0].name
        # The larger share of the two at a turning point is easier to see, if it is one source's at both.
        larger = {turn.source or NONE if turn.share_of_other > turn.false_share else chosen for turn in turns}
        named = larger.pop() if len(larger) == 1 else chosen
        shares = [percent(turn.false_share if named == chosen else turn.share_of_other) for turn in turns]
        if len(turns) == 2:
            bound = f"between {shares[0][:-2]} and {shares[1]}"
        else:
            bound = f"{'at most' if turns[0].above else 'at least'} {shares[0]}"
        others = [f"{'beyond' if turn.above else 'below'} that, {turn.source or NONE}" for turn in turns]
        which = "it" if named == chosen else named
        return f", as long as {bound} of {which} are unlabelled answers; {'; '.join(others)}"

    @property
    def sentences(self) -> tuple[str, ...]:
        """The decision in words: the answer, and what a reader has to know beside it."""
        lines = [self.sentence]
        if self.ties:
            names = ", ".join(ALONE if name == NONE else name for name in self.ties)
            lines.append(f"The interval does not tell {self.candidates[0].name} from {names}: these are ties.")
        if self.label_next:
            more = "more " if self.labels else ""
            lines.append(f"About {self.label_next} {more}labels could change the choice (foils label).")
        if self.recurrence is not None and self.recurrence < RECURRING:
            recur = f"{percent(self.recurrence)} are expected to be positives of training queries too"
            lines.append(f"Of the positives of queries to come {recur}: hard negatives count for less.")
        return tuple(lines)

    @property
    def cautions(self) -> tuple[str, ...]:
        """What speaks against relying on the decision as it stands, and what to do then."""
        lines = []
        if self.tied:
            tell = "Labels would hardly change that; more pairs would, or to train on both (foils study)."
            if self.label_next:
                count = f"{self.label_next}{' more' if self.labels else ''}"
                tell = f"To tell, judge {count} of the negatives (foils label, or --labels-by), or add pairs."
            lines.append(f"{ALONE.capitalize()} are the simplest choice and may do as well as {self.source}. {tell}")
        if self.queries < ENOUGH:
            lines.append(f"A choice among so few queries often changes; from {ENOUGH} on, once in ten times.")
        if self.pooled and not self.labels:
            line = f"{self.pooled}: such labels say nothing of what nobody saw. Judge some negatives (foils label)"
            if self.pool:
                line += ", or train on those judged and not labelled, which foils select --by benefit keeps"
            lines.append(f"{line}.")
        if self.ability < ABLE:
            below = percent(self.ability)
            lines.append(f"Only {below} of random documents are below the positive: try --starts nothing.")
        lengths = [list_length(negatives) for negatives in self.negatives.values()]
        if max(lengths) > LONGER * min(lengths):
            span = f"{min(lengths):.0f} to {max(lengths):.0f} negatives a query"
            lines.append(f"The sources have {span}, and a longer list is worth more; compare equal lengths.")
        return tuple(lines)

    def table(self) -> Table:
        """Return the candidates, best first, under the sentence; below, what speaks against relying on it."""
        best = ["P(best)"] if self.labels else []
        columns, rows = ["source", "points over none", "unlabelled answers", *best, "verdict"], []
        for each in self.candidates:
            gain = points(each.gain, each.gain_low, each.gain_high)
            best = [f"{each.best_with_probability:.2f}"] if self.labels else []
            rows.append((each.name, gain, share_interval(each), *best, each.verdict))
        chosen = frozenset(at for at, each in enumerate(self.candidates) if each.name == (self.source or NONE))
        return Table(self.sentence, columns, rows, "\n".join(self.cautions), chosen)

    def tables(self) -> list[Table]:
        """Return the one table that there is to see."""
        return [self.table()]

    def to_json(self) -> dict[str, Any]:
        """Return the decision as scores.json holds it."""
        hidden = ("negatives", "basis")
        plain: dict[str, Any] = {key: value for key, value in vars(self).items() if key not in hidden}
        for key in ("turns_at", "turns_below"):
            plain[key] = asdict(plain[key]) if plain[key] else None
        plain["candidates"] = [asdict(each) for each in self.candidates]
        return dict(without_nan({**plain, "sentences": self.sentences, "cautions": self.cautions}))


def points(value: float, low: float, high: float) -> str:
    """Return a gain in points with its interval, as +0.8 [0.1, 1.6]."""
    return "0.0" if low == high == 0 else f"{value:+.1f} [{low:.1f}, {high:.1f}]"


def share_interval(each: Candidate) -> str:
    """Return the interval of a candidate's share of unlabelled answers."""
    low, high = percent(each.false_share_low), percent(each.false_share_high)
    return f"{low[:-2]}–{high}" if low != high else high


def percent(share: float) -> str:
    """Return a share for readers; what is above 0 is 0.01 % at the least."""
    return f"{max(100 * share, 0.01):.2g} %" if 0 < share < 0.1 else f"{100 * share:.0f} %"


def list_length(negatives: Negatives) -> float:
    """Return how many negatives a query of a source has on average."""
    kept = negatives.kept()
    return len(kept) / max(1, len(kept["query_id"].unique()))
