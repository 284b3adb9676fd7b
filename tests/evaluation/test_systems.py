"""Systems over a collection, and rerankers over a first stage."""

import json

import numpy as np
import pytest

from foils.data import Collection, Run
from foils.evaluation import evaluate_runs, qrels_of, rankings_of, rerank_run
from foils.runtime.errors import FailureError, InputError, UnknownNameError
from foils.statistics import holm

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
    result = evaluate_runs(collection, runs, rng=rng(), measures=["nDCG@10", "AP"], resamples=200)
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


def test_one_system_is_measured_without_comparisons(collection):
    assert evaluate_runs(collection, [noisy("only", 0, 1.0)], rng=rng()).to_json()["comparisons"] == []


def test_unanswered_queries_count_and_are_listed(collection):
    run = Run.from_dict({"q0": {"d0": 1.0, "d1": 2.0}, "q5": {"d0": 1.0}}, name="one")
    system = evaluate_runs(collection, [run], rng=rng(), measures=["R@10"]).to_json()["systems"][0]
    assert system["measures"]["R@10"] == pytest.approx(1 / 5)
    assert system["unanswered"] == ["q1", "q2", "q3", "q4"]


def test_split_against_and_alternative_matter(collection):
    runs = [noisy("a", 0, 0.2), noisy("b", 1, 0.4), noisy("c", 2, 0.6)]
    every = evaluate_runs(collection, runs, rng=rng(), measures=["AP"])
    some = evaluate_runs(collection, runs, rng=rng(), measures=["AP"], against=["a"])
    sided = evaluate_runs(collection, runs, rng=rng(), measures=["AP"], alternative="greater")
    assert [(c.a, c.b) for c in every.comparisons] == [("b", "a"), ("c", "a"), ("c", "b")]
    assert [(c.a, c.b) for c in some.comparisons] == [("b", "a"), ("c", "a")]
    assert [c.p_holm for c in every.comparisons] == list(holm([c.p for c in every.comparisons]))
    assert [c.p for c in sided.comparisons] != [c.p for c in every.comparisons]
    dev = evaluate_runs(collection, [Run.from_dict({"q5": {"d0": 1.0}})], rng=rng(), split="dev", measures=["P@1"])
    assert dev.systems[0].means == {"P@1": 1.0}


def test_a_trec_run_measures_as_it_did_before_writing(collection, tmp_path):
    run = noisy("system", 3, 0.3)
    run.write(tmp_path / "run.trec")
    one, other = (evaluate_runs(collection, [r], rng=rng()).to_json() for r in (run, Run.read(tmp_path / "run.trec")))
    assert one == other


def test_unusable_runs_are_refused(collection):
    with pytest.raises(InputError, match=r"no query of the split 'test'.*elsewhere"):
        evaluate_runs(collection, [Run.from_dict({"x": {"d0": 1.0}}, name="elsewhere")], rng=rng())
    with pytest.raises(InputError, match="differ"):
        evaluate_runs(collection, [noisy("a", 0, 1), noisy("a", 1, 1)], rng=rng())
    with pytest.raises(InputError, match="at least one run"):
        evaluate_runs(collection, [], rng=rng())
    with pytest.raises(UnknownNameError, match="dev"):
        evaluate_runs(collection, [noisy("a", 0, 1)], rng=rng(), split="train")


def test_judgements_and_runs_as_dictionaries(collection):
    assert qrels_of(collection, "test") == QRELS
    run = Run.from_dict({"q": {"a": 1.0, "b": 3.0, "c": 3.0}, "p": {"a": 0.0}})
    assert rankings_of(run) == {"q": ["b", "c", "a"], "p": ["a"]}


def by_number(pairs):
    return np.array([float(text.split()[-1]) for _, text in pairs])


def test_a_reranker_sorts_the_first_documents_again(collection):
    run = Run.from_dict({"q0": {"d1": 9.0, "d5": 8.0, "d3": 7.0, "d7": 6.0}, "q1": {"d2": 1.0}}, name="first")
    seen = []

    def scorer(pairs):
        seen.extend(pairs)
        return by_number(pairs)

    reranked = rerank_run(run, collection, scorer, depth=3, block=2)
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
    with pytest.raises(InputError, match="unknown"):
        rerank_run(Run.from_dict({"q0": {"unknown": 1.0}}), collection, by_number)
    with pytest.raises(InputError, match="other"):
        rerank_run(Run.from_dict({"other": {"d0": 1.0}}), collection, by_number)
    with pytest.raises(InputError, match="depth"):
        rerank_run(run, collection, by_number, depth=0)
