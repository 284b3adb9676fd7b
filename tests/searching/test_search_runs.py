"""Search over a collection, in Python and from the command line: ids and texts in, runs out, values per query."""

import json
import shutil

import numpy as np
import pytest

from fakes import HashingEncoder
from foils.cli.app import run as foils
from foils.data import Collection
from foils.encode import VectorStore
from foils.searching import (
    DimensionSettings,
    Grid,
    cross_validate,
    embed_collection,
    evaluate_grid,
    judged_queries,
    oracle,
    query_values,
    search_collection,
    sharpened_queries,
)
from refusals import refused


class Bag:
    """An encoder without a model: a fixed random direction a word, summed."""

    name, dimension, fingerprint = "bag", 24, "bag-1"

    def route(self, kind):
        return ""

    def encode(self, texts, kind):
        rows = [
            sum(np.random.default_rng(int(word)).normal(size=self.dimension) for word in text.split()) for text in texts
        ]
        return np.array([row / np.linalg.norm(row) for row in rows], np.float32)


def words(rng, topic, n):
    return " ".join(str(w) for w in rng.integers(topic * 12, topic * 12 + 14, n))


@pytest.fixture(scope="module")
def collection():
    rng = np.random.default_rng(0)
    documents = {f"d{i}": words(rng, i % 9, 12) for i in range(120)}
    queries = {f"q{i}": words(rng, i % 9, 3) for i in range(20)}
    qrels = {
        f"q{i}": {f"d{j}": 1 + j % 2 for j in rng.choice(np.arange(i % 9, 120, 9), 4, replace=False)} for i in range(18)
    }
    qrels["q18"] = {"d0": 0}
    return Collection.from_dicts("topics", documents, queries, {"test": qrels, "dev": {"q19": {"d1": 1}}})


@pytest.fixture(scope="module")
def embedded(collection, tmp_path_factory):
    return embed_collection(collection, Bag(), VectorStore(tmp_path_factory.mktemp("vectors")), split="test")


ECLIPSE = DimensionSettings("eclipse", k_plus=3, k_minus=4, alpha=0.8, beta=0.5, share=0.5)
GRID = Grid("eclipse", ((2, 3), (4, 2)), ((0.5, 0.2), (0.5, 0.5)), (0.3, 0.6, 1.0))


def test_embedding_takes_the_split_s_judged_queries(collection, embedded):
    assert embedded.query_ids == [f"q{i}" for i in range(19)]
    assert embedded.queries.shape == (19, 24)
    np.testing.assert_array_equal(embedded.queries[3], Bag().encode(collection.query_texts([3]), "query")[0])
    assert len(embedded.documents) == 120
    assert embedded.answers is None


def test_answers_are_needed_for_every_query(collection, tmp_path):
    answers = {f"q{i}": f"{i} {i + 1}" for i in range(19)} | {"other": "1", "q2": None}
    found = embed_collection(collection, Bag(), VectorStore(tmp_path), split="test", answers=answers)
    np.testing.assert_array_equal(found.answers[4], Bag().encode(["4 5"], "document")[0])
    assert np.isnan(found.answers).all(axis=1).nonzero()[0].tolist() == [2], "an answer that a model did not give"
    del answers["q7"]
    refused("q7", embed_collection, collection, Bag(), VectorStore(tmp_path), split="test", answers=answers)


def test_kept_share_and_short_lists_are_told(embedded):
    found = search_collection(embedded, ECLIPSE, k=40)
    assert found.kept == pytest.approx(0.5)
    assert found.counts == {"masked": 19, "moved": 0, "no_feedback": 0}
    few = search_collection(embedded, ECLIPSE, k=40, feedback_depth=7)
    assert (few.kept, few.counts) == (1.0, {"masked": 0, "moved": 0, "no_feedback": 19})


@pytest.fixture(scope="module")
def judged(embedded):
    return judged_queries(embedded, k=60, feedback_depth=60)


def test_values_of_queries_are_those_of_the_run(embedded, judged):
    ir_measures = pytest.importorskip("ir_measures")
    run = search_collection(embedded, ECLIPSE, k=60, feedback_depth=60).run
    made = sharpened_queries(judged.queries, judged.documents, judged.feedback, ECLIPSE)
    values = query_values(judged, made.queries)
    scores, qrels = {}, {}
    for row in run.table.to_pylist():
        scores.setdefault(row["query_id"], {})[row["doc_id"]] = row["score"]
    for row in embedded.collection.judgements("test").to_pylist():
        qrels.setdefault(row["query_id"], {})[row["doc_id"]] = row["relevance"]
    for name in ("nDCG@10", "AP"):
        measure = ir_measures.parse_measure(name)
        expected = {m.query_id: m.value for m in ir_measures.iter_calc([measure], qrels, scores)}
        np.testing.assert_allclose(values[name], [expected[f"q{i}"] for i in range(18)], atol=1e-6)


