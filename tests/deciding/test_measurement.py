"""Scores and decisions of one measurement: the same numbers as apart, and each text asked for once."""

import json
from collections import Counter

import numpy as np
import pyarrow as pa
import pytest

import foils
from fakes import HashingEncoder
from foils.data import Negatives
from foils.deciding import BeliefSettings, decide, score_and_decide
from foils.encode import VectorStore
from foils.scoring import ScoreSettings, make_records, measure, score_sources
from foils.scoring.triplets import CONTROL
from hidden_positives import WorldEncoder, hidden_world, mined


class CountingStore(VectorStore):
    """Counts how often each text is asked for, by kind."""

    def __init__(self, folder):
        super().__init__(folder)
        self.asked = {"query": Counter(), "document": Counter()}

    def embed(self, encoder, texts, kind, **more):
        self.asked[kind].update(texts[0 : len(texts)])
        return super().embed(encoder, texts, kind, **more)


@pytest.fixture(scope="module")
def world():
    world = hidden_world(5, labelled=0.5)
    return world, mined(world)


def test_scoring_asks_for_each_text_once(world, tmp_path):
    world, sources = world
    store, documents = CountingStore(tmp_path), len(world.collection.documents)
    scored = foils.score(world.collection, sources, encoder=WorldEncoder(world), vectors=store, temperature=0.1)
    assert scored.decision is not None
    assert set(store.asked["query"].values()) == {1}
    assert store.asked["document"].total() == documents, "each document of the collection, which brings all texts"


def test_a_published_score_alone_asks_for_no_other_document(world, tmp_path):
    world, sources = world
    store = CountingStore(tmp_path)
    asked = {"encoder": WorldEncoder(world), "vectors": store, "temperature": 0.1, "rank_by": "eci_sem"}
    scored = foils.score(world.collection, {"hard": sources["hard"]}, **asked)
    assert scored.decision is None
    assert store.asked["document"].total() == len(scored.measured.records.texts) < len(world.collection.documents)


@pytest.mark.parametrize("sample", [None, 60])
def test_scores_and_decision_together_are_those_of_each_alone(world, sample, tmp_path):
    """A source lacks the queries of another, and a text comes from outside the collection."""
    world, sources = world
    table = sources["middle"].kept()
    query = table["query_id"][0].as_py()
    written = pa.table({"query_id": [query], "doc_id": ["new"], "source": ["llm"], "rank": [0], "score": [np.nan]})
    written = written.cast(table.select(written.column_names).schema).append_column("text", pa.array(["a new text"]))
    sources = {
        "hard": sources["hard"],
        "part": Negatives(table.slice(0, len(table) // 2)),
        "written": Negatives(written),
    }
    encoder, store = HashingEncoder(), VectorStore(tmp_path)
    scoring, belief = ScoreSettings(sample=sample, seed=3), BeliefSettings(in_batch=15)
    together = score_and_decide(world.collection, sources, encoder, store, scoring, belief)
    alone = (
        score_sources(world.collection, sources, encoder, store, scoring),
        decide(world.collection, sources, encoder, store, belief, seed=3),
    )
    for one, other in zip(together, alone, strict=True):
        assert json.dumps(one.to_json()) == json.dumps(other.to_json())
    np.testing.assert_array_equal(together[1].basis.expected, alone[1].basis.expected)


def test_a_part_of_the_records_is_what_is_made_of_it_alone(world, tmp_path):
    """All arrays of a part, found among the whole, equal those of records made of its sources and queries."""
    world, sources = world
    names = ["hard", "middle"]
    whole = make_records(world.collection, sources, split="train", control=False)
    some = whole.queries[100:180]
    beside = {name: sources[name] for name in names}
    made = make_records(world.collection, {}, split="train", control=False, beside=beside, queries=some)
    encoder, store = WorldEncoder(world), VectorStore(tmp_path)
    part = measure(whole, encoder, store, 0.1).part(np.arange(100, 180), names)
    alone = measure(made, encoder, store, 0.1)
    for name in ("queries", "positives", "all_positives", "positive_record", "record", "document", "members", "corpus"):
        np.testing.assert_array_equal(getattr(part.records, name), getattr(made, name), err_msg=name)
    assert part.records.texts[0 : len(made.texts)] == made.texts[0 : len(made.texts)]
    assert part.records.names == made.names == tuple(names)
    for name, values in vars(alone.similarities).items():
        np.testing.assert_allclose(getattr(part.similarities, name), values, rtol=1e-6, atol=1e-7, err_msg=name)
    assert CONTROL not in part.records.names


def test_as_many_sources_as_there_may_be_are_scored_and_decided_between(world, tmp_path):
    """62 sources, random negatives and the control take all bits of a number."""
    world, sources = world
    few = Negatives(sources["hard"].kept().slice(0, 100))
    scoring = ScoreSettings(hybrids=1)
    scores, decision = score_and_decide(
        world.collection, {f"s{at}": few for at in range(62)}, WorldEncoder(world), VectorStore(tmp_path), scoring,
        BeliefSettings(), replicates=0,
    )  # fmt: skip
    assert len({each.eci_sem for each in scores.sources}) == 1
    assert scores.control.negatives == scores.sources[-1].negatives
    assert len({decision.worths[f"s{at}"].strength for at in range(62)}) == 1
