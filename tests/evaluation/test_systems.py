"""Systems over a collection: first stages, rerankers over them, what they score."""

import json

import numpy as np
import pytest

import foils
from fakes import HashingEncoder
from foils.data import Collection, Run
from foils.data.run import Fusion, fuse_runs
from foils.evaluation import (
    bm25_run,
    evaluate_runs,
    first_documents,
    rankings_of,
    rerank_run,
)  # fmt: skip
from foils.mining import BM25Retriever
from foils.runtime.errors import FailureError, InputError, UnknownNameError
from foils.statistics import holm
from refusals import refused
from train_models import static_model

DOCUMENTS = {f"d{i}": ("t", f"text {i}") for i in range(8)}
QRELS = {f"q{i}": {f"d{i}": 1, f"d{i + 1}": 2, "d7": 0} for i in range(5)}


@pytest.fixture
def collection():
    queries = {f"q{i}": f"query {i}" for i in range(6)}
    return Collection.from_dicts("small", DOCUMENTS, queries, {"test": QRELS, "dev": {"q5": {"d0": 1}}})


def noisy(name, seed, signal):
    rng = np.random.default_rng(seed)
    scores = {
        query: {doc: float(rng.random() + signal * (grades.get(doc, 0) > 0)) for doc in DOCUMENTS}
        for query, grades in QRELS.items()
    }
    return Run.from_dict(scores, name=name)


def rng():
    return np.random.default_rng(0)


def test_the_result_has_its_shape_and_is_json(collection):
    runs = [noisy("bad", 0, 0.0), noisy("good", 1, 2.0)]
    result = evaluate_runs(collection, runs, rng=rng(), measures=["nDCG@10", "AP"])
    value = json.loads(json.dumps(result.to_json(), allow_nan=False))
    assert value["split"] == "test"
    assert [system["name"] for system in value["systems"]] == ["bad", "good"]
    good = value["systems"][1]
    assert list(good["measures"]) == ["nDCG@10", "AP"]
    assert list(good["per_query"]["AP"]) == list(QRELS)
    assert good["measures"]["AP"] == pytest.approx(1.0)
    assert np.mean(list(good["per_query"]["nDCG@10"].values())) == pytest.approx(good["measures"]["nDCG@10"])
    first = value["comparisons"][0]
    assert {"a", "b", "measure", "difference", "test", "p", "p_holm"} <= set(first)
    assert (first["a"], first["b"]) == ("good", "bad")
    assert first["difference"] > 0
    low, high = value["systems"][0]["intervals"]["AP"]
    assert low <= value["systems"][0]["measures"]["AP"] <= high


def test_split_and_number_of_systems_matter(collection):
    runs = [noisy("a", 0, 0.2), noisy("b", 1, 0.4), noisy("c", 2, 0.6)]
    every = evaluate_runs(collection, runs, rng=rng(), measures=["AP"])
    assert [(c.a, c.b) for c in every.comparisons] == [("b", "a"), ("c", "a"), ("c", "b")]
    assert [c.p_holm for c in every.comparisons] == list(holm([c.p for c in every.comparisons]))
    dev = evaluate_runs(collection, [Run.from_dict({"q5": {"d0": 1.0}})], rng=rng(), split="dev", measures=["P@1"])
    assert dev.systems[0].means == {"P@1": 1.0}


def test_unusable_runs_are_refused(collection):
    with pytest.raises(InputError, match=r"elsewhere ranks no document for any query of the split 'test'"):
        evaluate_runs(collection, [Run.from_dict({"x": {"d0": 1.0}}, name="elsewhere")], rng=rng())
    refused("differ", evaluate_runs, collection, [noisy("a", 0, 1), noisy("a", 1, 1)], rng=rng())
    refused("at least one run", evaluate_runs, collection, [], rng=rng())
    refused("dev", evaluate_runs, collection, [noisy("a", 0, 1)], error=UnknownNameError, rng=rng(), split="train")


def by_number(pairs):
    return np.array([float(text.split()[-1]) for _, text in pairs])


def test_a_reranker_sorts_the_first_documents_again(collection):
    run = Run.from_dict({"q0": {"d1": 9.0, "d5": 8.0, "d3": 7.0, "d7": 6.0}, "q1": {"d2": 1.0}}, name="first")
    seen = []

    def scorer(pairs):
        seen.extend(pairs)
        return by_number(pairs)

    reranked = rerank_run(run, collection, scorer, depth=3)
    assert rankings_of(reranked) == {"q0": ["d5", "d3", "d1"], "q1": ["d2"]}
    assert seen[:2] == [("query 0", "t text 1"), ("query 0", "t text 5")]
    assert rankings_of(rerank_run(run, collection, by_number, depth=4))["q0"] == ["d7", "d5", "d3", "d1"]
    equal = rerank_run(run, collection, lambda pairs: np.zeros(len(pairs)))
    assert rankings_of(equal) == rankings_of(run), "ties keep the first stage's order"


def test_a_reranker_that_fails_is_an_error_not_a_score(collection):
    run = Run.from_dict({"q0": {"d1": 9.0, "d5": 8.0}})
    for wrong in (lambda pairs: np.full(len(pairs), np.nan), lambda pairs: np.zeros(len(pairs) + 1)):
        with pytest.raises(FailureError):
            rerank_run(run, collection, wrong)
    refused("unknown", rerank_run, Run.from_dict({"q0": {"unknown": 1.0}}), collection, by_number)
    refused("other", rerank_run, Run.from_dict({"other": {"d0": 1.0}}), collection, by_number)


