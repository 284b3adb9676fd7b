"""What a rating, a training or mining would leave out without a word: it is kept where it can be, and counted else."""

from typing import Any

import numpy as np
import pytest
import torch
from scipy.special import expit
from sentence_transformers import CrossEncoder

import foils
from foils.data import Collection
from foils.runtime.errors import FoilsError
from foils.training.data import training_set
from foils.training.reranker import reranker_loss, reranker_set
from judging import NumberJudge, listed, numbers, rate_negatives
from train_models import cross_encoder

QUERIES, PER_QUERY, LOST = 8, 5, (2, 5)


class FailingBetween(NumberJudge):
    """Fails on each comparison between queries in which one of LOST takes part."""

    def between(self, candidates: Any, first: Any, second: Any) -> Any:
        one, other = (np.array(candidates.texts(rows), float) for rows in (first, second))
        lost = np.isin(candidates.query_of(first), LOST) | np.isin(candidates.query_of(second), LOST)
        return np.where(lost, np.nan, expit(one - other))


@pytest.fixture(scope="module")
def rated() -> Any:
    levels = {f"d{i}": float(i) for i in range(PER_QUERY + 1)}
    best = f"d{PER_QUERY}"
    collection = numbers(levels, QUERIES, {"train": {f"q{i}": {best: 1} for i in range(QUERIES)}})
    negatives = listed([(f"q{q}", f"d{i}") for q in range(QUERIES) for i in range(PER_QUERY)])
    return collection, rate_negatives(collection, negatives, FailingBetween(), degree=4, between=4)


def targets(collection: Any, rated: Any, loss: str) -> Any:
    """The data set of a loss: queries, documents, and what is learned of each."""
    return reranker_set(training_set(collection, rated, form="lists"), reranker_loss(loss, target="elo"))


def test_queries_without_an_offset_are_counted_by_the_rating(rated, caplog):
    _, table = rated
    assert table.summary["between"]["unreached"] == len(LOST)
    shown = dict(table.tables()[0].rows)
    assert shown["queries without an offset"] == str(len(LOST))
    missing = np.isnan(table.table["offset"].to_numpy())
    assert {q for q, lost in zip(table.table["query_id"].to_pylist(), missing, strict=True) if lost} == {"q2", "q5"}


def test_a_loss_over_lists_keeps_them_by_their_own_ratings(rated):
    collection, table = rated
    rows = targets(collection, table, "listnet")[:]
    assert len(rows["query"]) == QUERIES
    elo = dict(zip(zip(*table.table.select(["query_id", "doc_id"]).to_pydict().values(), strict=True),
                   table.table["elo"].to_numpy(), strict=True))  # fmt: skip
    for query, documents, label in zip(rows["query"], rows["documents"], rows["label"], strict=True):
        own = np.array([elo[f"q{query.split()[-1]}", f"d{int(float(text))}"] for text in documents])
        learned = np.array(label[0])
        np.testing.assert_allclose(np.diff(learned), np.diff(own) * np.log(10) / 400, rtol=1e-9)


def test_a_regression_leaves_them_out_and_says_how_many_and_why(rated, caplog):
    collection, table = rated
    rows = targets(collection, table, "regression")[:]
    assert len(rows["query"]) == (QUERIES - len(LOST)) * (PER_QUERY + 1)
    lost = len(LOST) * (PER_QUERY + 1)
    assert f"{lost} pairs of a query and a document have no elo and are left out" in caplog.text
    assert f"{len(LOST)} queries have no offset" in caplog.text


def test_a_rating_of_every_document_loses_none_and_says_nothing(rated, caplog):
    collection, table = rated
    whole = rate_negatives(collection, table.table.select(["query_id", "doc_id", "source", "rank", "score"]),
                           NumberJudge(name="other"), degree=4)  # fmt: skip
    targets(collection, whole, "listnet")
    assert "left out" not in caplog.text


