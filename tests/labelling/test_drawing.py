"""Which pairs are drawn: each once, those first that decide most, and more keep what fewer drew."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from label_world import source

from foils.labelling.doors import pairs_of
from foils.runtime.errors import InputError
from foils.statistics import importance


def test_pairs_of_sources_come_once_and_rejected_ones_not() -> None:
    a, b = source("a", 1), source("b", 2)
    universe = pairs_of({"a": a, "b": b})
    assert len(set(universe.keys)) == len(universe) < len(a) + len(b)
    both = set(universe.members["a"].tolist()) & set(universe.members["b"].tolist())
    assert universe.holders(np.array(sorted(both)[:1])) == ["a|b"]
    for name, negatives in (("a", a), ("b", b)):
        rows = universe.table.take(pa.array(universe.members[name])).select(["query_id", "doc_id"])
        assert sorted(map(str, rows.to_pylist())) == sorted(
            map(str, negatives.table.select(["query_id", "doc_id"]).to_pylist())
        )
    less = pairs_of({"a": a.reject(np.arange(len(a)) < 100, "no"), "b": b})
    assert len(less.members["a"]) == len(a) - 100
    with pytest.raises(InputError, match="nothing to label"):
        pairs_of({"a": a.reject(np.ones(len(a), bool), "no")})


def test_importance_by_hand() -> None:
    members = [np.array([0, 1]), np.array([1, 2, 3, 4])]
    plain = np.array([0.5, 0.75, 0.25, 0.25, 0.25]) / 2
    np.testing.assert_allclose(importance(members, 5), plain)


def test_a_larger_draw_holds_the_smaller_one_in_a_random_order() -> None:
    universe = pairs_of({"a": source("a", 1), "b": source("b", 2)})
    fewer, more, all_of_them = (universe.draw(n, seed=4) for n in (20, 60, 10_000))
    assert set(fewer.rows) < set(more.rows)
    assert len(all_of_them.rows) == len(universe)
    assert all_of_them.probability.min() == 1
    assert set(universe.draw(20, seed=5).rows) != set(fewer.rows)
    order = np.corrcoef(np.arange(60), more.probability)[0, 1]
    assert abs(order) < 0.35, "where the rest is left, those that were judged stand for it"
    other = pairs_of({"b": source("b", 2), "a": source("a", 1), "c": source("c", 3, per_query=3)})
    kept = {universe.keys[row] for row in more.rows} & {other.keys[row] for row in other.draw(60, seed=4).rows}
    assert len(kept) > 30, "another source changes the draw as little as may be"