def test_settings_are_chosen_honestly_and_by_oracle(judged):
    """A grid that holds share 1 never falls below the baseline by the oracle, which promises more than it keeps."""
    values = evaluate_grid(judged, GRID)
    baseline = query_values(judged, judged.queries)
    for measure in judged.measures:
        best, honest = oracle(values, measure), cross_validate(values, measure, rng=np.random.default_rng(0))
        assert best.per_query[measure].mean() >= max(baseline[measure].mean(), honest.per_query[measure].mean())
        made = sharpened_queries(judged.queries, judged.documents, judged.feedback, best.settings[0])
        np.testing.assert_allclose(query_values(judged, made.queries)[measure], best.per_query[measure], atol=1e-12)


# From the command line


WORDS = [f"w{i}" for i in range(40)]


def text(rng, topic, n):
    return " ".join(WORDS[topic * 4 + i] for i in rng.integers(0, 5, n) if topic * 4 + i < 40)


def judgements_of(rows):
    return {f"q{i}": {f"d{j}": 1 for j in range(i % 9, 36, 9)} for i in rows}


@pytest.fixture(scope="module")
def folder(tmp_path_factory, write_beir):
    rng = np.random.default_rng(0)
    documents = {f"d{i}": ("", text(rng, i % 9, 9)) for i in range(60)}
    queries = {f"q{i}": text(rng, i % 9, 3) for i in range(24)}
    qrels = {"test": judgements_of(range(14)), "dev": judgements_of(range(14, 24))}
    return write_beir(
        tmp_path_factory.mktemp("search") / "collection", documents=documents, queries=queries, qrels=qrels
    )


@pytest.fixture
def command(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("FOILS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("foils.encode.vectors.load_encoder", lambda name, settings=None: HashingEncoder(16, salt=name))

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
    assert (rocchio_facts["moved"], rocchio_facts["masked"]) == (14, 0)
    assert rdime_facts["masked"] > 0
    dimensions = {"share": 0.5, "k_plus": 9, "k_minus": 20, "alpha": 0.1, "beta": 3.0}
    other = [
        search("o", "--dimensions", "eclipse", *more)[0]
        for more in (
            *([f"--{key.replace('_', '-')}", str(value)] for key, value in dimensions.items()),
            ["--feedback-depth", 12],
        )
    ]  # fmt: skip
    other += [search("o", "--dimensions", "dime")[0], search("o", "--dimensions", "dime", "--tune", "dev")[0]]
    more = ["--dimensions", "rocchio", "--weight", "0.9"]
    assert len({base, eclipse, rdime, rocchio, search("o", *more)[0], *other}) == 13
    answers = tmp_path / "answers.jsonl"
    answers.write_text("".join(json.dumps({"query_id": f"q{i}", "answer": WORDS[i]}) + "\n" for i in range(24)))
    answered, _ = search("answered", "--dimensions", "eclipse", "--answers", answers)
    assert answered != eclipse


def test_the_json_says_how_the_search_was_made_and_whether_it_was_tuned(folder, command, tmp_path):
    def facts(names, *more):
        out = tmp_path / "s.json"
        status, said = command("search", folder, "--run", tmp_path / "r", "--json", out, *more)
        assert status == 0, said.err
        found = json.loads(out.read_text())
        return [found[name] for name in names]

    names = ("top", "feedback_depth", "tune")
    assert facts(names) == [1000, 1000, None]
    assert facts(names, "--top", 5, "--feedback-depth", 40, "--dimensions", "eclipse") == [5, 40, None]
    assert facts(names, "--dimensions", "dime", "--tune", "dev", "--measure", "AP")[-1] == {
        "split": "dev",
        "measure": "AP",
    }
    assert facts(("dimensions",)) == ["none"]


def test_settings_are_not_chosen_on_the_queries_that_are_searched_for(folder, command, tmp_path):
    shared = tmp_path / "shared"
    shutil.copytree(folder, shared)
    with (shared / "qrels" / "dev.tsv").open("a") as judgements:
        judgements.write("q3\td3\t1\nq5\td5\t1\n")
    status, said = command(
        "search", shared, "--run", tmp_path / "r", "--dimensions", "dime", "--tune", "dev", "--split", "test"
    )
    assert status == 2
    assert "share 2 queries: q3, q5" in said.err
    assert not (tmp_path / "r").exists()


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ("search --run r --dimensions rdime --tune dev", "--tune dev: no effect with --dimensions rdime"),
        ("search --run r --feedback-depth 9", "rdime or rocchio"),
        ("search --run r --answers ANSWERS", "query_id"),
        ("search --run r --dimensions dime --tune dev --measure Rprec", "nDCG, AP, RR"),
        ("search --run r --dimensions dime --tune test --split test", "--tune test --split test"),
        ("evaluate", "--model"),
    ],
)
def test_bad_usage_says_what_is_expected(folder, command, tmp_path, more, said):
    (tmp_path / "answers").write_text('{"query_id": "q0", "answer": ""}\n')
    verb, *rest = more.replace("ANSWERS", str(tmp_path / "answers")).split()
    status, output = command(verb, folder, *rest)
    assert status == 2
    assert said in output.err
