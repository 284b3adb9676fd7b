"""The decision: which source to train on, how likely it is the best, and what to look at to be surer."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np

from foils.data.collection import Rows
from foils.scoring.answers import Labelled
from foils.scoring.attainable import attainable
from foils.scoring.belief import Belief, Draws
from foils.scoring.gates import Float64s
from foils.scoring.records import CONTROL
from foils.scoring.worth import SURE, SourceWorth, Worth, mistaken, of_sources, verdict

DRAWS = 1_000
FORM = 0.3  # standard deviation of the logarithm of what the benefit of a source is wrong by
HARM_OF_ALL, HARM_OF_ONE = 0.2, 0.2  # and of its harm alone: in all sources, and in each by itself
TOLERANCE = 0.02  # share of the best benefit that a decision may lose without mattering
SETTLED = 0.05  # share of the best benefit that a settled decision may be expected to lose
NEXT = (20, 40, 60, 80, 120, 200, 320)  # labels that are tried
FUTURES = 24  # simulated sets of labels
CONFIRMED = 0.975  # probability of a false one among the judged from which on a share has a lower end above 0
TURNS = 400  # points of o at which the order is looked at


@dataclass(frozen=True)
class Turn:
    """Where the decision would be another.

    Attributes:
        unlabelled: o from which on, or up to which, the other source is better.
        false_share: φ of the chosen source there.
        source: the other one; None: no mined negatives.
        above: whether the other one is better with more false negatives, rather than with fewer.
        share_of_other: φ of the other source there; 0 of no mined negatives.
    """

    unlabelled: float
    false_share: float
    source: str | None
    above: bool
    share_of_other: float = 0.0


@dataclass(frozen=True)
class Decision:
    """What to train on.

    Attributes:
        source: the one to train on; None: no mined negatives, in-batch negatives alone.
        best_with_probability: of that source. `runner_up`: the source with the next larger benefit, or None.
        ratio: benefit over the runner-up's; NaN where that is not above 0.
        matters: whether the choice changes the benefit by more than 2 %.
        turns_at: where the order turns nearest to today's belief; None: nowhere in it.
        label_next: number of labels after which the decision is expected to lose at most 5 % of the best benefit; 0:
            none is needed; None: more than 320, or than there are pairs.
        labels: judged pairs that the belief rests on.
        unlabelled: mean of o; `unlabelled_low`, `unlabelled_high`: its interval; `unlabelled_most`: ō.
        judges: of each program that judged: sensitivity and specificity, each with its interval, and how many
            pairs it and people both judged.
        attainable: probability of being the best that more records could well give to a source.
        worths: of every source, hybrid and the random control, by name.
        curve: o, and each source's benefit at it, for the picture.
        ability: share of random negatives that the encoder puts below the positive.
        recurrence: R, the share of the queries to come whose relevant documents are positives of training queries too,
            that hard negatives are counted by; None: not heeded, as by a training that starts from nothing.
        sentences: the decision in words.
    """

    source: str | None
    best_with_probability: float
    runner_up: str | None
    ratio: float
    matters: bool
    turns_at: Turn | None
    label_next: int | None
    labels: int
    unlabelled: float
    unlabelled_low: float
    unlabelled_high: float
    unlabelled_most: float
    ability: float
    worths: Mapping[str, SourceWorth] = field(repr=False)
    curve: Mapping[str, Any] = field(repr=False)
    sentences: tuple[str, ...] = ()
    judges: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    attainable: float = 1.0
    recurrence: float | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the decision as scores.json holds it, without the sources' own numbers."""
        plain = {key: value for key, value in vars(self).items() if key not in ("worths", "curve", "turns_at")}
        return {
            **plain,
            "turns_at": asdict(self.turns_at) if self.turns_at else None,
            "sentences": list(self.sentences),
        }


@dataclass(frozen=True)
class Believed:
    """Sources with what their benefit and their false negatives depend on.

    Attributes:
        names: of the sources, the control last where there is one.
        worths: of each. `belief`: on them. `labelled`: what was judged.
        costs: of each, the cheaper the smaller.
        rivals: names of the sources that are decided between; none: all but the control.
    """

    names: Sequence[str]
    worths: Sequence[Worth]
    belief: Belief
    labelled: Labelled
    costs: Sequence[int]
    rivals: Sequence[str] = ()

    @property
    def candidates(self) -> Rows:
        """Places of the sources that are decided between."""
        return np.flatnonzero([name in self.rivals if self.rivals else name != CONTROL for name in self.names])


