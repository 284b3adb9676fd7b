"""Rules of selection: tables, denoising, percentiles, mixtures, SimANS, gaps and information."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar
from scipy.stats import norm

from foils.runtime.errors import InputError
from foils.selection import (
    RULES,
    adapted_gap,
    denoise,
    mixture,
    optimal,
    optimal_gap,
    percentile,
    relative,
    simans,
    table,
)
from foils.selection.rules import fit_gaps, two_group_risk
from foils.statistics.elo_scale import ELO_PER_PROBIT, information
from rated_rows import rows_of
from refusals import refused

GAPS = [-50.0, 99.9, 100.0, 199.9, 200.0, 400.0, 399.9, 600.0, 600.1, np.nan]


def test_table_2_at_its_bounds():
    found = table(rows_of(GAPS))
    tiers = ["danger", "danger", "soft", "soft", "goldilocks", "medium", "goldilocks", "medium", "easy", "unrated"]
    assert found.tier.tolist() == tiers
    np.testing.assert_array_equal(found.weight, [0, 0, 0.5, 0.5, 1, 0.7, 1, 0.7, 0.3, 0])
    np.testing.assert_array_equal(found.keep, [False, False, True, True, True, True, True, True, True, False])
    assert found.reason.tolist() == ["danger zone", "danger zone", *[None] * 7, "unrated"]
    assert found.thresholds == {"soft": 100, "goldilocks": 200, "medium": 400, "easy": 600}


def test_the_judge_decides_on_borderline_rows():
    gap = [79.0, 80.0, 90.0, 150.0, 120.0, 120.0, 120.0, 300.0]
    p = [0.9, 0.9, 0.65, 0.75, 0.64, 0.76, np.nan, 0.1]
    found = table(rows_of(gap, preference=p))
    np.testing.assert_array_equal(found.weight, [0, 1, 0.3, 0.3, 0, 1, 0.5, 1])
    assert found.reason.tolist() == ["danger zone", None, None, None, "positive not clearly better", None, None, None]


def test_settings_of_the_table():
    rows = rows_of([90.0, 120.0, 250.0, 700.0], preference=[0.9, 0.7, np.nan, np.nan])
    assert table(rows).weight.tolist() == [1, 0.3, 1, 0.3]
    assert table(rows, bounds=(100, 260, 400, 600)).weight.tolist() == [1, 0.3, 0.5, 0.3]
    dropped = table(rows, weights=(0, 0.5, 1, 0.7, 0))
    assert dropped.reason.tolist() == [None, None, None, "weight 0"]


@pytest.mark.parametrize(
    "settings", [{"bounds": (1, 2, 3)}, {"bounds": (1, 2, 2, 3)}, {"weights": (0, 1)}, {"weights": (0, 1, 2, 1, 1)}]
)
def test_faulty_tables_are_refused(settings):
    refused(next(iter(settings)), table, rows_of([1.0]), **settings)


def test_percentiles_by_hand():
    found = percentile(rows_of(np.arange(101.0)))
    np.testing.assert_array_equal(found.keep, np.arange(101) >= 10)
    np.testing.assert_array_equal(found.weight, np.repeat([0, 0.5, 1, 0.7], [10, 15, 50, 26]))
    mixed = percentile(rows_of(np.append(np.arange(101.0), [np.nan] * 50)))
    np.testing.assert_array_equal(mixed.weight, np.append(found.weight, np.zeros(50)))
    assert found.thresholds == {"soft": 10, "goldilocks": 25, "medium": 75}
    assert set(found.tier) == {"danger", "soft", "goldilocks", "medium"}


def test_other_percentiles():
    rows = rows_of(np.arange(40.0))
    assert percentile(rows, percentiles=(20, 30, 40)).keep.sum() < percentile(rows).keep.sum()
    refused("rising", percentile, rows, percentiles=(20, 20, 40))


def test_relative_to_the_positive():
    rows = rows_of([90.0, 90.1, 80.0], elo=[1710.0, 1709.9, 1420.0])  # positives 1800, 1800, 1500
    assert relative(rows).keep.tolist() == [False, True, True]
    assert relative(rows, margin=0.06).keep.tolist() == [False, False, False]
    refused("Elo scale", relative, rows_of([10.0], elo=[-100.0]))
    refused("margin", relative, rows, margin=-1)


def test_denoising_by_the_judge():
    rows = rows_of([300.0, 300.0, 50.0], preference=[0.74, 0.75, np.nan])
    found = denoise(rows)
    assert found.keep.tolist() == [False, True, False]
    assert found.reason.tolist() == ["positive not clearly better", None, "judge not asked, or without an answer"]
    assert denoise(rows, confidence=0.5).keep.tolist() == [True, True, False]
    refused("validate all", denoise, rows_of([1.0]))
    refused("confidence", denoise, rows, confidence=2)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.one_of(st.floats(-2000, 2000), st.just(np.nan)), min_size=12, max_size=40),
    st.sampled_from(list(RULES)),
)
def test_every_method_says_why_exactly_where_it_rejects(gaps, name):
    rows = rows_of([*np.linspace(0, 900, 12), *gaps], preference=np.full(12 + len(gaps), 0.8))
    found = RULES[name](rows)
    assert found.keep.tolist() == [why is None for why in found.reason]
    assert ((found.weight >= 0) & (found.weight <= 1)).all()
    assert (found.weight[~found.keep] == 0).all()
    assert (found.weight[found.keep] > 0).all()
    unrated = np.isnan(rows.gap)
    assert set(found.tier[unrated]) <= {"unrated"}
    assert set(found.reason[unrated]) <= {"unrated"}


@pytest.mark.parametrize("name", ["table", "relative", "simans", "percentile"])
def test_no_rows_are_no_selection(name):
    assert len(RULES[name](rows_of([])).keep) == 0


def test_rows_that_do_not_fit_together_are_refused():
    refused("probabilities", rows_of, [1.0], preference=[1.2])


def three_groups(seed=0, n=6000):
    rng = np.random.default_rng(seed)
    group = rng.choice(3, n, p=[0.2, 0.5, 0.3])
    return np.array([50, 300, 600])[group] + np.array([40, 50, 60])[group] * rng.normal(size=n), group


class TestMixture:
    def test_planted_components_and_the_crossings_between_them(self):
        gap, _ = three_groups()
        fitted = fit_gaps(gap, rng=np.random.default_rng(0))
        np.testing.assert_allclose(fitted.mean, [50, 300, 600], atol=8)
        np.testing.assert_allclose(fitted.sd, [40, 50, 60], atol=6)
        np.testing.assert_allclose(fitted.share, [0.2, 0.5, 0.3], atol=0.02)
        for i, threshold in enumerate(fitted.thresholds):
            one, other = (fitted.share[k] * norm.pdf(threshold, fitted.mean[k], fitted.sd[k]) for k in (i, i + 1))
            assert one == pytest.approx(other, rel=0.05)
        np.testing.assert_allclose(
            fitted.density(gap[:5]).sum(1),
            sum(fitted.share[k] * norm.pdf(gap[:5], fitted.mean[k], fitted.sd[k]) for k in range(3)),
        )

    def test_it_rejects_the_lowest_component(self):
        gap, group = three_groups()
        found = mixture(rows_of(gap))
        assert (found.keep == (group > 0)).mean() > 0.98
        assert set(found.tier) == {"danger", "goldilocks", "easy"}
        assert found.weight[(gap > 280) & (gap < 320)].min() > 0.98
        np.testing.assert_allclose(found.weight[gap > 650], 0.3, atol=0.01)
        between = (gap > found.thresholds["goldilocks"]) & (gap < found.thresholds["goldilocks"] + 10)
        assert ((found.weight[between] > 0.45) & (found.weight[between] < 1)).all()

    def test_the_order_of_rows_does_not_matter_and_the_seed_repeats_it(self):
        gap, _ = three_groups(n=500)
        straight, turned = (mixture(rows_of(values)).weight for values in (gap, gap[::-1]))
        np.testing.assert_allclose(straight, turned[::-1], atol=1e-3)
        np.testing.assert_array_equal(straight, mixture(rows_of(gap)).weight)

    def test_a_wide_upper_component_does_not_make_tiny_gaps_safe(self):
        rng = np.random.default_rng(1)
        gap = np.concatenate([rng.normal(100, 5, 300), rng.normal(200, 300, 300)])
        found = mixture(rows_of(gap), components=2)
        assert not found.keep[gap < 50].any()

    def test_where_nothing_says_that_false_negatives_exist_none_is_rejected(self):
        rng = np.random.default_rng(2)
        groups = rng.normal(300, 40, 2000), rng.normal(600, 60, 2000)
        far = np.concatenate(groups)
        found = mixture(rows_of(far))
        assert found.keep.all()
        assert set(found.tier) == {"goldilocks", "medium"}
        assert found.weight[far > 650] == pytest.approx(0.7, abs=0.01)
        assert found.weight[far < 300].min() == pytest.approx(1, abs=1e-4)
        one = mixture(rows_of(groups[0]))
        assert one.keep.all()
        assert (set(one.weight), one.thresholds) == ({1.0}, {})
        near = mixture(rows_of(groups[0] - 300))  # all of them as good as the positive
        assert not near.keep.any()

    def test_as_many_components_as_the_gaps_speak_for(self):
        gap, group = three_groups()
        for most, chosen in ((3, gap), (2, gap[group < 2]), (1, gap[group == 1])):
            assert len(fit_gaps(chosen, rng=np.random.default_rng(0)).mean) == most
        n, one = len(gap), norm.logpdf(gap, gap.mean(), gap.std()).sum()
        three = np.log(fit_gaps(gap, rng=np.random.default_rng(0)).density(gap).sum(1)).sum()
        assert -2 * three + 8 * np.log(n) < -2 * one + 2 * np.log(n)

    def test_too_few_gaps_or_odd_components_are_refused(self):
        refused("too few", mixture, rows_of([1.0, 1.0, 2.0, np.nan]))
        for components in (1, 4):
            refused(f"components {components}", mixture, rows_of(np.arange(20.0)), components=components)


class TestOptimalGap:
    def test_information_at_known_points(self):
        p = norm.cdf(1.0)
        bits = -p * np.log2(p) - (1 - p) * np.log2(1 - p)
        np.testing.assert_allclose(
            information(np.array([-1, 0, 1, 60]) * ELO_PER_PROBIT), [bits, 1, bits, 0], atol=1e-12
        )

    def test_without_damage_the_closest_gap_is_best(self):
        assert optimal_gap(lambda gap: np.exp(-gap / 100), damage=0) == 0

    def test_against_a_continuous_optimiser(self):
        risk = lambda gap: np.exp(-np.asarray(gap) / 100)  # noqa: E731
        expected = minimize_scalar(
            lambda g: -(information(np.array([g]))[0] - 2 * risk(g)), bounds=(0, 800), method="bounded"
        ).x
        assert optimal_gap(risk, damage=2) == pytest.approx(expected, abs=1)

    @pytest.mark.parametrize("rate", [0.10, 0.15])
    def test_the_papers_interval(self, rate):
        rng = np.random.default_rng(2)
        false = rng.random(20_000) < rate
        gap = np.where(false, rng.normal(0, 120, 20_000), rng.normal(400, 200, 20_000))
        assert 150 <= optimal_gap(two_group_risk(gap, rate=rate, spread=120), damage=2.0) <= 300  # Theorem 12

    def test_risk_is_the_posterior_of_the_planted_groups(self):
        rng = np.random.default_rng(3)
        false = rng.random(100_000) < 0.2
        gap = np.where(false, rng.normal(0, 100, 100_000), rng.normal(500, 150, 100_000))
        risk = two_group_risk(gap, rate=0.2, spread=100)
        at = np.array([50.0, 150.0, 200.0, 250.0])
        expected = 0.2 * norm.pdf(at, 0, 100) / (0.2 * norm.pdf(at, 0, 100) + 0.8 * norm.pdf(at, 500, 150))
        np.testing.assert_allclose(risk(at), expected, atol=0.04)
        grid = np.linspace(-300, 900, 200)
        assert (np.diff(risk(grid)) <= 1e-12).all()
        assert risk(np.array([-200.0]))[0] == pytest.approx(risk(np.array([0.0]))[0], abs=0.02)
        every = np.linspace(0, 900, 9001)
        density = 0.2 * norm.pdf(every, 0, 100) + 0.8 * norm.pdf(every, 500, 150)
        assert (risk(every) * density).sum() * 0.1 == pytest.approx(0.1, abs=0.01)  # half of them lie above 0

    def test_selection_peaks_at_the_optimum_and_every_setting_counts(self):
        rng = np.random.default_rng(4)
        gap = np.concatenate([rng.normal(0, 120, 300), rng.normal(400, 200, 1700)])
        rows = rows_of(gap)
        plain = optimal(rows)
        best = plain.thresholds["optimal"]
        assert abs(gap[plain.weight.argmax()] - best) < 5
        assert plain.weight.max() == pytest.approx(1, abs=1e-3)
        assert set(plain.reason) == {None, "more risk than information", "tells too little"}
        assert not plain.keep[gap < 0].any()
        for setting in ({"rate": 0.3}, {"spread": 60.0}, {"damage": 4.0}):
            assert optimal(rows, **setting).thresholds["optimal"] != best
        assert optimal(rows, damage=4.0).thresholds["optimal"] > best

    def test_settings_out_of_range_are_refused(self):
        rows = rows_of([1.0, 2.0])
        for setting in ({"rate": 0.0}, {"spread": 0.0}, {"damage": -1.0}):
            refused(next(iter(setting)), optimal, rows, **setting)
        refused("too few", optimal, rows_of([1.0]))

    def test_adaptation_by_hand(self):
        assert adapted_gap(0.25) == 300
        assert adapted_gap(0.1, relative_sd=1.5, domain=0.8) == pytest.approx(200 * 1.2 * 1.5 * 0.8)
        refused("domain", adapted_gap, 0.1, domain=2)


class TestSimANS:
    def test_the_draw_follows_the_formula(self):
        gap = np.tile([100.0, 250.0, 300.0, 500.0], 20_000)
        rows = rows_of(gap, query=np.repeat(np.arange(20_000), 4))
        found = simans(rows, per_query=1, rng=np.random.default_rng(0))
        weights = np.exp(-5e-5 * (np.array([100, 250, 300, 500]) - 300.0) ** 2)
        np.testing.assert_allclose(found.keep.reshape(-1, 4).mean(0), weights / weights.sum(), atol=0.01)

    def test_each_query_gets_its_number_without_repetition(self):
        query = np.array([0, 1, 0, 1, 0, 2, 0])
        found = simans(rows_of([300.0, 200, 310, np.nan, 290, 100, 305], query=query), per_query=2)
        assert [found.keep[query == q].sum() for q in range(3)] == [2, 1, 1]
        assert found.reason[3] == "unrated"
        assert set(found.reason) == {None, "unrated", "not drawn"}

    def test_settings(self):
        rng = np.random.default_rng(1)
        rows = rows_of(rng.uniform(0, 800, 4000), query=np.repeat(np.arange(200), 20))
        kept = lambda **settings: rows.gap[simans(rows, per_query=4, rng=np.random.default_rng(2), **settings).keep]  # noqa: E731
        assert kept().mean() == pytest.approx(300, abs=20)
        assert kept(target=600.0).mean() == pytest.approx(600, abs=25)
        assert kept(sharpness=5e-4).std() < kept().std() < kept(sharpness=0.0).std()
        assert kept(target=0.0).min() >= 100
        for setting in ({"sharpness": -1.0}, {"per_query": 0}):
            with pytest.raises(InputError):
                simans(rows, **setting)
