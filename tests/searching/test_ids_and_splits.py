"""Queries of every split are searched for, and no search is done whose run could not be written."""

import pytest

import foils
from fakes import HashingEncoder
from foils.data import Collection, Run
from refusals import refused

pytestmark = pytest.mark.usefixtures("own_cache")
DOCUMENTS = {"d1": "a boat sails", "d2": "bread rises", "d3": "bees dance"}
QUERIES = {"q1": "which boat", "q2": "what rises", "q3": "who knows bees"}


def collection(documents=DOCUMENTS, queries=QUERIES):
    judged = {"q1": {"d1": 1}, "q2": {"d2": 1}}
    return Collection.from_dicts(
        "made", documents, queries, {"test": {q: d for q, d in judged.items() if q in queries}}
    )


@pytest.mark.parametrize("model", ["bm25", HashingEncoder()])
def test_all_searches_for_queries_without_a_judgement_too(tmp_path, model):
    searched = foils.search(collection(), model=model, split="all", run=tmp_path / "run.trec")
    assert searched.queries == len(QUERIES)
    assert {*Run.read(tmp_path / "run.trec").table["query_id"].to_pylist()} == {*QUERIES}
    assert searched.to_json()["identical_ids"] == 0
    assert str(searched)


def test_without_judgements_all_is_what_the_message_says():
    bare = Collection.from_dicts("bare", DOCUMENTS, QUERIES, {})
    refused("take every query with split all", foils.search, bare, model="bm25")
    assert foils.search(bare, model="bm25", split="all").queries == len(QUERIES)


class Never(HashingEncoder):
    """Embeds nothing."""

    def encode(self, texts, kind):
        raise AssertionError("embedded before the ids were looked at")


@pytest.mark.parametrize("identifier", ["a b", "tab\there", "\u3000", "x\u00a0y", "line\nend"])
@pytest.mark.parametrize("of", ["document", "query"])
def test_ids_that_a_run_cannot_hold_are_refused_before_the_first_text_is_embedded(tmp_path, identifier, of):
    made = collection({**DOCUMENTS, **({identifier: "more"} if of == "document" else {})},
                      {**QUERIES, **({identifier: "more"} if of == "query" else {})})  # fmt: skip
    said = "is empty or has white space in it; a TREC run cannot hold it"
    refused(said, foils.search, made, model=Never(), run=tmp_path / "run.trec")
    refused(said, foils.evaluate, made, [Never()], write_runs=tmp_path / "runs")
    refused(said, foils.evaluate, made, "bm25", write_runs=tmp_path / "runs")
    assert not [*tmp_path.iterdir()]
    assert foils.evaluate(made, "bm25").systems  # without a file any id will do


def test_runs_are_written_in_the_same_call(tmp_path):
    foils.evaluate(collection(), ["bm25"], write_runs=tmp_path / "runs")
    assert Run.read(tmp_path / "runs" / "bm25.trec").table["query_id"].to_pylist()