def decide(
    believed: Believed, waiting: Labelled, ability: float, rng: np.random.Generator, *, confidence: float = 0.95
) -> Decision:
    """Decide by the benefit, over a bootstrap of blocks of records jointly with the belief on false negatives.

    How likely a source is the best also heeds that the form of the benefit is only a model of training: each source's
    benefit may be wrong by a factor of e^ε, ε ~ N(0, 0.3²), and what its false negatives harm by two more, N(0, 0.2²)
    each, one for all sources and one of its own. Chosen is the source, or none, with the least expected regret, or the
    cheapest one whose regret is at most 2 % of the best benefit. Hybrids, which take turns, have the mean of their
    parts' benefit, and are not chosen.

    Args:
        believed: the sources.
        waiting: pairs in the order in which they would be judged next, their `relevant` not looked at.
        ability: share of random negatives that the encoder puts below the positive.
        rng: of all draws.
        confidence: of the intervals.
    """
    draws = believed.belief.draw(believed.labelled, rng, draws=DRAWS)
    plain, strengths = _values(believed, draws, rng)
    factors = _factors(plain.shape, rng)
    values = mistaken(plain, strengths, factors)
    worths = _worths(believed, draws, plain, values, confidence)
    candidates = np.append(believed.candidates, len(believed.names))  # the last is no mined negatives
    plain, values = (np.column_stack([each, np.zeros(len(each))]) for each in (plain, values))
    highest = values[:, candidates].max(axis=1)
    regret = (plain[:, candidates].max(axis=1)[:, None] - plain).mean(axis=0)
    tolerated = TOLERANCE * max(float(plain.mean(axis=0).max()), 0.0)
    best = int(candidates[np.argmin(regret[candidates])])
    costs = [*believed.costs, 0]
    good_enough = [int(at) for at in candidates if regret[at] <= tolerated]
    chosen = min(good_enough, key=lambda at: (costs[at], regret[at])) if good_enough else best
    others = [int(at) for at in believed.candidates if at != chosen]
    second = min(others, key=lambda at: regret[at]) if others else None
    probability = float((values[:, chosen] >= highest).mean())
    matters = len(good_enough) < 2
    mean = plain.mean(axis=0)
    ratio = math.nan if second is None or mean[second] <= 0 else float(mean[chosen] / mean[second])
    grid, curves = _curves(believed)
    spread = np.quantile(draws.unlabelled, [(1 - confidence) / 2, (1 + confidence) / 2])
    decision = Decision(
        source=None if chosen == len(believed.names) else believed.names[chosen],
        best_with_probability=probability,
        runner_up=None if second is None else believed.names[second],
        ratio=ratio,
        matters=matters,
        turns_at=_turn(believed, grid, curves, chosen, float(np.median(draws.unlabelled))),
        label_next=0
        if probability >= SURE or not matters
        else _labels_needed(plain[:, candidates], draws, waiting, rng),
        labels=len(believed.labelled.relevant),
        unlabelled=float(draws.unlabelled.mean()),
        unlabelled_low=float(spread[0]) if draws.some_false >= CONFIRMED else 0.0,
        unlabelled_high=float(spread[1]),
        unlabelled_most=believed.belief.most,
        ability=ability,
        worths=worths,
        judges=draws.judges(believed.labelled, confidence),
        attainable=attainable(believed.worths, draws, candidates, factors, rng, tolerance=TOLERANCE),
        curve={"unlabelled": grid.tolist(), "benefit": dict(zip(believed.names, curves.T.tolist(), strict=False))},
    )
    return decision


def _factors(shape: tuple[int, ...], rng: np.random.Generator) -> Float64s:
    """(2, D, S) what the form of the benefit may be wrong by: in help and harm of a source, and in harm alone."""
    source, every, own = (rng.standard_normal(size) for size in (shape, (shape[0], 1), shape))
    helped = np.exp(FORM * source)
    return np.stack([helped, helped * np.exp(HARM_OF_ALL * every + HARM_OF_ONE * own)])


def _values(believed: Believed, draws: Draws, rng: np.random.Generator) -> tuple[Float64s, Float64s]:
    """(D, S) benefits, and strengths: each draw of the belief with its own resampling of blocks of records."""
    blocks = len(believed.worths[0].counts)
    weights = rng.multinomial(blocks, np.full(blocks, 1 / blocks), size=len(draws.shares)).astype(np.float64)
    return of_sources(believed.worths, draws.shares, weights)


