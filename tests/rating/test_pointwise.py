"""A language model asked about one document at a time: in a rating, and as a teacher."""

import json
import re
from collections import Counter

import numpy as np
import pytest
from scipy.special import expit, logit

import foils
from foils.encode.vectors import AT_128
from foils.llm import LLMSettings
from foils.rating import Candidates, LLMJudge, QuestionSettings, all_pairs, ask
from foils.rating.judges import JudgeSettings, Opening, open_judge
from foils.runtime.errors import FailureError
from judging import listed, numbers
from llm_server import Reply, serving

QUERIES, LEVELS = 24, {f"d{i}": (i - 3.5) / 2 for i in range(8)}


@pytest.fixture
def world(tmp_path, monkeypatch):
    monkeypatch.setenv("FOILS_CACHE", str(tmp_path / "cache"))
    collection = numbers(LEVELS, QUERIES, {"train": {f"q{i}": {"d7": 1} for i in range(QUERIES)}})
    return collection, listed([(f"q{q}", f"d{i}") for q in range(QUERIES) for i in range(7)])


def shown(request) -> float:
    return float(re.search(r"Passage:\n<\S+>\n(\S+)", request["messages"][0]["content"])[1])


def relevance(number, request) -> Reply:
    """The chance by the number that the document is; nothing that can be read of d2."""
    value = shown(request)
    return Reply("hm" if value == LEVELS["d2"] else json.dumps({"relevance": float(expit(value))}))


def test_ratings_are_those_of_the_logits_and_each_document_is_asked_about_once(world):
    collection, negatives = world
    with serving(relevance) as server:
        how = {"judge": "llm:m,answer=relevance", "base_url": server.url, "price": (1.0, 1.0)}
        rated = foils.rate(collection, negatives, degree=6, model="bradley-terry", **how)
        asked = Counter(request["messages"][0]["content"] for request in server.seen)
        assert len(asked) == QUERIES * 8
        assert sum(count > 1 for count in asked.values()) == QUERIES, "those that cannot be read alone"
        server.seen = []
        denser = foils.rate(collection, negatives, degree=8, model="bradley-terry", **how)
        assert {shown(request) for request in server.seen} == {LEVELS["d2"]}, "a higher degree asks nothing more"
    table = denser.table.to_pylist()
    gaps = {row["doc_id"]: row["gap"] for row in table if row["query_id"] == "q3" and row["keep"]}
    for name, gap in gaps.items():
        expected = (LEVELS["d7"] - LEVELS[name]) * 400 / np.log(10)
        assert np.isnan(gap) if name == "d2" else gap == pytest.approx(expected, rel=0.08)
    assert rated.summary["position_bias"] == pytest.approx(0, abs=1e-12)
    assert rated.summary["better_than_chance"] is True
    (use,) = denser.models.values()
    assert use.requests == sum(asked.values()) + len(server.seen), "answers of earlier runs are counted"


def test_it_compares_documents_of_different_queries(world):
    collection, negatives = world
    with serving(relevance) as server:
        rated = foils.rate(
            collection, negatives, judge="llm:m,answer=relevance", base_url=server.url, degree=4, between=2
        )
    assert np.isfinite(rated.summary["between"]["spread"])
    assert rated.summary["between"]["unreached"] == 0


def test_one_that_knows_nothing_is_stopped_in_the_trial(world):
    collection, negatives = world
    with serving(lambda number, request: Reply('{"relevance": 0.7}')) as server:
        with pytest.raises(FailureError, match="not clearly better than chance"):
            foils.rate(collection, negatives, judge="llm:m,answer=relevance", base_url=server.url, degree=4)
        assert len(server.seen) <= 80


@pytest.mark.parametrize("p", [0.0, 0.3, 1.0])
def test_a_probability_becomes_a_logit_that_stays_finite(world, tmp_path, p):
    collection, _ = world
    opening = Opening(JudgeSettings(), AT_128, LLMSettings(), QuestionSettings(answer="relevance"))
    with serving(lambda number, request: Reply(json.dumps({"relevance": p}))) as server:
        judge = open_judge(f"llm:m,base_url={server.url}", opening, collection)
        candidates = Candidates.of_lists(["q"], ["a query"], [[("a", "one"), ("b", "two")]])
        assert not isinstance(judge, LLMJudge)
        score = judge.score(candidates, np.arange(2))
        np.testing.assert_allclose(score, logit(np.clip(p, 0.01, 0.99)))
        assert ask(judge, candidates, all_pairs([2])).preference.tolist() == [0.5]
