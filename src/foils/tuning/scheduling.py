"""How much a tuning does: this machine's pace is measured, and what fits into the time is written into the plan."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import numpy as np

from foils.data import Collection
from foils.data.read import load_collection
from foils.runtime import progress
from foils.tuning.budget import Budget, Work
from foils.tuning.keeping import left_out
from foils.tuning.kept import Kept
from foils.tuning.kinds import Kind
from foils.tuning.pace import Pace
from foils.tuning.plan import Plan
from foils.tuning.sections import MAX_POSITIVES, batch_size, batches_section, mines, sources_section

SECTIONS = ("documents", "trials")


def scheduled(plan: Plan, collection: Collection, kind: Kind, begun: float, kept: Kept | None) -> float:
    """Decide how much is done: sections [documents], [batches] and [trials].

    Also [sources] where there is time to mine, and [keep] where nothing is kept.

    Args:
        plan: gets the sections that it lacks.
        collection: the whole one, with three splits.
        kind: what is tuned.
        begun: when the tuning began, as time.monotonic says it: its time counts from then.
        kept: where what was decided is written down, so that a tuning that goes on decides the same; None: nowhere.

    Returns:
        About how many seconds that takes; 0 where the plan says it already.
    """
    seconds = 0.0
    if not {*SECTIONS, "batches"} <= plan.sections.keys():
        seconds = _decided(plan, collection, kind, begun, kept)
    if nothing := left_out(plan["given"], plan["trials"], knows=kind.knows):
        plan.decide("keep", lambda: nothing)
    return seconds


def _decided(plan: Plan, collection: Collection, kind: Kind, begun: float, kept: Kept | None) -> float:
    with progress.quiet():
        embedding = kind.embedding(collection)
    budget = _budget(plan, collection, kind, begun, embedding)

    def decided() -> dict[str, Any]:
        documents = plan.sections.get("documents") or budget.documents()
        return {"documents": documents, "trials": budget.trials(documents)}

    known = {name: each for name, each in plan.sections.items() if name in SECTIONS}
    key: dict[str, Any] = {"collection": collection.digest, **plan["given"], **known}
    schedule = decided() if kept is None else kept.facts("schedule", key, decided)
    documents = plan.decide("documents", lambda: schedule["documents"])
    trials, queries = plan.decide("trials", lambda: schedule["trials"]), int(documents["train_queries"])
    if mines(trials, kind):
        plan.decide("sources", lambda: sources_section(queries, kind))
    plan.decide("batches", lambda: batches_section(replace(budget.work, train=queries), kind))
    return embedding + budget.estimate(documents, trials)


def _budget(plan: Plan, collection: Collection, kind: Kind, begun: float, embedding: float) -> Budget:
    """Measure this machine's pace, and return what it allows."""
    positives, given = collection.positives("train"), plan["given"]
    rows = float(np.minimum(positives.counts, MAX_POSITIVES).mean()) * kind.per_query / kind.in_row
    dev, test = (len(collection.positives(name)) for name in ("dev", "test"))
    work = Work(len(collection.documents), len(positives), dev, rows, test)
    with progress.quiet():
        pace = Pace.measured(kind, collection, seed=int(given["seed"]), rows=batch_size(work))
    minutes, keep = given.get("minutes"), left_out(given, {}, knows=kind.knows) is None
    if keep:
        load_collection(given["keep"])  # the first reading of pydocs takes half a minute
    spent = time.monotonic() - begun + embedding
    seconds = None if minutes is None else max(0.0, 60 * float(minutes) - spent)
    return Budget(pace, work, seconds, kind.learning_rate(), keep, kind.depth, kind.few_steps)
