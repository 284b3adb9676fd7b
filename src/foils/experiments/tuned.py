"""What comes out of a tuning: what to deploy, chosen on dev, and what it has on test."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from foils.data import Collection
from foils.evaluation.doors import Evaluation
from foils.experiments.plan import Plan
from foils.experiments.tasks import BM25, FIRST_STAGE
from foils.experiments.trials import Candidate, trials_table
from foils.pages import Points, Section, intervals_figure, render_page
from foils.runtime.files import without_nan, write_text
from foils.runtime.results import Result, Table, p_value, with_ends
from foils.statistics import Comparison

MEASURE = "nDCG@10"
BASE, TUNED = "base", "tuned"
TUNE_READING = (
    "Everything is chosen on dev, a split that is not trained on; test is reported as it comes. Whoever tunes again "
    "until p is small looks at test more than once; then p says less. p is that of the paired randomisation test; "
    "intervals come from a bootstrap over the queries.",
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
        dev: the measure on dev of each system that may be deployed.
        decision: what the decision says of sources of negatives; empty: none was asked for.
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
    dev: Mapping[str, float] = field(repr=False)
    decision: Mapping[str, Any] = field(repr=False)
    warnings: tuple[str, ...]

    @property
    def brief(self) -> str:
        """In one line."""
        return f"{self.plan['given']['model']!r}: {'better' if self.better else 'kept'}, deploy {self.deploys}"

    @property
    def means(self) -> dict[str, float]:
        """The measure of each system on test."""
        return {system.name: system.means[MEASURE] for system in self.evaluation.systems}

    @property
    def retrieves(self) -> bool:
        """Whether it is an encoder, which searches with BM25; else a reranker."""
        return not self.plan["given"].get("reranker")

    @property
    def better(self) -> bool:
        """Whether dev took a trained model over the base; then, and only then, it is written."""
        return bool(self.taken.members)

    @property
    def deploys(self) -> str:
        """What to deploy, as dev chose it: both, model (the tuned one), base, bm25 or first stage."""
        chosen = str(self.plan["retriever"]["deploys"])
        return ("model" if self.better else "base") if chosen in ("model", "base") else chosen

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
        """Return how a system differs from another on test."""
        for each in self.comparisons:
            if (each.a, each.b) == (a, b):
                return each
            if (each.a, each.b) == (b, a):
                return replace(each, a=a, b=b, difference=-each.difference, low=-each.high, high=-each.low)
        raise KeyError(f"{a} and {b} are not compared")

    @property
    def comparisons(self) -> list[Comparison]:
        """How systems differ on test by the measure that decides."""
        return [each for each in self.evaluation.comparisons if each.measure == MEASURE]

    @property
    def command(self) -> str:
        """The command that uses what is deployed."""
        if self.retrieves:
            return f"foils search {shlex.quote(str(self.path))}"
        return f"foils evaluate --reranker {shlex.quote(str(self.path))}"

    def words(self, system: str) -> str:
        """Return what a system of the test is called in a sentence."""
        stage = self.plan["given"].get("first_stage") or BM25
        half = "the tuned model" if self.better else self.base
        partner = "BM25" if self.retrieves or stage == BM25 else f"the order of {stage}"
        names = {BM25: "BM25", TUNED: "the tuned model", BASE: self.base, FIRST_STAGE: f"the order of {stage}"}
        return names.get(system, f"{partner} and {half} together")

    @property
    def sentence(self) -> str:
        """What to deploy, what it has on test, what the best other system has, and whether the two can be told apart.

        Dev chose; where test puts another first, the sentence says so.
        """
        means, name = self.means, self.system
        where = f" ({self.command})" if self.retrieves or self.deploys in ("both", "model") else ""
        among = ""
        if len(self.collection.documents) < self.documents:
            among = f" (of {len(self.collection.documents):,} of {self.documents:,} documents)"
        said = f"Deploy {self.words(name)}{where}: {MEASURE} {short(means[name])} on test{among}"
        others = [system for system in means if system != name]
        if not others:
            return f"{said}."
        other = max(others, key=lambda system: means[system])
        alone = " alone" if name.startswith(f"{other} + ") or name.endswith(f" + {other}") else ""
        test = self.compared(name, other)
        said += f", {self.words(other)}{alone} {short(means[other])}, difference {interval(test)}"
        sure, p = test.p_randomised < LEVEL, f"(p {p_value(test.p_randomised)})"
        if test.difference > 0:
            return f"{said}." if sure else f"{said}, which may be chance {p}."
        on_dev = [f"{short(self.dev[each])} there" for each in (name,) if each in self.dev]
        on_dev += [f"the other {short(self.dev[each])}" for each in (other,) if each in self.dev]
        told = "test disagrees" if sure else "test does not tell the two apart"
        return f"{said}. Dev chose it ({', '.join(on_dev)}); {told} {p}."

    @property
    def training(self) -> str:
        """What became of the training: the model that dev took, or that the base is kept."""
        if not self.better:
            return f"Kept {self.base}: no training is better on dev. No model was written."
        test = self.compared(TUNED, self.evaluation.systems[0].name)
        gain = f"over {self.base} {interval(test)} on test (p {p_value(test.p_randomised)})"
        return f"Tuned: {self.taken}, {gain}. The model is in {self.path / 'model'}."

    def tables(self) -> list[Table]:
        """Return the measures on test, what was tried, and the plan; what to deploy stands under the first."""
        first = self.evaluation.tables()[0]
        notes = [first.caption, self.sentence, self.training, *(f"Warning: {each}" for each in self.warnings)]
        proof = replace(first, caption="\n".join(filter(None, [*notes, f"Next: {self.next}"])))
        rows = [
            (f"{each.a} − {each.b}", with_ends(each.difference, each.low, each.high), p_value(each.p_randomised))
            for each in self.comparisons
        ]
        pairs = Table("Differences on test", ["systems", MEASURE, "p (randomised)"], rows)
        return [proof, pairs, trials_table(self.candidates, self.taken, MEASURE), *self.plan.tables()]

    @property
    def next(self) -> str:
        """What may be done next; test has been looked at."""
        if self.retrieves:
            return f'{self.command} --query "…"'
        if self.better:
            stage = str(self.plan["given"].get("first_stage") or BM25)
            first = f"--{'run' if Path(stage).is_file() else 'model'} {stage}"
            return f"rerank new queries: foils evaluate COLLECTION {first} --reranker {self.path} --rerank-depth 50"
        return "give more pairs: nothing else helps as surely."

    def report(self, path: str | Path) -> None:
        """Write the report as one HTML page."""
        write_text(path, tune_page(self))

    def to_json(self) -> dict[str, Any]:
        """Return everything but the texts."""
        names = ("better", "deploys", "system", "sentence", "training", "model", "warnings", "base", "dev", "next")
        value: dict[str, Any] = {
            **{name: getattr(self, name) for name in names},
            "base_dev": self.candidates[0].mean,
            "taken": self.taken.to_json(),
            "documents": {"searched": len(self.collection.documents), "all": self.documents},
            "plan": self.plan.sections,
            "trials": [each.to_json() for each in self.candidates],
            "decision": self.decision.get("table"),
            "evaluation": self.evaluation.to_json(),
        }
        return dict(without_nan(value))


def short(value: float, sign: str = "") -> str:
    """Return a number with three digits and no zero before the point: .620, or with `sign` "+" +.024."""
    return f"{value:{sign}.3f}".replace("0.", ".", 1) if abs(value) < 1 else f"{value:{sign}.3f}"


def interval(test: Comparison) -> str:
    """Return a difference with its interval: +.024 [+.009, +.038]."""
    return f"{short(test.difference, '+')} [{short(test.low, '+')}, {short(test.high, '+')}]"


def tune_page(tuned: Tuned) -> str:
    """Return the report of a tuning as HTML."""
    given, evaluation = tuned.plan["given"], tuned.evaluation
    measures = list(evaluation.systems[0].means)
    groups: dict[str, Points] = {
        system.name: {each: (system.means[each], *evaluation.intervals[system.name][each]) for each in measures}
        for system in evaluation.systems
    }
    caption = "Each measure of each system, with 95 % intervals of the means."
    figure = intervals_figure(groups, "mean over the test queries", caption)
    proof, pairs, *others = tuned.tables()
    sections = [Section("Warnings", (), list(tuned.warnings))] if tuned.warnings else []
    sections.append(Section("The proof", [figure, replace(proof, title="", caption=""), pairs]))
    sections += [Section(table.title, [replace(table, title="")]) for table in others]
    if decided := tuned.decision.get("table"):
        shown = Table("", decided["columns"], decided["rows"], "What foils score says, before training.")
        sections.append(Section("The sources of negatives", [shown]))
    return render_page(
        "What to deploy, and did the training make the model better?",
        subtitle=f"{given['collection']} · {given['model']} · {len(evaluation.systems[0].query_ids):,} test queries",
        verdict=tuned.sentence,
        sections=[
            *sections,
            Section("What to do next", (), [tuned.next]),
            Section("How to read this", (), TUNE_READING, folded=True),
        ],
        footer=f"collection {tuned.collection.digest[:12]}, seed {given['seed']}",
    )
