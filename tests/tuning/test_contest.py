"""Mined negatives against none: the better on dev is trained on, and the plan says why."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from foils.tuning.contest import contest
from foils.tuning.plan import Plan
from foils.tuning.sections import pairs_alone, rival
from foils.tuning.trials import Trial

SECTION = {"source": "dense", "per_query": 10, "max_positives": 4, "passes": 1, "reason": "Train on dense."}


@dataclass(frozen=True)
class Runs:
    """Trainings whose measure on dev is known."""

    dev: float
    rows: dict[str, Any]
    forgotten: list[Trial] = field(default_factory=list)

    def run(self, rate: float, epochs: int, queries: int) -> Trial:
        return Trial(rate, epochs, queries, self.dev, 1, 1, 1.0, 1.0)

    def forget(self, trials: list[Trial]) -> None:
        self.forgotten.extend(trials)


@pytest.mark.parametrize(("alone", "source", "passes"), [(0.7, "", 10), (0.5, "dense", 1), (0.6, "dense", 1)])
def test_pairs_alone_are_taken_where_they_are_better(alone: float, source: str, passes: int) -> None:
    plan, best = Plan({"negatives": dict(SECTION)}), Trial(0.1, 2, 100, 0.6, 1, 1, 1.0, 1.0, "dense")
    runs, others = Runs(0.6, SECTION), Runs(alone, pairs_alone(SECTION, "", static=True))
    chosen, trial, without = contest(runs, others, best, plan)  # type: ignore[arg-type]
    assert (plan["negatives"]["source"], plan["negatives"]["passes"]) == (source, passes)
    assert (without.learning_rate, without.epochs, without.queries, without.dev) == (0.1, 2, 100, alone)
    assert trial is (best if source else without)
    assert (runs.forgotten, others.forgotten) == (([], [without]) if source else ([best], []))
    assert chosen is (runs if source else others)
    held = "held" if source else "did not hold"
    said = f"Train on dense. On dev it {held}: {alone:.4f} with in-batch negatives alone, 0.6000 with those of dense."
    assert plan["negatives"]["reason"].startswith(said)


def test_random_negatives_of_lists_are_held_against_what_the_decision_ranks_next() -> None:
    encoders = SimpleNamespace(in_batch=True, least="")
    rerankers = SimpleNamespace(in_batch=False, least="random")
    facts = {"sources": [{"name": "random"}, {"name": "bm25 50-54"}, {"name": "dense"}]}
    assert rival(facts, {"source": "random"}, encoders) == ""  # type: ignore[arg-type]
    assert rival(facts, {"source": "dense"}, rerankers) == "random"  # type: ignore[arg-type]
    assert rival(facts, {"source": "random"}, rerankers) == "bm25 50-54"  # type: ignore[arg-type]
    assert rival({"sources": facts["sources"][:1]}, {"source": "random"}, rerankers) == "random"  # type: ignore[arg-type]