def _worths(
    believed: Believed, draws: Draws, values: Float64s, with_form: Float64s, confidence: float
) -> dict[str, SourceWorth]:
    tails = [(1 - confidence) / 2, (1 + confidence) / 2]
    some = draws.some_false >= CONFIRMED
    best = np.maximum(with_form[:, believed.candidates].max(axis=1), 0.0)
    control = believed.names.index(CONTROL) if CONTROL in believed.names else None
    weakest = math.nan
    if control is not None and believed.worths[control].learnability == 1:  # else easy is no fault
        weakest = believed.worths[control].strength
    tolerated = TOLERANCE * max(float(values.mean(axis=0).max()), 0.0)
    worths = {}
    for at, name in enumerate(believed.names):
        low, high = np.quantile(draws.shares[:, at], tails if len(believed.labelled.relevant) else [0.0, 0.995])
        low_b, high_b = np.quantile(values[:, at], tails)
        worth = SourceWorth(
            name=name,
            false_share=float(draws.shares[:, at].mean()),
            false_share_low=float(low) if some else 0.0,
            false_share_high=float(high),
            benefit=float(values[:, at].mean()),
            benefit_low=float(low_b),
            benefit_high=float(high_b),
            strength=believed.worths[at].strength,
            learnability=believed.worths[at].learnability,
            best_with_probability=0.0 if at == control else float((with_form[:, at] >= best).mean()),
            above_none=float((values[:, at] > 0).mean()),
            verdict="",
        )
        worths[name] = worth if at == control else replace(worth, verdict=verdict(worth, weakest, tolerated))
    return worths


def _curves(believed: Believed) -> tuple[Float64s, Float64s]:
    """(n,) o from 0 to ō, and (n, S + 1) the sources' benefits at it, and that of no mined negatives, 0."""
    grid = np.linspace(0.0, believed.belief.most, TURNS)
    shares = np.array([believed.belief.shares(o) for o in grid])
    curves = [worth.benefit(shares[:, at]) for at, worth in enumerate(believed.worths)]
    return grid, np.column_stack([*curves, np.zeros(TURNS)])


def _turn(believed: Believed, grid: Float64s, curves: Float64s, chosen: int, today: float) -> Turn | None:
    """Where, nearest to today's o, another source overtakes the chosen one."""
    rivals = np.append(believed.candidates, len(believed.names))
    ahead = rivals[curves[:, rivals].argmax(axis=1)]
    other = np.flatnonzero(curves[np.arange(len(grid)), ahead] > curves[:, chosen])
    if not len(other):
        return None
    at = int(other[np.argmin(np.abs(grid[other] - today))])
    shares = [*believed.belief.shares(float(grid[at])), 0.0]
    rival = int(ahead[at])
    other_name = None if rival == len(believed.names) else believed.names[rival]
    return Turn(float(grid[at]), float(shares[chosen]), other_name, bool(grid[at] > today), float(shares[rival]))


def _labels_needed(values: Float64s, draws: Draws, waiting: Labelled, rng: np.random.Generator) -> int | None:
    """The least number of labels after which the decision is expected to lose at most 5 % of the best benefit.

    What the form of the benefit may be wrong by is left out: labels do not tell.

    Sets of labels are simulated from draws of the belief; the other draws are weighted by how likely they make them.
    """
    tolerated = SETTLED * max(float(values.mean(axis=0).max()), 0.0)
    highest = values.max(axis=1)
    if (highest - values[:, values.mean(axis=0).argmax()]).mean() <= tolerated:
        return 0
    futures = rng.choice(len(values), FUTURES, replace=False)
    for count in NEXT:
        if count > len(waiting.logs):
            return None
        logits = waiting.select(np.arange(count)).logits(draws.lines)
        log_true, log_false = -np.logaddexp(0.0, -logits), -np.logaddexp(0.0, logits)
        regrets = []
        for future in futures:
            relevant = rng.random(count) < np.exp(log_true[future])
            log_weight = np.where(relevant, log_true, log_false).sum(axis=1)
            weight = np.exp(log_weight - log_weight.max())
            weight /= weight.sum()
            regrets.append(weight @ highest - (weight @ values).max())
        if np.mean(regrets) <= tolerated:
            return count
    return None
