"""`foils label` and `foils.label`: the same bytes whoever judges, and no answer is ever lost."""

import io

import numpy as np
import pyarrow.parquet as pq
import pytest

import foils as library
from foils.data import Labels


@pytest.fixture
def sources(foils, beir_folder, tmp_path):
    folder, paths = beir_folder(), {}
    for method in ("random", "bm25"):
        paths[method] = tmp_path / f"{method}.parquet"
        assert foils("mine", folder, "--with", method, "--top", 4, "-o", paths[method]).status == 0
    return folder, paths


def sailing(query, positive, document):
    assert positive
    return None if "bees" in query else "boat" in document


def test_answers_come_from_a_function_a_file_or_a_page(foils, sources, tmp_path, monkeypatch):
    folder, paths = sources
    by_function, merged = tmp_path / "function.tsv", tmp_path / "merged.tsv"
    library.label(folder, paths, n=6, output=by_function, ask=lambda query, positive, document: "boat" in document)
    ended = foils("label", folder, *paths.values(), "-n", 6, "-o", merged, "--answers", by_function)
    assert ended.status == 0, ended.err
    assert merged.read_bytes() == by_function.read_bytes()
    judged = Labels.read(merged).table
    assert set(judged["relevant"].to_pylist()) == {0, 1}
    assert judged["judge"].unique().to_pylist() == ["person"]
    ended = foils("label", folder, *paths.values(), "--with", "page", "-n", 6, "-o", merged, "--as", "anna")
    assert f"Open {merged.with_suffix('.html')} in a browser" in " ".join(ended.out.split())
    assert '"judge": "anna"' in merged.with_suffix(".html").read_text("utf-8")
    monkeypatch.setattr("sys.stdin", io.StringIO())
    ended = foils("label", folder, *paths.values(), "-o", merged)
    assert ended.status == 2
    assert "nobody is there to judge" in ended.err


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
    assert other.shares[0].drawn == 2


def test_answers_may_come_line_by_line(foils, sources, tmp_path, monkeypatch):
    folder, paths = sources
    monkeypatch.setattr("sys.stdin", io.StringIO("y\nno\n\nwhat?\ns\n"))
    ended = foils("label", folder, *paths.values(), "--with", "terminal", "-n", 5, "-o", tmp_path / "labels.jsonl")
    assert ended.status == 0
    assert ended.err.count("Is the document relevant") == 6, "what is no answer is asked again"
    counts = Labels.read(tmp_path / "labels.jsonl").to_json()["judges"]["person"]
    assert counts == {"judged": 2, "relevant": 1, "skipped": 1}


def test_a_function_that_fails_loses_no_answer(sources, tmp_path):
    folder, paths = sources
    answers = [False, True]
    with pytest.raises(IndexError):
        library.label(folder, paths, n=5, output=tmp_path / "labels.tsv", ask=lambda *_: answers.pop())
    assert Labels.read(tmp_path / "labels.tsv").to_json()["judges"]["person"]["judged"] == 2
