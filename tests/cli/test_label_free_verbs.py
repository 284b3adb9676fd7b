"""Mining, rating and selection of queries that nobody has judged."""

import json

import pytest

from foils.data import Negatives


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


@pytest.mark.parametrize(("options", "said"), [
    (["--with", "trisampler"], "TriSampler needs queries with a positive"),
    (["--scorer", "encoder", "--margin", 0.1], "a margin needs one"),
])  # fmt: skip
def test_what_needs_a_positive_says_so(foils, beir_folder, tmp_path, options, said):
    folder = beir_folder("half", qrels={"train": {"q1": {"d1": 1}}})
    refused = foils("mine", folder, "--split", "all", *options, "-o", tmp_path / "m.parquet")
    assert refused.status == 2
    assert said in refused.err
