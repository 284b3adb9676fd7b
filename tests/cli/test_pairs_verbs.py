"""Mining from pairs: the program on a file of any kind and Python on any table write the same bytes."""

import pytest

import foils as library
from pair_files import ROWS, TABLES, pair_files, write_csv


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("FOILS_CACHE", str(tmp_path / "cache"))


@pytest.fixture(params=["bm25", "dense"])
def way(request, loaded):
    """How to mine, as the library is told."""
    return {"top": 3} if request.param == "bm25" else {"top": 3, "method": request.param, "encoder": "hashing"}


@pytest.fixture
def program(foils, way, tmp_path):
    """Mine with the program, and return the bytes of the table."""

    def mine(path):
        options = [part for name, value in way.items() for part in (f"--{name.replace('method', 'with')}", value)]
        ended = foils("mine", path, *options, "-o", tmp_path / "program.out")
        assert ended.status == 0, ended.err
        return (tmp_path / "program.out").read_bytes()

    return mine


@pytest.fixture
def mined(program, way, tmp_path):
    """What the program mines from a CSV file."""
    (tmp_path / "first").mkdir()
    written = program(pair_files(tmp_path / "first", ROWS)[0])
    kept = library.Negatives.read(tmp_path / "program.out").kept()
    assert len(kept) == (24 if "method" in way else 8)  # BM25 finds the other document of its colour for each query
    return written


def test_files(program, mined, way, tmp_path):
    for path in pair_files(tmp_path, ROWS):
        assert program(path) == mined, path
        for given in (path, str(path)):
            library.mine(given, **way).write(tmp_path / "library.out")
            assert (tmp_path / "library.out").read_bytes() == mined, path


@pytest.mark.parametrize("form", TABLES)
def test_tables(mined, way, tmp_path, form):
    library.mine(TABLES[form](ROWS), **way).write(tmp_path / "library.out")
    assert (tmp_path / "library.out").read_bytes() == mined


@pytest.mark.parametrize("form", TABLES)
def test_triplets(program, way, tmp_path, form):
    rows = [{**row, "negative": ROWS[at - 1]["answer"]} for at, row in enumerate(ROWS)]
    expected = program(pair_files(tmp_path, rows)[0])
    library.mine(TABLES[form](rows), **way).write(tmp_path / "library.out")
    assert (tmp_path / "library.out").read_bytes() == expected


def test_columns_of_a_source(foils, tmp_path):
    """Those of the collection's pairs are a source's too, if it has all of them; its own are named after its path."""
    names = {"question": "q", "answer": "a", "negative": "n"}
    rows = [{**row, "negative": ROWS[at - 1]["answer"]} for at, row in enumerate(ROWS)]
    renamed = write_csv(tmp_path / "t.csv", [{names[key]: value for key, value in row.items()} for row in rows])
    plain = write_csv(tmp_path / "pairs.csv", ROWS)
    for collection, source, columns in (
        (plain, f"{renamed}:query=q,negative=n", None),
        (renamed, str(renamed), {"query": "q", "positive": "a", "negative": "n"}),
    ):
        said = ["--columns", "query=q,positive=a,negative=n"] if columns else []
        ended = foils("fuse", collection, f"one={source}", f"two={source}", *said, "-o", tmp_path / "program.out")
        assert ended.status == 0, ended.err
        library.fuse(collection, {"one": source, "two": source}, columns=columns).write(tmp_path / "library.out")
        assert (tmp_path / "library.out").read_bytes() == (tmp_path / "program.out").read_bytes()
        assert len(library.Negatives.read(tmp_path / "program.out")) == len(ROWS)
