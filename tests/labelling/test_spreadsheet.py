"""A sheet for somebody with a spreadsheet: no cell is a formula, and what comes back is matched by its ids."""

from __future__ import annotations

import csv
import random
import shlex
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from label_world import counts_of, oracle, source, world, world_folder

import foils
from foils.cli.app import run
from foils.data import Collection, Labels, Negatives
from foils.data.negatives import negatives_table
from foils.labelling.doors import CELL
from foils.runtime.errors import FormatError, InputError

Row = dict[str, str]


def rows_of(path: Path, delimiter: str = ",") -> list[Row]:
    with path.open(encoding="utf-8-sig", newline="") as opened:
        return list(csv.DictReader(opened, delimiter=delimiter))


def saved(path: Path, rows: list[Row], delimiter: str = ",", encoding: str = "utf-8-sig", end: str = "\r\n") -> Path:
    """Write rows as a spreadsheet saves them."""
    with path.open("w", encoding=encoding, newline="") as opened:
        writer = csv.DictWriter(opened, list(rows[0]), delimiter=delimiter, lineterminator=end)
        writer.writeheader()
        writer.writerows(rows)
    return path


def right(row: Row) -> bool:
    return oracle(row["query"], row["positive"], row["document"])


def sheet_of(tmp_path: Path, n: int = 40, **more: Any) -> Path:
    foils.label(world(), {"a": source("a", 1), "b": source("b", 2)}, n=n, sheet=tmp_path / "sheet.csv", **more)
    return tmp_path / "sheet.csv"


@pytest.mark.parametrize(
    ("yes", "no"), [("yes", "no"), ("1", "0"), ("x", "n"), (" Y ", "N"), ("TRUE", "FALSE"), ("1,0", "0.0")]
)
def test_what_is_filled_in_gives_the_shares_that_the_same_answers_give_elsewhere(
    tmp_path: Path, yes: str, no: str
) -> None:
    sources = {"a": source("a", 1), "b": source("b", 2)}
    rows = [{**row, "answer": yes if right(row) else no} for row in rows_of(sheet_of(tmp_path))]
    answers = saved(tmp_path / "filled.csv", rows)
    expected = foils.label(world(), sources, n=40, ask=oracle, output=tmp_path / "asked.tsv")
    labelled = foils.label(world(), sources, n=40, answers=answers, output=tmp_path / "labels.tsv")
    assert [share.to_json() for share in labelled.shares] == [share.to_json() for share in expected.shares]
    assert labelled.shares[0].share.judged > 10
    assert foils.label(world(), sources, n=40, answers=answers).shares == labelled.shares, "without a file of labels"
    assert Labels.of(tmp_path / "labels.tsv").table["probability"].null_count == 0


@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
@pytest.mark.parametrize(("encoding", "end"), [("utf-8", "\n"), ("utf-8-sig", "\r\n")])
def test_rows_may_be_sorted_and_dropped_and_columns_moved(
    tmp_path: Path, delimiter: str, encoding: str, end: str
) -> None:
    rows = [{**row, "answer": "yes" if right(row) else "no"} for row in rows_of(sheet_of(tmp_path))]
    random.Random(1).shuffle(rows)
    rows[3]["answer"] = ""
    kept = [dict(reversed(row.items())) | {"note": "a; b, c"} for row in rows[:30]]
    path = saved(tmp_path / "filled.csv", kept, delimiter, encoding, end)
    table = foils.label(world(), {"a": source("a", 1), "b": source("b", 2)}, n=40, answers=path).labels.table
    judged = table.filter(table["relevant"].is_valid()).to_pylist()
    assert {(row["query_id"], row["doc_id"]): row["relevant"] for row in judged} == {
        (row["query_id"], row["doc_id"]): int(right(row)) for row in kept if row["answer"]
    }
    assert len(judged) == 29


STARTS = ["=", "+", "-", "@", "\t=", "\r=", "\n=", "\r\n+", " =", "＝", "＋", "－", "＠", "'=", "\u2028="]


def hostile() -> tuple[Collection, Negatives]:
    """Texts and ids that begin as formulas do, have line ends in them, or are what spreadsheets rewrite."""
    texts = {f"d{at}": f"{start}1+1 text {at}\r\nof, several; lines\x0b\u2029end" for at, start in enumerate(STARTS)}
    ids = ["007", "1-2", "MAR1", "1e5", "12345678901234567890", "=1+1", "-5", "＝x", "'007", "true", "3/4", "0704.1"]
    texts |= dict.fromkeys(ids, "long " * 20000)
    queries = {"-q": "=HYPERLINK(1)", "0012": "+49 30", "q": "plain"}
    qrels = {query: {"d0": 1} for query in queries}
    collection = Collection.from_dicts("hostile", texts, queries, {"train": qrels})
    pairs = [(query, document) for query in queries for document in texts if document != "d0"]
    columns = [pa.array([pair[at] for pair in pairs]) for at in (0, 1)]
    return collection, Negatives(negatives_table(*columns, "=source", [0.0] * len(pairs), [0.0] * len(pairs)))


