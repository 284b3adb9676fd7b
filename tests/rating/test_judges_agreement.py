"""How far several judges agree."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest
from judging import NumberJudge, letters
from scipy.optimize import minimize_scalar
from scipy.special import expit, logit

from foils.data import Collection, Negatives
from foils.data.negatives import negatives_table
from foils.rating import (
    EnsembleJudge,
    Judgements,
    agreements,
    all_pairs,
    ask,
    judge_weights,
    krippendorff_alpha,
    rate_negatives,
    sureness,
)
from foils.runtime.errors import InputError


def said(*answers: float) -> Judgements:
    forward = np.array(answers)
    return Judgements(forward, 1 - forward)


def test_agreement_with_the_others_by_hand() -> None:
    judges = [said(0.9, 0.2, 0.5, np.nan, 0.8), said(0.6, 0.7, 0.9, 0.1, np.nan), said(0.7, 0.4, 0.9, 0.2, np.nan)]
    # means of the others: 0.65, 0.55, 0.9, 0.15, none; 0.8, 0.3, 0.7, 0.2, 0.8; 0.75, 0.45, 0.7, 0.1, 0.8
    np.testing.assert_allclose(agreements(judges), [1 / 2, 3 / 4, 1.0])
    assert np.isnan(agreements([said(0.5), said(0.9)])).all()


def alpha_by_definition(answers: np.ndarray) -> float:
    """Over each unit and its turned self; a plain reading of the definition."""
    units = [[x for x in unit if np.isfinite(x)] for unit in [*answers.T, *(1 - answers.T)]]
    units = [unit for unit in units if len(unit) > 1]
    values = [x for unit in units for x in unit]
    n = len(values)
    observed = sum(sum((x - y) ** 2 for x, y in permutations(unit, 2)) / (len(unit) - 1) for unit in units) / n
    expected = sum((x - y) ** 2 for x, y in permutations(values, 2)) / (n * (n - 1))
    return 1 - observed / expected


def test_alpha_is_its_definition_and_does_not_heed_sides() -> None:
    rng = np.random.default_rng(0)
    answers = np.where(rng.random((3, 12)) < 0.2, np.nan, rng.random((3, 12)))
    found = krippendorff_alpha([said(*row) for row in answers])
    assert found == pytest.approx(alpha_by_definition(answers))
    turned = np.where(np.arange(12) % 2, answers, 1 - answers)
    assert krippendorff_alpha([said(*row) for row in turned]) == pytest.approx(found)


def test_alpha_at_its_ends() -> None:
    rng = np.random.default_rng(1)
    one = rng.random(4000)
    assert krippendorff_alpha([said(*one), said(*one)]) == pytest.approx(1)
    assert krippendorff_alpha([said(*one), said(*rng.random(4000))]) == pytest.approx(0, abs=0.06)
    assert krippendorff_alpha([said(*one), said(*(1 - one))]) == pytest.approx(-1, abs=0.01)
    assert np.isnan(krippendorff_alpha([said(0.5, 0.5), said(0.5, 0.5)]))
    assert np.isnan(krippendorff_alpha([said(0.9), said(np.nan)]))


def test_a_rating_shows_each_judge_of_an_ensemble() -> None:
    documents = {f"d{i}": str(float(i)) for i in range(8)}
    collection = Collection.from_dicts("numbers", documents, {"q": "query"}, {})
    rows = negatives_table(["q"] * 8, list(documents), "s", range(8), [0.0] * 8)

    class Backwards(NumberJudge):
        def judge(self, candidates, pairs):  # type: ignore[no-untyped-def]
            return 1 - super().judge(candidates, pairs)

    judges = [NumberJudge(), NumberJudge(bias=0.05, name="biased"), Backwards(name="backwards", temperature=4.0)]
    rated = rate_negatives(collection, Negatives(rows), EnsembleJudge(judges), validate="all")
    summary = rated.summary
    assert [judge.name for judge in summary.judges] == ["numbers", "biased", "backwards"]
    assert [judge.agreement for judge in summary.judges] == [1, 1, 0]
    assert summary.judges[1].position_bias == pytest.approx(0.05, abs=0.02)
    assert summary.judges[0].position_bias == pytest.approx(0, abs=1e-9)
    assert summary.alpha < 0.5
    assert rated.to_json()["judges"][2] == {
        "name": "backwards",
        "missing": 0,
        "position_bias": pytest.approx(0, abs=1e-9),
        "agreement": 0.0,
        "sureness": pytest.approx(summary.judges[2].sureness),
        "weight": 1.0,
    }
    assert summary.judges[2].sureness < 0 < summary.judges[0].sureness
    assert "judge backwards" in str(rated)
    alone = rate_negatives(collection, Negatives(rows), judges[0])
    assert alone.summary.judges == ()
    assert "Krippendorff" not in str(alone)


def test_sureness_is_the_factor_on_the_logits_that_the_others_bear_out() -> None:
    logits = np.random.default_rng(0).normal(0, 0.5, 400)
    others = expit(logits)
    for factor in (0.5, 1.0, 2.5):
        found = sureness([said(*expit(factor * logits)), said(*others)])
        assert found[0] == pytest.approx(1 / factor, rel=0.05)
    assert sureness([said(*others), said(*(1 - others))])[0] == pytest.approx(-1, abs=0.02)
    assert np.isnan(sureness([said(0.5, 0.5), said(0.9, 0.2)])[0])
    assert np.isnan(sureness([said(0.9), said(np.nan)])).all()


def test_sureness_is_the_maximum_of_its_likelihood_votes_included() -> None:
    rng = np.random.default_rng(1)
    votes, others = (rng.random(60) < 0.6).astype(float), rng.random(60)
    x = logit(np.clip(votes, 0.01, 0.99))
    loss = minimize_scalar(lambda a: -(others * np.log(expit(a * x)) + (1 - others) * np.log(expit(-a * x))).sum())
    assert sureness([said(*votes), said(*others)])[0] == pytest.approx(loss.x, abs=1e-5)


def planted_judges(errors: list[float], loadings: list[float], pairs: int = 40_000, seed: int = 0) -> np.ndarray:
    """Preferences ½ + l·t + e."""
    rng = np.random.default_rng(seed)
    common = rng.normal(0, 0.1, pairs)
    return np.array([0.5 + own * common + rng.normal(0, sd, pairs) for own, sd in zip(loadings, errors, strict=True)])


def test_weights_are_the_loadings_over_the_errors_variances() -> None:
    errors, loadings = [0.05, 0.1, 0.2, 0.1], [1.0, 1.0, 1.0, 0.5]
    answers = planted_judges(errors, loadings)
    expected = np.array(loadings) / np.square(errors)
    np.testing.assert_allclose(judge_weights(answers), expected * 4 / expected.sum(), rtol=0.1)
    some = np.where(np.random.default_rng(1).random(answers.shape) < 0.2, np.nan, answers)
    np.testing.assert_allclose(judge_weights(some), expected * 4 / expected.sum(), rtol=0.15)
    turned = np.where(np.arange(answers.shape[1]) % 2, answers, 1 - answers)
    np.testing.assert_allclose(judge_weights(turned), judge_weights(answers), rtol=1e-6)


def test_a_judge_against_the_others_has_no_weight() -> None:
    weights = judge_weights(planted_judges([0.1, 0.1, 0.1, 0.1], [1.0, 1.0, 1.0, -1.0]))
    assert weights[3] == 0
    np.testing.assert_allclose(weights[:3], 4 / 3, rtol=0.1)


def test_weights_make_the_mean_better_than_that_of_all_alike() -> None:
    answers = planted_judges([0.05, 0.3, 0.3], [1.0, 1.0, 1.0])
    truth = planted_judges([0.0, 0.3, 0.3], [1.0, 1.0, 1.0])[0]

    class Says(NumberJudge):
        pass

    judges = [Says(name=f"judge {i}") for i in range(3)]
    alike, weighed = (EnsembleJudge(judges, weights).mean(answers) for weights in (None, "auto"))
    assert np.abs(weighed - truth).mean() < 0.6 * np.abs(alike - truth).mean()


def test_the_mean_of_an_ensemble_heeds_weights_everywhere() -> None:
    candidates, pairs = letters((4,)), all_pairs([4])
    one, other = NumberJudge(), NumberJudge(name="other", temperature=3.0)
    expected = 0.75 * one.judge(candidates, pairs) + 0.25 * other.judge(candidates, pairs)
    judge = EnsembleJudge([one, other], [3, 1])
    np.testing.assert_allclose(judge.judge(candidates, pairs), expected)
    np.testing.assert_allclose(ask(judge, candidates, pairs).preference, expected)
    alone = EnsembleJudge([one, other], [1, 0])
    np.testing.assert_allclose(ask(alone, candidates, pairs).preference, one.judge(candidates, pairs))
    assert len({each.fingerprint for each in (judge, alone, EnsembleJudge([one, other]))}) == 3


@pytest.mark.parametrize("weights", [[1.0], [1.0, -1.0], [0.0, 0.0], [1.0, float("nan")]])
def test_weights_that_are_none_are_refused(weights: list[float]) -> None:
    with pytest.raises(InputError, match="expected one of each, at least 0"):
        EnsembleJudge([NumberJudge(), NumberJudge()], weights)


def test_weights_cannot_be_told_of_two_judges_or_of_judges_that_never_met() -> None:
    with pytest.raises(InputError, match="three or more"):
        judge_weights(np.full((2, 5), 0.6))
    apart = np.array([[0.9, np.nan], [0.8, 0.7], [np.nan, 0.6]])
    with pytest.raises(InputError, match="no pair in common"):
        judge_weights(apart)


def test_weights_that_are_found_are_those_of_all_answers_with_direct_ones_too() -> None:
    documents = {f"d{i}": str(float(i)) for i in range(8)}
    collection = Collection.from_dicts("numbers", documents, {"q": "query"}, {"train": {"q": {"d3": 1}}})
    rows = Negatives(negatives_table(["q"] * 7, [d for d in documents if d != "d3"], "s", range(7), [0.0] * 7))

    class Silent(NumberJudge):
        """Says nothing of pairs that are asked about after the first time."""

        def judge(self, candidates, pairs):  # type: ignore[no-untyped-def]
            first = self.asked == 0
            return np.where(first, super().judge(candidates, pairs), np.nan)

    judges = [NumberJudge(antisymmetric=True), NumberJudge(name="other", temperature=2.0, antisymmetric=True)]
    judges.append(Silent(name="silent", antisymmetric=True))
    rated = rate_negatives(collection, rows, EnsembleJudge(judges, "auto"), degree=2, validate="all")
    weights = [judge.weight for judge in rated.summary.judges]
    assert sum(weights) == pytest.approx(3)
    assert len(set(np.round(weights, 6))) > 1
    assert np.isfinite(rated.preference).all()
