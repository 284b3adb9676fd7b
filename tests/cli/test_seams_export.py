"""Exports from the program and from Python: the same bytes, tables and JSON; scores of positives on the way."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import foils as library
from foils.data.formats import FORMS
from train_models import static_model

Foils = Callable[..., Any]


def contents(path: Path) -> list[bytes]:
    return [each.read_bytes() for each in sorted(path.iterdir())] if path.is_dir() else [path.read_bytes()]


@pytest.mark.parametrize("form", FORMS)
def test_export(foils: Foils, beir_folder: Callable[..., Path], tmp_path: Path, form: str) -> None:
    folder, table = beir_folder(), tmp_path / "mined.parquet"
    teacher = {"teacher": static_model(), "vectors": str(tmp_path / "vectors")}
    mined = library.score_pairs(folder, library.mine(folder, top=2), **teacher)
    mined.write(table)
    scores = {} if FORMS[form].scores == "cannot" else {"scores": "teacher"}
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


def test_a_table_in_frames(small: Any) -> None:
    negatives = library.mine(small, "random", top=2, split="train")
    for frame in (negatives.to_pandas(), negatives.to_polars(), negatives.to_dataset()):
        back = pa.table(frame) if not hasattr(frame, "with_format") else frame.with_format("arrow")[:]
        assert (
            back.select(["query_id", "doc_id", "rank"]).to_pylist()
            == negatives.table.select(["query_id", "doc_id", "rank"]).to_pylist()
        )
