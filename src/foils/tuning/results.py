"""What a tuning returns: whether the model became better, the proof, and how it came about."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from foils.data import Collection, Run
from foils.evaluation.systems import Evaluation
from foils.runtime.files import without_nan, write_text
from foils.runtime.results import Result, Table, number, p_value, signed
from foils.statistics import Comparison
from foils.tuning.plan import Plan
from foils.tuning.settings import LEVEL, MEASURE
from foils.tuning.trials import Trial

SHOWN = 10  # queries that got better, and worse, on the page


@dataclass(frozen=True)
class Change:
    """A test query before and after.

    Attributes:
        query: its text. `positives`: texts of its positives. `before`, `after`: its measure.
        first_before, first_after: texts of the documents that came first.
    """

    query: str
    positives: tuple[str, ...]
    before: float
    after: float
    first_before: str
    first_after: str


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
        evaluation: of the base and, where one was trained, the tuned model, on test.
        base: what the tuned model is measured against, in words: the model as it is, or a first stage's order.
        trial: the training that was tested; None: none was better than the base on dev.
        base_dev: what the base has on dev.
        trials: short runs, in their order.
        sources: what the decision says of each source.
        label_next: labels that the decision asks for; None or 0: none.
        first_stage: what a first stage's own order has on test; None: it is the base, or there is none.
        cuts: dimensions → the two models on test, vectors cut to so many.
        keep: of the base and the tuned model on the collection that must not be forgotten; None: there is none.
        warnings: what `foils describe` says about the data, as that test resembles train.
    """

    path: Path
    collection: Collection = field(repr=False)
    plan: Plan = field(repr=False)
    evaluation: Evaluation = field(repr=False)
    base: str
    trial: Trial | None
    base_dev: float
    trials: Sequence[Trial] = field(repr=False)
    sources: Sequence[Mapping[str, Any]] = field(default=(), repr=False)
    label_next: int | None = None
    warnings: Sequence[str] = ()
    keep: Evaluation | None = field(default=None, repr=False)
    first_stage: float | None = None
    cuts: Mapping[int, Evaluation] = field(default_factory=dict, repr=False)

    @property
    def comparison(self) -> Comparison | None:
        """The paired test of the tuned model against the base; None where nothing was tested."""
        return next((each for each in self.evaluation.comparisons if each.measure == MEASURE), None)

    @property
    def better(self) -> bool:
        """Whether the tuned model is significantly better on test; then, and only then, it was written."""
        found = self.comparison
        return found is not None and found.difference > 0 and found.p < LEVEL

    @property
    def model(self) -> str:
        """The model to use: the folder of the tuned one, or the base's name."""
        return str(self.path / "model") if self.better else str(self.plan["given"]["model"])

    @property
    def sentence(self) -> str:
        """What came out, in a sentence or two."""
        base, comparison = self.base, self.comparison
        if comparison is None:
            reason = self.plan["training"].get("reason", "no epoch is planned")
            return f"Kept {base}: no training was better on dev ({reason}). No model was written."
        before, after = (system.means[MEASURE] for system in self.evaluation.systems)
        queries = len(self.evaluation.systems[0].query_ids)
        as_before = "" if base == self.plan["given"]["model"] else f" ({base})"
        proof = (
            f"{MEASURE} on test: {before:.4f} before{as_before}, {after:.4f} after, {signed(comparison.difference, 4)} "
            f"[{signed(comparison.low, 4)}, {signed(comparison.high, 4)}], p {p_value(comparison.p)}, "
            f"{queries:,} queries"
        )
        if self.better:
            return f"Better: {proof}. The model is in {self.path / 'model'}."
        why = "it is not better" if comparison.difference <= 0 else f"p is not below {LEVEL:g}, so it may be chance"
        return f"Kept {base}: {why} ({proof}). No model was written."

    @property
    def stage_sentence(self) -> str:
        """What the first stage has without a reranker; empty where it is the base, or there is none."""
        if self.first_stage is None:
            return ""
        worse = max(system.means[MEASURE] for system in self.evaluation.systems) < self.first_stage
        stage = self.plan["given"].get("first_stage") or "bm25"
        remark = ": no reranker at all is better" if worse else ""
        return f"The order of {stage} alone has {self.first_stage:.4f}{remark}."

    def tables(self) -> list[Table]:
        """Return the measures on test, the plan, and the short runs; what came out stands under the first."""
        evaluation = self.evaluation.tables()
        first = evaluation[0]
        warnings = [f"Warning: {each}" for each in self.warnings]
        advice = "" if self.better else f"Next: {' '.join(self.next_steps())}"
        caption = "\n".join(filter(None, [first.caption, self.sentence, self.stage_sentence, advice, *warnings]))
        proof = Table(first.title, first.columns, first.rows, caption)
        cuts = [self.cuts_table()] if self.cuts else []
        return [proof, *cuts, *([self.keep_table()] if self.keep else []), self.plan.table(), self.trials_table()]

    def cuts_table(self) -> Table:
        """Return what both models have on test when vectors are cut."""
        rows = []
        for dimensions, evaluation in self.cuts.items():
            before, after = (number(system.means[MEASURE], 4) for system in evaluation.systems)
            found = next(each for each in evaluation.comparisons if each.measure == MEASURE)
            rows.append((f"{dimensions}", before, after, signed(found.difference, 4), p_value(found.p)))
        title = f"{MEASURE} on test, vectors cut to their first dimensions"
        return Table(title, ["dimensions", "before", "after", "difference", "p"], rows)

    def keep_table(self) -> Table:
        """Return the measures on the collection that must not be forgotten, before and after."""
        if self.keep is None:
            return Table("", [], [])
        table = self.keep.tables()[0]
        lost = next(each for each in self.keep.comparisons if each.measure == MEASURE)
        sentence = f"Not trained on: {MEASURE} {signed(lost.difference, 4)} (p {p_value(lost.p)})."
        if lost.difference < 0 and lost.p < LEVEL:
            sentence += " The model forgot some of what it knew."
        return Table(table.title, table.columns, table.rows, sentence)

    def trials_table(self) -> Table:
        """Return the short runs, and what each had on dev."""
        before = "as it is" if self.base == self.plan["given"]["model"] else self.base
        rows = [(before, "", "", "", "", number(self.base_dev, 4))]
        rows += [
            (
                f"{each.learning_rate:g}",
                each.source or "in batch",
                f"{each.epochs}",
                f"{each.queries:,}",
                f"{each.steps:,}",
                number(each.dev, 4),
            )
            for each in self.trials
        ]
        columns = ["learning rate", "negatives", "epochs", "queries", "steps", f"{MEASURE} on dev"]
        marked = frozenset(1 + at for at, each in enumerate(self.trials) if each == self.trial)
        title = "Trainings on train, measured on a part of dev"
        return Table(title, columns, rows, marked=marked, words=frozenset({1}))

    def changes(self, count: int = SHOWN) -> tuple[list[Change], list[Change]]:
        """Return the test queries that gained most, and those that lost most, the largest change first."""
        if self.comparison is None:
            return [], []
        base, tuned = (system.per_query[MEASURE] for system in self.evaluation.systems)
        difference = np.asarray(tuned) - np.asarray(base)
        ids, order = self.evaluation.systems[0].query_ids, np.argsort(-difference, kind="stable")
        gained = [at for at in order[:count] if difference[at] > 0]
        lost = [at for at in order[::-1][:count] if difference[at] < 0]
        firsts = [_firsts(run) for run in self.evaluation.runs]
        positives = self.collection.positives("test")

        def change(at: int) -> Change:
            row = self.collection.query_rows([ids[at]])
            place = int(positives.places(row)[0])
            texts = self.collection.document_texts(positives.of(place)) if place >= 0 else []
            before, after = (
                self.collection.document_texts(self.collection.document_rows([first[ids[at]]]))[0]
                if ids[at] in first
                else ""
                for first in firsts
            )
            query = self.collection.query_texts(row)[0]
            return Change(query, tuple(texts), float(base[at]), float(tuned[at]), before, after)

        return [change(at) for at in gained], [change(at) for at in lost]

    def next_steps(self) -> list[str]:
        """Return what may be tried next, in sentences."""
        steps, given, queries = [], self.plan["given"], len(self.evaluation.systems[0].query_ids)
        comparison = self.comparison
        if comparison is not None and not self.better and comparison.difference > 0:
            wanted = queries * max(2.0, (comparison.high - comparison.low) ** 2 / (4 * comparison.difference**2))
            steps.append(
                f"Test on more queries: about {wanted:,.0f} would show a difference of {comparison.difference:.4f}."
            )
        if comparison is None:
            steps.append("Look at the pairs (foils describe): does the positive answer the query, and is it findable?")
        if self.label_next:
            steps.append(
                f"Label about {self.label_next} pairs (foils label --draw uncertain), so that the decision between "
                "sources is surer."
            )
        if given.get("minutes") is not None and "fits into" in str(self.plan["trials"].get("reason")):
            steps.append("Give more --minutes, or none: more of the data is trained on, and more is tried.")
        if str(given["model"]).startswith("static:"):
            steps.append(f"Tune the transformer itself (--model {str(given['model']).removeprefix('static:')}).")
        steps.append("Give more pairs: nothing else helps as surely.")
        return steps

    def report(self, path: str | Path) -> None:
        """Write the report as one HTML page."""
        from foils.tuning.page import tune_page

        write_text(path, tune_page(self))

    def to_json(self) -> dict[str, Any]:
        """Return everything but the texts."""
        value: dict[str, Any] = without_nan(
            {
                "better": self.better,
                "sentence": self.sentence,
                "model": self.model,
                "warnings": list(self.warnings),
                "plan": self.plan.sections,
                "base": self.base,
                "base_dev": self.base_dev,
                "first_stage": self.first_stage,
                "trials": [asdict(each) for each in self.trials],
                "sources": [dict(each) for each in self.sources],
                "next": self.next_steps(),
                "evaluation": self.evaluation.to_json(),
                "cuts": {str(dimensions): each.to_json() for dimensions, each in self.cuts.items()},
                "keep": self.keep.to_json() if self.keep else None,
            }
        )
        return value


def _firsts(run: Run) -> dict[str, str]:
    """The first document of each query."""
    columns = (run.table[name].to_pylist() for name in ("query_id", "doc_id"))
    firsts: dict[str, str] = {}
    for query, document in zip(*columns, strict=True):
        firsts.setdefault(query, document)
    return firsts
