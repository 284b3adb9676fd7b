import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foils.runtime.errors import InputError
from foils.selection import RULES, RatedRows, denoise, percentile, relative, table

GAPS = [-50.0, 99.9, 100.0, 199.9, 200.0, 400.0, 399.9, 600.0, 600.1, np.nan]


def test_table_2_at_its_bounds():
    found = table(RatedRows.of_gaps(GAPS))
    tiers = ["danger", "danger", "soft", "soft", "goldilocks", "medium", "goldilocks", "medium", "easy", "unrated"]
    assert found.tier.tolist() == tiers
    np.testing.assert_array_equal(found.weight, [0, 0, 0.5, 0.5, 1, 0.7, 1, 0.7, 0.3, 0])
    np.testing.assert_array_equal(found.keep, [False, False, True, True, True, True, True, True, True, False])
    assert found.reason.tolist() == ["danger zone", "danger zone", *[None] * 7, "unrated"]
    assert found.thresholds == {"soft": 100, "goldilocks": 200, "medium": 400, "easy": 600}


def test_the_judge_decides_on_borderline_rows():
    gap = [79.0, 80.0, 90.0, 150.0, 120.0, 120.0, 120.0, 300.0]
    p = [0.9, 0.9, 0.65, 0.75, 0.64, 0.76, np.nan, 0.1]
    found = table(RatedRows.of_gaps(gap, preference=p))
    np.testing.assert_array_equal(found.weight, [0, 1, 0.3, 0.3, 0, 1, 0.5, 1])
    assert found.reason.tolist() == ["danger zone", None, None, None, "positive not clearly better", None, None, None]


def test_settings_of_the_table():
    rows = RatedRows.of_gaps([90.0, 120.0, 250.0, 700.0], preference=[0.9, 0.7, np.nan, np.nan])
    assert table(rows).weight.tolist() == [1, 0.3, 1, 0.3]
    assert table(rows, bounds=(100, 260, 400, 600)).weight.tolist() == [1, 0.3, 0.5, 0.3]
    dropped = table(rows, weights=(0, 0.5, 1, 0.7, 0))
    assert dropped.reason.tolist() == [None, None, None, "weight 0"]


@pytest.mark.parametrize(
    "settings", [{"bounds": (1, 2, 3)}, {"bounds": (1, 2, 2, 3)}, {"weights": (0, 1)}, {"weights": (0, 1, 2, 1, 1)}]
)
def test_faulty_tables_are_refused(settings):
    with pytest.raises(InputError, match=next(iter(settings))):
        table(RatedRows.of_gaps([1.0]), **settings)


def test_percentiles_by_hand():
    found = percentile(RatedRows.of_gaps(np.arange(101.0)))
    np.testing.assert_array_equal(found.keep, np.arange(101) >= 10)
    np.testing.assert_array_equal(found.weight, np.repeat([0, 0.5, 1, 0.7], [10, 15, 50, 26]))
    assert found.thresholds == {"soft": 10, "goldilocks": 25, "medium": 75}
    assert set(found.tier) == {"danger", "soft", "goldilocks", "medium"}


def test_other_percentiles():
    rows = RatedRows.of_gaps(np.arange(40.0))
    assert percentile(rows, percentiles=(20, 30, 40)).keep.sum() < percentile(rows).keep.sum()
    with pytest.raises(InputError, match="rising"):
        percentile(rows, percentiles=(20, 20, 40))


def test_percentiles_do_not_see_unrated_rows():
    gaps = np.arange(101.0)
    mixed = percentile(RatedRows.of_gaps(np.append(gaps, [np.nan] * 50)))
    np.testing.assert_array_equal(mixed.weight[:101], percentile(RatedRows.of_gaps(gaps)).weight)
    assert not mixed.keep[101:].any()


def test_relative_to_the_positive():
    rows = RatedRows.of_gaps([90.0, 90.1, 80.0], elo=[1710.0, 1709.9, 1420.0])  # positives 1800, 1800, 1500
    assert relative(rows).keep.tolist() == [False, True, True]
    assert relative(rows, margin=0.06).keep.tolist() == [False, False, False]
    with pytest.raises(InputError, match="Elo scale"):
        relative(RatedRows.of_gaps([10.0], elo=[-100.0]))
    with pytest.raises(InputError, match="margin"):
        relative(rows, margin=-1)


def test_denoising_by_the_judge():
    rows = RatedRows.of_gaps([300.0, 300.0, 50.0], preference=[0.74, 0.75, np.nan])
    found = denoise(rows)
    assert found.keep.tolist() == [False, True, False]
    assert found.reason.tolist() == ["positive not clearly better", None, "judge not asked, or without an answer"]
    assert denoise(rows, confidence=0.5).keep.tolist() == [True, True, False]
    with pytest.raises(InputError, match="validate all"):
        denoise(RatedRows.of_gaps([1.0]))
    with pytest.raises(InputError, match="confidence"):
        denoise(rows, confidence=2)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.one_of(st.floats(-2000, 2000), st.just(np.nan)), min_size=12, max_size=40),
    st.sampled_from(list(RULES)),
)
def test_every_method_says_why_exactly_where_it_rejects(gaps, name):
    rows = RatedRows.of_gaps([*np.linspace(0, 900, 12), *gaps], preference=np.full(12 + len(gaps), 0.8))
    found = RULES[name](rows)
    assert found.keep.tolist() == [why is None for why in found.reason]
    assert ((found.weight >= 0) & (found.weight <= 1)).all()
    assert (found.weight[~found.keep] == 0).all()
    assert (found.weight[found.keep] > 0).all()
    unrated = np.isnan(rows.gap)
    assert set(found.tier[unrated]) <= {"unrated"}
    assert set(found.reason[unrated]) <= {"unrated"}


@pytest.mark.parametrize("name", ["table", "relative", "curriculum", "simans", "percentile"])
def test_no_rows_are_no_selection(name):
    assert len(RULES[name](RatedRows.of_gaps([])).keep) == 0


def test_rows_that_do_not_fit_together_are_refused():
    with pytest.raises(InputError, match="one length"):
        RatedRows.of_gaps([1.0, 2.0], query=[0])
    with pytest.raises(InputError, match="probabilities"):
        RatedRows.of_gaps([1.0], preference=[1.2])
