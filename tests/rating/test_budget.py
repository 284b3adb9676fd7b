"""What was answered is not asked for again when queries, candidates or the budget grow; a budget is kept."""

import re
from pathlib import Path
from typing import Any

import pytest
from judging import NumberJudge, rate_negatives

from foils.data import Collection, Negatives
from foils.data.negatives import negatives_table
from foils.rating import Rated, RecordedJudge, session
from foils.rating.judges import Judge
from foils.runtime.errors import InputError

DOCUMENTS = {f"d{i}": str(i / 10) for i in range(40)}
COLLECTION = Collection.from_dicts("numbers", DOCUMENTS, {f"q{i}": f"query {i}" for i in range(4)}, {})


def rated(judge: Judge | list[NumberJudge], sizes: dict[str, int], **settings: Any) -> Rated:
    pairs = [(query, f"d{i}") for query, n in sizes.items() for i in range(n)]
    table = negatives_table([q for q, _ in pairs], [d for _, d in pairs], "s", range(len(pairs)), [0.0] * len(pairs))
    return rate_negatives(COLLECTION, Negatives(table), judge, **settings)


def questions(judge: NumberJudge, sizes: dict[str, int], folder: Path, **settings: Any) -> int:
    before = judge.asked
    rated(judge, sizes, judgements=folder, **settings)
    return judge.asked - before


def test_growth_costs_what_is_new(tmp_path):
    judge = NumberJudge(antisymmetric=True)
    assert questions(judge, {"q1": 20}, tmp_path) == 60
    assert questions(judge, {"q0": 20, "q1": 20, "q2": 12}, tmp_path) == 60 + 36
    assert questions(judge, {"q0": 21, "q1": 20, "q2": 12}, tmp_path) <= 15  # 63 pairs, six of them of the new one
    assert questions(judge, {"q2": 12, "q1": 20}, tmp_path, degree=4) == 0  # fewer cycles are the first ones


def test_a_budget_is_kept_and_counts_what_is_known(tmp_path):
    sizes = {"q0": 20, "q1": 10}
    judge = NumberJudge()  # asked in both orders
    assert questions(judge, sizes, tmp_path, budget=101) == 100
    assert questions(judge, sizes, tmp_path, budget=101) == 0
    assert questions(judge, sizes, tmp_path, budget=10_000) > 0
    assert questions(NumberJudge(), sizes, tmp_path / "anew") == judge.asked


def test_the_judges_of_an_ensemble_share_a_budget():
    judges = [NumberJudge(), NumberJudge(antisymmetric=True, name="other")]
    rated(judges, {"q0": 20}, budget=60)
    assert [judge.asked for judge in judges] == [40, 20]


def test_a_stopped_run_with_a_budget_ends_with_the_same_table(tmp_path, monkeypatch):
    sizes, settings = {"q0": 20, "q1": 15}, {"budget": 150, "judgements": tmp_path / "part"}
    monkeypatch.setattr(session, "BLOCK", 10)
    whole = rated(NumberJudge(), sizes, **{**settings, "judgements": tmp_path / "whole"})

    class Dying(NumberJudge):
        def judge(self, candidates: Any, pairs: Any) -> Any:
            if self.asked > 60:
                raise KeyboardInterrupt
            return super().judge(candidates, pairs)

    first, second = Dying(), NumberJudge()
    with pytest.raises(KeyboardInterrupt):
        rated(first, sizes, **settings)
    again = rated(second, sizes, **settings)
    assert again.digest == whole.digest
    assert first.asked + second.asked <= 150 + 2 * 35  # whole queries are written together


def test_what_does_nothing_together_is_refused(tmp_path):
    for settings, said in (
        ({"budget": 50, "validate": "all"}, "validate all: no effect with budget 50 (further"),
        ({"budget": 1}, "budget 1: a pair takes 2 questions; give more"),
    ):
        with pytest.raises(InputError, match=re.escape(said)):
            rated(NumberJudge(), {"q0": 5}, **settings)
    questions(NumberJudge(), {"q0": 5}, tmp_path)
    with pytest.raises(InputError, match="budget 9: the judgements are recorded, and nothing is asked"):
        rated(RecordedJudge(tmp_path), {"q0": 5}, budget=9)
