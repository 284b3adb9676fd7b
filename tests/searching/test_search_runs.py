"""Search over a collection: ids and texts in, runs out; experiments give systems with values per query."""

from dataclasses import replace

import numpy as np
import pytest

from foils.data import Collection, Run
from foils.encode import VectorStore
from foils.runtime.errors import InputError
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
from foils.searching.choosing import choose_settings, rocchio_grid
from foils.searching.runs import feedback_lists


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
    with pytest.raises(InputError, match="q7"):
        embed_collection(collection, Bag(), VectorStore(tmp_path), split="test", answers=answers)


def test_kept_share_and_short_lists_are_told(embedded):
    found = search_collection(embedded, ECLIPSE, k=40)
    assert found.kept == pytest.approx(0.5)
    assert found.masked == embedded.query_ids
    assert found.no_feedback == []
    few = search_collection(embedded, ECLIPSE, k=40, feedback_depth=7)
    assert few.no_feedback == embedded.query_ids
    assert (few.kept, few.masked) == (1.0, [])


def test_feedback_comes_from_a_run_by_ids(embedded):
    scores = {query: {f"d{(i * 7 + at) % 120}": -float(at) for at in range(12)} for i, query in enumerate(["q3", "q0"])}
    run = Run.from_dict(scores)
    lists = feedback_lists(embedded, run)
    assert lists[3].tolist() == [at % 120 for at in range(12)]
    assert lists[0].tolist() == [7 + at for at in range(12)]
    assert len(lists[1]) == 0
    found = search_collection(embedded, ECLIPSE, k=10, feedback=run)
    assert set(embedded.query_ids) - set(found.no_feedback) == {"q0", "q3"}
    made = sharpened_queries(embedded.queries[:1], embedded.documents, lists[:1], ECLIPSE)
    np.testing.assert_array_equal(found.ranked.sharpened.masks[0], made.masks[0])
    with pytest.raises(InputError, match="nowhere"):
        search_collection(embedded, ECLIPSE, feedback=Run.from_dict({"q0": {"nowhere": 1.0}}))


@pytest.fixture(scope="module")
def judged(embedded):
    return judged_queries(embedded, k=60, feedback_depth=60, candidates=60, longest=100)


def test_values_of_queries_are_those_of_the_run(embedded, judged):
    ir_measures = pytest.importorskip("ir_measures")
    run = search_collection(embedded, ECLIPSE, k=60, feedback_depth=60, second_pass="rerank", candidates=60).run
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


def test_rocchio_is_chosen_from_its_grid_and_the_query_as_it_is_where_nothing_is_better(judged):
    for measure in judged.measures:
        chosen = choose_settings(judged, "rocchio", measure)
        values = {
            each: query_values(
                judged, sharpened_queries(judged.queries, judged.documents, judged.feedback, each).queries
            )[measure].mean()
            for each in rocchio_grid()
        }
        assert values[chosen] == max(values.values())
    answered = replace(judged, answers=judged.queries)
    assert choose_settings(answered, "rocchio", "AP").weight == 0, "an answer that is the query says nothing"
    assert choose_settings(judged, "dime", "AP").method == "dime"