TEXTS = {"d0": "red apple", "d1": "green apple tree", "d2": "blue sky", "q1": "apple apple", "d3": "stone"}
WORLD = Collection.from_dicts(
    "w", TEXTS, {"q0": "red apple", "q1": "apple tree", "q2": "nothing alike"},
    {"train": {"q0": {"d0": 1}}, "test": {"q1": {"d1": 1}, "q0": {"d0": 1}, "q2": {"d2": 1}}},
)  # fmt: skip


def test_a_bm25_run_has_the_retrievers_order_and_scores_for_the_queries_of_the_split():
    run = bm25_run(WORLD, "test")
    assert list(rankings_of(run)) == ["q1", "q0"]  # q2 shares no term with any document
    rows, scores = BM25Retriever(WORLD).search(np.array([0]), 5)
    there = rows[0] >= 0
    own = [row for row in run.table.to_pylist() if row["query_id"] == "q0"]
    assert [each["doc_id"] for each in own] == WORLD.documents["doc_id"].take(rows[0][there]).to_pylist()
    assert [each["score"] for each in own] == pytest.approx(scores[0][there])


def test_the_document_of_the_querys_own_id_is_left_out_before_the_first_are_counted():
    assert "q1" not in rankings_of(bm25_run(WORLD, "test"))["q1"]
    assert len(rankings_of(bm25_run(WORLD, "test", depth=2))["q1"]) == 2


def test_first_documents_are_those_of_the_split():
    run = Run.from_dict({"q0": {"d0": 3.0, "d1": 2.0, "d2": 1.0}, "q1": {"q1": 3.0, "d1": 2.0, "d2": 1.0}})
    assert rankings_of(first_documents(run, WORLD, 2)) == {"q0": ["d0", "d1"], "q1": ["d1", "d2"]}
    assert list(rankings_of(first_documents(run, WORLD, 2, split="train"))) == ["q0"]
    with pytest.raises(InputError, match="ranks no document for any query of the split 'train'"):
        first_documents(Run.from_dict({"q1": {"d1": 1.0}}), WORLD, 2, split="train")


def test_runs_are_written_into_their_folder_alone(collection, tmp_path):
    runs = [Run(noisy("a", 0, 1).table, name) for name in ("../x", "org/model", "plain")]
    result = foils.evaluate(collection, run=runs, measures=["AP"])
    result.write_runs(tmp_path / "runs")
    assert sorted(path.name for path in tmp_path.rglob("*.trec")) == ["_x.trec", "org_model.trec", "plain.trec"]
    assert {path.parent for path in tmp_path.rglob("*.trec")} == {tmp_path / "runs"}
    twice = foils.evaluate(collection, run=[Run(runs[0].table, "a/b"), Run(runs[0].table, "a_b")], measures=["AP"])
    refused("one name", twice.write_runs, tmp_path)


def test_every_system_is_opened_before_the_first_is_embedded(collection, tmp_path):
    encoder = HashingEncoder()
    for wrong in ({"run": tmp_path / "missing.trec"}, {"reranker": str(tmp_path / "no-model")}):
        with pytest.raises(InputError):
            foils.evaluate(collection, [encoder], vectors=tmp_path / "v", **wrong)
    with pytest.raises(InputError):
        foils.evaluate(collection, [encoder, str(tmp_path / "no-model")], vectors=tmp_path / "v")
    assert encoder.encoded == 0


@pytest.mark.parametrize("deploys", ["both", "model", "bm25"])
def test_a_tuned_folder_is_the_retriever_that_it_names(small, tmp_path, deploys):
    """What `foils tune` found best is what is measured: both together, or one of them."""
    static_model().save_pretrained(str(tmp_path / "model"))
    fusion = Fusion("z", 0.6, deploys)
    fusion.write(tmp_path / "retriever.json")
    found = foils.evaluate(small, {"found": str(tmp_path), "bm25": "bm25", "model": str(tmp_path / "model")})
    runs = {run.name: run for run in found.runs}
    expected = fuse_runs([runs["bm25"], runs["model"]], **fusion.how) if deploys == "both" else runs[deploys]
    assert runs["found"].table.equals(expected.table)
    searched = foils.search(small, model=str(tmp_path), split="test", top=2)
    assert searched.run.table.equals(expected.first(2).table)
    assert searched.to_json()["fused_with_bm25"] == vars(fusion)


@pytest.mark.parametrize("deploys", ["both", "model"])
def test_a_tuned_rerankers_folder_is_fused_with_its_first_stage_where_it_says_so(
    collection, tmp_path, monkeypatch, deploys
):
    monkeypatch.setattr("foils.encode.vectors.load_cross_encoder", lambda *_, **__: None)
    monkeypatch.setattr("foils.evaluation.doors.logits", lambda _, pairs: [-int(text[-1]) for _, text in pairs])
    first = Run.ranked(["q0"] * 4, ["d3", "d2", "d1", "d0"], [4.0, 3.0, 2.0, 1.5], name="first")
    Fusion("z", 0.3, deploys).write(tmp_path / "retriever.json")
    found = foils.evaluate(collection, run=first, reranker=str(tmp_path), measures=["RR@4"], rerank_depth=3).runs[1]
    ranked = Run.ranked(["q0"] * 3, ["d1", "d2", "d3"], [-1.0, -2.0, -3.0])
    expected = fuse_runs([first.first(3), ranked], **Fusion("z", 0.3).how) if deploys == "both" else ranked
    for name in ("doc_id", "score"):
        assert found.table[name].to_pylist() == expected.table[name].to_pylist()
    assert found.table["doc_id"].to_pylist() == (["d3", "d2", "d1"] if deploys == "both" else ["d1", "d2", "d3"])
