"""What a tuning returns: what to deploy, the proof, and how it came about."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from foils.data import Collection
from foils.evaluation.systems import Evaluation
from foils.experiments.plan import Plan, Trial
from foils.experiments.tasks import BM25
from foils.experiments.tune import BOTH, LEVEL, MEASURE, TUNED
from foils.runtime.files import without_nan, write_text
from foils.runtime.results import Result, Table, number, p_value, signed
from foils.statistics import Comparison


def read_again(given: Mapping[str, Any]) -> str:
    """Return the arguments by which a verb reads what a tuning read, with the same documents and the same test.

    Args:
        given: section [given] of a plan.
    """
    words = [str(given["collection"])]
    if columns := given.get("columns"):
        words += ["--columns", ",".join(f"{role}={name}" for role, name in columns.items())]
    if corpus := given.get("corpus"):
        words += ["--corpus", str(corpus)]
    return shlex.join(words)


@dataclass(frozen=True)
class Merged(Result):
    """A merge of two models.

    Attributes:
        path: the folder that it is written to.
        base: name of the first model. `tuned`: of the second. `alpha`: share of the second's weights.
    """

    path: Path
    base: str
    tuned: str
    alpha: float

    def tables(self) -> list[Table]:
        """Return what was merged."""
        rows = [(self.base, f"{1 - self.alpha:g}"), (self.tuned, f"{self.alpha:g}")]
        return [Table(f"Merged → {self.path}", ["model", "share of the weights"], rows)]

    def to_json(self) -> dict[str, Any]:
        """Return the attributes."""
        return {**vars(self), "path": str(self.path)}


@dataclass(frozen=True)
class Tuned(Result):
    """A tuning.

    Attributes:
        path: folder of everything; the better model is in its folder `model`.
        collection: what was searched, with the splits.
        plan: every decision with its reason.
        evaluation: on test, of the base, the tuned model where one was trained, BM25, and both together.
        base: what the tuned model is measured against: the model as it is, or a first stage's order.
        trial: the training that was tested; None: none was better than the base on dev.
        base_dev: what the base has on dev.
        trials: all trainings, in their order.
        decision: what the decision says of the candidates; empty: the plan said what to train on.
        warnings: about the data and the training.
    """

    path: Path
    collection: Collection = field(repr=False)
    plan: Plan = field(repr=False)
    evaluation: Evaluation = field(repr=False)
    base: str
    trial: Trial | None
    base_dev: float
    trials: tuple[Trial, ...] = field(repr=False)
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

    def compared(self, a: str, b: str) -> Comparison | None:
        """Return how two systems differ on test; None where they were not compared."""
        return next((each for each in self._of_measure() if (each.a, each.b) == (a, b)), None)

    def _of_measure(self) -> list[Comparison]:
        return [each for each in self.evaluation.comparisons if each.measure == MEASURE]

    @property
    def comparison(self) -> Comparison | None:
        """The tuned model against the base; None where nothing was trained."""
        return self.compared(TUNED, self.evaluation.systems[0].name)

    @property
    def better(self) -> bool:
        """Whether the tuned model is significantly better on test; then, and only then, it was written."""
        return _surely_better(self.comparison)

    @property
    def model(self) -> str:
        """The model to use: the folder of the tuned one, or the base's name."""
        return str(self.path / "model") if self.better else str(self.plan["given"]["model"])

    @property
    def deploys(self) -> str:
        """What to deploy: both (BM25 with the tuned model or, where that is no better, the base), model, bm25 or base.

        Both where they are on dev better than each, and on test not surely worse than one; else the better one.
        """
        means, base = self.means, self.evaluation.systems[0].name
        half = TUNED if self.better else base
        single = max((name for name in (half, BM25) if name in means), key=lambda name: means[name])
        against = self.compared(self.both, single)
        lost = against is not None and against.difference < 0 and against.p < LEVEL
        if self.both in means and self.plan["retriever"].get("advised", True) and not lost:
            return "both"
        if self.better:
            return "model" if single == TUNED else BM25
        return BM25 if _surely_better(self.compared(BM25, base)) else "base"

    @property
    def both(self) -> str:
        """The name of BM25 and a model together: the tuned one or, where that is no better, the base."""
        return BOTH if self.better or not self.retrieves else f"{BM25} + {self.evaluation.systems[0].name}"

    @property
    def sentence(self) -> str:
        """What to deploy, and what came out of the training."""
        means, base = self.means, self.evaluation.systems[0].name
        names = {base: self.base, TUNED: "tuned", BM25: "BM25", self.both: "both together"}
        shown = ", ".join(f"{names[name]} {value:.4f}" for name, value in means.items())
        half = "the tuned model" if self.better else self.base
        what = {"both": f"BM25 and {half} together", "model": half, "base": half, BM25: "BM25"}[self.deploys]
        where = f" (--model {self.path})" if self.deploys == "both" and self.retrieves else ""
        return f"Deploy {what}{where}: {MEASURE} on test {shown}. {self.proof}"

    @property
    def proof(self) -> str:
        """Whether the training made the model better, and how surely."""
        comparison = self.comparison
        if comparison is None:
            reason = self.plan["training"].get("reason", "no epoch is planned")
            return f"Kept {self.base}: no training was better on dev ({reason}). No model was written."
        queries = len(self.evaluation.systems[0].query_ids)
        shown = f"{_difference(comparison)}, p {p_value(comparison.p)}, {queries:,} queries"
        if self.better:
            return f"Better: tuned over {self.base} {shown}. The model is in {self.path / 'model'}."
        why = "it is not better" if comparison.difference <= 0 else f"p is not below {LEVEL:g}, so it may be chance"
        return f"Kept {self.base}: {why} (tuned {shown}). No model was written."

    def tables(self) -> list[Table]:
        """Return the measures on test, the plan, and the trainings; what to deploy stands under the first."""
        first = self.evaluation.tables()[0]
        notes = [first.caption, self.sentence, *(f"Warning: {each}" for each in self.warnings), f"Next: {self.next}"]
        proof = replace(first, caption="\n".join(filter(None, notes)))
        rows = [(f"{each.a} − {each.b}", _difference(each), each.test, p_value(each.p)) for each in self._of_measure()]
        pairs = Table("Differences on test", ["systems", MEASURE, "test", "p"], rows)
        return [proof, pairs, *self.plan.tables(), self.trials_table()]

    def trials_table(self) -> Table:
        """Return the trainings, and what each had on dev."""
        rows = [(self.base, "", "", "", "", number(self.base_dev, 4))]
        for each in self.trials:
            cells = (f"{each.epochs}", f"{each.queries:,}", f"{each.steps:,}", number(each.dev, 4))
            rows.append((f"{each.learning_rate:g}", each.source or "in batch", *cells))
        columns = ["learning rate", "negatives", "epochs", "queries", "steps", f"{MEASURE} on dev"]
        marked = frozenset(1 + at for at, each in enumerate(self.trials) if each == self.trial)
        return Table("Trainings on train, measured on a part of dev", columns, rows, "", marked, frozenset({1}))

    @property
    def next(self) -> str:
        """What may be done next."""
        given, comparison = self.plan["given"], self.comparison
        if self.better:
            fused = self.deploys == "both" and self.retrieves
            what = f"--model bm25 --model both={self.path}" if fused else f"--model {self.model}"
            return f"foils evaluate {read_again(given)} {what}"
        if comparison is None:
            return "look at the pairs (foils describe): does the positive answer the query, and is it findable?"
        if comparison.difference > 0:
            times = max(2.0, (comparison.high - comparison.low) ** 2 / (4 * comparison.difference**2))
            wanted = times * len(self.evaluation.systems[0].query_ids)
            return f"test on more queries: about {wanted:,.0f} would show a difference of {comparison.difference:.4f}."
        return "give more pairs: nothing else helps as surely."

    def card(self, card: str) -> str:
        """Return a model's card with the proof and the warnings at its end."""
        proof = [self.sentence.partition(" The model is in")[0], *(f"- {each}" for each in self.warnings)]
        return "\n\n".join([card.rstrip(), "## Measured with foils tune", *proof]) + "\n"

    def report(self, path: str | Path) -> None:
        """Write the report as one HTML page."""
        from foils.experiments.pages import tune_page

        write_text(path, tune_page(self))

    def to_json(self) -> dict[str, Any]:
        """Return everything but the texts."""
        own = ("better", "deploys", "sentence", "model", "warnings", "base", "base_dev", "next")
        value: dict[str, Any] = {
            **{name: getattr(self, name) for name in own},
            "plan": self.plan.sections,
            "trials": [each.to_json() for each in self.trials],
            "decision": self.decision.get("table"),
            "evaluation": self.evaluation.to_json(),
        }
        return dict(without_nan(value))


def _surely_better(comparison: Comparison | None) -> bool:
    return comparison is not None and comparison.difference > 0 and comparison.p < LEVEL


def _difference(comparison: Comparison) -> str:
    low, high = signed(comparison.low, 4), signed(comparison.high, 4)
    return f"{signed(comparison.difference, 4)} [{low}, {high}]"
