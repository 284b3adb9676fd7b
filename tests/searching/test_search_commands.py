"""`foils search` from the command line, and what is refused there."""

import json
import shutil

import numpy as np
import pytest

from fakes import HashingEncoder
from foils.cli.app import run as foils

WORDS = [f"w{i}" for i in range(40)]


def text(rng, topic, n):
    return " ".join(WORDS[topic * 4 + i] for i in rng.integers(0, 5, n) if topic * 4 + i < 40)


def judged(rows):
    return {f"q{i}": {f"d{j}": 1 for j in range(i % 9, 36, 9)} for i in rows}


@pytest.fixture(scope="module")
def folder(tmp_path_factory, write_beir):
    rng = np.random.default_rng(0)
    documents = {f"d{i}": ("", text(rng, i % 9, 9)) for i in range(60)}
    queries = {f"q{i}": text(rng, i % 9, 3) for i in range(24)}
    qrels = {"test": judged(range(14)), "dev": judged(range(14, 24))}
    return write_beir(
        tmp_path_factory.mktemp("search") / "collection", documents=documents, queries=queries, qrels=qrels
    )


@pytest.fixture
def command(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("FOILS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("foils.encode.opening.load_encoder", lambda name, settings=None: HashingEncoder(16, salt=name))

    def call(*arguments):
        status = foils([str(argument) for argument in arguments])
        return status, capsys.readouterr()

    return call


def test_search_writes_a_run_and_says_what_was_kept(folder, command, tmp_path):
    def search(name, *more):
        status, said = command("search", folder, "--run", tmp_path / name, "--json", tmp_path / "s.json", *more)
        assert status == 0, said.err
        return (tmp_path / name).read_text(), json.loads((tmp_path / "s.json").read_text())

    base, _ = search("base", "--dimensions", "none")
    full, facts = search("full", "--dimensions", "eclipse", "--share", "1.0")
    assert [line.rsplit(" ", 1)[0] for line in full.splitlines()] == [
        line.rsplit(" ", 1)[0] for line in base.splitlines()
    ], "all but the tag"
    assert facts["kept"] == 1.0
    eclipse, facts = search("eclipse", "--dimensions", "eclipse")
    assert facts["kept"] == pytest.approx(13 / 16)
    assert facts["settings"]["k_plus"] == 2
    rdime, rdime_facts = search("rdime", "--dimensions", "rdime")
    assert rdime_facts["settings"]["k_plus"] == 1
    assert search("default")[0].split() == search("none", "--dimensions", "none")[0].split()
    rocchio, rocchio_facts = search("rocchio", "--dimensions", "rocchio")
    assert (len(rocchio_facts["moved"]), rocchio_facts["masked"]) == (14, [])
    masked = set(rdime_facts["masked"])
    assert rdime_facts["unmasked"] == 14 - len(masked) < 14
    assert masked
    dimensions = {"share": 0.5, "k_plus": 9, "k_minus": 20, "alpha": 0.1, "beta": 3.0}
    other = [
        search("o", "--dimensions", "eclipse", *more)[0]
        for more in (
            *([f"--{key.replace('_', '-')}", str(value)] for key, value in dimensions.items()),
            ["--feedback", tmp_path / "rdime"], ["--feedback-depth", 12],
            ["--index", "hnsw"],
        )
    ]  # fmt: skip
    other += [search("o", "--dimensions", "dime")[0], search("o", "--dimensions", "dime", "--tune", "dev")[0]]
    more = ["--dimensions", "rocchio", "--weight", "0.9"]
    assert len({base, eclipse, rdime, rocchio, search("o", *more)[0], *other}) == 15
    answers = tmp_path / "answers.jsonl"
    answers.write_text("".join(json.dumps({"query_id": f"q{i}", "answer": WORDS[i]}) + "\n" for i in range(24)))
    answered, _ = search("answered", "--dimensions", "eclipse", "--answers", answers)
    assert answered != eclipse


def test_the_json_says_how_the_search_was_made_and_whether_it_was_tuned(folder, command, tmp_path):
    def facts(names, *more):
        out = tmp_path / "s.json"
        status, said = command("search", folder, "--run", tmp_path / "r", "--json", out, *more)
        assert status == 0, said.err
        found = {**json.loads(out.read_text()), "warned": "chosen on no query" in said.out}
        return [found[name] for name in names]

    names = ("second_pass", "index", "feedback", "top", "feedback_depth", "tune")
    assert facts(names) == ["index", "exact", None, 1000, 1000, None]
    more = ["--second-pass", "rerank", "--index", "flat", "--top", 5, "--feedback-depth", 40, "--dimensions", "eclipse"]
    run = str(tmp_path / "r")
    assert facts(names, *more, "--feedback", run) == ["rerank", "flat", run, 5, 40, None]
    assert facts(names, "--tune", "dev", "--measure", "AP")[-1] == {"split": "dev", "measure": "AP"}
    names = ("dimensions", "chosen_by", "warned")
    assert facts(names) == ["none", None, False]
    assert facts(names, "--dimensions", "eclipse") == ["eclipse", "default", True]
    assert facts(names, "--dimensions", "dime", "--share", "0.6") == ["dime", "given", False]
    assert facts(names, "--dimensions", "dime", "--tune", "dev") == ["dime", "tuned", False]
    assert facts(names, "--tune", "dev") == ["rocchio", "tuned", False]
    assert facts(names, "--feedback", run) == ["rocchio", "default", True]


def test_settings_are_not_chosen_on_the_queries_that_are_searched_for(folder, command, tmp_path):
    shared = tmp_path / "shared"
    shutil.copytree(folder, shared)
    with (shared / "qrels" / "dev.tsv").open("a") as judgements:
        judgements.write("q3\td3\t1\nq5\td5\t1\n")
    status, said = command("search", shared, "--run", tmp_path / "r", "--tune", "dev", "--split", "test")
    assert status == 2
    assert "share 2 queries: q3, q5" in said.err
    assert not (tmp_path / "r").exists()


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ("search --run r --dimensions rdime --tune dev", "nothing to tune"),
        ("search --run r --second-pass rerank", "rdime, rocchio"),
        ("search --run r --answers ANSWERS", "query_id"),
        ("search --run r --tune dev --measure Rprec", "nDCG, AP, RR"),
        ("search --run r --tune test --split test", "--tune test --split test"),
        ("evaluate", "--model"),
    ],
)
def test_bad_usage_says_what_is_expected(folder, command, tmp_path, more, said):
    (tmp_path / "answers").write_text('{"query_id": "q0", "answer": ""}\n')
    verb, *rest = more.replace("ANSWERS", str(tmp_path / "answers")).split()
    status, output = command(verb, folder, *rest)
    assert status == 2
    assert said in output.err
