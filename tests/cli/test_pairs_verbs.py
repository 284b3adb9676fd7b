"""Mining from pairs: the program on a file of any kind and Python on any table write the same bytes."""

import pytest

import foils as library
from pair_files import ROWS, TABLES, pair_files, write_csv

TRIPLETS = [{**row, "negative": ROWS[at - 1]["answer"]} for at, row in enumerate(ROWS)]


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("FOILS_CACHE", str(tmp_path / "cache"))


@pytest.mark.parametrize("rows", [ROWS, TRIPLETS], ids=["pairs", "triplets"])
def test_files_and_tables(foils, loaded, tmp_path, rows):
    files = pair_files(tmp_path, rows)
    written = []
    for path in files:
        ended = foils("mine", path, "--with", "dense", "--encoder", "m", "--top", 3, "-o", tmp_path / "out")
        assert ended.status == 0, ended.err
        written.append((tmp_path / "out").read_bytes())
    assert len(library.Negatives.read(tmp_path / "out").kept()) == 15  # of half of the queries
    for given in (*files, str(files[0]), *(form(rows) for form in TABLES.values())):
        library.mine(given, "dense", encoder="m", top=3).write(tmp_path / "out")
        written.append((tmp_path / "out").read_bytes())
    assert len(set(written)) == 1


def test_columns_of_a_source(foils, tmp_path):
    """Those of the collection's pairs are a source's too, if it has all of them."""
    names = {"question": "q", "answer": "a", "negative": "n"}
    renamed = write_csv(tmp_path / "t.csv", [{names[key]: value for key, value in row.items()} for row in TRIPLETS])
    columns = {"query": "q", "positive": "a", "negative": "n"}
    said = ["--columns", ",".join(map("=".join, columns.items())), "-o", tmp_path / "program.out"]
    ended = foils("fuse", renamed, f"one={renamed}", f"two={renamed}", *said)
    assert ended.status == 0, ended.err
    library.fuse(renamed, {"one": renamed, "two": renamed}, columns=columns).write(tmp_path / "library.out")
    assert (tmp_path / "library.out").read_bytes() == (tmp_path / "program.out").read_bytes()
    assert len(library.Negatives.read(tmp_path / "program.out")) == len(ROWS)
