"""The one table: what it holds, what it refuses, and that nothing in it is ever lost."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foils.data import Collection, Negatives
from foils.data.negatives import REQUIRED, Recapture
from foils.mining import BM25Retriever, Miner
from foils.runtime.errors import FormatError, InputError

COLUMNS = {
    "query_id": ["q1", "q1", "q2"],
    "doc_id": ["d2", "d4", "d5"],
    "source": ["bm25", "bm25", "bm25"],
    "rank": [0, 1, 0],
    "score": [3.5, 1.25, float("nan")],
}


def table(**change: object) -> pa.Table:
    columns = {**COLUMNS, **change}
    return pa.table({name: values for name, values in columns.items() if values is not None})


def negatives(**change: object) -> Negatives:
    return Negatives(table(**change))


# What it holds


def test_columns_take_the_declared_types() -> None:
    """A score that is null is NaN."""
    made = negatives(
        score=[1.0, None, 2.0],
        query_id=pa.array(COLUMNS["query_id"]).dictionary_encode(),
        cosine=pa.array([1, 0, 0], "float32"),
    )
    assert made.table.schema.field("cosine").type == pa.float64()
    for column in REQUIRED:
        assert made.table.schema.field(column.name).type == column.type
    assert len(made) == 3
    np.testing.assert_array_equal(made.table["score"].to_numpy(), [1.0, np.nan, 2.0])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"doc_id": None, "rank": None}, "no column doc_id, rank; a table of negatives has query_id, doc_id, source"),
        ({"rank": [0.5, 1.0, 2.0]}, "column rank is double, expected int32"),
        ({"query_id": ["q1", None, None]}, "2 rows have no query_id"),
        ({"keep": [True, None, True], "reason": [None, None, None]}, "1 rows have no keep"),
        ({"score": [1.0, float("inf"), 0.0]}, "1 rows have an infinite score; a score that is missing is NaN"),
        ({"weight": [0.0, -0.5, 1.0]}, "1 rows have a negative weight"),
        ({"score": ["1", "2", "3"], "rank": ["0", "1", "2"]}, "rank is string, expected int32; column score is string"),
        ({"rank": [0, -1, 0], "weight": [-1.0, 0, -1]}, "1 rows have a negative rank, 2 rows have a negative weight"),
        (
            {"query_id": ["q", "q", "q"], "doc_id": ["d", "e", "d"]},
            r"1 pairs occur more than once \(first: 'q', 'd'\)",
        ),
        ({"keep": [True, True, False], "reason": [None, None, None]}, "a reason exactly where keep is false"),
    ],
)
def test_what_is_refused(change: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        negatives(**change)


# More columns


def test_columns_are_added() -> None:
    made = negatives().with_columns(
        {"elo": np.array([1.0, 2.0, 3.0]), "tier": pa.array(["a", None, "b"]), "mine": [1, 2, 3]}
    )
    assert made.table["elo"].to_pylist() == [1.0, 2.0, 3.0]
    assert made.table["tier"].to_pylist() == ["a", None, "b"]
    assert made.table["mine"].to_pylist() == [1, 2, 3]
    assert made.with_columns({}).table.column_names == [*COLUMNS, "elo", "tier", "mine"]


def test_no_column_is_overwritten() -> None:
    with pytest.raises(InputError, match=r"column elo has 2 values for 3 rows"):
        negatives().with_columns({"elo": np.zeros(2)})
    with pytest.raises(InputError, match=r"expected bool \(3,\)"):
        negatives().reject(np.array([0, 2, 1]), "why")
    made = negatives().with_columns({"elo": np.zeros(3)})
    with pytest.raises(InputError, match="the table has elo, score already; a stage adds columns, it replaces none"):
        made.with_columns({"elo": np.ones(3), "score": np.ones(3), "gap": np.ones(3)})
    assert made.table["elo"].to_pylist() == [0.0, 0.0, 0.0]


# Rejected rows stay


@given(st.lists(st.lists(st.booleans(), min_size=3, max_size=3), max_size=4))
def test_rejecting_equals_a_plain_loop(masks: list[list[bool]]) -> None:
    reasons: list[str | None] = [None, None, None]
    made = negatives()
    for rule, mask in enumerate(masks):
        made = made.reject(np.array(mask), f"rule {rule}")
        reasons = [f"rule {rule}" if hit and old is None else old for hit, old in zip(mask, reasons, strict=True)]
    assert made.keep.tolist() == [reason is None for reason in reasons]
    if masks:
        assert made.table["reason"].to_pylist() == reasons
    counts = {reason: reasons.count(reason) for reason in reasons if reason}
    assert made.rejected() == counts
    assert list(made.rejected().values()) == sorted(counts.values(), reverse=True)
    for name in ("query_id", "doc_id", "rank"):
        assert made.table[name].to_pylist() == COLUMNS[name]


# In a collection


def test_rejected_rows_are_added_for_pairs_that_have_none() -> None:
    given = negatives(cosine=[0.1, 0.2, 0.3])
    more, rows = given.with_rejected(pa.array(["q2", "q1", "q1"]), pa.array(["d2", "d4", "d5"]))
    assert rows.tolist() == [3, 1, 4]
    assert more.table["doc_id"].to_pylist() == ["d2", "d4", "d5", "d2", "d5"]
    assert more.table["query_id"].to_pylist() == ["q1", "q1", "q2", "q2", "q1"]
    assert more.table["source"].to_pylist() == ["bm25"] * 3 + ["labels"] * 2
    assert more.rejected() == {"labelled positive": 2}
    assert more.keep.tolist() == [True] * 3 + [False] * 2
    assert np.isnan(more.table["score"].to_numpy()[3:]).all()
    assert np.isnan(more.table["cosine"].to_numpy()[3:]).all()
    kept = more.kept().drop_columns(["keep", "reason"])
    assert repr(kept.to_pylist()) == repr(given.table.to_pylist())
    assert len(given) == 3
    again, rows = Negatives(more.table).with_rejected(pa.array(["q1"]), pa.array(["d5"]))
    assert rows.tolist() == [4]
    assert repr(again.table.to_pylist()) == repr(more.table.to_pylist())


def test_rows_in_a_collection(small: Collection) -> None:
    queries, documents = negatives().rows_in(small)
    assert (queries.tolist(), documents.tolist()) == ([0, 0, 1], [1, 3, 4])
    own = negatives(doc_id=["d2", "made-up", "d5"], text=[None, "its own text", "and this"])
    assert own.rows_in(small)[1].tolist() == [1, -1, -1]
    with pytest.raises(InputError, match=r"1 query_ids are not in the collection small \(first: 'q9'\)"):
        negatives(query_id=["q9", "q1", "q9"]).rows_in(small)
    with pytest.raises(InputError, match=r"2 doc_ids are not in the collection small \(first: 'x', 'y'\)"):
        negatives(doc_id=["x", "y", "d5"], text=[None, None, "t"]).rows_in(small)


# On disk


def test_a_file_of_other_columns(tmp_path: Path) -> None:
    pq.write_table(pa.table({"other": ["x" * 1000] * 1000}), tmp_path / "other.parquet")
    with pytest.raises(FormatError, match=r"other\.parquet: no column query_id, doc_id"):
        Negatives.read(tmp_path / "other.parquet")


COUNTS = {"returned": 1, "labelled": 2, "kept": 3}


def test_it_is_read_back_from_a_file(small, tmp_path):
    found = Miner(small, BM25Retriever(small), top=2).mined("train")
    found.write(tmp_path / "a.parquet")
    again = Negatives.read(tmp_path / "a.parquet")
    assert Recapture.of(again) == Recapture.of(found)
    assert asdict(Recapture.of(again)) == json.loads(json.dumps(found.provenance["recapture"]))
    assert Recapture.of(negatives()) is None
    first = np.arange(len(found)) == int(np.flatnonzero(found.keep)[0])
    assert Recapture.of(found.reject(first, "no")) is None, "these are not the rows that were counted"


def test_an_estimate_by_hand():
    found = Recapture.estimated([1, 0, 2], [1, 1, 2], labelled=40, kept=100, way="planted")
    assert found.returned == 30  # 3/4 of 40
    squares = 0.25**2 + 0.75**2 + 0.5**2
    assert found.standard_error == pytest.approx(40 * np.sqrt(squares + (4 / 3 / 2) ** 2) / 4)
    assert Recapture.estimated([0, 0], [1, 1], labelled=2, kept=9, way="planted").standard_error == pytest.approx(0.5)


@pytest.mark.parametrize(
    "found",
    [
        1, [], {}, {"returned": 1, "labelled": 2},
        *({**COUNTS, "returned": n} for n in ("1", -1, float("nan"), 10**400)),
        *({**COUNTS, "way": "planted", "standard_error": n} for n in ("1", -1, float("nan"))),
    ],
)  # fmt: skip
def test_counts_that_are_none(found: object) -> None:
    with pytest.raises(InputError, match="expected counts returned, labelled, kept"):
        Recapture.of(negatives().with_provenance({"recapture": found}))


def test_positives_are_looked_up_by_query_in_any_order() -> None:
    judged = {"train": {"q2": {"a": 1, "b": 1}, "q0": {"b": 1}}}
    collection = Collection.from_dicts("c", {"a": "a", "b": "b"}, {f"q{n}": "q" for n in range(4)}, judged)
    known = collection.known_positives
    assert known.places(np.array([0, 1, 2, 3])).tolist() == [1, -1, 0, -1]
    assert known.counts_of(np.array([3, 2, 1, 0])).tolist() == [0, 2, 0, 1]
    nobody = Collection.from_dicts("c", {"a": "a"}, {"q": "q"}, {}).known_positives
    assert nobody.counts_of(np.array([0])).tolist() == [0]
