"""What negatives are worth: added losses, how answers spread, points, relevance of pairs, the example of the docs."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from scipy.special import expit, logsumexp

import foils
from fakes import HashingEncoder
from foils.deciding.benefit import FORM, HARM, MOST, Odds, added_losses
from foils.deciding.decision import _summed
from foils.deciding.unlabelled import Pairs, Relevance, Survey, rounded

NONE = np.array([-np.inf])


def test_one_negative_as_near_as_the_positive_adds_ln_2():
    assert added_losses(np.array([0]), np.array([0.3]), np.array([0.3]), NONE, 0.05) == pytest.approx([np.log(2)])


def test_the_parts_add_up_to_what_the_list_adds_to_the_loss():
    rng = np.random.default_rng(1)
    record = np.sort(rng.integers(5, size=40))
    s_n, s_p, in_batch = rng.normal(size=40), rng.normal(size=5), rng.normal(size=5)
    parts = added_losses(record, s_n, s_p, in_batch, 0.2)
    for each in range(5):
        own = np.concatenate([[0.0, in_batch[each]], (s_n[record == each] - s_p[each]) / 0.2])
        assert parts[record == each].sum() == pytest.approx(logsumexp(own) - logsumexp(own[:2]))
    assert (parts > 0).all()


def test_the_more_there_is_in_the_batch_the_less_a_negative_adds():
    alone, among = (
        added_losses(np.zeros(2, int), np.array([0.2, 0.1]), np.array([0.3]), np.array([odds]), 0.05)
        for odds in (-np.inf, 3.0)
    )
    assert (among < alone).all()
    assert among[0] / among[1] == pytest.approx(alone[0] / alone[1])


def test_extreme_similarities_neither_overflow_nor_vanish():
    parts = added_losses(np.zeros(2, int), np.array([1.0, -1.0]), np.array([-1.0]), NONE, 0.001)
    assert np.isfinite(parts).all()
    assert parts[0] == pytest.approx(2_000)


@pytest.mark.parametrize("share", [1e-6, 0.03, 0.5, 0.9, MOST])
def test_the_mean_over_a_source_is_its_share(share):
    logs = np.random.default_rng(0).normal(-3, 2, 500)
    constant, slope = Odds(logs).line(share)
    assert slope == 1
    assert expit(constant + logs).mean() == pytest.approx(share, rel=0.01)


def test_another_slope_turns_the_line_about_the_answers():
    logs = np.random.default_rng(0).normal(-3, 2, 500)
    odds = Odds(logs)
    (a, _), (b, slope) = odds.line(0.2), odds.line(0.2, 0.5)
    weights = expit(a + logs)
    mean = weights @ logs / weights.sum()
    assert b + slope * mean == pytest.approx(a + mean, abs=0.02)


def test_points_rise_with_the_benefit_and_err_with_heavy_tails():
    rng = np.random.default_rng(0)
    for form in FORM.values():
        assert form.mean(0.0) == 0
        assert form.mean(-0.4) == -form.mean(0.4)
        assert form.mean(0.5) > form.mean(0.2) > 0
        errors = rng.standard_t(3, 20_000), rng.standard_t(3, (20_000, 2))
        drawn = form.drawn(np.tile([0.5, 0.0], (20_000, 1)), errors)
        gain = drawn[:, 0] - drawn[:, 1]
        assert np.median(gain) == pytest.approx(float(form.mean(0.5)), abs=0.02)
        low, high = np.quantile(gain, [0.001, 0.999])
        assert high - low > 1.5 * 2 * 3.09 * (np.quantile(gain, 0.84) - np.median(gain)), "wider than a normal's"


@pytest.mark.parametrize("scale", [1.0, 1e-6, 37.0])
def test_inner_products_of_rounded_vectors_are_exact_in_any_order(scale):
    rng = np.random.default_rng(2)
    vectors = scale * rng.standard_normal((40, 384)) * rng.lognormal(0, 1, (40, 1)) / np.sqrt(384)
    a, b = rounded(vectors[:20].astype(np.float32)), rounded(vectors[20:].astype(np.float32))
    exact = np.einsum("id,jd->ij", a.astype(np.float64), b.astype(np.float64))
    for order in (np.arange(384), rng.permutation(384), np.argsort(-np.abs(a[0]))):
        products = np.ascontiguousarray(a[:, order]) @ np.ascontiguousarray(b[:, order]).T
        np.testing.assert_array_equal(products.astype(np.float64), exact)
    lengths = np.linalg.norm(vectors, axis=1)
    error = exact - vectors[:20] @ vectors[20:].T
    assert np.abs(error / lengths[:20, None] / lengths[None, 20:]).max() < 2e-3


def pairs(count: int, similarity: float, resemblance: np.ndarray, rng: np.random.Generator) -> Pairs:
    """Pairs of as many records, around a similarity."""
    rank = rng.integers(0, 500, count).astype(float)
    return Pairs(np.arange(count), similarity + 0.1 * rng.standard_normal(count), rank, resemblance, np.ones(count))


def test_one_query_alone_with_several_positives_is_no_failure():
    """Its half of the records knows what resembles a positive; the other half knows nothing of it."""
    rng, count = np.random.default_rng(0), 400
    one = np.full(count, np.nan)
    one[0] = 0.7
    nothing = np.full(count, np.nan)
    labelled, unlabelled = pairs(count, 0.6, one, rng), pairs(count, 0.2, nothing, rng)
    survey = Survey(labelled, unlabelled, unlabelled, 1_000)
    relevance = Relevance.fit(survey, seed=0)
    assert relevance.ratio(labelled).mean() > 5 * relevance.ratio(unlabelled).mean()
    assert np.isfinite(relevance.bound(survey))


def test_queries_to_which_every_document_is_relevant_are_scored(tmp_path):
    """No document of the collection is unlabelled; the negatives are texts that a source brings along."""
    keel = {"d1": "A keel is the spine of a boat."}
    queries = {"q1": "what is a keel?", "q2": "what is the spine of a boat?"}
    collection = foils.Collection.from_dicts("keel", keel, queries, {"train": {name: {"d1": 1} for name in queries}})
    written = pa.table({"query": list(queries.values()), "negative": ["The crew rows.", "Oars are made of ash."]})
    scores = foils.score(collection, {"llm": written}, encoder=HashingEncoder(), vectors=str(tmp_path))
    assert scores.decision is not None
    assert scores.decision.worths["llm"].false_share_high > 0.9, "nothing is known of them"


X = {"dense": np.array([1.0, 0.5]), "far": np.array([0.2, 0.2])}
RATIOS = {"dense": np.array([0.10, 0.02]), "far": np.array([0.004, 0.0])}


def added(source: str) -> np.ndarray:
    record, alone = np.zeros(2, int), np.array([-np.inf])
    return added_losses(record, 0.05 * np.log(X[source]), np.zeros(1), alone, 0.05)


def benefit(source: str, o: float) -> float:
    return float((added(source) * (1 - (1 + HARM) * np.minimum(1, o * RATIOS[source]))).sum())


def test_the_numbers_of_the_page():
    text = (Path(__file__).parents[2] / "docs" / "deciding.md").read_text("utf-8")
    rows = [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith(("| dense |", "| far |"))]
    assert len(rows) == 4
    for at, (source, x, r, a, pi, product) in enumerate(rows):
        place, answers = at % 2, 2 * RATIOS[source]
        assert (float(x), float(r)) == (X[source][place], RATIOS[source][place])
        assert float(a) == pytest.approx(added(source)[place], abs=6e-4)
        assert float(pi) == pytest.approx(answers[place])
        assert float(product) == pytest.approx(added(source)[place] * (1 - 2.5 * answers[place]), abs=1e-3)
    assert added("dense").sum() == pytest.approx(np.log(2.5))
    values = {source: benefit(source, 2.0) for source in X}
    assert values == pytest.approx({"dense": 0.580, "far": 0.333}, abs=1e-3)
    gains = FORM["encoder"].mean(np.array([*values.values()]))
    assert gains.round(1).tolist() == [1.5, 1.1]
    falls = {source: benefit(source, 0.0) - benefit(source, 1.0) for source in X}
    assert falls == pytest.approx({"dense": 0.168, "far": 0.002}, abs=5e-4)
    crossing = (benefit("dense", 0.0) - benefit("far", 0.0)) / (falls["dense"] - falls["far"])
    assert crossing == pytest.approx(3.5, abs=0.02)
    assert (crossing * RATIOS["dense"]).mean() == pytest.approx(0.21, abs=0.002)


def test_the_decision_sums_what_the_page_sums():
    """Σ s·(1 − (1 + κ)·π) by block, κ = 1.5, π = σ(constant + slope·log r): here ½, then r/(1 + r)."""
    strength, block = np.array([1.0, 2.0, 4.0]), np.array([0, 0, 1])
    logs = np.log([0.25, 1.0, 0.25])
    sums, share = _summed(logs, strength, block, 2, 0.0, 0.0)
    np.testing.assert_allclose(sums, [-0.25 * 3, -0.25 * 4])
    assert share == 0.5
    sums, share = _summed(logs, strength, block, 2, 0.0, 1.0)
    np.testing.assert_allclose(sums, [1 * (1 - 2.5 * 0.2) + 2 * (1 - 2.5 * 0.5), 4 * (1 - 2.5 * 0.2)])
    assert share == pytest.approx(0.3)
