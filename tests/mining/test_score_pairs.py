"""Pairs scored by teachers: which rows, which numbers, each pair once, and averages by hand."""

from __future__ import annotations

import re

import numpy as np
import pytest

import foils
from foils.encode.cross_encoders import logits
from foils.mining.teachers import TaughtPairs, averaged
from foils.runtime.errors import InputError
from llm_server import Reply, serving
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
    monkeypatch.setattr("foils.mining.cross_encoder.logits", lambda *_, **__: pytest.fail("scored again"))
    again = foils.score_pairs(collection, negatives, teacher=[model], **use)
    assert np.array_equal(again.table["teacher"].to_numpy(), scored.table["teacher"].to_numpy(), equal_nan=True)


def test_several_teachers_are_averaged(use, tmp_path):
    collection, model = made_up(), cross_encoder(tmp_path / "cross")
    teachers = {"teacher": [model, static_model(seed=3)]}
    means = foils.score_pairs(collection, table(collection), **teachers, **use).table
    ranks = foils.score_pairs(collection, table(collection), **teachers, average="rank", **use).table
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


def test_a_pair_without_a_score_of_one_teacher_has_no_average():
    scores = np.array([[3.0, 1, 2, 5], [7, np.nan, 6, 9]])
    queries = np.array([1, 1, 1, 2])
    assert averaged(scores, queries, "mean") == pytest.approx([5, np.nan, 4, 7], nan_ok=True)
    assert averaged(scores, queries, "rank") == pytest.approx([1, np.nan, 0, 1], nan_ok=True)


def test_what_a_teacher_prefers_by_hand():
    collection = made_up()
    taught = TaughtPairs.of(table(collection), collection, "train")
    of_first = taught.pairs.query_rows == 0
    places = [*np.flatnonzero(of_first & taught.positive), *np.flatnonzero(of_first & ~taught.positive)]
    assert len(places) == 5
    scores = np.full(len(taught.rows), np.nan)
    assert np.isnan(taught.preferred(scores))
    scores[places] = [2, 1, 2, 3, np.nan]  # one below, one tied, one above
    assert taught.preferred(scores) == pytest.approx((1 + 0.5 + 0) / 3)
    other = taught.pairs.query_rows == 1
    scores[other] = np.where(taught.positive[other], 1.0, 0.0)
    assert taught.preferred(scores) == pytest.approx((0.5 + 1) / 2)


def test_a_language_model_grades_each_pair_once(use, tmp_path):
    collection = made_up()
    negatives = table(collection)
    rows = negatives.rows_in(collection)[1]
    broken = collection.document_texts(rows[:1])[0]

    def grade(document):
        return len(document) % 5

    def answer(number, body):
        document = re.search(r"<document-\w+>\n(.*)\n</document", body["messages"][-1]["content"], re.DOTALL).group(1)
        if document == broken:
            return Reply('{"grade": 7} or so')
        return Reply(f'<think>{{"grade": 9}}</think> {{"grade": {grade(document)}}}')

    (tmp_path / "own.txt").write_text("{query}|{document}")
    with serving(answer) as server:
        more = {"base_url": server.url, "log": tmp_path / "log", "price": (1e6, 0.0), "question": tmp_path / "own.txt"}
        graded = foils.score_pairs(collection, negatives, teacher="llm:m", **more)
        seen = len(server.seen)
        again = foils.score_pairs(collection, negatives, teacher=["llm", static_model(seed=3)], llm_model="m", **more)
    grades = graded.table["teacher"].to_numpy()[: len(rows)]
    texts = collection.document_texts(rows)
    wanted = [np.nan if text == broken else grade(text) for text in texts]
    assert grades == pytest.approx(wanted, nan_ok=True), "an answer that cannot be read is no grade"
    failures = graded.models["llm:m"].failures
    assert set(failures) == {"an answer without a grade from 0 to 4"}
    assert len(server.seen) - seen == 2 * sum(failures.values()), "only what failed is asked again"
    assert graded.teachers[0][:2] == ("llm:m", int(np.isfinite(graded.table["teacher"].to_numpy()).sum()))
    assert graded.to_json()["language_models"]["llm:m"]["cost"] == graded.models["llm:m"].usage.prompt_tokens
    assert "failed: an answer without a grade" in str(graded)
    assert again.table["teacher_1"].to_numpy()[: len(rows)] == pytest.approx(wanted, nan_ok=True)
    assert np.array_equal(np.isnan(again.table["teacher"].to_numpy()[: len(rows)]), np.isnan(wanted))


def test_the_packages_own_question_says_what_is_wanted(tmp_path):
    with serving(lambda number, body: Reply('{"grade": 2}')) as server:
        foils.score_pairs(made_up(), table(made_up()), teacher="llm:m", base_url=server.url, log=tmp_path / "log")
    prompt = server.seen[0]["messages"][-1]["content"]
    assert "whole number from 0 to 4" in prompt
    assert "{" not in prompt.replace('{"grade": N}', "")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "no teacher; give one of teacher bi-encoder:MODEL, teacher cross-encoder:MODEL"),
        ({"teacher": "all-MiniLM-L6-v2"}, "expected one of bi-encoder:MODEL, cross-encoder:MODEL, llm:MODEL"),
        ({"teacher": "cross-encoder:"}, "expected one of bi-encoder:MODEL"),
        ({"teacher": "bi-encoder:m", "average": "rank"}, "with one teacher; give a second"),
        ({"teacher": "bi-encoder:m", "llm_model": "m"}, "without teacher llm:MODEL"),
        ({"teacher": "bi-encoder:m", "question": "q.txt"}, "without teacher llm:MODEL"),
        ({"teacher": "llm:m", "max_length": 64}, "without teacher bi-encoder:MODEL"),
        ({"teacher": "cross-encoder:m", "precision": "bfloat16"}, "without teacher bi-encoder:MODEL"),
        ({"teacher": ["bi-encoder:m", "llm:m"], "average": "median"}, "average"),
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
