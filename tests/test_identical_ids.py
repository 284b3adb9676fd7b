"""Queries that are documents of the collection, as in ArguAna: no query is a negative of itself, or an answer."""

import json
import pickle
from dataclasses import replace

import numpy as np
import pytest

from fakes import HashingEncoder
from foils.cli.app import run as program
from foils.data import Collection, Negatives, Run, load_collection
from foils.data.collection import IDENTICAL
from foils.data.run import without_identical
from foils.data.sources import as_source
from foils.encode import VectorStore
from foils.evaluation import evaluate_runs, measure_encoder, rankings_of, rerank_run
from foils.mining import BM25Retriever, DenseRetriever, Miner, RandomRetriever
from foils.searching import DimensionSettings, embed_collection, search_collection

DOCUMENTS = {
    "a": "boats sail against the wind", "b": "boats do not sail against the wind", "c": "bread rises by yeast",
    "d": "yeast does not make bread rise", "e": "bees dance for flowers", "f": "wind and bread and bees",
}  # fmt: skip
QUERIES = {key: DOCUMENTS[key] for key in "ace"} | {"q": "wind and bread"}
QRELS = {"a": {"b": 1}, "c": {"d": 1}, "e": {"e": 1}, "q": {"f": 1}}


@pytest.fixture
def arguments():
    """a and c are documents too; e is one, and labelled relevant for itself; q is none."""
    return Collection.from_dicts("arguments", DOCUMENTS, QUERIES, {"test": QRELS})


def kept(collection: Collection) -> Collection:
    return replace(collection, keep_identical_ids=True)


def retriever(name: str, collection: Collection, folder):
    if name == "bm25":
        return BM25Retriever(collection)
    if name == "random":
        return RandomRetriever(collection)
    return DenseRetriever.of_model(collection, HashingEncoder(), VectorStore(folder))


def test_the_own_document_of_each_query(arguments):
    rows = {key: list(DOCUMENTS).index(key) for key in DOCUMENTS}
    assert arguments.identical.tolist() == [rows["a"], rows["c"], -1, -1], "e is labelled relevant, q is no document"
    assert kept(arguments).identical.tolist() == [-1] * 4
    assert pickle.loads(pickle.dumps(kept(arguments))).keep_identical_ids
    assert arguments.measured_digest != arguments.digest == kept(arguments).measured_digest


def own_folder(beir_folder):
    documents = {key: ("", text) for key, text in DOCUMENTS.items()}
    return beir_folder("own", documents=documents, queries=QUERIES, qrels={"test": QRELS})


def test_a_stored_collection_keeps_the_switch_in_other_processes(beir_folder):
    folder = own_folder(beir_folder)
    for keep in (False, True):
        sent = pickle.loads(pickle.dumps(load_collection(folder, keep_identical_ids=keep)))
        assert (sent.identical >= 0).any() != keep


@pytest.mark.parametrize("name", ["bm25", "random", "dense"])
@pytest.mark.parametrize("rules", [(), ("any",)])
def test_a_query_is_no_negative_of_itself(arguments, tmp_path, name, rules):
    class Nothing:
        reason = "nothing"

        def marks(self, pairs):
            return np.zeros(len(pairs), bool)

    def rows_of(collection):
        ranking, how = retriever(name, collection, tmp_path), {"near_duplicate": 1.1, "rules": [Nothing()] * len(rules)}
        found = Miner(collection, ranking, top=5, **how).mined("test")
        return found, {(row["query_id"], row["doc_id"]): row for row in found.table.to_pylist()}

    found, rows = rows_of(arguments)
    assert found.rejected() == {IDENTICAL: 2}
    for query in "ac":
        assert (rows[query, query]["keep"], rows[query, query]["reason"]) == (False, IDENTICAL)
        if name != "random":
            assert rows[query, query]["rank"] == 0, "the row stays where it was ranked"
    assert ("e", "e") not in rows, "a labelled positive"
    found, rows = rows_of(kept(arguments))
    assert found.rejected() == {}
    assert all(rows[query, query]["keep"] for query in "ac")


def test_another_takes_the_place_of_the_query_itself(arguments, tmp_path):
    found = Miner(arguments, retriever("dense", arguments, tmp_path), top=1, near_duplicate=1.1).mined("test")
    assert int(found.keep.sum()) == len(QUERIES)


RUN = {"a": {"a": 9.0, "b": 8.0, "c": 7.0}, "c": {"c": 9.0, "a": 8.0, "d": 7.0}, "e": {"e": 9.0}, "q": {"f": 1.0}}


