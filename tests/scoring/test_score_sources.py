"""Scoring end to end: which negatives count, samples, the control, what is encoded, every setting, errors."""

import json
import math
import re
import warnings
from pathlib import Path

import numpy as np
import plain
import pytest
from score_world import World, negatives, random_world, score

from fakes import HashingEncoder
from foils.data import Collection, Negatives
from foils.encode import VectorStore
from foils.runtime.errors import InputError, UnknownNameError
from foils.scoring import Scores, SourceScore
from foils.scoring.triplets import CONTROL, Records, make_records
from refusals import refused

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
    rows = [
        *(("q", key, None) for key in DOCUMENTS),
        ("q", "own", "also right"),
        ("q", "own 2", "new"),
        ("z", "n", None),
    ]
    table = negatives(rows).reject(np.array([key == "o" for _, key, _ in rows]), "too easy")
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
    part = make_records(collection, {}, split="train", control=False, beside=sources, queries=np.arange(30, 60))
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
    refused("no source", make_records, tiny, {}, split="train")
    for name in (CONTROL, "a+b"):
        refused(re.escape(repr(name)), make_records, tiny, {name: good}, split="train")
    with pytest.raises(UnknownNameError, match=r"'tain'.*dev, train.*Did you mean 'train'"):
        make_records(tiny, {"s": good}, split="tain")
    with pytest.raises(InputError, match=r"1 query_ids are not in the collection tiny \(first: 'x y'\)"):
        make_records(tiny, {"s": negatives([("x y", "n", None)])}, split="train")
    refused("63 sources; at most 62", make_records, tiny, {f"s{i}": good for i in range(63)}, split="train")
    with pytest.raises(InputError, match=r"equal \(equal to a positive: 1.* empty \("):
        make_records(tiny, {"equal": negatives([("q", "e", None)]), "empty": negatives([])}, split="train")


def scored(world: World, tmp_path: Path, encoder: HashingEncoder | None = None, **chosen: object) -> Scores:
    chosen = {"replicates": 50, **chosen}
    return score(
        world.collection, world.sources, encoder or HashingEncoder(), VectorStore(tmp_path / "vectors"), **chosen
    )


def by_name(scores: Scores) -> dict[str, SourceScore]:
    return {found.name: found for found in scores.sources}


def distinct_texts(world: World) -> set[str]:
    kept = [record for of in world.plainly.values() for record in plain.usable(of)]
    return {text for record in kept for text in (record.query, *record.positives, *record.negatives)}


@pytest.mark.parametrize("seed", range(3))
def test_exactly_the_distinct_texts_are_encoded_once(tmp_path, seed):
    world, encoder = random_world(seed, skip=0.5), HashingEncoder()
    scored(world, tmp_path, encoder, hybrids=3)
    texts = [text for call in encoder.calls for text in call]
    assert sorted(texts) == sorted(distinct_texts(world))
    again = HashingEncoder()
    scored(world, tmp_path, again, hybrids=3, temperature=0.1, seed=5)
    assert again.encoded == 0


def subjects(count: int = 60) -> tuple[Collection, Negatives, Negatives]:
    """Queries, each with a positive; hard negatives share the query's subject, random ones are of any other."""
    rng = np.random.default_rng(0)
    documents = {f"d{i} {j}": f"subject{i} aspect{i}x{j} detail{j}" for i in range(count) for j in range(5)}
    queries = {f"q{i}": f"subject{i} aspect{i}x0" for i in range(count)}
    collection = Collection.from_dicts(
        "subjects", documents, queries, {"train": {f"q{i}": {f"d{i} 0": 1} for i in range(count)}}
    )
    hard = [(f"q{i}", f"d{i} {j}", None) for i in range(count) for j in range(1, 5)]
    others = {i: rng.choice([k for k in range(count) if k != i], 4, replace=False) for i in range(count)}
    easy = [(f"q{i}", f"d{k} {rng.integers(5)}", None) for i in range(count) for k in others[i]]
    return collection, negatives(hard), negatives(easy)


def test_random_negatives_are_flagged_as_easy_and_hard_ones_are_not(tmp_path):
    collection, hard, easy = subjects()
    world = World(collection, {"hard": hard, "uniform": easy}, {})
    scores = scored(world, tmp_path, replicates=300)
    found = by_name(scores)
    assert scores.control is not None
    assert scores.control.name == CONTROL
    assert found["uniform"].easy
    assert not found["hard"].easy
    assert found["hard+uniform"].easy  # one of its parts is
    assert 0.9 < found["uniform"].control_ratio < 1.4
    assert found["hard"].control_ratio_low < found["hard"].control_ratio < found["hard"].control_ratio_high < 0.95
    assert found["hard"].control_ratio == pytest.approx(found["hard"].eci_sem / scores.control.eci_sem)
    assert CONTROL not in scores.ranking
    without = scored(world, tmp_path, control=False)
    assert without.control is None
    assert all(math.isnan(score.control_ratio) and not score.easy for score in without.sources)
    assert by_name(without)["hard"].eci_sem == pytest.approx(found["hard"].eci_sem)


