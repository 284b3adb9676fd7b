"""What is written never takes the place of what is read, and lies under a name that says what it is."""

import json
import os
from pathlib import Path

import pytest

import foils
from fakes import HashingEncoder
from foils.cli.app import DOORS, run, settings_of_verb
from foils.runtime import options
from foils.runtime.errors import InputError
from refusals import refused

pytestmark = pytest.mark.usefixtures("own_cache")


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A folder to work in: pairs, a BEIR folder, a table of negatives, a run; nothing of it may change."""
    monkeypatch.chdir(tmp_path)
    rows = [{"query": f"what is number {at}", "positive": f"the answer {at}"} for at in range(6)]
    Path("p.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    Path("coll/qrels").mkdir(parents=True)
    for name, texts in {"corpus": "answer", "queries": "which answer"}.items():
        lines = [json.dumps({"_id": f"{name[0]}{at}", "text": f"{texts} {at}"}) + "\n" for at in range(6)]
        Path(f"coll/{name}.jsonl").write_text("".join(lines), "utf-8")
    judged = "query-id\tcorpus-id\tscore\n" + "".join(f"q{at}\tc{at}\t1\n" for at in range(6))
    for split in ("train", "test"):
        Path(f"coll/qrels/{split}.tsv").write_text(judged, "utf-8")
    foils.mine("coll", "random", top=2).write("negatives.parquet")
    Path("bm25.trec").write_text("".join(f"q{at} Q0 c{at} 1 1.0 x\n" for at in range(6)), "utf-8")
    return tmp_path


def contents(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file() and "cache" not in path.parts}


LINKS = {
    "itself": lambda file: file,
    "symbolic link": lambda file: Path("link.parquet").symlink_to(file) or "link.parquet",
    "hard link": lambda file: os.link(file, "link.parquet") or "link.parquet",
    "another spelling": lambda file: f"coll/../{file}",
    "link to the folder": lambda file: Path("here").symlink_to(".") or f"here/{file}",
}
REFUSED = {
    "mine over the pairs": "mine p.jsonl --with random -o p.jsonl",
    "mine over queries": "mine coll --with random -o coll/queries.jsonl",
    "fuse over a source": "fuse coll negatives.parquet n=negatives.parquet -o negatives.parquet",
    "select over the table": "select negatives.parquet --by percentile -o negatives.parquet",
    "JSON over the corpus": "describe coll --json coll/corpus.jsonl",
    "JSON over a source": "score coll n=negatives.parquet --json negatives.parquet",
    "page over a source": "score coll negatives.parquet --report negatives.parquet",
    "records beside packed queries": "export coll negatives.parquet -o coll/queries.jsonl.gz",
    "labels among the judgements": "label coll negatives.parquet -o coll/qrels/more.tsv",
    "labels over answers": "label coll negatives.parquet --answers p.jsonl -o p.jsonl",
    "run over judgements": "search coll --run coll/qrels/test.tsv",
    "JSON over a run": "evaluate coll --run bm25.trec --json bm25.trec",
    "runs beside a run": "evaluate coll --run bm25.trec --write-runs .",
    "runs into the judgements": "evaluate coll --model bm25 --write-runs coll/qrels",
    "model over the collection": "train coll negatives.parquet --model none -o coll",
    "model around the collection": "tune coll --model none -o .",
    "study around a source": "study coll negatives.parquet --model none -o .",
    "model over its base": "merge coll other -o coll",
}


@pytest.mark.parametrize("command", REFUSED.values(), ids=REFUSED)
def test_no_verb_writes_over_what_it_reads(place, capsys, command):
    before = contents(place)
    assert run(command.split()) == 2
    assert "is read for this, and writing here would change it" in capsys.readouterr().err
    assert contents(place) == before


@pytest.mark.parametrize("way", LINKS)
def test_a_file_is_the_same_by_any_name(place, capsys, way):
    output = LINKS[way]("negatives.parquet")
    before = contents(place)
    assert run(["fuse", "coll", "negatives.parquet", "n=negatives.parquet", "-o", output]) == 2
    assert "is read for this" in capsys.readouterr().err
    assert contents(place) == before


def test_python_refuses_alike_before_and_after_the_work(place):
    before = contents(place)
    refused("is read for this", foils.train, "coll", "negatives.parquet", model="none", output="coll")
    refused("is read for this", foils.search, "coll", run="coll/qrels/test.tsv")
    mined = foils.mine("p.jsonl", "random")
    Path("p.parquet").symlink_to("p.jsonl")
    for write in (mined.write, mined.write_json):
        refused("p.jsonl is read for this", write, "p.parquet")
    refused("is read for this", foils.evaluate("coll", run="bm25.trec").write_runs, ".")
    refused(
        "is read for this",
        foils.score("coll", "negatives.parquet", encoder=HashingEncoder()).report,
        "coll/corpus.jsonl",
    )
    assert contents(place) == before | {place / "p.parquet": before[place / "p.jsonl"]}


def test_what_is_not_read_may_be_written_beside_it_and_again(place):
    for _ in range(2):
        more = ["-o", "coll/negatives.parquet", "--json", "coll/mined.json"]
        assert run(["mine", "coll", "--with", "random", *more]) == 0
        assert run(["evaluate", "coll", "--model", "bm25", "--write-runs", "coll/runs"]) == 0


def test_two_outputs_have_two_places(place, capsys):
    assert run(["mine", "coll", "--with", "random", "-o", "out", "--json", "./out"]) == 2
    assert "--output and --json both write" in capsys.readouterr().err
    assert not Path("out").exists()


def test_a_name_that_says_another_form_is_refused_with_those_that_there_are(place):
    settings = [(verb, each) for verb in DOORS for each in settings_of_verb(verb)]
    files = [(verb, each) for verb, each in settings if each.writes and "/" not in each.writes]
    assert {(verb, each.name) for verb, each in files} >= {("mine", "output"), ("label", "output"), ("search", "run")}
    assert {verb for verb, each in files if each.name == "json"} == {*DOORS}
    for ending in (".csv", ".parquet", ".json", ".jsonl", ".html", ".xlsx", ".json.gz", ".PNG"):
        for _, setting in files:
            if Path(f"x{ending}").suffix not in setting.writes:
                with pytest.raises(InputError, match="expected a name that ends in") as caught:
                    options.check_places([setting], {setting.name: f"x{ending}"})
                assert all(each in str(caught.value) for each in setting.writes)


def test_mining_into_csv_is_refused_before_anything_is_done(place, capsys):
    for output in ("x.csv", "x.jsonl", "x.parquet.gz"):
        assert run(["mine", "coll", "--with", "random", "-o", output]) == 2
        assert "expected a name that ends in .parquet" in capsys.readouterr().err
        refused(r"ends in \.parquet", foils.mine("coll", "random").write, output)
        assert not Path(output).exists()


def test_a_folder_is_no_file_and_a_file_no_folder(place, capsys):
    assert run(["mine", "coll", "--with", "random", "-o", "coll/qrels/.."]) == 2
    assert run(["evaluate", "coll", "--model", "bm25", "--write-runs", "p.jsonl"]) == 2
    assert "p.jsonl is a file; give the name of a folder" in capsys.readouterr().err


NO_PATHS = {
    "key_variable", "query",
    "against", "also", "base_url", "batch_settings", "columns", "dev", "device", "document_prompt", "domain", "draw",
    "labeller", "llm_model", "loss", "loss_settings", "measure", "measures", "query_prompt", "question", "ranks", "ray",
    "scores", "settings", "split", "temperature", "test_split", "trainer", "training", "tune", "weights",
}  # fmt: skip


def test_every_option_of_texts_is_known_as_an_output_an_input_or_neither():
    """A new option has to say which it is: by `writes`, or by a metavar that names a file, a model or the like."""
    for verb in DOORS:
        for setting in settings_of_verb(verb):
            text = any(kind in str(setting.annotation) for kind in ("str", "Path")) and not setting.allowed()
            known = setting.writes or options.NAMES_INPUT.search(setting.metavar or setting.name.upper())
            assert known or not text or setting.name in NO_PATHS, (verb, setting.name)
