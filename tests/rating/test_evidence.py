"""A judge that knows nothing is stopped; one that knows something is shown to."""

import numpy as np
import pytest
from scipy.special import expit

import foils
from foils.rating import Judgements
from foils.runtime.errors import FailureError
from judging import NumberJudge, listed, numbers, rate_negatives


class Judge(NumberJudge):
    """Answers what a function of the difference, a generator and the shown order gives."""

    def __init__(self, answer):
        super().__init__(name="judge")
        self.answer, self.rng = answer, np.random.default_rng(0)

    def judge(self, candidates, pairs):
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


def asked(answer, labelled=True, **settings):
    levels = {f"d{i}": float(i) for i in range(8)}
    qrels = {"train": {f"q{i}": {"d7": 1} for i in range(40)}} if labelled else {}
    collection = numbers(levels, 40, qrels)
    negatives = listed([(f"q{q}", f"d{i}") for q in range(40) for i in range(7)])
    split = {} if labelled else {"split": "all"}
    return rate_negatives(collection, negatives, Judge(answer), degree=4, **split, **settings)


@pytest.mark.parametrize("answer", KNOWING_NOTHING.values(), ids=KNOWING_NOTHING)
def test_a_judge_that_knows_nothing_is_stopped_unless_it_is_accepted(answer, caplog):
    with pytest.raises(FailureError, match=r"not clearly better than chance.*accept_judge"):
        asked(answer)
    rated = asked(answer, accept_judge=True)
    assert "not clearly better than chance" in caplog.text
    assert "nan" not in caplog.text
    assert rated.summary.positives_win < 0.56


@pytest.mark.parametrize("answer", KNOWING.values(), ids=KNOWING)
def test_a_judge_that_knows_something_is_let_through_and_shown(answer):
    rated = asked(answer)
    assert rated.summary.positives_win > 0.8
    assert rated.summary.orders_agree > 0.3
    shown = dict(rated.tables()[0].rows)
    assert float(shown["labelled positives win"]) > 0.8


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
