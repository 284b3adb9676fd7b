"""A judge that knows nothing is stopped; one that knows something is shown to."""

import json
import re

import numpy as np
import pytest
from scipy.special import expit

import foils
from foils.rating import Judgements
from foils.runtime.errors import FailureError
from judging import NumberJudge, listed, numbers, rate_negatives
from llm_server import Reply, serving


class Judge(NumberJudge):
    """Answers what a function of the difference, a generator and the shown order gives."""

    def __init__(self, answer):
        super().__init__(name="judge")
        self.answer, self.rng = answer, np.random.default_rng(0)

    def judge(self, candidates, pairs):
        self.asked += len(pairs)
        one, other = (np.array(candidates.texts(rows), float) for rows in (pairs.first, pairs.second))
        return np.clip(self.answer(one - other, self.rng), 0, 1)


KNOWING_NOTHING = {
    "one half": lambda d, rng: np.full(len(d), 0.5),
    "a thousandth": lambda d, rng: 0.5 + 0.001 * np.sign(rng.normal(size=len(d))),
    "coins": lambda d, rng: (rng.random(len(d)) < 0.5) * 1.0,
    "always the first": lambda d, rng: np.full(len(d), 0.9),
    "the worse one": lambda d, rng: expit(-d),
}
KNOWING = {
    "the better one": lambda d, rng: expit(d),
    "a biased one": lambda d, rng: expit(d + 3),
    "votes": lambda d, rng: (rng.random(len(d)) < expit(d)) * 1.0,
}


ALL = 2 * 40 * 8 * 4 // 2  # questions: both orders of each pair of forty queries of eight candidates, four of each


def asked(answer, labelled=True, queries=40, **settings):
    judge = answer if isinstance(answer, Judge | list) else Judge(answer)
    levels = {f"d{i}": float(i) for i in range(8)}
    qrels = {"train": {f"q{i}": {"d7": 1} for i in range(queries)}} if labelled else {}
    collection = numbers(levels, queries, qrels)
    negatives = listed([(f"q{q}", f"d{i}") for q in range(queries) for i in range(7)])
    split = {} if labelled else {"split": "all"}
    return rate_negatives(collection, negatives, judge, degree=4, **split, **settings)


@pytest.mark.parametrize("answer", KNOWING_NOTHING.values(), ids=KNOWING_NOTHING)
def test_a_judge_that_knows_nothing_is_stopped_unless_it_is_accepted(answer, caplog):
    with pytest.raises(FailureError, match=r"not clearly better than chance.*accept_judge"):
        asked(answer)
    rated = asked(answer, accept_judge=True)
    assert "not clearly better than chance" in caplog.text
    assert "nan" not in caplog.text
    assert rated.summary["positives_win"] < 0.56


@pytest.mark.parametrize("answer", KNOWING.values(), ids=KNOWING)
def test_a_judge_that_knows_something_is_let_through_and_shown(answer):
    rated = asked(answer)
    assert rated.summary["positives_win"] > 0.8
    assert rated.summary["orders_agree"] > 0.3
    shown = dict(rated.tables()[0].rows)
    assert float(shown["labelled positives win"]) > 0.8


@pytest.mark.parametrize(
    ("name", "labelled"),
    [(name, True) for name in ("one half", "a thousandth", "always the first", "the worse one")]
    + [(name, False) for name in ("one half", "a thousandth", "always the first")],
)
def test_such_a_judge_is_stopped_after_forty_comparisons(name, labelled):
    """Without labels nobody can tell of one who prefers the worse: it never contradicts itself."""
    judge = Judge(KNOWING_NOTHING[name])
    with pytest.raises(FailureError, match=r"after 40 of \d+ comparisons"):
        asked(judge, labelled)
    assert judge.asked == 80


@pytest.mark.parametrize("name", ["one half", "always the first", "the worse one"])
def test_each_judge_of_an_ensemble_is_tried_before_the_others_are_paid_for(name):
    """The better one outvotes it; it is named all the same, and both have answered forty comparisons by then."""
    judges = [Judge(KNOWING["the better one"]), Judge(KNOWING_NOTHING[name])]
    for number, judge in enumerate(judges):
        judge.name = judge.fingerprint = f"judge {number}"
    with pytest.raises(FailureError, match="the judge judge 1 is not clearly better than chance"):
        asked(judges)
    assert [judge.asked for judge in judges] == [80, 80]
    assert asked(judges, accept_judge=True).summary["comparisons"] > 40


