"""Tables of negatives as doors return them."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from foils.data import Collection, Negatives
from foils.data.negatives import negatives_table
from foils.data.sources import as_source
from foils.runtime.errors import InputError


@pytest.fixture
def negatives() -> Negatives:
    table = negatives_table(pa.array(["q1", "q1"]), pa.array(["d2", "d5"]), "bm25", [0, 1], [2.0, 1.0])
    return Negatives(table, {"stage": "mine", "settings": {"top": 2}}).reject(np.array([False, True]), "near")


def test_a_result_is_a_table_of_negatives(small: Collection, negatives: Negatives, tmp_path: Path) -> None:
    result = Negatives.of(negatives, title="bm25 negatives", collection=small)
    assert (result.digest, result.to_json()) == (negatives.digest, negatives.to_json())
    assert result.tables()[0].title == "bm25 negatives"
    assert result.rows() == [("rows", "2"), ("kept", "1"), ("rejected: near", "1")]
    assert "bm25 negatives" in str(result)
    assert as_source(result, small).negatives is result
    result.write(tmp_path / "n.parquet")
    assert Negatives.read(tmp_path / "n.parquet").digest == result.digest


def test_its_kept_rows_are_exported(small: Collection, negatives: Negatives, tmp_path: Path) -> None:
    result = Negatives.of(negatives, collection=small)
    assert result.export(tmp_path / "t.jsonl") == 2  # one for each positive of q1
    assert list(json.loads((tmp_path / "t.jsonl").read_text().splitlines()[0])) == ["anchor", "positive", "negative"]
    with pytest.raises(InputError, match="name the collection"):
        Negatives.of(negatives).export(tmp_path / "t.jsonl")


@pytest.mark.parametrize("name", ["x.csv", "x.tsv.gz"])
def test_a_name_that_promises_another_form_is_refused(negatives: Negatives, tmp_path: Path, name: str) -> None:
    with pytest.raises(InputError, match=r"call the file x\.parquet"):
        negatives.write(tmp_path / name)
    assert not (tmp_path / name).exists()
    negatives.write(tmp_path / "without_an_ending")