@pytest.fixture
def two_splits():
    """A world with a third of its queries in dev, whose texts the tokenizers cut differently."""
    world = random_world(5, queries=30)
    qrels = {"train": {}, "dev": {}}
    for row in world.collection.judgements("train").to_pylist():
        split = "train" if int(row["query_id"].split()[1]) % 3 else "dev"
        qrels[split].setdefault(row["query_id"], {})[row["doc_id"]] = 1
    documents, queries = world.collection.documents.to_pylist(), world.collection.queries.to_pylist()
    texts = {row["doc_id"]: row["text"] + " a-b a b it's" * (at % 4 == 0) for at, row in enumerate(documents)}
    asked = {row["query_id"]: row["text"] + " a-b it's" for row in queries}
    return World(Collection.from_dicts("two", texts, asked, qrels), world.sources, {})


def test_an_interval_that_would_not_cover_is_left_out(tmp_path, two_splits, capsys):
    """At λ = 1e-4 a few records score far below many: the table shows no interval, the JSON null; at λ = 1 both do."""
    from foils.runtime.results import print_tables

    small, one = (scored(two_splits, tmp_path, regularization=value) for value in (1e-4, 1.0))
    assert any(math.isnan(found.eci_sem_low) for found in small.sources)
    assert None in [source["eci_sem_low"] for source in small.to_json()["sources"]]
    assert not any(math.isnan(found.eci_sem_low) for found in one.sources)
    print_tables(small.tables())
    assert " – " in capsys.readouterr().out


def test_a_control_whose_weights_are_all_zero_is_no_ground_for_a_ratio(tmp_path):
    """Every text repeats the whole query, so every weight is 0."""
    collection = Collection.from_dicts(
        "zero", {f"d{i}": f"wind text{i}" for i in range(6)}, {"q": "wind", "r": "wind"},
        {"train": {"q": {"d0": 1}, "r": {"d1": 1}}},
    )  # fmt: skip
    world = World(collection, {"s": negatives([("q", "d2", None), ("r", "d3", None), ("r", "d4", None)])}, {})
    scores = scored(world, tmp_path)
    assert scores.sources[0].eci_sem == 0
    assert math.isnan(scores.sources[0].control_ratio)
    assert not scores.sources[0].easy
    json.dumps(scores.to_json(), allow_nan=False)


@pytest.mark.parametrize("seed", range(8))
def test_tiny_worlds_give_valid_json_without_warnings(tmp_path, seed):
    rng = np.random.default_rng(seed)
    collection = Collection.from_dicts(
        "tiny", {f"d{i}": f"{'wind' if i % 2 else 'bread'} text{i}" for i in range(6)}, {"q": "wind", "r": "bread"},
        {"train": {"q": {"d1": 1}, "r": {"d0": 1}}},
    )  # fmt: skip
    rows = [("q", f"d{rng.integers(2, 6)}", None)] + ([("r", f"d{rng.integers(2, 6)}", None)] if seed % 2 else [])
    world = World(collection, {"s": negatives(rows), "t": negatives([("r", "d4", None)])}, {})
    with np.errstate(all="raise", under="ignore"), warnings.catch_warnings():
        warnings.simplefilter("error")
        said = scored(world, tmp_path).to_json()
    assert json.loads(json.dumps(said, allow_nan=False))["sources"] == said["sources"]
    of = {source["name"]: source for source in said["sources"]}
    assert {name: source["records"] for name, source in of.items()} == {"s": len(rows), "t": 1, "s+t": 2}
    assert of["t"]["dropped"] == {"queries without a negative": 1}
    assert all(source["trace"] >= 0 and 0 <= source["inversion_rate"] <= 1 for source in of.values())


@pytest.mark.parametrize("regularization", [1e-12, 1e-300])
def test_a_lambda_below_the_precision_of_the_vectors_is_an_error(tmp_path, regularization):
    """Float32 vectors of few negatives: the smallest eigenvalues of the information are rounding, of either sign."""
    with pytest.raises(InputError, match=r"lambda .* is below the precision of the vectors"):
        scored(random_world(3, queries=5), tmp_path, HashingEncoder(64), regularization=regularization)
    assert scored(random_world(3), tmp_path, HashingEncoder(64), regularization=1e-5).sources[0].eci_sem > 1


CHANGES = [
    ({"temperature": 0.1}, ["eci_sem", "pair_loss", "buckets"]),
    ({"regularization": 0.1}, ["eci_sem", "trace", "control_ratio"]),
    ({"sample": 9}, ["eci_sem"]),
    ({"split": "dev"}, ["eci_sem"]),
    ({"replicates": 51}, ["eci_sem_high"]),
    ({"seed": 1}, ["eci_sem_low", "control_ratio"]),
]


@pytest.mark.parametrize(("change", "fields"), CHANGES)
def test_every_setting_changes_the_result(tmp_path, two_splits, change, fields):
    base, changed = (scored(two_splits, tmp_path, **given) for given in ({}, change))
    for before, after in zip(base.sources[:3], changed.sources[:3], strict=True):
        for field in fields:
            assert getattr(before, field) != getattr(after, field)