def test_nine_in_ten_judges_that_toss_coins_end_in_the_trial_and_the_others_at_the_end():
    """The trial has a level of .1, the order of documents a second chance to tell."""
    ended = []
    for seed in range(30):
        judge = Judge(KNOWING_NOTHING["coins"])
        judge.rng = np.random.default_rng(seed)
        with pytest.raises(FailureError, match="not clearly better than chance"):
            asked(judge)
        ended.append(judge.asked)
    assert {*ended} <= {80, ALL}
    assert ended.count(80) >= 24, "4 standard deviations below 27"


@pytest.mark.parametrize("answer", KNOWING.values(), ids=KNOWING)
def test_a_judge_that_knows_something_is_asked_each_question_once(answer):
    judge = Judge(answer)
    rated = asked(judge)
    assert judge.asked == ALL
    assert rated.summary["better_than_chance"] is True
    assert dict(rated.tables()[0].rows)["clearly better than chance"] == "yes"


def test_below_twenty_queries_nothing_is_claimed_and_that_is_said():
    """Nineteen queries tell nothing of a judge who always prefers the worse; with the twentieth they do."""
    rated = asked(KNOWING_NOTHING["the worse one"], queries=19)
    assert rated.summary["better_than_chance"] is None
    assert rated.to_json()["better_than_chance"] is None
    shown = dict(rated.tables()[0].rows)["clearly better than chance"]
    assert shown == "not tested: 19 queries compare a labelled positive, 20 are needed"
    with pytest.raises(FailureError, match="labelled positives win 0% of their comparisons over 20 queries"):
        asked(KNOWING_NOTHING["the worse one"], queries=20)


def test_without_a_label_consistency_is_no_proof():
    rated = asked(KNOWING["the better one"], labelled=False)
    assert rated.summary["better_than_chance"] is None
    assert dict(rated.tables()[0].rows)["clearly better than chance"].startswith("not tested: 0 queries")


@pytest.mark.parametrize("form", ["preference", "order"])
def test_a_language_model_that_goes_by_the_place_alone_is_stopped_early(form, tmp_path, monkeypatch):
    monkeypatch.setenv("FOILS_CACHE", str(tmp_path))
    collection = numbers({f"d{i}": float(i) for i in range(8)}, 60, {"train": {f"q{i}": {"d7": 1} for i in range(60)}})
    negatives = listed([(f"q{q}", f"d{i}") for q in range(60) for i in range(7)])

    def by_place(number, request):
        return Reply('{"order": [1, 2, 3, 4, 5, 6, 7, 8]}' if form == "order" else '{"preference": 0.9}')

    def by_worth(number, request):
        worth = re.findall(r"<passage-(\d+)-\w+>\n([\d.]+)", request["messages"][0]["content"])
        best = sorted(worth, key=lambda each: -float(each[1]))
        return Reply(json.dumps({"order": [int(number) for number, _ in best]}))

    with serving(by_place) as server:
        how = {"judge": f"llm:m,answer={form}", "base_url": server.url, "degree": 4}
        with pytest.raises(FailureError, match="not clearly better than chance"):
            foils.rate(collection, negatives, **how)
        asked_before = len(server.seen)
        assert asked_before == 80, "forty pairs in both orders, or twenty lists of four showings"
        foils.rate(collection, negatives, accept_judge=True, **how)
        every = 60 * 4 if form == "order" else 2 * 60 * 16
        assert len(server.seen) == every, "what the trial was answered is not asked again"
    if form == "order":
        with serving(by_worth) as server:
            foils.rate(collection, negatives, judge="llm:n,answer=order", base_url=server.url, degree=4)
            assert len(server.seen) == every, "the trial asks about whole lists, each once"


@pytest.mark.parametrize("name", ["coins", "always the first", "one half"])
def test_without_labels_the_two_orders_have_to_agree(name):
    with pytest.raises(FailureError, match="not clearly better than chance"):
        asked(KNOWING_NOTHING[name], labelled=False)
    assert isinstance(asked(KNOWING["votes"], labelled=False), foils.rating.Rated)


def test_the_correlation_of_orders_is_that_of_the_answers_turned_either_way():
    rng = np.random.default_rng(0)
    f, b = rng.uniform(0.3, 1, 500), rng.uniform(0.2, 0.9, 500)
    both = np.concatenate([f, b]), np.concatenate([1 - b, 1 - f])  # each pair named from either side
    assert Judgements(f, b).order_correlation == pytest.approx(np.corrcoef(*both)[0, 1])
