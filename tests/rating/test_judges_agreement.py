"""How far several judges agree."""

from __future__ import annotations

import numpy as np
import pytest
from judging import NumberJudge, rate_negatives

from foils.data import Collection, Negatives
from foils.data.negatives import negatives_table
from foils.rating import Judgements, agreements


def said(*answers: float) -> Judgements:
    forward = np.array(answers)
    return Judgements(forward, 1 - forward)


def test_agreement_with_the_others_by_hand() -> None:
    judges = [said(0.9, 0.2, 0.5, np.nan, 0.8), said(0.6, 0.7, 0.9, 0.1, np.nan), said(0.7, 0.4, 0.9, 0.2, np.nan)]
    # means of the others: 0.65, 0.55, 0.9, 0.15, none; 0.8, 0.3, 0.7, 0.2, 0.8; 0.75, 0.45, 0.7, 0.1, 0.8
    np.testing.assert_allclose(agreements(judges), [1 / 2, 3 / 4, 1.0])
    assert np.isnan(agreements([said(0.5), said(0.9)])).all()


def test_a_rating_shows_each_judge_of_an_ensemble() -> None:
    documents = {f"d{i}": str(float(i)) for i in range(8)}
    collection = Collection.from_dicts("numbers", documents, {"q": "query"}, {})
    rows = negatives_table(["q"] * 8, list(documents), "s", range(8), [0.0] * 8)

    class Backwards(NumberJudge):
        def judge(self, candidates, pairs):  # type: ignore[no-untyped-def]
            return 1 - super().judge(candidates, pairs)

    judges = [NumberJudge(), NumberJudge(bias=0.05, name="biased"), Backwards(name="backwards", temperature=4.0)]
    rated = rate_negatives(collection, Negatives(rows), judges, validate="all")
    summary = rated.summary
    assert [judge.name for judge in summary.judges] == ["numbers", "biased", "backwards"]
    assert [judge.agreement for judge in summary.judges] == [1, 1, 0]
    assert summary.judges[1].position_bias == pytest.approx(0.05, abs=0.02)
    assert summary.judges[0].position_bias == pytest.approx(0, abs=1e-9)
    assert rated.to_json()["judges"][2] == {
        "name": "backwards",
        "missing": 0,
        "position_bias": pytest.approx(0, abs=1e-9),
        "agreement": 0.0,
    }
    assert "judge backwards" in str(rated)
    alone = rate_negatives(collection, Negatives(rows), judges[0])
    assert alone.summary.judges == []
