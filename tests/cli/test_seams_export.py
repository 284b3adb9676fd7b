"""Exports from the program and from Python: the same bytes, tables and JSON; scores of positives on the way."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import foils as library
from fakes import HashingEncoder
from foils.data.formats import FORMS
from foils.data.negatives import POSITIVE

Foils = Callable[..., Any]


def contents(path: Path) -> list[bytes]:
    return [each.read_bytes() for each in sorted(path.iterdir())] if path.is_dir() else [path.read_bytes()]


@pytest.mark.parametrize("form", FORMS)
def test_export(foils: Foils, beir_folder: Callable[..., Path], tmp_path: Path, form: str) -> None:
    folder, table = beir_folder(), tmp_path / "mined.parquet"
    assert foils("mine", folder, "--top", 2, "--rule-args", "score_positives=true", "-o", table).status == 0
    mined = library.mine(folder, top=2, score_positives=True)
    scores = {} if FORMS[form].scores == "cannot" else {"scores": "score"}
    typed = [f"--{name}={value}" for name, value in scores.items()]
    out = tmp_path / "program"
    ended = foils("export", folder, table, "--form", form, *typed, "-o", out, "--json", tmp_path / "program.json")
    assert ended.status == 0, ended.err
    for given in (mined, table, mined.to_pandas(), mined.to_polars(), mined.to_dataset()):
        exported = library.export(folder, given, form=form, **scores)
        exported.write(tmp_path / "library")
        assert contents(tmp_path / "library") == contents(out)
    assert json.loads((tmp_path / "program.json").read_text()) == exported.to_json()
    assert str(exported).split() == ended.out.replace(f"→ {out}", "").split()
    mined.export(tmp_path / "method", form=form, **scores)
    assert contents(tmp_path / "method") == contents(out)


@pytest.mark.parametrize("scorer", [None, "encoder"])
def test_positives_are_scored_on_the_scale_of_the_negatives(
    foils: Foils, loaded: object, beir_folder: Callable[..., Path], tmp_path: Path, scorer: str | None
) -> None:
    """By the ranking itself, or by a scorer, whose column has them; filtering scores without any rule."""
    folder, typed = beir_folder(), ["--scorer", scorer, "--encoder-args", f"vectors={tmp_path / 'v'}"] if scorer else []
    plain, table = tmp_path / "plain.parquet", tmp_path / "scored.parquet"
    assert foils("mine", folder, "--top", 2, *typed, "-o", plain).status == 0
    assert foils("mine", folder, "--top", 2, *typed, "--rule-args", "score_positives=true", "-o", table).status == 0
    negatives, column = library.Negatives.read(table), "cosine" if scorer else "score"
    kept = library.Negatives.read(plain).table
    rows_of_before = negatives.table.slice(0, len(kept)).select(kept.column_names)
    assert rows_of_before.equals(kept), "as they were"
    more = negatives.table.slice(len(kept)).to_pylist()
    assert {(row["query_id"], row["doc_id"], row["reason"]) for row in more} == {
        (query, document, POSITIVE) for query, document in (("q1", "d1"), ("q1", "d3"), ("q2", "d4"), ("q3", "d7"))
    }
    if scorer:
        assert (
            foils(
                "filter", folder, plain, *typed, "--rule-args", "score_positives=true", "-o", tmp_path / "f.parquet"
            ).status
            == 2
        )
        encoder, store = HashingEncoder(), library.VectorStore(tmp_path / "v")
        bare = library.mine(folder, top=2)
        filtered = library.filter(folder, bare, scorer="encoder", score_positives=True, encoder=encoder, vectors=store)
        for name in ("query_id", "doc_id", column):
            assert filtered.table[name].equals(negatives.table[name])
        collection = library.load(folder)
        for row in more:
            query = encoder.encode(collection.query_texts(collection.query_rows([row["query_id"]])), "query")
            document = encoder.encode(collection.document_texts(collection.document_rows([row["doc_id"]])), "document")
            assert row[column] == pytest.approx((query @ document.T).item(), abs=1e-6)
    else:
        assert all(row["score"] > 0 for row in more)
        ended = foils("mine", folder, "--with", "random", "--rule-args", "score_positives=true", "-o", table)
        assert ended.status == 2
        assert "this source does not give; choose --scorer encoder" in ended.err


def test_a_table_in_frames(small: Any) -> None:
    negatives = library.mine(small, "random", top=2, split="train")
    for frame in (negatives.to_pandas(), negatives.to_polars(), negatives.to_dataset()):
        back = pa.table(frame) if not hasattr(frame, "with_format") else frame.with_format("arrow")[:]
        assert (
            back.select(["query_id", "doc_id", "rank"]).to_pylist()
            == negatives.table.select(["query_id", "doc_id", "rank"]).to_pylist()
        )
