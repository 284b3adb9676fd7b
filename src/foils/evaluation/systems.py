"""Several systems over one split of a collection: measured alike, compared pair by pair, as one result."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np

from foils.data import Collection, Run
from foils.data.read import identical_ids_caption
from foils.data.run import without_identical
from foils.evaluation.measures import DEFAULT_MEASURES, Measured, Qrels, Rankings, measure_rankings
from foils.runtime.errors import InputError
from foils.runtime.results import Result, Table, number, p_value
from foils.statistics import Alternative, Comparison, bootstrap_interval, compare_systems


@dataclass(frozen=True)
class Evaluation(Result):
    """What systems score on a split, and how they differ.

    Attributes:
        split: whose judgements were used.
        systems: each system's measures, in the order given.
        intervals: system → measure → bootstrap interval of the mean.
        comparisons: every pair of systems under every measure; empty for one system.
        identical_ids: queries of the split for which the document of the query's own id was left out of every run.
        collection: its name.
        runs: what was measured, one run a system; empty: not kept.
    """

    split: str
    systems: tuple[Measured, ...]
    intervals: dict[str, dict[str, tuple[float, float]]]
    comparisons: tuple[Comparison, ...]
    identical_ids: int = 0
    collection: str = ""
    runs: tuple[Run, ...] = field(default=(), repr=False, compare=False)

    def tables(self) -> list[Table]:
        """Return the systems' means with their intervals, and the comparisons."""
        measures = list(self.systems[0].per_query)
        rows = [
            (
                system.name,
                *(
                    f"{system.means[measure]:.4f} [{number(low)}, {number(high)}]"
                    for measure, (low, high) in self.intervals[system.name].items()
                ),
                f"{len(system.unanswered):,}",
            )
            for system in self.systems
        ]
        count = len(self.systems[0].query_ids)
        title = f"{self.collection} ({self.split}), {count:,} queries, mean and 95 % interval"
        means = Table(title, ["system", *measures, "unanswered"], rows, identical_ids_caption(self.identical_ids))
        if not self.comparisons:
            return [means]
        rows = [
            (f"{c.a} − {c.b}", c.measure, f"{c.difference:+.4f}", c.test, p_value(c.p), p_value(c.p_holm))
            for c in self.comparisons
        ]
        return [means, Table("Differences", ["systems", "measure", "difference", "test", "p", "p (Holm)"], rows)]

    def write_runs(self, folder: str | Path) -> None:
        """Write the run of each system in TREC form, as NAME.trec."""
        for run in self.runs:
            run.write(Path(folder) / f"{run.name}.trec")

    def to_json(self) -> dict[str, Any]:
        """Return the evaluation as plain values: split, systems (measures, per query), comparisons."""
        return {
            "split": self.split,
            "identical_ids": self.identical_ids,
            "systems": [
                {
                    "name": system.name,
                    "measures": system.means,
                    "intervals": {measure: list(ends) for measure, ends in self.intervals[system.name].items()},
                    "unanswered": list(system.unanswered),
                    "per_query": {
                        measure: dict(zip(system.query_ids, values.tolist(), strict=True))
                        for measure, values in system.per_query.items()
                    },
                }
                for system in self.systems
            ],
            "comparisons": [vars(comparison) for comparison in self.comparisons],
        }


def evaluate_runs(
    collection: Collection,
    runs: Sequence[Run],
    *,
    rng: np.random.Generator,
    split: str = "test",
    measures: Sequence[str] = DEFAULT_MEASURES,
    against: Sequence[str] | None = None,
    alternative: Alternative = "two-sided",
    resamples: int = 10_000,
) -> Evaluation:
    """Measure runs on a split and compare them.

    A document that has the query's own id is left out of each run before it is measured (`Collection.identical`).

    Args:
        collection: holds the judgements.
        runs: one a system, names distinct.
        rng: source of the bootstrap's draws.
        split: whose queries; all of them count, answered or not.
        measures: ir_measures' names.
        against: compare every other system with each of these; None: all pairs.
        alternative: `two-sided`, or `greater` for one-sided tests.
        resamples: draws of the bootstrap.

    Raises:
        InputError: no run, a name twice, a run that answers no query of the split, or what the measures refuse.
        UnknownNameError: an unknown split.
        MissingExtraError: ir-measures is not installed.
    """
    systems = _measured(collection, runs, split, measures)
    intervals = {
        system.name: {
            measure: bootstrap_interval(values, rng=rng, resamples=resamples)
            for measure, values in system.per_query.items()
        }
        for system in systems
    }
    values = {system.name: system.per_query for system in systems}
    comparing: dict[str, Any] = {"against": against, "alternative": alternative, "resamples": resamples}
    comparisons = compare_systems(values, rng=rng, **comparing) if len(systems) > 1 else []
    return Evaluation(split, systems, intervals, tuple(comparisons), collection.identical_ids(split), collection.name)


def _measured(collection: Collection, runs: Sequence[Run], split: str, measures: Sequence[str]) -> tuple[Measured, ...]:
    names = [run.name for run in runs]
    if not runs or len(set(names)) != len(names):
        raise InputError(f"expected at least one run, with names that differ; found {names}")
    qrels = qrels_of(collection, split)
    systems = tuple(
        measure_rankings(rankings_of(without_identical(run, collection)), qrels, measures, name=run.name)
        for run in runs
    )
    silent = [system.name for system in systems if len(system.unanswered) == len(system.query_ids)]
    if silent:
        raise InputError(
            f"no query of the split {split!r} of {collection.name} is in: {', '.join(silent)}; "
            f"check the split (there are {', '.join(collection.splits)}) and the query ids"
        )
    return systems


def qrels_of(collection: Collection, split: str) -> Qrels:
    """Return a split's judgements as query id → document id → grade, queries in the order of the judgements."""
    table = collection.judgements(split)
    qrels: dict[str, dict[str, int]] = {}
    columns = (table[name].to_pylist() for name in ("query_id", "doc_id", "relevance"))
    for query, document, grade in zip(*columns, strict=True):
        qrels.setdefault(query, {})[document] = grade
    return qrels


def rankings_of(run: Run) -> Rankings:
    """Return a run as query id → document ids, best first."""
    rows = zip(run.table["query_id"].to_pylist(), run.table["doc_id"].to_pylist(), strict=True)
    return {query: [document for _, document in of] for query, of in groupby(rows, key=lambda row: row[0])}
