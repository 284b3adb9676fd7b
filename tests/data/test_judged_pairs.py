"""What is remembered of pairs while they are read, against dictionaries that remember everything."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import foils
from foils.runtime.errors import FormatError
from pair_files import write_csv, write_jsonl


@given(st.lists(st.tuples(st.integers(0, 40).map(str), st.sampled_from("ab")), min_size=1, max_size=300))
def test_an_id_has_one_text(records: list[tuple[str, str]]) -> None:
    texts, wrong = dict[str, str](), list[int]()
    for line, (identifier, text) in enumerate(records, start=1):
        if texts.setdefault(identifier, text) != text:
            wrong.append(line)
    for what in ("query", "document"):
        rows = [{"query": "q", "positive": "p", f"{what}_id" if what == "query" else "doc_id": key,
                 {"query": "query", "document": "positive"}[what]: text} for key, text in records]  # fmt: skip
        table = pa.Table.from_pylist(rows)
        if wrong:
            with pytest.raises(FormatError, match=f"Table:{wrong[0]}: the {what} .* has another text before") as raised:
                foils.load(table)
            assert str(raised.value).count("another text") == min(len(wrong), 5)
        else:
            assert len(foils.load(table).documents) == (1 if what == "query" else len(texts))


def test_what_contradicts_another_file_is_said_of_the_file_where_it_stands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FOILS_CACHE", str(tmp_path / "cache"))
    rows = [{"query": "a", "positive": "x", "score": 1}, {"query": "b", "positive": "y", "score": 1}]
    first = write_csv(tmp_path / "first.csv", rows)
    other = [{"query": "c", "positive": "x", "score": 1}, {"query": "b", "positive": "z", "score": 1}]
    second = write_jsonl(tmp_path / "second.jsonl", other)
    with pytest.raises(FormatError, match=r"second.jsonl:2: the query 'b' is in train and in test"):
        foils.load({"train": first, "test": second})
    third = write_jsonl(tmp_path / "third.jsonl", [other[0], {**rows[1], "score": 0}])
    with pytest.raises(FormatError, match=r"third.jsonl:2: the pair has another relevance on line 3"):
        foils.load({"train": first, "training": third})
