"""Uniting sources, against a plain loop over their rows."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foils.data import Negatives
from foils.data.negatives import REQUIRED
from foils.mining.fusion import fuse_sources
from foils.runtime.errors import InputError

Row = tuple[str, str, int, float, str | None, str | None]
SCHEMA = pa.schema([*REQUIRED, ("text", pa.large_string()), ("keep", pa.bool_()), ("reason", pa.string())])


def source(rows: list[Row], *, texts: bool = True, verdicts: bool = True) -> Negatives:
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
    found = fuse_sources({name: source(rows) for name, rows in sources.items()})
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
    a = source([("q", "x", 0, 1.0, None, None)], texts=False, verdicts=False)
    b = source([("q", "x", 0, 2.0, None, "bad"), ("q", "y", 1, math.nan, "own", None)])
    found = fuse_sources({"a": a, "b": b}, digests={"a": "digest a", "b": "digest b"})
    rows = found.table.to_pylist()
    assert [(row["doc_id"], row["keep"], row["reason"], row["text"]) for row in rows] == [
        ("x", False, "bad", None), ("y", True, None, "own"),
    ]  # fmt: skip
    assert rows[1]["score_a"] is None
    assert math.isnan(rows[1]["score_b"])
    assert found.provenance["inputs"] == {"a": "digest a", "b": "digest b"}
    assert found.provenance["settings"]["sources"] == ["a", "b"]
    neither = fuse_sources({"a": a, "c": a})
    assert not {"text", "keep", "reason"} & set(neither.table.column_names)


def test_the_first_sources_reason_stands() -> None:
    a = source([("q", "x", 5, 1.0, None, "of a")])
    b = source([("q", "x", 0, 2.0, None, "of b")])
    for sources, reason in (({"a": a, "b": b}, "of a"), ({"b": b, "a": a}, "of b")):
        row = fuse_sources(sources).table.to_pylist()[0]
        assert (row["reason"], row["rank_a"], row["rank_b"]) == (reason, 5, 0)


def test_empty_sources() -> None:
    a, empty = source([("q", "x", 0, 1.0, None, None)], texts=False, verdicts=False), source([])
    assert fuse_sources({"a": a, "b": empty}).table["doc_id"].to_pylist() == ["x"]
    assert fuse_sources({"a": empty, "b": a}).table["score_b"].to_pylist() == [1.0]
    assert len(fuse_sources({"a": empty, "b": empty})) == 0


def test_one_id_with_two_texts_is_an_error() -> None:
    """Two files written by language models may both call their passages 0, 1, 2."""
    a = source([("q", "0", 0, 1.0, "one text", None)])
    b = source([("q", "0", 0, 1.0, "another text", None)])
    with pytest.raises(InputError, match=r"1 documents .*'0'.*id of its own"):
        fuse_sources({"a": a, "b": b})
    inside = source([("q", "0", 0, 1.0, None, None)])
    with pytest.raises(InputError, match="'0'"):
        fuse_sources({"a": inside, "b": b})
    other_query = source([("r", "0", 0, 1.0, "another text", None)])
    assert len(fuse_sources({"a": a, "b": other_query})) == 2


def test_fewer_than_two_sources() -> None:
    one = source([("q", "x", 0, 1.0, None, None)])
    for sources in ({}, {"a": one}):
        with pytest.raises(InputError, match=f"at least two sources, not {len(sources)}"):
            fuse_sources(sources)


def test_inputs_stay_as_they_are() -> None:
    a = source([("q", "x", 0, 1.0, None, "bad"), ("q", "y", 1, np.nan, "own", None)])
    before = a.table.to_pylist()
    fuse_sources({"a": a, "b": a})
    assert str(a.table.to_pylist()) == str(before)
