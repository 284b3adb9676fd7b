"""What a tuning returns: what to deploy, the proof, and how it came about."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from foils.data import Collection, Run
from foils.data.read import is_file
from foils.data.splitting import SHARES
from foils.evaluation.systems import Evaluation
from foils.experiments.plan import Plan
from foils.experiments.tasks import BM25
from foils.experiments.tune import BOTH, LEVEL, MEASURE, TUNED, Trial
from foils.runtime.files import without_nan, write_text
from foils.runtime.results import Result, Table, number, p_value, signed
from foils.statistics import Comparison

SHOWN = 10  # queries that gained, and that lost, on the page


def read_again(given: Mapping[str, Any]) -> str:
    """Return the arguments by which a verb reads what a tuning read, with the same documents and the same test.

    Args:
        given: section [given] of a plan.
    """
    collection = str(given["collection"])
    words = [collection]
    if columns := given.get("columns"):
        words += ["--columns", ",".join(f"{role}={name}" for role, name in columns.items())]
    if corpus := given.get("corpus"):
        words += ["--corpus", str(corpus)]
    if is_file(collection) and tuple(shares := given["split_shares"]) != SHARES:
        words += ["--collection-args", "split_shares=" + ",".join(f"{share:.7g}" for share in shares)]
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
class Explained(Result):
    """What a tuning would do.

    Attributes:
        plan: the decisions that can be made before anything runs.
    """

    plan: Plan

    def tables(self) -> list[Table]:
        """Return the plan, and what it costs."""
        minutes, table = self.plan["given"].get("minutes"), self.plan.table()
        cost = f"It takes about {minutes:g} minutes" if minutes else "It takes as long as longer training helps"
        later = "What is decided on the way: the negatives (as foils score does), learning rate and epochs (on dev)."
        return [Table(table.title, table.columns, table.rows, f"{later}\n{cost}.", words=table.words)]

    def to_json(self) -> dict[str, Any]:
        """Return the plan."""
        return {"plan": self.plan.sections}


@dataclass(frozen=True)
class Change:
    """A test query before and after.

    Attributes:
        query: its text. `positive`: the text of a positive. `before`, `after`: its measure.
        first_before, first_after: texts of the documents that came first.
    """

    query: str
    positive: str
    before: float
    after: float
    first_before: str
    first_after: str


@dataclass(frozen=True)
class Tuned(Result):
    """A tuning.

    Attributes:
        path: folder of everything; the better model is in its folder `model`.
        collection: what was searched, with the splits.
        plan: every decision with its reason.
        evaluation: on test, of the base, the tuned model where one was trained, BM25, and both together.
        base: what the tuned model is measured against, in words: the model as it is, or a first stage's order.
        trial: the training that was tested; None: none was better than the base on dev.
        base_dev: what the base has on dev.
        trials: all trainings, in their order.
        decision: table of what the decision says of each candidate; None: the plan said what to train on.
        label_next: labels that could change the decision; None or 0: none.
        warnings: about the data and the training.
        keep: the base and the tuned model on the collection that must not be forgotten; None: there is none.
        cuts: dimensions → both models on test with vectors cut to these.
        retrieves: whether it is an encoder, which searches with BM25; else a reranker.
    """

    path: Path
    collection: Collection = field(repr=False)
    plan: Plan = field(repr=False)
    evaluation: Evaluation = field(repr=False)
    base: str
    trial: Trial | None
    base_dev: float
    trials: tuple[Trial, ...] = field(repr=False)
    decision: Mapping[str, Any] | None = field(repr=False)
    label_next: int | None
    warnings: tuple[str, ...]
    keep: Evaluation | None = field(repr=False)
    cuts: Mapping[int, Evaluation] = field(repr=False)
    retrieves: bool = True

    def __repr__(self) -> str:
        """Return it in one line."""
        return f"Tuned({self.plan['given']['model']!r}: {'better' if self.better else 'kept'}, deploy {self.deploys})"

    @property
    def means(self) -> dict[str, float]:
        """The measure of each system on test."""
        return {system.name: system.means[MEASURE] for system in self.evaluation.systems}

    def compared(self, a: str, b: str) -> Comparison | None:
        """Return how two systems differ on test; None where they were not compared."""
        pairs = (each for each in self.evaluation.comparisons if each.measure == MEASURE)
        return next((each for each in pairs if (each.a, each.b) == (a, b)), None)

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
        """What to deploy: both (BM25 and the tuned model), model, bm25 or base.

        Both where they are on dev better than each, and on test not surely worse than one; else the better one.
        """
        means, base = self.means, self.evaluation.systems[0].name
        if not self.better:
            return BM25 if _surely_better(self.compared(BM25, base)) else "base"
        single = max((name for name in (TUNED, BM25) if name in means), key=lambda name: means[name])
        against = self.compared(BOTH, single)
        lost = against is not None and against.difference < 0 and against.p < LEVEL
        if self.plan["retriever"].get("advised", True) and not lost:
            return "both"
        return "model" if single == TUNED else BM25

    @property
    def sentence(self) -> str:
        """What to deploy, and what came out of the training."""
        means, base = self.means, self.evaluation.systems[0].name
        names = {base: self.base, TUNED: "tuned", BM25: "BM25", BOTH: "both together"}
        shown = ", ".join(f"{names[name]} {value:.4f}" for name, value in means.items())
        what = {"both": "BM25 and the tuned model together", "model": "the tuned model", BM25: "BM25",
                "base": self.base}[self.deploys]  # fmt: skip
        where = f" (--model {self.path})" if self.deploys == "both" and self.retrieves else ""
        return f"Deploy {what}{where}: {MEASURE} on test {shown}. {self.proof}"

    @property
    def proof(self) -> str:
        """Whether the training made the model better, and how surely."""
        comparison = self.comparison
        if comparison is None:
            reason = self.plan["training"].get("reason", "no epoch is planned")
            return f"Kept {self.base}: no training was better on dev ({reason}). No model was written."
        shown = (
            f"{signed(comparison.difference, 4)} [{signed(comparison.low, 4)}, {signed(comparison.high, 4)}], "
            f"p {p_value(comparison.p)}, {len(self.evaluation.systems[0].query_ids):,} queries"
        )
        if self.better:
            return f"Better: tuned over {self.base} {shown}. The model is in {self.path / 'model'}."
        why = "it is not better" if comparison.difference <= 0 else f"p is not below {LEVEL:g}, so it may be chance"
        return f"Kept {self.base}: {why} (tuned {shown}). No model was written."

    def tables(self) -> list[Table]:
        """Return the measures on test, the plan, and the trainings; what to deploy stands under the first."""
        first = self.evaluation.tables()[0]
        notes = [first.caption, self.sentence, *(f"Warning: {each}" for each in self.warnings)]
        proof = Table(first.title, first.columns, first.rows, "\n".join(filter(None, [*notes, f"Next: {self.next}"])))
        kept = [self.keep_table()] if self.keep is not None else []
        return [proof, self.pairs_table(), *self.cut_tables(), *kept, self.plan.table(), self.trials_table()]

    def pairs_table(self) -> Table:
        """Return the paired differences of the systems on test."""
        rows = [
            (f"{each.a} − {each.b}", f"{signed(each.difference, 4)} [{signed(each.low, 4)}, {signed(each.high, 4)}]",
             each.test, p_value(each.p))
            for each in self.evaluation.comparisons
            if each.measure == MEASURE
        ]  # fmt: skip
        return Table("Differences on test", ["systems", MEASURE, "test", "p"], rows)

    def cut_tables(self) -> list[Table]:
        """Return what both models have on test when vectors are cut; nothing where they are not."""
        rows = []
        for dimensions, evaluation in self.cuts.items():
            before, after = (number(system.means[MEASURE], 4) for system in evaluation.systems)
            found = next(each for each in evaluation.comparisons if each.measure == MEASURE)
            rows.append((f"{dimensions}", before, after, signed(found.difference, 4), p_value(found.p)))
        title = f"{MEASURE} on test, vectors cut to their first dimensions"
        return [Table(title, ["dimensions", "before", "after", "difference", "p"], rows)] if rows else []

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
        """Return the trainings, and what each had on dev."""
        before = "as it is" if self.base == self.plan["given"]["model"] else self.base
        rows = [(before, "", "", "", "", number(self.base_dev, 4))]
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
        if self.better and self.deploys == "both" and self.retrieves:
            return f"foils evaluate {read_again(given)} --model bm25 --model both={self.path}"
        if self.better:
            return f"foils evaluate {read_again(given)} --model {self.model}"
        queries = len(self.evaluation.systems[0].query_ids)
        if comparison is None:
            return "look at the pairs (foils describe): does the positive answer the query, and is it findable?"
        if comparison.difference > 0:
            wanted = queries * max(2.0, (comparison.high - comparison.low) ** 2 / (4 * comparison.difference**2))
            return f"test on more queries: about {wanted:,.0f} would show a difference of {comparison.difference:.4f}."
        if self.label_next:
            return f"label about {self.label_next} pairs (foils label --draw uncertain), so that the choice is surer."
        if given.get("minutes") is not None:
            return "give more --minutes, or none, and more pairs."
        return "give more pairs: nothing else helps as surely."

    def changes(self, count: int = SHOWN) -> tuple[list[Change], list[Change]]:
        """Return the test queries that gained most, and those that lost most, the largest change first."""
        if self.comparison is None:
            return [], []
        before, after = (system.per_query[MEASURE] for system in self.evaluation.systems[:2])
        difference, ids = np.asarray(after) - np.asarray(before), self.evaluation.systems[0].query_ids
        order, firsts = np.argsort(-difference, kind="stable"), [_firsts(run) for run in self.evaluation.runs[:2]]
        positives, texts = self.collection.positives("test"), self.collection.document_texts

        def change(at: int) -> Change:
            row = self.collection.query_rows([ids[at]])
            place = int(positives.places(row)[0])
            positive = texts(positives.of(place)[:1])[0] if place >= 0 else ""
            first = [texts(self.collection.document_rows([of[ids[at]]]))[0] if ids[at] in of else "" for of in firsts]
            return Change(self.collection.query_texts(row)[0], positive, float(before[at]), float(after[at]), *first)

        gained = [change(at) for at in order[:count] if difference[at] > 0]
        return gained, [change(at) for at in order[::-1][:count] if difference[at] < 0]

    def card(self, card: str) -> str:
        """Return a model's card with the proof and the plan's decisions at its end."""
        lines = [
            card.rstrip(),
            "",
            "## Measured with foils tune",
            "",
            self.sentence.partition(" The model is in")[0],
            "",
        ]
        lines += [f"| on test | {' | '.join(self.evaluation.systems[0].means)} |"]
        lines += ["|---|" + "---:|" * len(self.evaluation.systems[0].means)]
        lines += [f"| {each.name} | {' | '.join(f'{value:.4f}' for value in each.means.values())} |"
                  for each in self.evaluation.systems]  # fmt: skip
        lines += ["", *(f"- {each}" for each in self.warnings)] if self.warnings else []
        lines += ["", "| decision | why |", "|---|---|"]
        for name, section in self.plan.sections.items():
            reason = str(section.get("reason", "")).replace("|", "\\|").replace("\n", " ")
            lines.append(f"| {name} | {reason} |")
        return "\n".join(lines) + "\n"

    def report(self, path: str | Path) -> None:
        """Write the report as one HTML page."""
        from foils.experiments.pages import tune_page

        write_text(path, tune_page(self))

    def to_json(self) -> dict[str, Any]:
        """Return everything but the texts."""
        value: dict[str, Any] = {
            "better": self.better,
            "deploys": self.deploys,
            "sentence": self.sentence,
            "model": self.model,
            "warnings": list(self.warnings),
            "plan": self.plan.sections,
            "base": self.base,
            "base_dev": self.base_dev,
            "trials": [each.to_json() for each in self.trials],
            "decision": self.decision,
            "next": self.next,
            "evaluation": self.evaluation.to_json(),
            "cuts": {str(dimensions): each.to_json() for dimensions, each in self.cuts.items()},
            "keep": self.keep.to_json() if self.keep is not None else None,
        }
        return dict(without_nan(value))


def _surely_better(comparison: Comparison | None) -> bool:
    return comparison is not None and comparison.difference > 0 and comparison.p < LEVEL


def _firsts(run: Run) -> dict[str, str]:
    """The first document of each query."""
    columns = (run.table[name].to_pylist() for name in ("query_id", "doc_id"))
    return dict(reversed(list(zip(*columns, strict=True))))
