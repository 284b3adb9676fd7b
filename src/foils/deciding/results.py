"""What a decision is: the candidates, where the choice turns, what it rests on; its table and its JSON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Annotated, Any

from foils.data.labels import LabelsLike
from foils.data.negatives import Negatives
from foils.deciding.benefit import STARTS
from foils.runtime.files import without_nan
from foils.runtime.options import Option, Settings
from foils.runtime.results import Result, Table
from foils.scoring.gates import Float64s
from foils.scoring.measure import Measured

if TYPE_CHECKING:
    LabelsGiven = LabelsLike
else:
    LabelsGiven = str

NONE, RANDOM = "none", "random"


@dataclass(frozen=True)
class BeliefSettings(Settings):
    """What is known of the training and of unlabelled answers.

    Attributes:
        labels: File of judged pairs, as `foils label` writes it. In Python also Labels, or a DataFrame.
        starts: What the training starts from: the encoder that scores, or nothing, as a reranker from a masked language
            model does.
        in_batch: Negatives that a query has in its batch anyway, as random documents; 0 for a loss of the list alone.
    """

    heading = "Decision"

    labels: Annotated[LabelsGiven | None, Option(metavar="FILE")] = None
    starts: Annotated[str, Option(names=STARTS)] = "encoder"
    in_batch: Annotated[int, Option(least=0)] = 127


@dataclass(frozen=True)
class Candidate:
    """What is expected of one source, of random negatives, or of none.

    Attributes:
        records: that it has a negative for, of those looked at.
        benefit: B, a mean over all records; without labels at half of what the pairs cannot exclude. `benefit_low`,
            `benefit_high`: its interval, without labels over all that they cannot exclude.
        strength: what the benefit would be without unlabelled answers. `learnability`: mean ℓ, weighted by a.
        gain: points of nDCG@10 expected over in-batch negatives alone, with its interval.
        false_share: φ, its share of unlabelled answers; NaN without labels. `false_share_low`, `false_share_high`: its
            interval; without labels from 0 to what the pairs cannot exclude.
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
    gain_low: float
    gain_high: float
    false_share: float
    false_share_low: float
    false_share_high: float
    best_with_probability: float
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
class Basis:
    """What a decision rests on.

    Attributes:
        measured: the triplets of the records that are looked at.
        expected: (m,) π of each triplet; without labels at half of what the pairs cannot exclude.
        in_batch: (T,) log(M·E[x]) of each record.
        settings: of the belief.
        recurrence: R; None: the training starts from nothing.
    """

    measured: Measured
    expected: Float64s
    in_batch: Float64s
    settings: BeliefSettings
    recurrence: float | None


@dataclass(frozen=True)
class Decision(Result):
    """What to train on.

    Attributes:
        source: the one to train on, `random` where no source of the name was given too; None: no mined negatives.
        candidates: sources, random negatives and none, best first.
        best_with_probability: of the chosen one, with labels; None without. `runner_up`: the second of the candidates.
        ties: candidates that the interval does not tell from the chosen one.
        turns_at: where another is better with more unlabelled answers than is believed, or, where none is, with fewer;
            None: nowhere up to the bound of o. `turns_below`: the end towards fewer answers, where there are two.
        pooled: why the labels look pooled, as the judged first documents of a retriever; empty: they do not. Then the
            bound of o means nothing, and all shares are thought possible.
        queries: of the split, with a positive. Fewer than 50 are too few to tell.
        label_next: labels that could change the choice by more than a tenth of a point; 0: none.
        labels: judged pairs that the decision rests on.
        unlabelled_most: ō, the bound of o, relevant documents without a label for each that has one.
        ability: share of random negatives that the encoder puts below the positive.
        recurrence: R, the share of the queries to come whose relevant documents are positives of training queries too;
            None: the training starts from nothing.
        curve: o from 0 to ō, and each candidate's benefit there.
        sentences: the decision in words, the answer first. `cautions`: what speaks against relying on it.
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
    curve: Mapping[str, Any] = field(repr=False)
    negatives: Mapping[str, Negatives] = field(repr=False)
    basis: Basis = field(repr=False)
    turns_below: TurningPoint | None = None
    pooled: str = ""
    queries: int = 0
    sentences: tuple[str, ...] = ()
    cautions: tuple[str, ...] = ()

    @property
    def worths(self) -> dict[str, Candidate]:
        """The candidates by name, none left out."""
        return {each.name: each for each in self.candidates if each.name != NONE}

    @property
    def sentence(self) -> str:
        """What to train on, in one sentence."""
        return self.sentences[0]

    @property
    def tied(self) -> bool:
        """Whether the chosen source may be no better than in-batch negatives alone."""
        return NONE in self.ties

    def table(self) -> Table:
        """Return the candidates, best first, under the sentence, with what speaks against relying on it below."""
        columns = ["source", "points over none", "unlabelled answers", "verdict"]
        rows = [
            [each.name, points(each.gain, each.gain_low, each.gain_high), share_interval(each), each.verdict]
            for each in self.candidates
        ]
        if self.labels:
            columns.insert(3, "P(best)")
            for row, each in zip(rows, self.candidates, strict=True):
                row.insert(3, f"{each.best_with_probability:.2f}")
        chosen = frozenset(at for at, each in enumerate(self.candidates) if each.name == (self.source or NONE))
        return Table(self.sentence, columns, [tuple(row) for row in rows], "\n".join(self.cautions), chosen)

    def tables(self) -> list[Table]:
        """Return the one table that there is to see."""
        return [self.table()]

    def to_json(self) -> dict[str, Any]:
        """Return the decision as scores.json holds it."""
        hidden = ("curve", "negatives", "basis")
        plain = {key: value for key, value in vars(self).items() if key not in hidden}
        for key in ("turns_at", "turns_below"):
            plain[key] = asdict(plain[key]) if plain[key] else None
        return dict(without_nan({**plain, "candidates": [asdict(each) for each in self.candidates]}))


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
