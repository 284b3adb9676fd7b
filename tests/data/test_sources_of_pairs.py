"""Tables of pairs as sources of negatives: splits of a data set, and columns of other names."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import foils
from foils.data import Collection, Negatives
from foils.data.sources import as_source, as_sources
from foils.runtime.errors import FormatError, InputError
from pair_files import ROWS, TABLES, pair_files, write_csv

TRIPLETS = [{**row, "negative": f"not {row['answer']}"} for row in ROWS]
RENAMED = [{"q": row["question"], "a": row["answer"], "n": row["negative"]} for row in TRIPLETS]
COLUMNS = {"query": "q", "positive": "a", "negative": "n"}


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FOILS_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def pairs() -> Collection:
    return foils.load(pa.Table.from_pylist(ROWS))


def rows(negatives: Negatives) -> pa.Table:
    return negatives.table.drop_columns(["source", "score"])  # it has no scores: NaN


def data_set(**splits: list[dict[str, Any]]) -> Any:
    datasets = pytest.importorskip("datasets")
    return datasets.DatasetDict({split: datasets.Dataset.from_list(part) for split, part in splits.items()})


# Splits


def test_splits_of_a_data_set_are_one_source(pairs: Collection) -> None:
    whole = as_source(TABLES["arrow"](TRIPLETS), pairs)
    for given in (data_set(train=TRIPLETS), data_set(train=TRIPLETS[:7], test=TRIPLETS[7:])):
        (source,) = as_sources({"own": given}, pairs)
        assert source.name == "own"
        assert rows(source.negatives).equals(rows(whole.negatives))
        (alone,) = as_sources(given, pairs)  # one source, and no dictionary of several
        assert rows(alone.negatives).equals(rows(whole.negatives))
    files = {"train": TABLES["pandas"](TRIPLETS[:7]), "test": TABLES["polars"](TRIPLETS[7:])}
    assert rows(as_source(files, pairs).negatives).equals(rows(whole.negatives))


WRONG: dict[str, Callable[[], Any]] = {
    r"Dataset \(test\):1: unknown query 'who\?'": lambda: data_set(
        train=TRIPLETS[:9], test=[{**TRIPLETS[9], "question": "who?"}]
    ),
    r"Dataset \(dev\): .* the columns are 'q', 'a', 'n'; expected query": lambda: data_set(train=TRIPLETS, dev=RENAMED),
    "list is no table; expected a DataFrame, .* or a dictionary of these by split": lambda: {
        "question": ["a"],
        "negative": ["b"],
    },
}


@pytest.mark.parametrize(("message", "made"), WRONG.items(), ids=range(len(WRONG)))
def test_what_is_wrong_in_a_split_names_it(pairs: Collection, message: str, made: Callable[[], Any]) -> None:
    with pytest.raises(InputError, match=message):
        as_source(made(), pairs)


# The hub


def test_a_data_set_of_the_hub_is_a_source(tmp_path: Path) -> None:
    """Here a folder, which is read as a repository is: by configuration and split, or whole."""
    pytest.importorskip("datasets")
    (tmp_path / "triplets").mkdir()
    for split, part in (("train", slice(0, 7)), ("test", slice(7, None))):
        write_csv(tmp_path / "triplets" / f"{split}.csv", RENAMED[part])
    given = f"hf:{tmp_path / 'triplets'}"
    collection = foils.load(given, columns=COLUMNS)
    assert collection.splits == ["train", "test"]
    whole = as_source(TABLES["arrow"](RENAMED), collection)
    for source in (given, f"{given}:default", f"own={given}"):
        assert rows(as_source(source, collection).negatives).equals(rows(whole.negatives))
    assert [each.name for each in as_sources([given, f"own={given}::test"], collection)] == ["triplets", "own"]
    assert len(as_source(f"{given}::test", collection).negatives) == 3
    with pytest.raises(InputError, match=r"unknown split of hf:.*'dev'; expected one of: test, train"):
        as_source(f"{given}::dev", collection)
    with pytest.raises(FormatError, match=r"hf:.*triplets \(train\):1: .* are 'q', 'a', 'n'; expected query"):
        as_source(given, foils.load(TABLES["arrow"](ROWS)))


# Columns


def test_a_source_with_the_columns_of_the_collection_is_read_by_the_same_names(tmp_path: Path) -> None:
    whole = as_source(TABLES["arrow"](TRIPLETS), foils.load(TABLES["arrow"](TRIPLETS)))
    for path in pair_files(tmp_path, RENAMED):
        collection = foils.load(path, columns=COLUMNS)
        assert rows(as_source(path, collection).negatives).equals(rows(whole.negatives)), path
    for make in TABLES.values():
        collection = foils.load(make(RENAMED), columns=COLUMNS)
        assert rows(as_source(make(RENAMED), collection).negatives).equals(rows(whole.negatives))


def test_tables_of_negatives_are_none_of_pairs_whatever_the_columns_of_the_collection() -> None:
    numbered = [{"doc_id": f"d{at}", **row} for at, row in enumerate(RENAMED)]
    collection = foils.load(TABLES["arrow"](numbered), columns={"query": "q", "positive": "a", "doc_id": "doc_id"})
    mined = foils.mine(collection, top=1)
    assert as_source(mined.table, collection).negatives.table.equals(mined.table)
