"""Pairs scored by teachers: which rows, which numbers, each pair once, and averages by hand."""

from __future__ import annotations

import numpy as np
import pytest

import foils
from foils.encode import EmbeddingSettings
from foils.encode.cross_encoders import logits
from foils.mining.teachers import averaged
from foils.runtime.errors import InputError, UnknownNameError
from train_models import cross_encoder, made_up, static_model, table


@pytest.fixture
def use(tmp_path):
    return EmbeddingSettings(vectors=str(tmp_path / "vectors"))


def test_kept_negatives_and_positives_are_scored_once(use, tmp_path, monkeypatch):
    collection, model = made_up(), cross_encoder(tmp_path / "cross")
    negatives = table(collection).reject(np.arange(80) == 3, "looks wrong")
    scored = foils.score_pairs(collection, negatives, cross_encoders=model, embedding=use)
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
    monkeypatch.setattr("foils.mining.cross_encoder.logits", lambda *_, **__: pytest.fail("scored again"))
    again = foils.score_pairs(collection, negatives, cross_encoders=[model], embedding=use)
    assert np.array_equal(again.table["teacher"].to_numpy(), scored.table["teacher"].to_numpy(), equal_nan=True)


def test_several_teachers_are_averaged(use, tmp_path):
    collection, model = made_up(), cross_encoder(tmp_path / "cross")
    teachers = {"cross_encoders": model, "encoders": [static_model(seed=3)]}
    means = foils.score_pairs(collection, table(collection), **teachers, embedding=use).table
    ranks = foils.score_pairs(collection, table(collection), **teachers, average="rank", embedding=use).table
    first, second = (means[f"teacher_{i}"].to_numpy() for i in (1, 2))
    assert means["teacher"].to_numpy() == pytest.approx((first + second) / 2)
    assert np.abs(second).max() <= 1 + 1e-6
    rows = [i for i, query in enumerate(means["query_id"].to_pylist()) if query == "q5"]
    assert len(rows) == 5
    wanted = sum(np.argsort(np.argsort(of[rows])) / 4 for of in (first, second)) / 2
    assert ranks["teacher"].to_numpy()[rows] == pytest.approx(wanted)


def test_averages_by_hand():
    scores = np.array([[3.0, 10, 1, 3], [0.1, 5, 0.9, 0.5]])
    queries = np.array([7, 2, 7, 7])
    assert averaged(scores, queries, "mean") == pytest.approx([1.55, 7.5, 0.95, 1.75])
    assert averaged(scores, queries, "rank") == pytest.approx([(0.75 + 0) / 2, 1, (0 + 1) / 2, (0.75 + 0.5) / 2])


def test_what_cannot_work_is_refused(use):
    collection = made_up()
    with pytest.raises(InputError, match="no teacher; give cross_encoders"):
        foils.score_pairs(collection, table(collection))
    with pytest.raises(UnknownNameError, match="average"):
        foils.score_pairs(collection, table(collection), encoders=static_model(), average="median")
    scored = foils.score_pairs(collection, table(collection), encoders=static_model(), embedding=use)
    with pytest.raises(InputError, match="has teacher already"):
        foils.score_pairs(collection, scored, encoders=static_model(), embedding=use)
