"""Which runs are made, and which is chosen: by hand."""

from __future__ import annotations

from collections.abc import Sequence

from foils.tuning.keeping import best_merge
from foils.tuning.trials import Trial, halving


def trial(rate: float, epochs: int, dev: float) -> Trial:
    return Trial(rate, epochs, 10, dev, 1, 1, 1.0, 1.0)


def run(dev: dict[tuple[float, int], float], rates: Sequence[float], epochs: Sequence[int], *, extend: bool = False):
    forgotten: list[Trial] = []
    best, tried = halving(
        lambda rate, each: trial(rate, each, dev[rate, each]), rates, epochs, extend=extend, forget=forgotten.extend
    )
    assert best not in forgotten
    assert {each for each in tried if each is not best} == set(forgotten)
    return (best.learning_rate, best.epochs), [(each.learning_rate, each.epochs) for each in tried]


def test_the_better_half_goes_on() -> None:
    dev = {(1, 1): 0.1, (2, 1): 0.3, (3, 1): 0.2, (2, 2): 0.4, (3, 2): 0.5, (3, 3): 0.6}
    assert run(dev, [1, 2, 3], [1, 2, 3]) == ((3, 3), [(1, 1), (2, 1), (3, 1), (2, 2), (3, 2), (3, 3)])


def test_longer_training_that_is_no_better_ends_it() -> None:
    dev = {(1, 1): 0.1, (2, 1): 0.3, (3, 1): 0.2, (2, 2): 0.3, (3, 2): 0.1}
    assert run(dev, [1, 2, 3], [1, 2, 3]) == ((2, 1), [(1, 1), (2, 1), (3, 1), (2, 2), (3, 2)])


def test_three_times_the_largest_is_tried_where_the_largest_is_best() -> None:
    dev = {(1, 1): 0.1, (2, 1): 0.2, (6, 1): 0.4, (6, 2): 0.3, (2, 2): 0.1}
    assert run(dev, [1, 2], [1, 2], extend=True) == ((6, 1), [(1, 1), (2, 1), (6, 1), (6, 2), (2, 2)])
    assert run({(1, 1): 0.2, (2, 1): 0.1}, [1, 2], [1], extend=True) == ((1, 1), [(1, 1), (2, 1)])


def test_a_merge_is_taken_where_it_keeps_more_and_loses_nothing() -> None:
    def rows(*values: tuple[float, float, float]) -> list[dict[str, float]]:
        return [{"alpha": alpha, "dev": dev, "keep": keep} for alpha, dev, keep in values]

    ends = (0.0, 0.1, 0.9), (1.0, 0.5, 0.4)
    assert best_merge(rows(ends[0], (0.25, 0.3, 0.8), (0.5, 0.5, 0.7), (0.75, 0.6, 0.65), ends[1])) == 0.75
    assert best_merge(rows(ends[0], (0.5, 0.49, 0.8), (0.75, 0.6, 0.4), ends[1])) == 1.0
