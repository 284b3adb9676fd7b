"""Comparisons between queries: offsets that were planted are found, and rated tables hold them."""

import json
import re
from typing import Any

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import expit, log_ndtr, ndtr

from foils.data import Collection, Negatives
from foils.rating import (
    BiEncoderJudge,
    Candidates,
    LLMJudge,
    Pairs,
    Spread,
    answers_between,
    fit_offsets,
    pairs_between,
    thurstone,
)  # fmt: skip
from foils.rating.estimators import THURSTONE
from foils.rating.fitting import fitted_offsets
from foils.runtime.errors import InputError
from foils.training.data import training_set
from judging import LetterEncoder, NumberJudge, letters, listed, numbers, rate_negatives
from llm_server import Reply, language_model, serving


class NumbersBetween(NumberJudge):
    """Compares the numbers that documents of any queries are."""

    def between(self, candidates: Candidates, first: Any, second: Any) -> Any:
        self.asked += len(first)
        one, other = (np.array(candidates.texts(rows), float) for rows in (first, second))
        return np.clip(expit((one - other) / self.temperature) + self.bias, 0, 1)


def planted(queries: int, size: int, rng: np.random.Generator, *, spread: float) -> tuple[Candidates, Any, Any]:
    """Candidates with a strength of their own, centred in each query, and an offset of each query, both in probits."""
    own = rng.normal(0, 0.8, (queries, size))
    own -= own.mean(1, keepdims=True)
    offset = rng.normal(0, spread, queries)
    documents = [[(f"q{q}d{i}", "") for i in range(size)] for q in range(queries)]
    ids = [f"q{q}" for q in range(queries)]
    return Candidates.of_lists(ids, ids, documents), own.ravel(), offset


def drawn(candidates: Candidates, degree: int = 6, seed: int = 0) -> Any:
    every = np.ones(int(candidates.offsets[-1]), bool)
    return pairs_between(candidates, every, degree=degree, seed=seed)


def exact_ratings(candidates: Candidates, own: Any) -> Any:
    """Ratings that are these strengths."""
    first, second = np.arange(len(own))[:-1], np.arange(1, len(own))
    same = candidates.query_of(first) == candidates.query_of(second)
    pairs = Pairs(candidates.offsets, first[same], second[same])
    found = thurstone(pairs, ndtr(own[pairs.first] - own[pairs.second]), prior_sd=1e4)
    np.testing.assert_allclose(found.rating, own, atol=1e-3)
    return found


def test_exact_answers_give_back_the_planted_offsets():
    candidates, own, offset = planted(60, 5, np.random.default_rng(0), spread=1.0)
    total, pairs = own + np.repeat(offset, 5), drawn(candidates)
    assert pairs.shape == (60 * 3, 2)
    answers = ndtr(total[pairs[:, 0]] - total[pairs[:, 1]])
    found = fit_offsets(candidates, pairs, answers, exact_ratings(candidates, own))
    expected = (offset - offset.mean()) * THURSTONE.elo_per_unit
    np.testing.assert_allclose(found.offset, expected, rtol=0.05, atol=0.03 * expected.std())
    assert found.spread == pytest.approx(expected.std(), rel=0.35)


@pytest.mark.parametrize("spread", [0.0, 0.5, 1.5])
def test_offsets_from_votes_err_less_than_none(spread):
    """One vote a comparison, six for each query: as good as with the planted spread for a prior, or nearly so."""
    candidates, own, offset = planted(300, 5, np.random.default_rng(1), spread=spread)
    total, pairs, ratings = own + np.repeat(offset, 5), drawn(candidates), exact_ratings(candidates, own)
    votes = (np.random.default_rng(2).random(len(pairs)) < ndtr(total[pairs[:, 0]] - total[pairs[:, 1]])).astype(float)
    found = fit_offsets(candidates, pairs, votes, ratings).offset / THURSTONE.elo_per_unit
    queries, lead = candidates.query_of(pairs), own[pairs[:, 0]] - own[pairs[:, 1]]
    over, belief = Pairs([0, 300], *queries.T), Spread(max(spread, 0.01))
    best = fitted_offsets(over, votes, THURSTONE, lead, belief)
    errors = [np.sqrt(((each - offset + offset.mean()) ** 2).mean()) for each in (found, best)]
    assert errors[0] < 1.1 * errors[1] + 0.15 * (spread == 0)
    assert errors[0] < spread or not spread


def test_the_fit_is_the_maximum_of_the_posterior():
    """Against a general optimiser of the formula."""
    rng = np.random.default_rng(3)
    first, second = rng.integers(0, 6, (2, 30))
    second = np.where(first == second, (second + 1) % 6, second)
    w, known = rng.random(30), rng.normal(size=30)
    fit = fitted_offsets(Pairs([0, 6], first, second), w, THURSTONE, known, Spread(0.7))

    def loss(b: Any) -> float:
        lead = known + b[first] - b[second]
        return -float((w * log_ndtr(lead) + (1 - w) * log_ndtr(-lead)).sum() - (b**2).sum() / (2 * 0.7**2))

    expected = minimize(loss, np.zeros(6), tol=1e-12).x
    np.testing.assert_allclose(fit, expected - expected.mean(), atol=1e-5)


