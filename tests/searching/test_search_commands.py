"""`foils search` and `foils answer` from the command line, and what is refused there."""

import json
import shutil

import numpy as np
import pytest

from fakes import HashingEncoder
from foils.cli.app import run as foils
from llm_server import Reply, serving

WORDS = [f"w{i}" for i in range(40)]


def text(rng, topic, n):
    return " ".join(WORDS[topic * 4 + i] for i in rng.integers(0, 5, n) if topic * 4 + i < 40)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    root, rng = tmp_path_factory.mktemp("collection"), np.random.default_rng(0)
    with (root / "corpus.jsonl").open("w") as out:
        for i in range(60):
            out.write(json.dumps({"_id": f"d{i}", "title": "", "text": text(rng, i % 9, 9)}) + "\n")
    with (root / "queries.jsonl").open("w") as out:
        for i in range(24):
            out.write(json.dumps({"_id": f"q{i}", "text": text(rng, i % 9, 3)}) + "\n")
    (root / "qrels").mkdir()
    for split, queries in (("test", range(14)), ("dev", range(14, 24))):
        lines = [f"q{i}\td{j}\t1" for i in queries for j in range(i % 9, 36, 9)]
        (root / "qrels" / f"{split}.tsv").write_text("query-id\tcorpus-id\tscore\n" + "\n".join(lines) + "\n")
    return root


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
    full, facts = search("full", "--dimensions", "eclipse", "--dimension-args", "share=1.0")
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
            *(["--dimension-args", f"{key}={value}"] for key, value in dimensions.items()),
            ["--feedback", tmp_path / "rdime"], ["--feedback-depth", 12],
            ["--index", "hnsw"],
        )
    ]  # fmt: skip
    other += [search("o", "--dimensions", "dime")[0], search("o", "--dimensions", "dime", "--tune", "dev")[0]]
    more = ["--dimensions", "rocchio", "--dimension-args", "weight=0.9"]
    assert len({base, eclipse, rdime, rocchio, search("o", *more)[0], *other}) == 15
    answers = tmp_path / "answers.jsonl"
    answers.write_text("".join(json.dumps({"query_id": f"q{i}", "answer": WORDS[i]}) + "\n" for i in range(24)))
    answered, _ = search("answered", "--dimensions", "eclipse", "--answers", answers)
    assert answered != eclipse


def test_result_and_feedback_have_depths_of_their_own(folder, command, tmp_path):
    def search(*more):
        status, said = command("search", folder, "--run", tmp_path / "r", *more)
        assert status == 0, said.err
        by_query = {}
        for line in (tmp_path / "r").read_text().splitlines():
            query, _, document, *_ = line.split()
            by_query.setdefault(query, []).append(document)
        return by_query

    eclipse = ("--dimensions", "eclipse")
    few = search(*eclipse, "--top", 5)
    assert few == {query: found[:5] for query, found in search(*eclipse).items()}, "the moon stays where it was"
    assert search(*eclipse, "--top", 5, "--second-pass", "rerank") == few, "1000 are ranked again, here all"


def test_a_language_model_answers(folder, command, tmp_path):
    """Its answers are the sun; a query that it does not answer keeps every dimension, and the reason is said."""

    def reply(number, asked):
        return Reply(status=422, body=b"{}") if "no answer" in asked["messages"][0]["content"] else Reply("w1 w2 w7")

    broken, answers = tmp_path / "broken", tmp_path / "answers.jsonl"
    shutil.copytree(folder, broken)
    queries = (broken / "queries.jsonl").read_text().splitlines()
    queries[3] = json.dumps({"_id": "q3", "text": "no answer"})
    (broken / "queries.jsonl").write_text("\n".join(queries) + "\n")
    (tmp_path / "own.txt").write_text("Answer, please: {query}")
    with serving(reply) as server:

        def answer(*more):
            status, said = command(
                "answer", broken, "--llm-model", "m", "--base-url", server.url, "--llm-args", "price=1,2",
                "-o", answers, "--json", tmp_path / "a.json", *more,
            )  # fmt: skip
            assert status == 0, said.err
            return json.loads((tmp_path / "a.json").read_text()), said.out

        facts, shown = answer()
        assert (facts["answered"], facts["failed"]) == (13, {"status 422": 1})
        assert facts["cost"] == pytest.approx((13 * 7 + 2 * 13 * 3) / 1e6)
        assert "without an answer: status 422" in shown
        assert len(server.seen) == 14
        assert server.seen[0]["max_tokens"] == 256
        lines = {line["query_id"]: line for line in map(json.loads, answers.read_text().splitlines())}
        assert lines["q3"] == {"query_id": "q3", "answer": None, "failure": "status 422"}
        assert lines["q0"] == {"query_id": "q0", "answer": "w1 w2 w7"}
        status, said = command(
            "search", broken, "--dimensions", "dime", "--answers", answers,
            "--run", tmp_path / "r", "--json", tmp_path / "s.json",
        )  # fmt: skip
        assert status == 0, said.err
        searched = json.loads((tmp_path / "s.json").read_text())
        assert (searched["no_feedback"], searched["answers"]) == (["q3"], facts["digest"])
        assert answer()[0]["digest"] == facts["digest"]
        assert len(server.seen) == 15, "only what failed is asked for again"
        answer("--template", tmp_path / "own.txt", "--llm-args", "max_tokens=9,temperature=0.5")
        asked = server.seen[-1]
        assert asked["messages"][0]["content"].startswith("Answer, please: ")
        assert (asked["max_tokens"], asked["temperature"]) == (9, 0.5)
        before = len(server.seen)
        assert answer("--split", "test", "--split", "dev")[0]["queries"] == 24
        texts = [json.loads(query)["text"] for query in queries]
        asked = {each["messages"][0]["content"].split("Query: ")[1].split("\n")[0] for each in server.seen[before:]}
        assert asked == (set(texts[14:]) - set(texts[:14])) | {"no answer"}, (
            "the other split's queries, and what failed"
        )


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
    assert facts(names, "--dimensions", "dime", "--dimension-args", "share=0.6") == ["dime", "given", False]
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
        ("search", "--run"),
        ("search --run r --dimensions eclips", "eclipse"),
        ("search --run r --dimensions rdime --tune dev", "nothing to tune"),
        ("search --run r --index tree", "hnsw"),
        ("search --run r --second-pass rerank", "--dimensions rocchio"),
        ("search --run r --answers ANSWERS", "query_id"),
        ("search --run r --llm-model m", "foils answer"),
        ("search --run r --index-file x", "FaissIndex"),
        ("search --run r --tune dev --measure Rprec", "nDCG, AP, RR"),
        ("search --run r --tune test --split test", "--tune test --split test"),
        ("evaluate", "--model"),
        ("evaluate --model all-MiniLM-L6-v2 --measures ndcg@10", "nDCG@10"),
        ("evaluate --model all-MiniLM-L6-v2 --split train", "dev, test"),
        ("evaluate --run nowhere.trec", "no such file"),
        ("evaluate --run nowhere.trec --ties bigger", "trec_eval"),
    ],
)
def test_bad_usage_says_what_is_expected(folder, command, tmp_path, more, said):
    (tmp_path / "answers").write_text('{"query_id": "q0", "answer": ""}\n')
    verb, *rest = more.replace("ANSWERS", str(tmp_path / "answers")).split()
    status, output = command(verb, folder, *rest)
    assert status == 2
    assert said in output.err
