"""Mining from pairs: the program on a file of any kind and Python on any table write the same bytes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import foils as library
from pair_files import ROWS, TABLES, pair_files

Foils = Callable[..., Any]


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FOILS_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def mined(foils: Foils, tmp_path: Path) -> bytes:
    """What the program mines from a CSV file."""
    (tmp_path / "first").mkdir()
    path = pair_files(tmp_path / "first", ROWS)[0]
    ended = foils("mine", path, "--top", 3, "-o", tmp_path / "csv.parquet")
    assert ended.status == 0, ended.err
    assert len(library.Negatives.read(tmp_path / "csv.parquet").kept()) == 8, (
        "the other document of its colour for each query"
    )
    return (tmp_path / "csv.parquet").read_bytes()


def test_files(foils: Foils, mined: bytes, tmp_path: Path) -> None:
    for path in pair_files(tmp_path, ROWS):
        out = tmp_path / "program.out"
        ended = foils("mine", path, "--top", 3, "-o", out)
        assert ended.status == 0, ended.err
        assert out.read_bytes() == mined, path
        for given in (path, str(path)):
            library.mine(given, top=3).write(tmp_path / "library.out")
            assert (tmp_path / "library.out").read_bytes() == mined, path


@pytest.mark.parametrize("form", TABLES)
def test_tables(mined: bytes, tmp_path: Path, form: str) -> None:
    library.mine(TABLES[form](ROWS), top=3).write(tmp_path / "library.out")
    assert (tmp_path / "library.out").read_bytes() == mined
