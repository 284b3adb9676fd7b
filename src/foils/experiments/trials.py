"""Which training is taken: a plain one first, others where dev is sure of them; each is a candidate like any other."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import stats

from foils.runtime.results import Table, counted, number

Floats = npt.NDArray[np.float64]

ONE_ERROR = float(stats.norm.sf(1))
"""Chance that a candidate which is no better lies more than one standard error above another."""
RATE_STEP = 3.0
NEGATIVES = (1, 4, 7)
SHARES = (0.75, 0.5, 0.25)
"""Shares of the tuned weights that are tried, the rest being the base's."""
MEMBERS = 3
"""Trainings whose weights are averaged, at most."""
AGAIN = "again"
"""Before the ranks of a source: mined by the model that the plain recipe trained."""


def standard_error(values: Floats) -> float:
    """Return the standard error of the mean of (n,) values, n ≥ 2."""
    return float(values.std(ddof=1) / np.sqrt(len(values)))


def errors_needed(queries: int, others: int) -> float:
    """Return how many standard errors above the plain candidate another has to be.

    One for a single other candidate, more for several, so that chance takes one of them no more often: the quantile
    of Student's t at 1 − .159/others (Bonferroni's correction of the rule of one standard error).

    Args:
        queries: that differences are means of, at least 2.
        others: candidates beside the plain one.
    """
    return float(stats.t.isf(ONE_ERROR / max(1, others), queries - 1))


def plainest(values: Sequence[Floats], errors: float = 1.0) -> int:
    """Return the number of the first candidate that the best one is not sure to beat.

    The best is that of the largest mean. It beats another where the mean of their paired differences is above
    `errors` standard errors of it.

    Args:
        values: of each candidate, the plainest first, (n,) the measure of each query.
        errors: at least 0.

    Source: the rule of one standard error (Breiman et al. 1984), of paired differences.
    """
    best = int(np.argmax([each.mean() for each in values]))
    for place, each in enumerate(values):
        gain = values[best] - each
        if place == best or gain.mean() <= errors * standard_error(gain):
            return place
    raise AssertionError("the best is among them")


@dataclass(frozen=True)
class Setting:
    """What a training is set by.

    Attributes:
        learning_rate: its peak.
        steps: of the optimizer.
        source: of mined negatives, as `dense 0-10`; empty: in-batch negatives alone.
        per_query: mined negatives of a positive, each in a row of its own; of a reranker, drawn in each step.
        batches: how batches are filled.
    """

    learning_rate: float
    steps: int
    source: str = ""
    per_query: int = 0
    batches: str = "random"

    def __str__(self) -> str:
        negatives = "pairs alone"
        if self.source:
            negatives = f"{counted(self.per_query, 'negatives')} of {self.source} each"
        filled = "" if self.batches == "random" else f", {self.batches} batches"
        return f"{counted(self.steps, 'steps')} at {self.learning_rate:.3g}, {negatives}{filled}"


@dataclass(frozen=True)
class Space:
    """The settings that may be tried.

    Attributes:
        most_steps: the longest training.
        source: of mined negatives; empty: none is tried.
        again: source that the recipe's model mines; empty: none is tried.
        batches: further ways of filling batches.
    """

    most_steps: int
    source: str = ""
    again: str = ""
    batches: tuple[str, ...] = ()

    def around(self, setting: Setting) -> Iterator[Setting]:
        """Yield the settings that differ from one in one thing, in the order in which they are tried."""
        for batches in self.batches:
            yield replace(setting, batches=batches)
        if self.source and not setting.source:
            yield replace(setting, source=self.source, per_query=NEGATIVES[0])
        if setting.steps < self.most_steps:
            yield replace(setting, steps=min(self.most_steps, 2 * setting.steps))
        for factor in (RATE_STEP, 1 / RATE_STEP):
            yield replace(setting, learning_rate=float(f"{setting.learning_rate * factor:.3g}"))
        if self.source and setting.source:
            more = [count for count in NEGATIVES if count > setting.per_query]
            if more:
                yield replace(setting, per_query=more[0])
            if self.again:
                yield replace(setting, source=self.again)


