"""`foils select` and `foils.select` are one: the same bytes and the same provenance."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fakes import HashingEncoder
from foils.data import Negatives, load_collection
from foils.encode import VectorStore
from foils.runtime.errors import InputError
from foils.runtime.files import write_json
from foils.selection.doors import compose, select

Foils = Callable[..., Any]


def mined(foils: Foils, folder: Path, tmp_path: Path, method: str = "random") -> Path:
    path = tmp_path / f"{method}.parquet"
    assert foils("mine", folder, "--with", method, "--top", 3, "-o", path).status == 0
    return path


def rated(foils: Foils, folder: Path, tmp_path: Path) -> Path:
    """A table of ratings as foils rate writes it, with gaps to choose from."""
    table = Negatives.read(mined(foils, folder, tmp_path))
    gap = np.linspace(-50, 700, len(table))
    columns = {"elo": 1500 - gap, "elo_se": np.full(len(table), 40.0), "gap": gap}
    path = tmp_path / "rated.parquet"
    table.with_columns(columns).with_provenance({"stage": "rate"}).write(path)
    return path


@pytest.mark.parametrize(
    ("given", "options"),
    [
        ({}, []),
        ({"by": "simans", "settings": {"per_query": 2, "target": 200}, "seed": 3},
         ["--by", "simans", "--set", "per_query=2", "--set", "target=200", "--seed", 3]),
        ({"by": "optimal", "settings": {"rate": 0.3}}, ["--by", "optimal", "--set", "rate=0.3"]),
    ],
)  # fmt: skip
def test_by_ratings(
    foils: Foils, beir_folder: Callable[..., Path], tmp_path: Path, given: dict[str, Any], options: list[object]
) -> None:
    folder = beir_folder()
    path = rated(foils, folder, tmp_path)
    files = {name: tmp_path / f"program.{name}" for name in ("parquet", "json", "html", "jsonl")}
    written = ["--json", files["json"], "--report", files["html"], "--export", f"triplets={files['jsonl']}"]
    ended = foils("select", path, *options, "-o", files["parquet"], *written, "--collection", folder)
    assert ended.status == 0, ended.err
    table = Negatives.read(path)
    for source in (path, str(path), table, table.table.replace_schema_metadata(None)):
        collection = load_collection(folder) if source is table else folder
        selected = select(source, collection=collection, **given)
        if isinstance(source, (str, Path, Negatives)):  # a table of Arrow does not say where it comes from
            assert selected.digest == Negatives.read(files["parquet"]).digest
        selected.write(tmp_path / "library.parquet")
        write_json(tmp_path / "library.json", selected.to_json())
        selected.export(tmp_path / "library.jsonl")
        for name in ("json", "jsonl"):
            assert (tmp_path / f"library.{name}").read_bytes() == files[name].read_bytes()
        if isinstance(source, (str, Path)):
            assert str(selected).split()[4:] == ended.out.split()[6:]
    select(path, collection=folder, **given).report(tmp_path / "library.html")
    assert (tmp_path / "library.html").read_bytes() == files["html"].read_bytes()
    before = Negatives.read(tmp_path / "library.parquet").provenance
    assert (before["stage"], before["settings"]["by"]) == ("select", given.get("by", "table"))


def test_by_benefit(foils: Foils, loaded: object, beir_folder: Callable[..., Path], tmp_path: Path) -> None:
    folder = beir_folder()
    paths = [mined(foils, folder, tmp_path, method) for method in ("random", "bm25")]
    files = {ending: tmp_path / f"program.{ending}" for ending in ("parquet", "json")}
    options = ["--by", "benefit", "--set", "top=2", "--collection", folder, "--temperature", 0.1, "--in-batch", 9]
    options += ["--seed", 3, "--encoder-args", f"vectors={tmp_path / 'v'}"]
    ended = foils("select", *paths, *options, "-o", files["parquet"], "--json", files["json"])
    assert ended.status == 0, ended.err
    for collection in (folder, load_collection(folder)):
        chosen = select(
            paths, by="benefit", settings={"top": 2}, collection=collection, temperature=0.1, in_batch=9, seed=3,
            encoder=HashingEncoder(), vectors=VectorStore(tmp_path / "v"),
        )  # fmt: skip
        chosen.write(tmp_path / "library.parquet")
        write_json(tmp_path / "library.json", chosen.to_json())
        for ending, written in files.items():
            assert (tmp_path / f"library.{ending}").read_bytes() == written.read_bytes()
        assert str(chosen).split() == ended.out.replace(f"→ {files['parquet']}", "").split()
    refused = foils("select", *paths, *options, "-o", files["parquet"], "--report", "page.html")
    assert (refused.status, "--report page.html: no effect with --by benefit" in refused.err) == (2, True)


def test_compose(foils: Foils, loaded: object, beir_folder: Callable[..., Path], tmp_path: Path) -> None:
    folder = beir_folder()
    paths = {method: mined(foils, folder, tmp_path, method) for method in ("random", "bm25")}
    program, json = tmp_path / "program.parquet", tmp_path / "program.json"
    options = ["--top", 2, "--lambda", 0.5, "--encoder-args", f"vectors={tmp_path / 'v'}"]
    ended = foils("compose", folder, *paths.values(), *options, "-o", program, "--json", json)
    assert ended.status == 0, ended.err
    tables = {name: Negatives.read(path) for name, path in paths.items()}
    store, encoder = VectorStore(tmp_path / "v"), HashingEncoder()
    for sources in (paths, list(map(str, paths.values())), tables):
        composed = compose(folder, sources, top=2, regularization=0.5, encoder=encoder, vectors=store)
        assert composed.digest == Negatives.read(program).digest
        write_json(tmp_path / "library.json", composed.to_json())
        assert (tmp_path / "library.json").read_bytes() == json.read_bytes()


def test_the_library_refuses_what_the_program_refuses(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="seed 3: no effect with by table, which draws nothing, as by mixture"):
        select(tmp_path, seed=3)
    with pytest.raises(InputError, match="split dev: no effect without collection"):
        select(tmp_path, split="dev")