def test_a_query_is_no_answer_to_itself(arguments):
    run = Run.from_dict(RUN, name="run")
    left = without_identical(run, arguments)
    rows = list(zip(*(left.table[name].to_pylist() for name in ("query_id", "doc_id", "rank")), strict=True))
    assert rows == [("a", "b", 0), ("a", "c", 1), ("c", "a", 0), ("c", "d", 1), ("e", "e", 0), ("q", "f", 0)]
    assert without_identical(run, kept(arguments)) is run

    def reciprocal_ranks(collection):
        result = evaluate_runs(collection, [run], rng=np.random.default_rng(0), measures=["RR@10"])
        return result.identical_ids, result.to_json()["identical_ids"], result.systems[0].per_query["RR@10"].tolist()

    assert reciprocal_ranks(arguments) == (2, 2, [1, 1 / 2, 1, 1])
    assert reciprocal_ranks(kept(arguments)) == (0, 0, [1 / 2, 1 / 3, 1, 1])


def test_a_reranker_does_not_see_the_query_itself(arguments):
    pairs: list[tuple[str, str]] = []

    def scorer(given):
        pairs.extend(given)
        return np.zeros(len(given))

    run = rerank_run(Run.from_dict(RUN), arguments, scorer, depth=1)
    assert run.table["doc_id"].to_pylist() == ["b", "a", "e", "f"]
    assert len(pairs) == 4


def test_a_model_in_training_is_measured_alike(arguments):
    own = measure_encoder(HashingEncoder(), arguments, "test", ["RR@10"], depth=5).per_query["RR@10"]
    all_ = measure_encoder(HashingEncoder(), kept(arguments), "test", ["RR@10"], depth=5).per_query["RR@10"]
    assert all_[:2].max() <= 1 / 2, "the query itself is first"
    np.testing.assert_allclose(own[:2], 1 / (1 / all_[:2] - 1), err_msg="each positive moves up by one")
    assert own[2:].tolist() == all_[2:].tolist()
    assert measure_encoder(HashingEncoder(), arguments, "test", ["R@10"], depth=6).per_query["R@10"].tolist() == [1] * 4


@pytest.mark.parametrize("settings", [DimensionSettings("none"), DimensionSettings("dime", k_plus=1, share=0.5)])
def test_search_does_not_return_the_query_itself(arguments, tmp_path, settings):
    def searched(collection, **more):
        embedded = embed_collection(collection, HashingEncoder(), VectorStore(tmp_path), split="test")
        found = search_collection(embedded, settings, k=5, **more)
        return {
            query: list(documents) for query, documents in rankings_of(found.run).items()
        }, found.ranked.sharpened.masks

    (own, masks), (all_, other) = searched(arguments), searched(kept(arguments))
    for query in "ac":
        assert query not in own[query]
        assert query in all_[query]
        assert len(own[query]) == len(all_[query]) == 5, "the next one moves up"
    assert "e" in own["e"], "a labelled positive"
    if settings.method == "dime":
        assert (masks[:2] != other[:2]).any(), "the query itself is no feedback"
        assert (masks[2:] == other[2:]).all()
    else:
        assert all_["a"] == ["a", *own["a"][:4]]


def test_sources_made_elsewhere(arguments, tmp_path):
    Run.from_dict(RUN).write(tmp_path / "run.trec")
    (tmp_path / "t.jsonl").write_text(json.dumps({
        "query_id": "a", "query": QUERIES["a"], "positive_passages": [],
        "negative_passages": [{"docid": key, "text": DOCUMENTS[key]} for key in "ac"],
    }))  # fmt: skip
    mined = Miner(kept(arguments), BM25Retriever(arguments), top=3).mined("test")
    mined.write(tmp_path / "mined.parquet")
    for file in ("run.trec", "t.jsonl", "mined.parquet"):
        for collection in (arguments, kept(arguments)):
            found: Negatives = as_source(str(tmp_path / file), collection).negatives
            for row, keep in zip(found.table.to_pylist(), found.keep, strict=True):
                own = row["query_id"] == row["doc_id"] and not collection.keep_identical_ids
                assert row.get("reason") == (IDENTICAL if own else None), file
                assert keep != own


def test_the_verbs_say_it(arguments, beir_folder, tmp_path, capsys):
    folder = own_folder(beir_folder)
    Run.from_dict(RUN).write(tmp_path / "run.trec")
    result = tmp_path / "result.json"

    def called(*given):
        assert program([str(each) for each in (*given, "--json", result)]) == 0
        return capsys.readouterr().out, json.loads(result.read_text())

    mining = ("mine", folder, "--split", "test", "--top", 2, "-o", tmp_path / "n.parquet")
    shown, facts = called(*mining)
    assert facts["rejected"] == {IDENTICAL: 2}
    assert f"rejected: {IDENTICAL}" in shown
    evaluating = ("evaluate", folder, "--run", tmp_path / "run.trec", "--measures", "RR@10")
    shown, facts = called(*evaluating)
    assert "2 queries: the document with the query's own id is left out" in shown
    assert facts["identical_ids"] == 2