def test_missing_answers_are_left_out_with_what_is_known_of_their_pairs():
    candidates, own, offset = planted(20, 4, np.random.default_rng(4), spread=1.0)
    total, pairs, ratings = own + np.repeat(offset, 4), drawn(candidates), exact_ratings(candidates, own)
    answers = ndtr(total[pairs[:, 0]] - total[pairs[:, 1]])
    gone = np.arange(len(pairs)) % 7 == 0
    some = fit_offsets(candidates, pairs, np.where(gone, np.nan, answers), ratings)
    alone = fit_offsets(candidates, pairs[~gone], answers[~gone], ratings)
    np.testing.assert_allclose(some.offset, alone.offset)
    assert (some.comparisons, some.missing) == (len(pairs), gone.sum())
    none = fit_offsets(candidates, pairs, np.full(len(pairs), np.nan), ratings)
    assert np.isnan(none.offset).all()


def test_each_query_is_compared_as_often_as_asked_and_little_changes_with_another_query():
    candidates, more = (planted(n, 5, np.random.default_rng(0), spread=1.0)[0] for n in (40, 41))
    pairs = drawn(candidates, degree=4)
    queries = candidates.query_of(pairs)
    assert (np.bincount(queries.ravel()) == 4).all()
    assert (queries[:, 0] != queries[:, 1]).all()
    again = set(map(tuple, drawn(more, degree=4).tolist()))
    assert len(again & set(map(tuple, pairs.tolist()))) >= len(pairs) - 2
    assert drawn(letters((2,))).shape == (0, 2)


def collection() -> tuple[Collection, Negatives]:
    """q1's candidates are all stronger by 3 than q0's, q2's by 6."""
    made = numbers({f"d{q}{i}": i + 3 * q for q in range(3) for i in range(4)}, 3)
    return made, listed([(f"q{q}", f"d{q}{i}") for q in range(3) for i in range(4)])


@pytest.mark.parametrize("between", [2, 6])
def test_rated_tables_have_an_offset_with_which_queries_can_be_compared(between):
    made, table = collection()
    settings: dict[str, Any] = {"split": "all", "degree": 4, "model": "bradley-terry", "prior_sd": 1e3}
    plain = rate_negatives(made, table, NumbersBetween(), **settings)
    assert "offset" not in plain.table.column_names
    assert plain.summary["between"] is None
    rated = rate_negatives(made, table, NumbersBetween(bias=0.02), between=between, **settings)
    offset = rated.table["offset"].to_numpy().reshape(3, 4)
    assert (offset == offset[:, :1]).all()
    assert (np.diff(offset[:, 0]) > 150).all()
    assert rated.summary["between"]["comparisons"] == 3 * between // 2
    assert "comparisons between queries" in str(rated)
    assert rated.to_json()["between"]["missing"] == 0
    np.testing.assert_allclose(rated.table["elo"].to_numpy()[:4], plain.table["elo"].to_numpy()[:4], atol=5)
    lists = training_set(made, Negatives(rated.table), split="all", form="lists")
    assert (np.diff(np.nanmean(lists.facts.ratings, axis=1)) > 0.5).all(), "the reranker learns elo + offset"
    same = training_set(made, Negatives(plain.table), split="all", form="lists")
    np.testing.assert_allclose(np.nanmean(same.facts.ratings, axis=1), 0, atol=1e-9)


def test_judges_of_one_query_alone_are_refused_before_anything_is_asked():
    made, table = collection()
    judge = NumberJudge()
    with pytest.raises(InputError, match="between_judge"):
        rate_negatives(made, table, [NumbersBetween(), judge], split="all", between=2)
    assert judge.asked == 0
    rated = rate_negatives(made, table, judge, split="all", between=2, between_judge=NumbersBetween())
    assert np.isfinite(rated.table["offset"].to_numpy()).all()


def test_a_bi_encoder_compares_each_document_with_its_own_query():
    candidates = Candidates.of_lists(["q", "r"], ["a", "b"], [[("x", "a"), ("y", "b")], [("z", "b"), ("w", "a")]])
    judge = BiEncoderJudge(LetterEncoder(), temperature=1.0)
    first, second = np.array([0, 1, 0]), np.array([2, 2, 3])
    found = answers_between([judge], candidates, first, second)
    np.testing.assert_allclose(found, expit([0.0, -1.0, 1.0]), atol=0.01)


BETWEEN = re.compile(
    r"Query 1:\n<.*?>\n(.*?)\n.*Passage A.*?:\n<.*?>\n(.*?)\n.*Query 2:\n<.*?>\n(.*?)\n.*Passage B.*?:\n<.*?>\n(.*?)\n",
    re.DOTALL,
)


def test_a_language_model_sees_both_queries_in_both_orders_and_nothing_twice(tmp_path):
    candidates = letters((2, 2))

    def answer(number: int, asked: dict[str, Any]) -> Reply:
        _, first, _, second = BETWEEN.search(asked["messages"][0]["content"]).groups()
        return Reply(json.dumps({"preference": float(expit(float(first) - float(second))) * 0.9 + 0.1}))

    with serving(answer) as server:
        judge = LLMJudge(language_model(server), tmp_path)
        found = answers_between([judge], candidates, np.array([1]), np.array([2]))
        np.testing.assert_allclose(found, 0.9 * (expit(1.0) - 0.5) + 0.5)
        shown = {BETWEEN.search(one["messages"][0]["content"]).groups() for one in server.seen}
        assert shown == {("query 0", "1.0", "query 1", "0.0"), ("query 1", "0.0", "query 0", "1.0")}
        again = LLMJudge(language_model(server), tmp_path)
        np.testing.assert_array_equal(answers_between([again], candidates, np.array([1]), np.array([2])), found)
        assert len(server.seen) == 2
