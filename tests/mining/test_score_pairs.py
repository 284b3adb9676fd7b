"""Pairs scored by teachers: which rows, which numbers, each pair once, and averages by hand."""

from __future__ import annotations

import numpy as np
import pytest

import foils
from foils.encode.cross_encoders import logits
from foils.mining.scorers import preferred_share, taught_pairs
from foils.runtime.errors import InputError
from train_models import cross_encoder, made_up, static_model, table


@pytest.fixture
def use(tmp_path):
    return {"vectors": str(tmp_path / "vectors")}


def test_kept_negatives_and_positives_are_scored_once(use, tmp_path, monkeypatch):
    collection, model = made_up(), cross_encoder(tmp_path / "cross")
    negatives = table(collection).reject(np.arange(80) == 3, "looks wrong")
    scored = foils.score_pairs(collection, negatives, teacher=model, **use)
    rows = scored.table.to_pylist()
    assert len(rows) == 80 + 20
    assert rows[:80] == [{**row, "teacher": rows[i]["teacher"]} for i, row in enumerate(negatives.table.to_pylist())]
    assert {row["doc_id"] == row["query_id"].replace("q", "d") for row in rows[80:]} == {True}
    assert {row["reason"] for row in rows[80:]} == {"labelled positive"}
    assert np.flatnonzero(np.isnan([row["teacher"] for row in rows])).tolist() == [3]
    text = dict(zip(*(collection.documents[c].to_pylist() for c in ("doc_id", "text")), strict=True))
    asked = dict(zip(*(collection.queries[c].to_pylist() for c in ("query_id", "text")), strict=True))
    for row in (rows[0], rows[50], rows[99]):
        wanted = logits(model, [(asked[row["query_id"]], text[row["doc_id"]])])[0]
        assert row["teacher"] == pytest.approx(float(wanted), abs=1e-5)
    assert "teacher_1" not in scored.table.column_names
    assert len(scored.provenance["settings"]["teachers"][0]["fingerprint"]) > 30
    monkeypatch.setattr("foils.mining.scorers.logits", lambda *_, **__: pytest.fail("scored again"))
    again = foils.score_pairs(collection, negatives, teacher=[model], **use)
    assert np.array_equal(again.table["teacher"].to_numpy(), scored.table["teacher"].to_numpy(), equal_nan=True)


def test_several_teachers_are_averaged(use, tmp_path):
    collection, model = made_up(), cross_encoder(tmp_path / "cross")
    means = foils.score_pairs(collection, table(collection), teacher=[model, static_model(seed=3)], **use).table
    first, second = (means[f"teacher_{i}"].to_numpy() for i in (1, 2))
    assert means["teacher"].to_numpy() == pytest.approx((first + second) / 2)
    assert np.abs(second).max() <= 1 + 1e-6


def test_what_a_teacher_prefers_by_hand():
    collection = made_up()
    _, _, positive, pairs = taught_pairs(table(collection), collection, "train")
    of_first = pairs.query_rows == 0
    places = [*np.flatnonzero(of_first & positive), *np.flatnonzero(of_first & ~positive)]
    assert len(places) == 5
    scores = np.where(positive, 1.0, 0.0)
    scores[places] = [2, 1, 2, 3, 3]  # one below, one tied, two above
    assert preferred_share(pairs.query_rows, positive, scores) == pytest.approx((19 + 1.5 / 4) / 20)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "no teacher; give one of teacher bi-encoder:MODEL, teacher cross-encoder:MODEL"),
        ({"teacher": "all-MiniLM-L6-v2"}, "expected one of bi-encoder:MODEL, cross-encoder:MODEL"),
        ({"teacher": "cross-encoder:"}, "expected one of bi-encoder:MODEL"),
        ({"teacher": "cross-encoder:m", "precision": "bfloat16"}, "without teacher bi-encoder:MODEL"),
    ],
)
def test_what_does_nothing_is_refused(given, message):
    with pytest.raises(InputError, match=message):
        foils.score_pairs(made_up(), table(made_up()), **given)


def test_scores_are_not_overwritten(use):
    collection = made_up()
    scored = foils.score_pairs(collection, table(collection), teacher=static_model(), **use)
    with pytest.raises(InputError, match="has teacher already"):
        foils.score_pairs(collection, scored, teacher=static_model(), **use)
