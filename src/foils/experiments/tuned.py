"""What was tried and what is taken: a plain training first, others where dev is sure of them; what test has.

Each training, each mean of weights and each share of the way back to the base is a candidate like any other.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import stats

from foils.data import Collection
from foils.evaluation.doors import Evaluation
from foils.experiments.plan import Plan
from foils.experiments.tasks import BM25, FIRST_STAGE
from foils.pages import Figure, Points, Section, render_page
from foils.runtime.files import without_nan, write_text
from foils.runtime.results import Result, Table, counted, number, p_value
from foils.statistics import Comparison

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

    One for a single other candidate, more for several, so that chance takes one of them no more
    often: the quantile of Student's t at 1 − .159/others (Bonferroni's correction of the rule of
    one standard error).

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


def around(setting: Setting, *, most_steps: int, source: str = "", batches: Sequence[str] = ()) -> Iterator[Setting]:
    """Yield the settings that differ from one in one thing, in the order in which they are tried.

    Args:
        setting: the one.
        most_steps: the longest training.
        source: of mined negatives; empty: none is tried. With it the recipe's model mines some itself.
        batches: further ways of filling batches.
    """
    for each in batches:
        yield replace(setting, batches=each)
    if source and not setting.source:
        yield replace(setting, source=source, per_query=NEGATIVES[0])
    if setting.steps < most_steps:
        yield replace(setting, steps=min(most_steps, 2 * setting.steps))
    for factor in (RATE_STEP, 1 / RATE_STEP):
        yield replace(setting, learning_rate=float(f"{setting.learning_rate * factor:.3g}"))
    if source and setting.source:
        more = [count for count in NEGATIVES if count > setting.per_query]
        if more:
            yield replace(setting, per_query=more[0])
        method, _, ranks = source.partition(" ")
        yield replace(setting, source=f"{AGAIN} {ranks}" if method == "dense" and ranks else AGAIN)


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
    near: Callable[[Setting], Iterable[Setting]],
    most: int,
) -> list[Candidate]:
    """Try the recipe, then settings around the best on dev, until none of them is better.

    Args:
        recipe: the plain training.
        run: trains and measures, knowing what was tried before; None: the time does not allow it.
        near: the settings around one, asked for once the recipe is measured.
        most: trainings at most.
    """
    first = run(recipe, [])
    trials, tried = [] if first is None else [first], {recipe}
    while trials and len(tried) < most:
        best = max(trials, key=lambda each: each.mean)
        setting = next((each for each in near(best.members[0]) if each not in tried), None)
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
    """Return what was tried: each candidate's measure on dev, its difference from the taken one, and why not.

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
    return Table("What was tried", columns, rows, words=frozenset({3}))


MEASURE = "nDCG@10"
BASE, TUNED = "base", "tuned"
TUNE_READING = (
    "Everything is chosen on dev, a split that is not trained on; test is reported as it comes. Whoever "
    "tunes again until p is small looks at test more than once; then p says less. p is that of the paired "
    "randomisation test; intervals come from a bootstrap over the queries.",
)
LEVEL = 0.05
"""p of the paired randomisation test below which a difference on test is told apart from none."""