@pytest.mark.parametrize(
    ("loss", "learned"),
    [("regression", "logit"), ("hybrid", "logit"), ("binary", "probability")],
)
@pytest.mark.parametrize("before", [torch.nn.Sigmoid(), torch.nn.Identity()], ids=["sigmoid", "identity"])
def test_predict_of_the_saved_reranker_returns_what_was_learned(rated, tmp_path, loss, learned, before):
    collection, table = rated
    model = cross_encoder(tmp_path / "base")
    model.activation_fn = before
    trained = foils.train(
        collection, table, model=model, reranker=True, loss=loss, epochs=1, batch_size=8, max_length=16,
        device="cpu", output=tmp_path / "trained",
    )  # fmt: skip
    served = CrossEncoder(str(trained.path), device="cpu")
    pairs = [("query 1", "3.0"), ("query 4", "0.0"), ("query 7", "5.0")]
    logits = served.predict(pairs, activation_fn=torch.nn.Identity())
    expected = logits if learned == "logit" else expit(logits)
    np.testing.assert_allclose(served.predict(pairs), expected, rtol=1e-5)


@pytest.fixture
def boats() -> Collection:
    documents = {f"d{i}": " ".join(["keel"] * (9 - i) + [f"word{i}"] * i) for i in range(9)}
    labels = {"train": {"q0": {"d1": 1, "d3": 1}}, "test": {"q1": {"d2": 1, "d0": 1}}}
    return Collection.from_dicts("boats", documents, {"q0": "keel", "q1": "keel word1"}, labels)


class LengthJudge(NumberJudge):
    """Prefers the text with more keels."""

    def judge(self, candidates: Any, pairs: Any) -> Any:
        one, other = (
            np.array([text.count("keel") for text in candidates.texts(rows)]) for rows in (pairs.first, pairs.second)
        )
        return expit(one - other)


def test_labelled_positives_that_mining_kept_are_rated_as_others_are_and_stay_rejected(boats):
    how = {"split": "all", "top": 4, "near_duplicate": 2.0}
    plain = foils.mine(boats, "bm25", **how)
    kept = foils.mine(boats, "bm25", keep_positives=True, **how)
    positives = {("q0", "d1"), ("q0", "d3"), ("q1", "d2"), ("q1", "d0")}
    pairs = [*zip(*kept.table.select(["query_id", "doc_id"]).to_pydict().values(), strict=True)]
    assert positives & {*pairs}, "some are among the first ranks"
    assert not positives & {*zip(*plain.table.select(["query_id", "doc_id"]).to_pydict().values(), strict=True)}
    assert [p for p, keep in zip(pairs, kept.keep, strict=True) if keep] == [
        *zip(*plain.kept().select(["query_id", "doc_id"]).to_pydict().values(), strict=True)
    ], "the negatives are the same"
    rated = rate_negatives(boats, kept, LengthJudge(), degree=4, split="all", accept_judge=True)
    rows = dict(zip(zip(*rated.table.select(["query_id", "doc_id"]).to_pydict().values(), strict=True),
                    rated.table.select(["elo", "gap", "keep"]).to_pylist(), strict=True))  # fmt: skip
    for pair in positives & {*pairs}:
        assert np.isfinite(rows[pair]["elo"])
        assert np.isnan(rows[pair]["gap"])
        assert not rows[pair]["keep"]
    for query in ("q0", "q1"):
        elo = {document: row["elo"] for (of, document), row in rows.items() if of == query}
        assert sorted(elo, key=elo.__getitem__, reverse=True) == sorted(elo), "more keels, higher rating"


def test_queries_of_another_split_stay_unseen_with_kept_positives(boats):
    kept = foils.mine(boats, "bm25", keep_positives=True, split="all", top=4, near_duplicate=2.0)
    rated = rate_negatives(boats, kept, LengthJudge(), degree=4, split="train", accept_judge=True)
    of_test = [row["elo"] for row in rated.table.to_pylist() if row["query_id"] == "q1"]
    assert np.isnan(of_test).all()
    only = kept.table.filter([q == "q1" for q in kept.table["query_id"].to_pylist()])
    with pytest.raises(FoilsError, match="no row to rate"):
        rate_negatives(boats, only, LengthJudge(), degree=4, split="train", accept_judge=True)
