"""Decisions that are made from what is known, each with its reason: sections of the plan."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from foils.tuning.budget import Work
from foils.tuning.kinds import Kind
from foils.tuning.plan import Section
from foils.tuning.sources import SAMPLED
from foils.tuning.trials import Trial

MAX_POSITIVES = 4
STEPS = 20  # of an epoch, at least, where there are rows enough
SIZES = (16, 32, 64, 128)
LISTS = 16  # of a batch of rerankers


def sources_section(train_queries: int, kind: Kind) -> Section:
    """Return which sources are mined, and for how many training queries."""
    reason = "cheap ones, from easy to hard; the decision weighs how hard each is against how many are false"
    return {"names": list(kind.sources), "queries": min(SAMPLED, train_queries), "reason": reason}


def batches_section(work: Work, kind: Kind) -> Section:
    """Return how batches are filled, and their size.

    Args:
        work: what there is to do.
        kind: what is tuned.
    """
    if not kind.in_batch:
        reason = f"lists of a positive and {kind.per_query} negatives, in random order: they do not meet in a batch"
        return {"way": "random", "size": LISTS, "reason": reason}
    way, why = "random", "at random: other ways embed all rows before each epoch, a third of the training again"
    if kind.static:
        way, why = "ngame", "batches of rows that are hard for each other, good with such a model (docs/batches.md)"
    return {"way": way, "size": batch_size(work), "reason": f"{why}; at least {STEPS} steps an epoch where rows allow"}


def negatives_section(facts: Mapping[str, Any], kind: Kind) -> Section:
    """Return what is trained on: the source that was decided on or, where none is, pairs alone or the kind's least.

    Args:
        facts: what `Mining.decided` returns.
        kind: what is tuned.
    """
    section, reason = _rows(kind), " ".join(facts["sentences"])
    if source := facts["source"] or kind.least:
        return {**section, "source": source, "passes": 1, "reason": reason}
    return pairs_alone(section, reason, static=kind.static)


def mines(trials: Mapping[str, Any], kind: Kind) -> bool:
    """Return whether there is time to mine: rows of in-batch negatives alone need none."""
    return not kind.in_batch or bool(trials.get("contest", True))


def without_negatives(kind: Kind) -> Section:
    """Return what is trained on where there is time for few rows: pairs alone, of which more fit into it."""
    reason = "In-batch negatives alone: a row without a mined one takes less time, and so few rows fit into it."
    return pairs_alone(_rows(kind), reason, static=kind.static)


def _rows(kind: Kind) -> dict[str, Any]:
    return {"source": "", "per_query": kind.per_query, "max_positives": MAX_POSITIVES}


def rival(facts: Mapping[str, Any], section: Section, kind: Kind) -> str:
    """Return the source that the decided one is held against in a training; empty: in-batch negatives alone.

    Where every list needs negatives, random ones are or, of random ones, what the decision ranks first of the others.
    """
    if kind.in_batch or section["source"] != kind.least:
        return kind.least
    return next((str(each["name"]) for each in facts["sources"] if each["name"] != kind.least), kind.least)


def pairs_alone(section: Section, reason: str, *, static: bool) -> Section:
    """Return the section without mined negatives; a static embedding goes over the pairs more often."""
    passes = int(section["per_query"]) if static else 1
    again = f"An epoch goes {passes} times over the pairs: as many steps as with {passes} negatives each."
    reason = " ".join(filter(None, [reason, again if passes > 1 else ""]))
    return {**section, "source": "", "passes": passes, "reason": reason}


def training_section(trial: Trial, base: float, tried: int, before: str) -> Section:
    """Return the chosen training; epochs 0 where what was before is better on dev."""
    runs = plural(tried, "run")
    reason = f"the best of {runs} on dev: {trial.dev:.4f}, and {base:.4f} before"
    if trial.dev <= base:
        reason = f"none: the best of {runs} has {trial.dev:.4f} on dev, and {before} {base:.4f}"
    epochs = trial.epochs if trial.dev > base else 0
    return {"learning_rate": trial.learning_rate, "epochs": epochs, "queries": trial.queries, "reason": reason}


def batch_size(work: Work) -> int:
    """Return the largest batch that leaves `STEPS` steps an epoch, from 16 to 128."""
    rows = work.train * work.rows_per_query
    return max((size for size in SIZES if rows / size >= STEPS), default=SIZES[0])


def plural(count: int, what: str) -> str:
    """Return a number of things in words."""
    return f"{count} {what}" if count == 1 else f"{count} {what}s"


def in_words(seconds: float) -> str:
    """Return a time, in seconds or minutes."""
    return f"{seconds:.0f} s" if seconds < 90 else f"{seconds / 60:.0f} min"


def cost_in_words(seconds: float, minutes: float | None) -> str:
    """Return an estimate, and whether it is more than the minutes that were given."""
    beyond = minutes is not None and seconds > 1.2 * 60 * minutes
    return f"about {in_words(seconds)} in all" + ("; less than that cannot be done on this machine" if beyond else "")
