"""Fusing sources: orders worked by hand, limits, provenance of every contributor."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foils.data.negatives import REQUIRED, Negatives, negatives_table
from foils.data.run import Run, fuse_runs, ranks_within
from foils.mining.methods import FusionSettings, fuse_sources
from foils.runtime.errors import InputError
from refusals import refused


def source(name: str, lists: dict[str, list[str]], scores: dict[str, list[float]] | None = None) -> Negatives:
    """Ranked lists as a table; the scores fall from the length of the list to 1 unless given."""
    queries = [query for query, documents in lists.items() for _ in documents]
    documents = [document for listed in lists.values() for document in listed]
    values = [v for q, listed in lists.items() for v in (scores or {}).get(q, range(len(listed), 0, -1))]
    codes = [list(lists).index(query) for query in queries]
    ranks = ranks_within(codes) if codes else []
    return Negatives(negatives_table(pa.array(queries), pa.array(documents), name, ranks, values))


def listed(negatives: Negatives, query: str = "q") -> dict[str, float]:
    """Documents and scores, by rank."""
    rows = [row for row in negatives.table.to_pylist() if row["query_id"] == query]
    return {row["doc_id"]: row["score"] for row in sorted(rows, key=lambda row: row["rank"])}


A = source("a", {"q": ["x", "y", "z"], "p": ["x"]}, {"q": [9.0, 5.0, 1.0], "p": [2.0]})
B = source("b", {"q": ["y", "w"], "p": ["w", "x"]}, {"q": [0.8, 0.4], "p": [0.5, 0.1]})


AB, BA = {"a": A, "b": B}, {"b": B, "a": A}
HIGH = np.sqrt(1.5)
BY_HAND: dict[str, tuple[dict[str, Negatives], dict[str, Any], dict[str, float]]] = {
    "by best rank, then order of the sources": (AB, {}, dict.fromkeys("xywz", np.nan)),
    "by best rank, the other way": (BA, {}, dict.fromkeys("yxwz", np.nan)),
    "rrf": (AB, {"method": "rrf"}, {"y": 1 / 62 + 1 / 61, "x": 1 / 61, "w": 1 / 62, "z": 1 / 63}),
}


@pytest.mark.parametrize(("sources", "how", "expected"), BY_HAND.values(), ids=list(BY_HAND))
def test_orders_and_scores_by_hand(sources, how, expected):
    found = listed(fuse_sources(sources, FusionSettings(**how)))
    assert list(found) == list(expected)
    assert found == pytest.approx(expected, nan_ok=True)


def runs_of(*sources: Negatives) -> list[Run]:
    ids = ("query_id", "doc_id")
    return [
        Run.ranked(*(each.table[name] for name in ids), each.table["score"].to_numpy(), name=name)
        for name, each in zip("ab", sources, strict=False)
    ]


def test_runs_are_fused_as_sources_are():
    run, table = fuse_runs(runs_of(A, B), method="rrf"), fuse_sources(AB, FusionSettings(method="rrf")).table
    assert run.name == "a+b"
    for name in ("query_id", "doc_id", "rank"):
        assert run.table[name].to_pylist() == table[name].to_pylist()
    assert run.table["score"].to_numpy() == pytest.approx(table["score"].to_numpy())


def test_weighted_scores_by_hand():
    """Of b, y has .8 and w .4: ±1; what a ranking does not have counts as the lowest of its list there."""
    run = fuse_runs(runs_of(A, B), weights=(1.0, 3.0))
    rows = [row for row in run.table.to_pylist() if row["query_id"] == "q"]
    expected = {"y": 3, "x": HIGH - 3, "w": -HIGH - 3, "z": -HIGH - 3}
    assert {row["doc_id"]: row["score"] for row in rows} == pytest.approx(expected)
    assert [row["doc_id"] for row in rows] == list(expected), "w and z tie; w has the better rank"


def test_top_counts_rows_that_are_not_rejected():
    marked = A.reject(np.array([row["doc_id"] == "x" for row in A.table.to_pylist()]), "too near")
    found = fuse_sources({"a": marked, "b": B}, FusionSettings(method="rrf", top=2))
    assert list(listed(found)) == ["y", "x", "w"]
    assert found.rejected() == {"too near": 2}  # x of q, and x of p
    assert list(listed(fuse_sources(AB, FusionSettings(method="rrf", top=1)))) == ["y"]


REFUSED: list[tuple[dict[str, Negatives], dict[str, Any], str]] = [
    ({"a": A}, {}, "at least two"),
    (AB, {"method": "rff"}, "rrf"),
    (AB, {"method": "rrf", "rrf_k": -1}, "rrf_k -1"),
]


@pytest.mark.parametrize(("sources", "how", "message"), REFUSED)
def test_refusals(sources, how, message):
    with pytest.raises(InputError, match=message):
        fuse_sources(sources, FusionSettings(**how))


def test_what_lies_before_a_window_is_no_verdict(small):
    from foils.mining import Miner, RandomRetriever

    retriever = RandomRetriever(small, seed=1)
    first, second = (Miner(small, retriever, top=2, ranks=ranks).mined("train") for ranks in ((0, 2), (2, 4)))
    assert (~second.keep).any()
    found = fuse_sources({"first": first, "second": second}, FusionSettings())

    def pairs(negatives: Negatives) -> set[tuple[str, str]]:
        kept = negatives.kept()
        return set(zip(kept["query_id"].to_pylist(), kept["doc_id"].to_pylist(), strict=True))

    assert pairs(found) == pairs(first) | pairs(second)


Row = tuple[str, str, int, float, str | None, str | None]
SCHEMA = pa.schema([*REQUIRED, ("text", pa.large_string()), ("keep", pa.bool_()), ("reason", pa.string())])


def rows_source(rows: list[Row], *, texts: bool = True, verdicts: bool = True) -> Negatives:
    """Rows of query, document, rank, score, text, reason."""
    listed = [
        {"query_id": q, "doc_id": d, "source": "s", "rank": rank, "score": score, "text": text, "keep": reason is None,
         "reason": reason}
        for q, d, rank, score, text, reason in rows
    ]  # fmt: skip
    table = pa.Table.from_pylist(listed, SCHEMA)
    return Negatives(table.drop_columns([*([] if texts else ["text"]), *([] if verdicts else ["keep", "reason"])]))


def plain_union(sources: dict[str, list[Row]]) -> list[dict[str, Any]]:
    queries = list(dict.fromkeys(row[0] for rows in sources.values() for row in rows))
    out = []
    for query in queries:
        found: dict[str, dict[str, Any]] = {}
        for name, rows in sources.items():
            for q, document, rank, score, text, reason in rows:
                if q == query:
                    entry = found.setdefault(document, {"doc_id": document, "reason": None, "text": text})
                    entry[f"rank_{name}"], entry[f"score_{name}"] = rank, score
                    entry["reason"] = entry["reason"] or reason
        order = list(sources)

        def best(entry: dict[str, Any], order: list[str] = order) -> tuple[int, int]:
            return min((entry[f"rank_{name}"], at) for at, name in enumerate(order) if f"rank_{name}" in entry)

        for rank, entry in enumerate(sorted(found.values(), key=best)):
            out.append({**entry, "query_id": query, "rank": rank})
    return out


@st.composite
def several(draw: st.DrawFn) -> dict[str, list[Row]]:
    sources: dict[str, list[Row]] = {}
    for name in "abc"[: draw(st.integers(2, 3))]:
        rows: list[Row] = []
        for query in draw(st.permutations(["q 1", "q2", "q3"])):
            documents = draw(st.lists(st.sampled_from("uvwxyz"), unique=True, max_size=5))
            for rank, document in enumerate(documents):
                reason = draw(st.sampled_from([None, None, None, f"bad {name}"]))
                text = "own text" if document in "yz" else None
                rows.append((query, document, rank, draw(st.floats(-5, 5)), text, reason))
        sources[name] = rows
    return sources


@settings(max_examples=120, deadline=None)
@given(several())
def test_the_union_equals_the_plain_loop(sources: dict[str, list[Row]]) -> None:
    found = fuse_sources({name: rows_source(rows) for name, rows in sources.items()})
    expected = plain_union(sources)
    assert len(found) == len(expected)
    for row, plain in zip(found.table.to_pylist(), expected, strict=True):
        for key in ("query_id", "doc_id", "rank"):
            assert row[key] == plain[key]
        assert row["source"] == "+".join(sources)
        assert math.isnan(row["score"])
        assert row.get("text") == plain["text"]
        assert row.get("reason") == plain["reason"]
        assert row.get("keep", True) == (plain["reason"] is None)
        for name in sources:
            for column in (f"rank_{name}", f"score_{name}"):
                assert row[column] == plain.get(column)


def test_sources_of_different_columns_unite() -> None:
    a = rows_source([("q", "x", 0, 1.0, None, None)], texts=False, verdicts=False)
    b = rows_source([("q", "x", 0, 2.0, None, "bad"), ("q", "y", 1, math.nan, "own", None)])
    found = fuse_sources({"a": a, "b": b}, digests={"a": "digest a", "b": "digest b"})
    rows = [(row["doc_id"], row["reason"], row["text"], row["score_a"]) for row in found.table.to_pylist()]
    assert rows == [("x", "bad", None, 1.0), ("y", None, "own", None)]
    assert found.provenance["inputs"] == {"a": "digest a", "b": "digest b"}
    neither = fuse_sources({"a": a, "c": a})
    assert not {"text", "keep", "reason"} & set(neither.table.column_names)


def test_empty_sources() -> None:
    a, empty = rows_source([("q", "x", 0, 1.0, None, None)], texts=False, verdicts=False), rows_source([])
    assert fuse_sources({"a": a, "b": empty}).table["doc_id"].to_pylist() == ["x"]
    assert fuse_sources({"a": empty, "b": a}).table["score_b"].to_pylist() == [1.0]
    assert len(fuse_sources({"a": empty, "b": empty})) == 0


def test_one_id_with_two_texts_is_an_error() -> None:
    """Two files written by language models may both call their passages 0, 1, 2."""
    a = rows_source([("q", "0", 0, 1.0, "one text", None)])
    b = rows_source([("q", "0", 0, 1.0, "another text", None)])
    refused(r"1 documents .*'0'.*id of its own", fuse_sources, {"a": a, "b": b})
    inside = rows_source([("q", "0", 0, 1.0, None, None)])
    refused("'0'", fuse_sources, {"a": inside, "b": b})
    other_query = rows_source([("r", "0", 0, 1.0, "another text", None)])
    assert len(fuse_sources({"a": a, "b": other_query})) == 2
