"""What is missing, given twice, of another kind, or called as other tools call it: one line says what to do."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import foils
from foils.cli.app import run
from foils.data import Collection, Negatives
from foils.data.negatives import negatives_table
from foils.runtime.errors import InputError


def negatives() -> Negatives:
    return Negatives(negatives_table(pa.array(["q1", "q2"]), pa.array(["d2", "d3"]), "s", [0.0, 0.0], [0.0, 0.0]))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["mine", "x"], "foils mine needs -o FILE, which is missing. Write the table of negatives to this file."),
        (["select", "x.parquet"], "foils select needs -o FILE, which is missing."),
        (["batch", "x", "-o"], "foils batch needs -o FILE, which is missing. Write the plan to this file."),
        (["export", "x", "y"], "foils export needs -o FILE, which is missing."),
        (["score", "x"], "foils score needs SOURCE, which is missing. Negatives, [NAME=]PATH"),
        (["train", "x", "-o", "m", "--model"], "foils train needs --model MODEL, which is missing. Model to train"),
    ],
)
def test_what_is_missing_is_named_and_explained(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(arguments) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


@pytest.mark.parametrize("verb", [foils.score, foils.fuse, foils.label])
def test_a_file_that_is_given_twice_is_named(small: Collection, tmp_path: Path, verb: Any) -> None:
    path, more = tmp_path / "a.parquet", {"sheet": tmp_path / "sheet.csv"} if verb is foils.label else {}
    negatives().write(path)
    for twice in ([path, path], [str(path), f"{tmp_path}/./a.parquet"]):
        with pytest.raises(InputError, match=r"a: given twice; leave one out"):
            verb(small, twice, **more)


@pytest.mark.parametrize(
    ("verb", "options"),
    [
        ("evaluate", {"systems": "bm25", "reranker": "static:all-MiniLM-L6-v2", "split": "train"}),
        ("rate", {"judge": "cross-encoder:static:all-MiniLM-L6-v2"}),
        ("score_pairs", {"teacher": "cross-encoder:static:all-MiniLM-L6-v2"}),
    ],
)
def test_a_word_table_is_no_reranker(small: Collection, verb: str, options: dict[str, Any]) -> None:
    given = (small,) if verb == "evaluate" else (small, negatives())
    with pytest.raises(InputError, match=r"is a word table, which reads no pairs; give or train a cross-encoder"):
        getattr(foils, verb)(*given, **options)


@pytest.mark.parametrize(
    ("alias", "form"),
    [
        ("sentence-transformers", "triplets"),
        ("pylate", "triplets"),
        ("n-tuple", "tuples"),
        ("labeled-list", "labelled-lists"),
    ],
)
def test_forms_have_the_names_of_other_tools(small: Collection, tmp_path: Path, alias: str, form: str) -> None:
    named, plain = (foils.export(small, negatives(), form=each) for each in (alias, form))
    named.write(tmp_path / "named.jsonl")
    plain.write(tmp_path / "plain.jsonl")
    assert (tmp_path / "named.jsonl").read_bytes() == (tmp_path / "plain.jsonl").read_bytes()
    assert json.loads((tmp_path / "named.jsonl").read_text().splitlines()[0])


def test_the_cache_shows_what_was_removed_where_something_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FOILS_CACHE", str(tmp_path))
    (tmp_path / "llm" / (16 * "a")).mkdir(parents=True)
    shown = [foils.cache(), foils.cache("prune", keep=0), foils.cache("prune", keep=0)]
    assert [each.tables()[0].caption for each in shown] == ["", "", ""]
    (tmp_path / "llm" / (16 * "a") / "file").write_bytes(bytes(2**20))
    assert foils.cache("prune", keep=0).tables()[0].caption == "Removed: 1 entries, 1.0 MiB."