@pytest.mark.parametrize("name", ["sheet.csv", "sheet.tsv"])
def test_no_cell_is_a_formula_and_every_row_is_one_line_and_comes_back(tmp_path: Path, name: str) -> None:
    collection, negatives = hostile()
    sheet, delimiter = tmp_path / name, "\t" if name.endswith("tsv") else ","
    foils.label(collection, {"=source": negatives}, n=200, sheet=sheet)
    raw, rows = sheet.read_bytes(), rows_of(sheet, delimiter)
    assert raw.startswith(b"\xef\xbb\xbf"), "by which Excel knows UTF-8"
    assert len(rows) == len(negatives) == len(raw.decode("utf-8-sig").splitlines()) - 1
    for row in rows:
        for cell in row.values():
            assert not cell.strip().startswith(tuple("=+-@＝＋－＠")), cell
            assert len(cell) < CELL + 10
        for column in ("query_id", "doc_id"):  # what a spreadsheet would show otherwise has a ' before it
            assert row[column].startswith(("d", "q", "'")), row[column]
    filled = saved(tmp_path / f"filled{sheet.suffix}", [{**row, "answer": "x"} for row in rows], delimiter)
    labels = foils.label(collection, {"=source": negatives}, n=200, answers=filled).labels.table
    assert labels["relevant"].to_pylist() == [1] * len(negatives)
    for column in ("query_id", "doc_id"):
        assert sorted(labels[column].to_pylist()) == sorted(negatives.table[column].to_pylist())


def test_texts_of_a_language_model_come_back_by_their_ids(tmp_path: Path) -> None:
    written = source("llm", 1, text=lambda query, row: f"=a text\n\n of\x07 subject {row % 30}" + " long" * 9_000)
    foils.label(world(), {"llm": written}, n=20, sheet=tmp_path / "sheet.csv")
    rows = [{**row, "answer": "yes"} for row in rows_of(tmp_path / "sheet.csv")]
    labelled = foils.label(world(), {"llm": written}, n=20, answers=saved(tmp_path / "filled.csv", rows))
    assert labelled.shares[0].share.judged == 20


def test_rank_and_source_are_those_of_the_pair(tmp_path: Path) -> None:
    ids = [pa.array(["q1", "q1"]), pa.array(["d5", "d6"])]
    sources = {
        name: Negatives(negatives_table(*ids, name, ranks, [0.0, 0.0]))
        for name, ranks in (("a", [4, 2]), ("b", [1, 7]))
    }
    sources["b"] = Negatives(sources["b"].table.slice(0, 1))
    foils.label(world(), sources, n=2, sheet=tmp_path / "sheet.csv")
    rows = {row["doc_id"]: (row["rank"], row["source"]) for row in rows_of(tmp_path / "sheet.csv")}
    assert rows == {"d5": ("2", "a|b"), "d6": ("3", "a")}, "the better rank, from 1"


def test_what_is_wrong_is_named_by_line(tmp_path: Path) -> None:
    rows = rows_of(sheet_of(tmp_path))
    cases: list[tuple[list[Row], str]] = [
        ([{**rows[0], "answer": "yes"}, {**rows[1], "answer": "maybe"}], r"csv:3: the relevant \(answer\) is 'maybe'"),
        ([rows[0], {**rows[1], "doc_id": "d999"}], "csv:3: unknown doc_id 'd999'"),
        ([{**rows[0], "answer": "yes"}, {**rows[0], "answer": "no"}], "csv:3: person judged"),
    ]
    for given, message in cases:
        with pytest.raises(FormatError, match=message):
            foils.label(world(), {"a": source("a", 1)}, answers=saved(tmp_path / "filled.csv", given))


def test_answers_are_not_written_over_and_what_nobody_answered_goes_into_the_next_sheet(tmp_path: Path) -> None:
    rows = rows_of(sheet_of(tmp_path, n=10))
    saved(tmp_path / "sheet.csv", [{**rows[0], "answer": "no"}, *rows[1:]])
    with pytest.raises(InputError, match="holds answers"):
        sheet_of(tmp_path, n=10)
    answers = (tmp_path / "sheet.csv").rename(tmp_path / "filled.csv")
    left = rows_of(sheet_of(tmp_path, n=12, answers=answers, output=tmp_path / "labels.tsv"))
    assert len(left) == 11
    assert (rows[0]["query_id"], rows[0]["doc_id"]) not in {(row["query_id"], row["doc_id"]) for row in left}
    assert len(rows_of(sheet_of(tmp_path, n=12, output=tmp_path / "labels.tsv"))) == 11, "as the file of labels has it"


def test_answers_about_other_pairs_are_counted(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    rows = [{**row, "answer": "no"} for row in rows_of(sheet_of(tmp_path))]
    path = saved(tmp_path / "filled.csv", rows)
    foils.label(world(), {"a": source("a", 1), "b": source("b", 2)}, n=40, answers=path)
    assert not caplog.records
    foils.label(world(), {"a": source("a", 1), "b": source("b", 2)}, n=15, answers=path)
    assert "25 answers are about other pairs than the 15" in caplog.text


def test_the_program_writes_it_and_what_it_advises_reads_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = world_folder(tmp_path / "world")
    source("a", 1).write(tmp_path / "a.parquet")
    monkeypatch.chdir(tmp_path)
    verb = ["label", str(folder), "a.parquet"]
    assert run([*verb, "-o", "labels.tsv"]) == 2
    assert "--sheet sixty.csv" in capsys.readouterr().err, "what to do where there is no terminal"
    assert run([*verb, "-n", "12", "--seed", "3", "--sheet", "twelve.csv"]) == 0
    shown = capsys.readouterr()
    assert "12 pairs in twelve.csv" in shown.out
    saved(tmp_path / "twelve.csv", [{**row, "answer": "no"} for row in rows_of(tmp_path / "twelve.csv")], ";")
    advised = shlex.split(shown.err.rpartition("foils label ")[2])
    assert run(["label", *advised]) == 0
    judged = counts_of(Labels.of(tmp_path / "labels.tsv"), "person")
    assert judged == {"judged": 12, "relevant": 0, "skipped": 0}
    assert run([*verb, "--with", "bi-encoder", "--sheet", "x.csv"]) == 2
    assert run([*verb, "--with", "bi-encoder"]) == 2
    assert "output FILE is missing" in capsys.readouterr().err