@dataclass(frozen=True)
class Tuned(Result):
    """A tuning.

    Attributes:
        path: folder of everything; the tuned model is in its folder `model`.
        collection: what was searched, with the splits; `documents` of how many there are in all.
        plan: every decision with its reason.
        evaluation: on test, of the base, the tuned model where one is taken, BM25, and both together.
        base: what the tuned model is measured against: the model as it is, or a first stage's order.
        taken: the model that dev chose; without members the base.
        candidates: all that were tried, the base first, then the plain training.
        warnings: about the data and the training.
    """

    path: Path
    collection: Collection = field(repr=False)
    documents: int
    plan: Plan = field(repr=False)
    evaluation: Evaluation = field(repr=False)
    base: str
    taken: Candidate
    candidates: tuple[Candidate, ...] = field(repr=False)
    warnings: tuple[str, ...]

    @property
    def means(self) -> dict[str, float]:
        """The measure of each system on test."""
        return {system.name: system.means[MEASURE] for system in self.evaluation.systems}

    @property
    def retrieves(self) -> bool:
        """Whether it is an encoder, which searches with BM25; else a reranker."""
        return not self.plan["given"].get("reranker")

    @property
    def first_stage(self) -> str:
        """What a reranker reranks; an encoder's partner is BM25."""
        return str(self.plan["given"].get("first_stage") or BM25)

    @property
    def better(self) -> bool:
        """Whether dev took a trained model over the base; then, and only then, it is written."""
        return bool(self.taken.members)

    @property
    def deploys(self) -> str:
        """What to deploy, as dev chose it: both, model (the tuned one), base, bm25 or first stage."""
        return str(self.plan["retriever"]["deploys"])

    @property
    def system(self) -> str:
        """The name of the system on test that is deployed."""
        half = TUNED if self.better else self.evaluation.systems[0].name
        partner = BM25 if self.retrieves else FIRST_STAGE
        return {"both": f"{partner} + {half}", "model": TUNED, "base": half}.get(self.deploys, self.deploys)

    @property
    def model(self) -> str:
        """The model to use: the folder of the tuned one, or the base's name."""
        return str(self.path / "model") if self.better else str(self.plan["given"]["model"])

    def compared(self, a: str, b: str) -> Comparison:
        """Return how a system differs from another on test, by the measure that decides."""
        for each in self.evaluation.comparisons:
            if each.measure == MEASURE and {each.a, each.b} == {a, b}:
                turned = replace(each, a=a, b=b, difference=-each.difference, low=-each.high, high=-each.low)
                return each if each.a == a else turned
        raise KeyError(f"{a} and {b} are not compared")

    @property
    def command(self) -> str:
        """The command that uses what is deployed."""
        if self.retrieves:
            return f"foils search {shlex.quote(str(self.path))}"
        option = "--run" if Path(self.first_stage).is_file() else "--model"
        words = ["foils", "evaluate", self.plan["given"]["collection"], option, self.first_stage]
        return shlex.join([*words, "--reranker", str(self.path), "--rerank-depth", "50"])

    def words(self, system: str) -> str:
        """Return what a system of the test is called in a sentence."""
        partner = "BM25" if self.first_stage == BM25 else f"the order of {self.first_stage}"
        names = {BM25: "BM25", FIRST_STAGE: partner, TUNED: "the tuned model", BASE: self.base}
        half = "the tuned model" if self.better else self.base
        return names.get(system, f"{partner} and {half} together")

    @property
    def sentence(self) -> str:
        """What to deploy, what it and the best other system have on test, and whether they can be told apart.

        Dev chose; where test puts another first, the sentence says so.
        """
        means, name = self.means, self.system
        where = f" ({self.command})" if self.retrieves or self.deploys in ("both", "model") else ""
        among = ""
        if len(self.collection.documents) < self.documents:
            among = f" (of {len(self.collection.documents):,} of {self.documents:,} documents)"
        text = f"Deploy {self.words(name)}{where}: {MEASURE} {short(means[name])} on test{among}"
        others = [system for system in means if system != name]
        if not others:
            return f"{text}."
        other = max(others, key=lambda system: means[system])
        alone = " alone" if name.startswith(f"{other} + ") or name.endswith(f" + {other}") else ""
        test = self.compared(name, other)
        text += f", {self.words(other)}{alone} {short(means[other])}, difference {interval(test)}"
        sure, p = test.p_randomised < LEVEL, f"(p {p_value(test.p_randomised)})"
        if test.difference > 0:
            return f"{text}." if sure else f"{text}, which may be chance {p}."
        doubt = "test disagrees" if sure else "test does not tell the two apart"
        return f"{text}. Dev chose it; {doubt} {p}."

    @property
    def training(self) -> str:
        """What became of the training: the model that dev took, or that the base is kept."""
        if not self.better:
            return f"Kept {self.base}: no training is better on dev. No model was written."
        test = self.compared(TUNED, self.evaluation.systems[0].name)
        gain = f"over {self.base} {interval(test)} on test (p {p_value(test.p_randomised)})"
        return f"Tuned: {self.taken}, {gain}. The model is in {self.path / 'model'}."

    def tables(self) -> list[Table]:
        """Return the measures on test, what was tried, and the plan; below the first is what to deploy."""
        first, *differences = self.evaluation.tables()
        notes = [first.caption, self.sentence, self.training, *(f"Warning: {each}" for each in self.warnings)]
        proof = replace(first, caption="\n".join(filter(None, notes)))
        return [proof, *differences, trials_table(self.candidates, self.taken, MEASURE), *self.plan.tables()]

    @property
    def next(self) -> str:
        """What may be done next; test has been looked at."""
        if self.retrieves:
            return f'{self.command} --query "…"'
        return self.command if self.better else "give more pairs: nothing else helps as surely."

    def report(self, path: str | Path) -> None:
        """Write the report as one HTML page."""
        write_text(path, tune_page(self))

    def to_json(self) -> dict[str, Any]:
        """Return everything but the texts."""
        names = ("better", "deploys", "system", "sentence", "training", "model", "warnings", "base", "next")
        value: dict[str, Any] = {
            **{name: getattr(self, name) for name in names},
            "dev": self.plan["retriever"]["dev"],
            "base_dev": self.candidates[0].mean,
            "taken": self.taken.to_json(),
            "documents": {"searched": len(self.collection.documents), "all": self.documents},
            "plan": self.plan.sections,
            "trials": [each.to_json() for each in self.candidates],
            "evaluation": self.evaluation.to_json(),
        }
        return dict(without_nan(value))


def short(value: float, sign: str = "") -> str:
    """Return a number with three digits and no zero before the point: .620, or with `sign` "+" +.024."""
    value = round(value, 3) + 0.0  # no minus before a zero
    return f"{value:{sign}.3f}".replace("0.", ".", 1) if abs(value) < 1 else f"{value:{sign}.3f}"


def interval(test: Comparison) -> str:
    """Return a difference with its interval: +.024 [+.009, +.038]."""
    return f"{short(test.difference, '+')} [{short(test.low, '+')}, {short(test.high, '+')}]"


def tune_page(tuned: Tuned) -> str:
    """Return the report of a tuning as HTML."""
    given, evaluation = tuned.plan["given"], tuned.evaluation
    groups: dict[str, Points] = {
        system.name: {each: (mean, *evaluation.intervals[system.name][each]) for each, mean in system.means.items()}
        for system in evaluation.systems
    }
    caption = "Each measure of each system, with 95 % intervals of the means."
    figure = Figure(groups, "mean over the test queries", caption)
    proof, *others = tuned.tables()
    proof = replace(proof, title="", caption="")
    return render_page(
        "What to deploy, and did the training make the model better?",
        subtitle=f"{given['collection']} · {given['model']} · {len(evaluation.systems[0].query_ids):,} test queries",
        verdict=tuned.sentence,
        sections=[
            Section("The proof", [figure, proof], [tuned.training, *tuned.warnings]),
            *(Section(table.title, [replace(table, title="")]) for table in others),
            Section("What to do next", (), [tuned.next]),
            Section("How to read this", (), TUNE_READING, folded=True),
        ],
        footer=f"collection {tuned.collection.digest[:12]}, seed {given['seed']}",
    )
