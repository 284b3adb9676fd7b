"""Pairs of a query and a document: found again, first ones and distinct ones."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from foils.data.pair_index import PairIndex

PAIRS = st.lists(st.tuples(st.integers(-1, 3), st.integers(-1, 3)), max_size=12)


def columns(pairs: list[tuple[int, int]]) -> tuple[list[int], list[int]]:
    return [query for query, _ in pairs], [document for _, document in pairs]


@given(PAIRS, PAIRS)
def test_as_lists_find_pairs(pairs: list[tuple[int, int]], wanted: list[tuple[int, int]]) -> None:
    index = PairIndex(*columns(pairs))
    expected = [pairs.index(pair) if pair in pairs else -1 for pair in wanted]
    assert index.places(*columns(wanted)).tolist() == expected
    assert index.contain(*columns(wanted)).tolist() == [pair in pairs for pair in wanted]
    assert index.first.tolist() == [pairs.index(pair) for pair in pairs]
    assert np.array_equal(index.distinct, np.unique(index.first))
