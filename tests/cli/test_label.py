"""`foils label` and `foils.label` are one: the same pairs, bytes and results; answers come from whoever judges."""

from __future__ import annotations

import csv
import io

import numpy as np
import pyarrow.parquet as pq
import pytest

import foils as library
from fakes import HashingEncoder
from foils.data import Labels
from foils.runtime.files import write_json


@pytest.fixture
def sources(foils, beir_folder, tmp_path):
    folder, paths = beir_folder(), {}
    for method in ("random", "bm25"):
        paths[method] = tmp_path / f"{method}.parquet"
        assert foils("mine", folder, "--with", method, "--top", 4, "-o", paths[method]).status == 0
    return folder, paths


def sailing(query: str, positive: str, document: str) -> bool | None:
    assert positive
    return None if "bees" in query else "boat" in document


def test_uncertain_pairs_come_first(foils, loaded, sources, tmp_path):
    folder, paths = sources
    written, json = tmp_path / "labels.parquet", tmp_path / "l.json"
    options = ["--draw", "uncertain", "--encoder", "m", "--encoder-args", f"vectors={tmp_path / 'v'}", "--seed", 1]
    ended = foils("label", folder, *paths.values(), *options, "-n", 7, "--with", "page", "-o", written, "--json", json)
    assert ended.status == 0, ended.err
    first = written.read_bytes()
    written.unlink()
    given = {"encoder": HashingEncoder(), "vectors": tmp_path / "v", "n": 7, "ask": "page", "seed": 1}
    labelled = library.label(folder, paths, output=written, draw="uncertain", **given)
    assert written.read_bytes() == first
    assert labelled.to_json()["settings"]["encoder"] == HashingEncoder().fingerprint
    write_json(tmp_path / "library.json", labelled.to_json())
    assert (tmp_path / "library.json").read_bytes() == json.read_bytes()
    pi = labelled.belief[labelled.universe.members["bm25"]]
    assert np.ptp(pi) > 0
    equal = library.label(folder, paths, n=7, ask="page", seed=1, output=tmp_path / "equal.tsv")
    assert set(equal.drawn) != set(labelled.drawn)


def test_a_person_goes_from_page_and_table_to_labels(foils, sources, tmp_path, monkeypatch):
    folder, paths = sources
    table = tmp_path / "labels.csv"
    ended = foils("label", folder, *paths.values(), "--with", "csv", "-n", 6, "-o", table)
    assert ended.status == 0, ended.err
    assert "Fill in the column relevant" in ended.out
    rows = list(csv.DictReader(table.read_text("utf-8-sig").splitlines()))
    assert len(rows) == 6
    for row in rows:
        row["relevant"] = "y" if "boat" in row["document"] else "n"
    filled = tmp_path / "filled.csv"
    with filled.open("w", newline="", encoding="utf-8-sig") as opened:
        writer = csv.DictWriter(opened, ["relevant", *(name for name in rows[0] if name != "relevant")], delimiter=";")
        writer.writeheader()
        writer.writerows(rows)
    merged = tmp_path / "merged.tsv"
    ended = foils("label", folder, *paths.values(), "-n", 6, "-o", merged, "--answers", filled)
    assert ended.status == 0, ended.err
    judged = Labels.read(merged).table
    assert judged["relevant"].to_pylist() == [int("boat" in row["document"]) for row in rows]
    assert judged["judge"].unique().to_pylist() == ["person"]
    named = library.label(folder, paths, n=6, output=tmp_path / "n.tsv", answers=filled, labeller="eva")
    assert list(named.labels.to_json()["judges"]) == ["eva"]
    by_function = tmp_path / "function.tsv"
    library.label(folder, paths, n=6, output=by_function, ask=lambda query, positive, document: "boat" in document)
    assert by_function.read_bytes() == merged.read_bytes()
    assert library.label(folder, paths, n=6, output=by_function, answers=Labels.read(merged)).shares
    ended = foils("label", folder, *paths.values(), "--with", "page", "-n", 6, "-o", merged, "--as", "anna")
    assert f"Open {merged.with_suffix('.html')} in a browser" in " ".join(ended.out.split())
    assert '"judge": "anna"' in merged.with_suffix(".html").read_text("utf-8")
    monkeypatch.setattr("sys.stdin", open("/dev/null"))  # noqa: PTH123, SIM115
    ended = foils("label", folder, *paths.values(), "-o", merged)
    assert ended.status == 2
    assert "nobody is there to judge" in ended.err
    assert "--with page" in ended.err


def test_more_pairs_keep_the_answers_and_other_pairs_stay(sources, tmp_path):
    folder, paths = sources
    path = tmp_path / "labels.parquet"
    few = library.label(folder, paths, n=4, output=path, ask=sailing)
    more = library.label(folder, paths, n=7, output=path, ask=lambda *_: False)
    before, after = few.labels.match(few.universe.table)[0], more.labels.match(few.universe.table)[0]
    known = np.isfinite(before)
    np.testing.assert_array_equal(before[known], after[known])
    assert pq.read_metadata(path).num_rows == 7
    other = library.label(folder, {"bm25": paths["bm25"]}, n=2, output=path, ask=lambda *_: True)
    assert len(other.labels) >= 7, "labels of pairs that are not drawn now are kept"
    assert other.labels.table["probability"].drop_null().to_pylist() != []
    assert other.shares[0].drawn == 2


def test_answers_may_come_line_by_line(foils, sources, tmp_path, monkeypatch):
    folder, paths = sources
    monkeypatch.setattr("sys.stdin", io.StringIO("y\nno\n\nwhat?\ns\n"))
    ended = foils("label", folder, *paths.values(), "--with", "terminal", "-n", 5, "-o", tmp_path / "labels.jsonl")
    assert ended.status == 0
    assert ended.err.count("Is the document relevant") == 6, "what is no answer is asked again"
    counts = Labels.read(tmp_path / "labels.jsonl").to_json()["judges"]["person"]
    assert counts == {"judged": 2, "relevant": 1, "skipped": 1}
    assert "2 of" in ended.out


def test_a_function_that_fails_loses_no_answer(sources, tmp_path):
    folder, paths = sources
    answers = iter([True, False])
    with pytest.raises(StopIteration):
        library.label(folder, paths, n=5, output=tmp_path / "labels.tsv", ask=lambda *_: next(answers))
    assert Labels.read(tmp_path / "labels.tsv").to_json()["judges"]["person"]["judged"] == 2


def test_every_source_is_told(sources, tmp_path):
    folder, paths = sources
    labelled = library.label(folder, paths, n=100, output=tmp_path / "labels.tsv", ask=sailing)
    counts = {each.source: each for each in labelled.shares}
    assert set(counts) == {"random", "bm25"}
    for each in counts.values():
        assert each.drawn == each.negatives
        assert each.share.low <= each.share.share <= each.share.high
    assert all(row["skipped"] for row in labelled.labels.to_json()["judges"].values())
