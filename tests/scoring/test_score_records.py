"""Which negatives count: what is left out and why, samples, the control, texts that occur under several ids."""

from __future__ import annotations

import re

import numpy as np
import pytest
from score_world import negatives, random_world

from foils.data import Collection, Negatives
from foils.runtime.errors import InputError, UnknownNameError
from foils.scoring.triplets import CONTROL, Records, make_records

DOCUMENTS = {"p": "right", "r": "also right", "e": "right", "n": "wrong", "m": "wrong", "o": "other", "v": "valid"}


@pytest.fixture
def tiny():
    """q has two positives in train and one in dev; `e` repeats the text of `p`, `m` that of `n`."""
    return Collection.from_dicts(
        "tiny",
        DOCUMENTS,
        {"q": "query", "a b": "another query", "z": "query of dev"},
        {"train": {"q": {"p": 1, "r": 1}, "a b": {"o": 1}}, "dev": {"q": {"v": 1}, "z": {"p": 1}}},
    )


def texts_of(records: Records, name: str) -> dict[str, list[str]]:
    """Query id -> negatives of a source."""
    target = next(target for target in records.targets(1) if target.name == name)
    found: dict[str, list[str]] = {}
    for row in np.flatnonzero(target.of(records.members)):
        query = records.collection.queries["query_id"][int(records.queries[records.record[row]])].as_py()
        found.setdefault(query, []).append(records.texts[int(records.document[row])])
    return found


def test_everything_left_out_is_counted_with_its_reason(tiny):
    rows = [("q", key, None) for key in DOCUMENTS] + [
        ("q", "own", "also right"),
        ("q", "own 2", "new"),
        ("z", "n", None),
    ]
    table = negatives(rows)
    table = table.reject(np.array([key == "o" for _, key, _ in rows]), "too easy")
    records = make_records(tiny, {"s": table}, split="train", control=False)
    assert texts_of(records, "s") == {"q": ["wrong", "new"]}
    assert records.dropped == {
        "s": {
            "too easy": 1,
            "query without a positive in the split": 1,
            "equal to a positive": 5,  # p, r, e, v (a positive of q in dev), and the own text of r
            "repeated text": 1,  # m
            "queries without a negative": 1,  # a b
        }
    }
    assert [records.texts[int(index)] for index in records.positives] == ["right"]
    assert [records.texts[int(index)] for index in records.all_positives] == ["right", "also right"]
    assert sorted(records.texts[0:9]) == ["also right", "new", "right", "wrong"]


def test_a_sample_holds_that_many_records_with_negatives():
    world = random_world(1, queries=60, skip=0.9, sources=2)
    covered = len(make_records(world.collection, world.sources, split="train"))
    assert 8 < covered < 30
    drawn = [make_records(world.collection, world.sources, split="train", sample=8, seed=seed) for seed in (1, 1, 2)]
    assert [len(records) for records in drawn] == [8, 8, 8]
    assert drawn[0].queries.tolist() == drawn[1].queries.tolist() != drawn[2].queries.tolist()
    assert len(make_records(world.collection, world.sources, split="train", sample=1000)) == covered


def few_and_many(few: int, many: int = 60) -> tuple[Collection, dict[str, Negatives]]:
    """A source for `few` of `many` queries beside one for all."""
    documents = {f"p{i}": f"topic{i} alpha{i} beta{i}" for i in range(many)}
    documents |= {
        f"{kind}{i}": f"{word}{i} gamma{i}" for i in range(many) for kind, word in (("h", "topic"), ("e", "x"))
    }
    asked = {f"q{i}": f"topic{i} alpha{i} what" for i in range(many)}
    judged = {"train": {f"q{i}": {f"p{i}": 1} for i in range(many)}}
    every = negatives([(f"q{i}", f"h{i}", None) for i in range(many)])
    some = negatives([(f"q{i}", f"e{i}", None) for i in range(0, many, many // few)][:few])
    return Collection.from_dicts("few", documents, asked, judged), {"every": every, "some": some}


def test_a_sample_holds_the_records_that_every_source_covers_first():
    collection, sources = few_and_many(10)
    for size, shared in ((6, 6), (10, 10), (25, 10)):
        drawn = make_records(collection, sources, split="train", sample=size, seed=3)
        assert (len(drawn), len(drawn.shared())) == (size, shared)


def test_targets_are_those_that_have_a_triplet():
    collection, sources = few_and_many(1)
    records = make_records(collection, sources, split="train", control=False)
    assert [target.name for target in records.targets()] == ["every", "some", "every+some"]
    part = make_records(collection, sources, split="train", control=False, queries=np.arange(30, 60))
    assert [target.name for target in part.targets()] == ["every"]
    assert part.queries.tolist() == list(range(30, 60))


@pytest.mark.parametrize("seed", range(30))
def test_the_control_has_a_negative_wherever_there_is_one(seed, tiny):
    records = make_records(tiny, {"s": negatives([("q", "n", None)])}, split="train", seed=seed)
    assert texts_of(records, CONTROL) == {"q": ["wrong"]}


def test_the_control_draws_as_many_as_the_sources_have_on_average_and_never_a_positive():
    world = random_world(2, queries=40, documents=120)
    records = make_records(world.collection, world.sources, split="train")
    means = [
        member.sum() / len(np.unique(records.record[member]))
        for member in (target.of(records.members) for target in records.targets(1)[:-1])
    ]
    drawn = texts_of(records, CONTROL)
    assert {len(texts) for texts in drawn.values()} == {round(float(np.mean(means)))}
    judged = records.collection.judgements("train")
    texts = records.collection.document_texts(records.collection.document_rows(judged["doc_id"]))
    pairs = set(zip(judged["query_id"].to_pylist(), texts, strict=True))
    assert not pairs & {(query, text) for query, of in drawn.items() for text in of}
    pooled = {records.texts[int(index)] for index in records.corpus}
    assert set().union(*drawn.values()) <= pooled


def test_errors(tiny):
    good = negatives([("q", "n", None)])
    with pytest.raises(InputError, match="no source"):
        make_records(tiny, {}, split="train")
    for name in (CONTROL, "a+b"):
        with pytest.raises(InputError, match=re.escape(repr(name))):
            make_records(tiny, {name: good}, split="train")
    with pytest.raises(UnknownNameError, match=r"'tain'.*dev, train.*Did you mean 'train'"):
        make_records(tiny, {"s": good}, split="tain")
    with pytest.raises(InputError, match=r"1 query_ids are not in the collection tiny \(first: 'x y'\)"):
        make_records(tiny, {"s": negatives([("x y", "n", None)])}, split="train")
    with pytest.raises(InputError, match="63 sources; at most 62"):
        make_records(tiny, {f"s{i}": good for i in range(63)}, split="train")
    with pytest.raises(InputError, match=r"equal \(1 negative \(equal to a positive\).* empty \("):
        make_records(tiny, {"equal": negatives([("q", "e", None)]), "empty": negatives([])}, split="train")
