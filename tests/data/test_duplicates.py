"""The join is exact: it gives what comparing every pair gives."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foils.data.tokens import near_pairs
from foils.runtime.errors import InputError

token_sets = st.lists(st.frozensets(st.sampled_from("abcdefgh"), max_size=8), max_size=14)


def jaccard(x: frozenset[str], y: frozenset[str]) -> float:
    return len(x & y) / len(x | y) if x | y else 0.0


@given(token_sets, st.sampled_from([0.01, 0.2, 1 / 3, 0.5, 0.6, 2 / 3, 0.7, 0.75, 0.8, 0.875, 1.0]))
def test_equals_comparing_every_pair(sets: list[frozenset[str]], threshold: float) -> None:
    plain = [(i, j) for j in range(len(sets)) for i in range(j) if jaccard(sets[i], sets[j]) >= threshold - 1e-12]
    assert near_pairs(sets, threshold=threshold) == plain


def test_by_hand() -> None:
    sets = [["a", "b", "c", "d"], ["a", "b", "c"], ["x"], [], ["d", "c", "b", "a", "a"], []]
    assert near_pairs(sets, threshold=0.75) == [(0, 1), (0, 4), (1, 4)]
    assert near_pairs(sets, threshold=0.76) == [(0, 4)]
    assert near_pairs(sets, threshold=1) == [(0, 4)]
    assert near_pairs([], threshold=0.5) == []


@pytest.mark.parametrize("threshold", [0, -0.1, 1.1, float("nan")])
def test_threshold_out_of_range(threshold: float) -> None:
    with pytest.raises(InputError, match="threshold"):
        near_pairs([["a"]], threshold=threshold)
