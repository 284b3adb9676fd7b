"""Decisions that are made from what is known, each with its reason: sections of the plan."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from foils.tuning.budget import Work
from foils.tuning.plan import Section
from foils.tuning.sources import SAMPLED, SOURCES
from foils.tuning.trials import Trial

PER_QUERY = {True: 10, False: 1}
"""Negatives of a positive: of a static embedding (True), whose steps cost next to nothing, and of other models."""
MAX_POSITIVES = 4
STEPS = 20  # of an epoch, at least, where there are rows enough
SIZES = (16, 32, 64, 128)


def sources_section(train_queries: int) -> Section:
    """Return which sources are mined, and for how many training queries."""
    reason = "cheap ones, from easy to hard; the decision weighs how hard each is against how many are false"
    return {"names": list(SOURCES), "queries": min(SAMPLED, train_queries), "reason": reason}


def batches_section(work: Work, *, static: bool) -> Section:
    """Return how batches are filled, and their size.

    Args:
        work: what there is to do.
        static: whether the model is a static embedding.
    """
    way, why = "random", "at random: other ways embed all rows before each epoch, a third of the training again"
    if static:
        way, why = "ngame", "batches of rows that are hard for each other, good with such a model (docs/batches.md)"
    return {"way": way, "size": batch_size(work), "reason": f"{why}; at least {STEPS} steps an epoch where rows allow"}


def negatives_section(facts: Mapping[str, Any], *, static: bool) -> Section:
    """Return what is trained on: the source that was decided on, or pairs alone.

    Args:
        facts: what `Mining.decided` returns.
        static: whether the model is a static embedding: it goes over pairs alone as often as there would be negatives.
    """
    section = {
        "source": facts["source"] or "",
        "per_query": PER_QUERY[static],
        "max_positives": MAX_POSITIVES,
        "passes": 1,
        "reason": " ".join(facts["sentences"]),
    }
    return section if facts["source"] else pairs_alone(section, str(section["reason"]), static=static)


def pairs_alone(section: Section, reason: str, *, static: bool) -> Section:
    """Return the section without mined negatives; a static embedding goes over the pairs more often."""
    passes = int(section["per_query"]) if static else 1
    if passes > 1:
        reason += f" An epoch goes {passes} times over the pairs: as many steps as with {passes} negatives each."
    return {**section, "source": "", "passes": passes, "reason": reason}


def training_section(trial: Trial, base: float, tried: int) -> Section:
    """Return the chosen training; epochs 0 where the base is better on dev."""
    runs = plural(tried, "run")
    reason = f"the best of {runs} on dev: {trial.dev:.4f}, and {base:.4f} before"
    if trial.dev <= base:
        reason = f"none: the best of {runs} has {trial.dev:.4f} on dev, and the model as it is {base:.4f}"
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
