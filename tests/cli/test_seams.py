"""The program and the library are one: the same bytes, defaults and provenance."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fakes import HashingEncoder
from foils.data import Negatives, load_collection
from foils.encode import VectorStore
from foils.runtime.files import write_json
from foils.scoring.doors import score

Foils = Callable[..., Any]


def mined(foils: Foils, folder: Path, tmp_path: Path) -> dict[str, Path]:
    paths = {}
    for method in ("random", "bm25"):
        paths[method] = tmp_path / f"{method}.parquet"
        assert foils("mine", folder, "--with", method, "--top", 3, "-o", paths[method]).status == 0
    return paths


def test_score(foils: Foils, loaded: object, beir_folder: Callable[..., Path], tmp_path: Path) -> None:
    folder = beir_folder()
    paths = mined(foils, folder, tmp_path)
    options = [
        "--json",
        tmp_path / "program.json",
        "--report",
        tmp_path / "program.html",
        "--encoder-args",
        f"vectors={tmp_path / 'v'}",
    ]
    ended = foils("score", folder, *paths.values(), *options, "--audit", 2)
    assert ended.status == 0, ended.err
    store, encoder = VectorStore(tmp_path / "v"), HashingEncoder()
    tables = {name: Negatives.read(path) for name, path in paths.items()}
    forms: list[Any] = [paths, list(paths.values()), tables, {name: each.table for name, each in tables.items()}]
    for number, sources in enumerate(forms):
        collection = load_collection(folder) if number % 2 else folder
        scores = score(collection, sources, encoder=encoder, vectors=store, audit=2)
        write_json(tmp_path / "library.json", scores.to_json())
        if number < 3:
            assert (tmp_path / "library.json").read_bytes() == (tmp_path / "program.json").read_bytes()
            decided = scores
    # An Arrow table says nothing of how it was mined, so that less is known of its false negatives.
    assert [score.eci_sem for score in scores.sources] == [score.eci_sem for score in decided.sources]
    scores = decided
    scores.report(tmp_path / "library.html")
    assert (tmp_path / "library.html").read_bytes() == (tmp_path / "program.html").read_bytes()
    assert str(scores).split() == ended.out.split()
    assert "<table>" in scores._repr_html_()


def test_a_curve(foils: Foils, loaded: object, beir_folder: Callable[..., Path], tmp_path: Path) -> None:
    folder, path = beir_folder(), tmp_path / "deep.parquet"
    assert foils("mine", folder, "--with", "random", "--top", 6, "-o", path).status == 0
    files = {kind: tmp_path / f"program.{kind}" for kind in ("json", "html")}
    options = ["--curve", "deep:2", "--encoder-args", f"vectors={tmp_path / 'v'}"]
    ended = foils("score", folder, path, *options, "--json", files["json"], "--report", files["html"])
    assert ended.status == 0, ended.err
    store = VectorStore(tmp_path / "v")
    scores = score(folder, {"deep": path}, curve="deep:2", encoder=HashingEncoder(), vectors=store)
    write_json(tmp_path / "library.json", scores.to_json())
    scores.report(tmp_path / "library.html")
    for kind, written in files.items():
        assert (tmp_path / f"library.{kind}").read_bytes() == written.read_bytes()
    shown = json.loads(files["json"].read_text())["curves"]
    assert [curve["by"] for curve in shown][:1] == ["rank"]
    assert [part["ranks"] for part in shown[0]["parts"]] == [[0, 2], [2, 4], [4, 6]]
    assert str(scores).split() == ended.out.split()
    assert shown[0]["sentence"] in ended.out.replace("\n", " ")
    for wrong, why in (("depe", "deep"), ("deep:0", "SOURCE:K"), ("deep:many", "SOURCE:K"), ("depe:2", "deep")):
        refused = foils("score", folder, path, "--curve", wrong)
        assert (refused.status, "--curve" in refused.err, why in refused.err) == (2, True, True)
    shallow = foils("score", folder, path, "--curve", "deep:4", "--encoder", tmp_path / "never looked for")
    assert shallow.status == 2
    assert "deep has 6 ranks" in shallow.err
    assert "mine it deeper, as foils mine --top 40 does, or compare smaller windows, as deep:3 does" in shallow.err


def test_what_a_table_says_of_itself_is_the_same_in_memory_and_on_disk(
    foils: Foils, beir_folder: Callable[..., Path], tmp_path: Path
) -> None:
    path = mined(foils, beir_folder(), tmp_path)["bm25"]
    from foils.runtime.files import file_digest

    assert Negatives.read(path).digest == file_digest(path)
    assert json.loads(json.dumps(Negatives.read(path).to_json()))["kept"] > 0
