"""How false negatives spread over a source's negatives, against cases worked by hand and against sklearn."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import expit
from sklearn.linear_model import LogisticRegression

from foils.data import Collection, Negatives
from foils.data.negatives import negatives_table
from foils.runtime.errors import InputError
from foils.scoring.evidence import KnownLogs
from foils.scoring.odds import MOST, SPREAD, Odds, slope_of


@pytest.mark.parametrize("slope", [0.0, 0.2, 1.0, 3.0])
def test_the_mean_is_the_share(slope: float) -> None:
    odds = Odds(np.random.default_rng(0).normal(-4, 2, 500), slope)
    for share in (1e-9, 1e-5, 0.01, 0.3, 0.9, MOST):
        assert odds.probabilities(share).mean() == pytest.approx(share, rel=1e-2)
    assert not odds.probabilities(0.0).any()


def test_the_logits_rise_by_b_over_the_share_that_is_not_false_and_by_1_at_most() -> None:
    odds = Odds(np.array([-1.0, 0.0, 1.0]), 0.3)
    assert odds.lines([0.1, 0.4, 0.7, 0.9])[:, 1] == pytest.approx([0.3 / 0.9, 0.3 / 0.6, 1.0, 1.0])
    constant, slope = odds.lines(0.4)
    assert odds.probabilities(0.4) == pytest.approx(expit(constant + slope * odds.logs))


def test_where_pairs_tell_nothing_of_a_source_all_its_negatives_are_as_likely_false() -> None:
    assert Odds(np.array([-9.0, 0.0, 4.0]), 0.0).probabilities(0.25) == pytest.approx([0.25] * 3, rel=1e-3)


def test_a_negative_whose_chance_is_hidden_from_the_pairs_is_believed_as_it_is() -> None:
    """What ranked knew more: the source's pairs are relevant with π = e^(.2·x − 1.2), the pairs' features say e^x."""
    rng = np.random.default_rng(1)
    x = rng.normal(0, 1, 20_000)
    truth = np.minimum(0.9, np.exp(0.2 * x - 1.2))
    relevant = rng.random(len(x)) < truth
    labelled = relevant & (rng.random(len(x)) < 0.1)
    slope = slope_of(x[labelled], x[~labelled], np.ones(labelled.sum()))
    negatives = ~labelled
    share = relevant[negatives].mean()
    harm = x[negatives] @ truth[negatives] / negatives.sum()
    own = Odds(x[negatives], slope).probabilities(share)
    as_elsewhere = Odds(x[negatives]).probabilities(share)
    assert abs(x[negatives] @ own / negatives.sum() - harm) < 0.02
    assert abs(x[negatives] @ as_elsewhere / negatives.sum() - harm) > 0.1


def test_the_slope_is_a_penalised_logistic_regression() -> None:
    rng = np.random.default_rng(2)
    negatives, recaptured = rng.normal(0, 1, 400), rng.normal(0.4, 1, 60)
    x = np.concatenate([recaptured, negatives])[:, None]
    x -= x.mean()
    found = slope_of(recaptured, negatives, np.ones(60))
    plain = LogisticRegression(C=1e8).fit(x, np.arange(460) < 60).coef_[0, 0]
    assert min(plain, 1.0) < found < max(plain, 1.0)
    p = expit(np.log(60 / 400) + found * x[:, 0])
    for _ in range(50):  # the constant that belongs to it
        p = expit(np.log(p / (1 - p)) + np.log(60 / p.sum()))
    gradient = ((np.arange(460) < 60) - p) @ x[:, 0] - (found - 1) / SPREAD**2
    assert gradient == pytest.approx(0, abs=0.05)


def test_without_a_recaptured_positive_the_slope_is_1_and_with_many_that_fall_it_is_0() -> None:
    negatives = np.random.default_rng(3).normal(0, 1, 500)
    assert slope_of(np.zeros(0), negatives, np.zeros(0)) == 1.0
    assert slope_of(negatives[:200] - 2, negatives, np.ones(200)) == 0.0
    assert 0.5 < slope_of(np.zeros(1), negatives, np.ones(1)) < 1.1


def planted(rows: list[str], **changed: object) -> Negatives:
    """Negatives d0–d9 of one query, of which the given positives came back when they were planted."""
    ids = [f"d{at}" for at in range(10)]
    table = negatives_table(["q"] * 10, ids, "dense", np.arange(10), np.zeros(10))
    recapture = {"returned": 2.0, "labelled": 4.0, "kept": 10.0, "way": "counted", "standard_error": 1.0}
    said = {"query_id": ["q"] * len(rows), "doc_id": rows, "rank": [0] * len(rows), "keep": [True] * len(rows)}
    return Negatives(table, {"recapture": recapture, "planted": {**said, **changed}})


def test_the_slope_of_a_source_is_that_of_the_positives_that_its_table_says_came_back() -> None:
    texts = {f"d{at}": f"text {at}" for at in range(14)}
    positives = {f"d{at}": 1 for at in range(10, 14)}
    collection = Collection.from_dicts("tiny", texts, {"q": "query"}, {"train": {"q": positives}})
    pairs = np.asarray(collection.document_rows([f"d{at}" for at in range(10, 14)]), np.int64)  # the query's row is 0
    known = KnownLogs(np.sort(pairs), np.array([-3.0, 1.0, 2.0, -4.0])[np.argsort(pairs)])
    negatives = np.linspace(-2, 2, 10)
    of_two = known.slope(planted(["d11", "d12"]), collection, negatives)
    assert of_two == pytest.approx(slope_of(np.array([1.0, 2.0]), negatives, np.ones(2)))
    assert of_two > known.slope(planted(["d10", "d13"]), collection, negatives)
    rejected = planted(["d11", "d12"], keep=[False, False])
    assert known.slope(rejected, collection, negatives) == 1.0
    with pytest.raises(InputError, match=r"planted positives cannot be read .*; mine it again"):
        known.slope(planted(["d11"], rank="none"), collection, negatives)