@dataclass(frozen=True)
class Candidate:
    """A model that may be taken, and what it has on dev.

    Its weights are (1 − share)·base + share·(mean of the members' weights); without members it is the base.

    Attributes:
        members: the trainings.
        share: in [0, 1].
        values: (n,) the measure of each query of dev.
        seconds: that making it took. `measuring`: that measuring it took.

    Source: Wortsman et al. 2022, "Model soups" (the mean), and "Robust fine-tuning" (WiSE-FT, the share).
    """

    members: tuple[Setting, ...]
    share: float
    values: Floats = field(repr=False, compare=False)
    seconds: float = field(default=0.0, compare=False)
    measuring: float = field(default=0.0, compare=False)

    @property
    def mean(self) -> float:
        """The mean on dev."""
        return float(self.values.mean())

    def __str__(self) -> str:
        if not self.members:
            return "the base"
        trained = str(self.members[0])
        if len(self.members) > 1:
            trained = f"the mean of the weights of {len(self.members)} trainings"
        return trained if self.share == 1 else f"{self.share:g} of {trained}, the rest the base"

    def to_json(self) -> dict[str, Any]:
        """Return what it is, and what it has on dev."""
        members = [asdict(each) for each in self.members]
        return {"name": str(self), "members": members, "share": self.share, "dev": self.mean}


def search(
    recipe: Setting,
    run: Callable[[Setting, list[Candidate]], Candidate | None],
    space: Callable[[], Space],
    most: int,
) -> list[Candidate]:
    """Try the recipe, then settings around the best on dev, until none of them is better.

    Args:
        recipe: the plain training.
        run: trains and measures, knowing what was tried before; None: the time does not allow it.
        space: what may be tried, asked for once the recipe is measured.
        most: trainings at most.
    """
    trials: list[Candidate] = []
    first = run(recipe, trials)
    if first is None:
        return trials
    trials.append(first)
    tried = {recipe}
    while len(tried) < most:
        best = max(trials, key=lambda each: each.mean)
        new = (setting for setting in space().around(best.members[0]) if setting not in tried)
        setting = next(new, None)
        if setting is None:
            break
        tried.add(setting)
        trial = run(setting, trials)
        if trial is not None:
            trials.append(trial)
    return trials


def averaged(trials: Sequence[Candidate]) -> tuple[Setting, ...]:
    """Return the trainings whose weights are worth a mean: the three best on dev, none below the plain one.

    Args:
        trials: the plain one first.
    """
    ranked = sorted(trials, key=lambda each: -each.mean)
    return tuple(each.members[0] for each in ranked[:MEMBERS] if each.mean >= trials[0].mean)


def trials_table(candidates: Sequence[Candidate], taken: Candidate, measure: str) -> Table:
    """Return what was tried: each candidate's measure on dev, its difference from the one that is taken, and why not.

    Args:
        candidates: the base first, then the plain training.
        taken: one of them.
        measure: its name.
    """
    rows = []
    for each in candidates:
        gain = each.values - taken.values
        difference = "" if each is taken else f"{gain.mean():+.4f} ± {standard_error(gain):.4f}"
        verdict = "lower" if gain.mean() < 0 else "no more than chance above what is plainer"
        if each is taken:
            verdict = "taken"
        elif not gain.any():
            verdict = "equal"
        shown = f"{number(each.mean, 4)} ± {standard_error(each.values):.4f}"
        rows.append((str(each), shown, difference, verdict))
    columns = ["training", f"{measure} on dev ± its error", "less what is taken", "why"]
    marked = frozenset({list(candidates).index(taken)}) if taken in candidates else frozenset()
    return Table("What was tried", columns, rows, marked=marked, words=frozenset({3}))
