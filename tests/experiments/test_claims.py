"""What a tuning calls better is better in the mean, by a test that is about means."""

import numpy as np
import pytest

from foils.experiments.tune import surely_better
from foils.statistics import paired_test


@pytest.mark.parametrize(("large", "many"), [(0.05, 20), (1.0, 1), (0.3, 3)])
def test_few_large_gains_beside_many_small_losses_are_no_sure_gain(large, many):
    gains = np.array([large] * many + [-large * many / 100] * 80)
    test = paired_test(gains, np.zeros(len(gains)))
    assert test.difference > 0
    assert test.p < 0.05  # of Wilcoxon's, whose sign is the other
    assert not surely_better(test)
    assert surely_better(paired_test(gains + large, np.zeros(len(gains))))
