"""What a table says of the labelled positives that its way of mining would return."""

from __future__ import annotations

import json

import numpy as np
import pytest

from foils.data import Collection, Negatives
from foils.data.recapture import Recapture
from foils.mining import BM25Retriever, mine_negatives
from foils.runtime.errors import InputError

COUNTS = {"returned": 1, "labelled": 2, "kept": 3}


def test_it_is_read_back_from_a_file(small, tmp_path):
    found = mine_negatives(small, BM25Retriever(small), split="train", top=2)
    found.write(tmp_path / "a.parquet")
    again = Negatives.read(tmp_path / "a.parquet")
    assert Recapture.of_table(again) == Recapture.of(found.provenance)
    assert Recapture.of(again.provenance).to_json() == json.loads(json.dumps(found.provenance["recapture"]))
    assert Recapture.of({}) is None


def test_rows_that_were_rejected_since_are_not_those_that_were_counted(small):
    found = mine_negatives(small, BM25Retriever(small), split="train", top=2)
    first = np.arange(len(found)) == int(np.flatnonzero(found.keep)[0])
    assert Recapture.of_table(found.reject(first, "no")) is None


def test_rates_by_hand():
    assert Recapture(30, 100, 1000).false_negatives(2.0) == pytest.approx(0.06)
    assert Recapture(30, 100, 1000).false_negatives(100.0) == 1.0


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
        Recapture.of({"recapture": found})


def test_positives_are_looked_up_by_query_in_any_order() -> None:
    judged = {"train": {"q2": {"a": 1, "b": 1}, "q0": {"b": 1}}}
    collection = Collection.from_dicts("c", {"a": "a", "b": "b"}, {f"q{n}": "q" for n in range(4)}, judged)
    known = collection.known_positives
    assert known.places(np.array([0, 1, 2, 3])).tolist() == [1, -1, 0, -1]
    assert known.counts_of(np.array([3, 2, 1, 0])).tolist() == [0, 2, 0, 1]
    nobody = Collection.from_dicts("c", {"a": "a"}, {"q": "q"}, {}).known_positives
    assert nobody.counts_of(np.array([0])).tolist() == [0]
