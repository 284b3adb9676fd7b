"""`foils batch` and `foils.batch` are one: the same plan, numbers, page and provenance."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

import foils as library
from fakes import HashingEncoder
from foils.data import Negatives, load_collection
from foils.encode import VectorStore
from foils.runtime.errors import InputError
from foils.runtime.files import write_json

Foils = Callable[..., Any]


def without_clock(text: str) -> str:
    """What was written, less the seconds that it took."""
    return re.sub(r'"seconds": [\d.e-]+|[\d.]+ s\b', "", text)


def test_batch(foils: Foils, loaded: object, beir_folder: Callable[..., Path], tmp_path: Path) -> None:
    folder, source = beir_folder(), tmp_path / "bm25.parquet"
    assert foils("mine", folder, "--with", "bm25", "--top", 3, "-o", source).status == 0
    files = {kind: tmp_path / f"program.{kind}" for kind in ("parquet", "json", "html")}
    options = ["--with", "hobit", "--batch-size", 4, "--epochs", 2, "--set", "seeds=2", "--set", "seed_order=uniform"]
    options += ["--per-query", 2, "--seed", 3, "--encoder-args", f"vectors={tmp_path / 'v'}"]
    outputs = ["-o", files["parquet"], "--json", files["json"], "--report", files["html"]]
    ended = foils("batch", folder, source, *options, *outputs)
    assert ended.status == 0, ended.err
    table, store, encoder = Negatives.read(source), VectorStore(tmp_path / "v"), HashingEncoder()
    settings = {"seeds": 2, "seed_order": "uniform"}
    for number, given in enumerate((table.table, source, table)):
        collection = load_collection(folder) if number % 2 else folder
        plan = library.batch(
            collection, "hobit", given, batch_size=4, epochs=2, settings=settings, per_query=2, seed=3,
            encoder=encoder, vectors=store,
        )  # fmt: skip
        assert plan.table().equals(pq.read_table(files["parquet"]).replace_schema_metadata(None))
        if given is table.table:  # which says nothing of itself, so that its digest is another
            continue
        plan.write(tmp_path / "library.parquet")
        assert (tmp_path / "library.parquet").read_bytes() == files["parquet"].read_bytes()
        write_json(tmp_path / "library.json", plan.to_json())
        plan.report(tmp_path / "library.html")
        for kind in ("json", "html"):
            written = (tmp_path / f"library.{kind}").read_text("utf-8")
            assert without_clock(written) == without_clock(files[kind].read_text("utf-8"))
    shown = without_clock(ended.out.replace(f" → {files['parquet']}", "")).split()
    assert without_clock(str(plan)).split() == shown
    assert "<table>" in plan._repr_html_()


def test_what_pairs_do_not_have_is_refused_in_both(foils: Foils, small: object, tmp_path: Path) -> None:
    ended = foils("batch", "nowhere", "--per-query", 2, "-o", tmp_path / "plan.parquet")
    assert (ended.status, "--per-query 2: no effect with pairs" in ended.err) == (2, True)
    with pytest.raises(InputError, match="per_query 2: no effect with pairs"):
        library.batch(small, per_query=2)
    with pytest.raises(InputError, match="alhpa"):
        library.batch(small, settings={"alhpa": 1})
