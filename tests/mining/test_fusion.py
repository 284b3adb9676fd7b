"""Fusing sources: orders worked by hand, limits, provenance of every contributor."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foils.data.negatives import Negatives, negatives_table
from foils.data.run import ranks_within
from foils.mining.fusion import fuse_sources
from foils.runtime.errors import InputError, UnknownNameError


def source(name: str, lists: dict[str, list[str]], scores: dict[str, list[float]] | None = None) -> Negatives:
    """Ranked lists as a table; the scores fall from the length of the list to 1 unless given."""
    queries = [query for query, documents in lists.items() for _ in documents]
    documents = [document for listed in lists.values() for document in listed]
    values = [v for q, listed in lists.items() for v in (scores or {}).get(q, range(len(listed), 0, -1))]
    codes = [list(lists).index(query) for query in queries]
    ranks = ranks_within(codes) if codes else []
    return Negatives(negatives_table(pa.array(queries), pa.array(documents), name, ranks, values))


def listed(negatives: Negatives, query: str = "q") -> list[str]:
    rows = [row for row in negatives.table.to_pylist() if row["query_id"] == query]
    return [row["doc_id"] for row in sorted(rows, key=lambda row: row["rank"])]


A = source("a", {"q": ["x", "y", "z"], "p": ["x"]}, {"q": [9.0, 5.0, 1.0], "p": [2.0]})
B = source("b", {"q": ["y", "w"], "p": ["w", "x"]}, {"q": [0.8, 0.4], "p": [0.5, 0.1]})


def test_union_by_best_rank_then_order_of_sources():
    found = fuse_sources({"a": A, "b": B})
    assert listed(found) == ["x", "y", "w", "z"]
    assert np.isnan(found.table["score"].to_numpy()).all()
    assert fuse_sources({"a": A, "b": B}).table.drop_columns("score").equals(found.table.drop_columns("score"))


def test_interleave_takes_turns_and_skips_what_is_taken():
    # a takes x, b takes y, a's next is y (taken) so z, b takes w
    assert listed(fuse_sources({"a": A, "b": B}, method="interleave")) == ["x", "y", "z", "w"]
    assert listed(fuse_sources({"b": B, "a": A}, method="interleave")) == ["y", "x", "w", "z"]


def test_reciprocal_rank_fusion_by_hand():
    found = fuse_sources({"a": A, "b": B}, method="rrf")
    expected = {"x": 1 / 61, "y": 1 / 62 + 1 / 61, "z": 1 / 63, "w": 1 / 62}
    rows = {row["doc_id"]: row["score"] for row in found.table.to_pylist() if row["query_id"] == "q"}
    assert rows == pytest.approx(expected)
    assert listed(found) == ["y", "x", "w", "z"]


def test_k_of_reciprocal_rank_fusion_changes_the_order():
    first = source("a", {"q": ["x", "m", "n", "y"]})
    second = source("b", {"q": ["u", "v", "y", "w"]})
    assert listed(fuse_sources({"a": first, "b": second}, method="rrf", k=0))[0] == "x"  # 1 > 1/4 + 1/3
    assert listed(fuse_sources({"a": first, "b": second}, method="rrf", k=60))[0] == "y"


def test_weighted_scores_by_hand():
    found = fuse_sources({"a": A, "b": B}, method="weighted", weights={"a": 1.0, "b": 3.0})
    rows = {row["doc_id"]: row["score"] for row in found.table.to_pylist() if row["query_id"] == "q"}
    assert rows == pytest.approx({"x": 1.0, "y": 0.5 + 3.0, "z": 0.0, "w": 0.0})
    assert listed(found) == ["y", "x", "w", "z"]  # w and z tie at 0; w has the better rank
    alone = fuse_sources({"a": A, "b": B}, method="weighted", weights={"b": 0.0})
    assert listed(alone)[0] == "x"


def test_a_list_of_one_score_counts_one():
    found = fuse_sources({"a": A, "b": B}, method="weighted", weights={"b": 0.25})
    rows = {row["doc_id"]: row["score"] for row in found.table.to_pylist() if row["query_id"] == "p"}
    assert rows == pytest.approx({"x": 1.0 + 0.0, "w": 0.25})


def test_contributors_keep_rank_and_score():
    found = fuse_sources({"a": A, "b": B}, method="rrf")
    rows = {row["doc_id"]: row for row in found.table.to_pylist() if row["query_id"] == "q"}
    assert (rows["y"]["rank_a"], rows["y"]["score_a"], rows["y"]["rank_b"], rows["y"]["score_b"]) == (1, 5.0, 0, 0.8)
    assert (rows["x"]["rank_b"], rows["x"]["score_b"]) == (None, None)
    assert found.provenance["settings"]["method"] == "rrf"


def test_top_counts_rows_that_are_not_rejected():
    marked = A.reject(np.array([row["doc_id"] == "x" for row in A.table.to_pylist()]), "too near")
    found = fuse_sources({"a": marked, "b": B}, method="rrf", top=2)
    assert listed(found) == ["y", "x", "w"]
    assert found.rejected() == {"too near": 2}  # x of q, and x of p
    assert listed(fuse_sources({"a": A, "b": B}, method="rrf", top=1)) == ["y"]


def test_the_first_source_that_rejects_gives_the_reason():
    every = np.ones(len(A), bool), np.ones(len(B), bool)
    found = fuse_sources({"a": A.reject(every[0], "one"), "b": B.reject(every[1], "two")})
    assert {row["doc_id"]: row["reason"] for row in found.table.to_pylist() if row["query_id"] == "q"} == {
        "x": "one", "y": "one", "z": "one", "w": "two"
    }  # fmt: skip


def test_refusals():
    with pytest.raises(InputError, match="at least two"):
        fuse_sources({"a": A})
    with pytest.raises(UnknownNameError, match="rrf"):
        fuse_sources({"a": A, "b": B}, method="rff")
    with pytest.raises(InputError, match="top 0"):
        fuse_sources({"a": A, "b": B}, top=0)
    with pytest.raises(InputError, match="k -1"):
        fuse_sources({"a": A, "b": B}, method="rrf", k=-1)
    with pytest.raises(UnknownNameError, match="source 'c'"):
        fuse_sources({"a": A, "b": B}, method="weighted", weights={"c": 1.0})
    with pytest.raises(InputError, match="at least 0"):
        fuse_sources({"a": A, "b": B}, method="weighted", weights={"a": -1.0})
    without = source("r", {"q": ["x", "v"]}, {"q": [np.nan, np.nan]})
    with pytest.raises(InputError, match=r"r \(2\)"):
        fuse_sources({"a": A, "r": without}, method="weighted")


ranked = st.permutations("abcdefgh").flatmap(lambda order: st.integers(1, 8).map(lambda n: list(order[:n])))


@given(ranked, ranked, ranked)
def test_every_method_orders_the_same_pairs(one, two, three):
    sources = {name: source(name, {"q": docs}) for name, docs in (("a", one), ("b", two), ("c", three))}
    tables = {method: fuse_sources(sources, method=method) for method in ("union", "interleave", "rrf", "weighted")}
    for found in tables.values():
        assert sorted(listed(found)) == sorted({*one, *two, *three})
        assert found.table["rank"].to_pylist() == list(range(len(found)))
    plain = {d: sum(1 / (61 + docs.index(d)) for docs in (one, two, three) if d in docs) for d in listed(tables["rrf"])}
    scores = dict(zip(listed(tables["rrf"]), tables["rrf"].table["score"].to_pylist(), strict=True))
    assert scores == pytest.approx(plain)


@given(ranked)
def test_the_same_list_twice_stays_as_it_is(one):
    for method in ("union", "interleave", "rrf", "weighted"):
        assert listed(fuse_sources({"a": source("a", {"q": one}), "b": source("b", {"q": one})}, method=method)) == one


def test_what_lies_before_a_window_is_no_verdict(small):
    from foils.mining import RandomRetriever, mine_negatives

    retriever = RandomRetriever(small, seed=1)
    first, second = (mine_negatives(small, retriever, split="train", top=2, ranks=ranks) for ranks in ((0, 2), (2, 4)))
    assert (~second.keep).any()
    found = fuse_sources({"first": first, "second": second}, method="interleave")

    def pairs(negatives: Negatives) -> set[tuple[str, str]]:
        kept = negatives.kept()
        return set(zip(kept["query_id"].to_pylist(), kept["doc_id"].to_pylist(), strict=True))

    assert pairs(found) == pairs(first) | pairs(second)
