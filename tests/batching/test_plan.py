"""Plans: measures by hand, and the command."""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from foils.batching import Batches, find_conflicts, no_conflicts
from foils.batching.batches import known_conflicts
from foils.batching.plan import batch, measure_epoch
from foils.batching.sampler import BatchPlanner
from foils.data import Collection, Negatives
from foils.data.sources import training_rows
from foils.encode import VectorStore

SMALL = {"seeds": 4, "candidates": 32}


def test_measures_by_hand():
    # q0·d = (1, .6), q1·d = (0, .8), d0·d1 = .6
    queries = np.array([[1.0, 0.0], [0.0, 1.0]])
    documents = np.array([[1.0, 0.0], [0.6, 0.8]])
    found = measure_epoch(queries, documents, Batches(np.arange(2), 2), conflicts=no_conflicts(2), temperature=1.0)
    assert found["hardness"] == pytest.approx((0.6 + 0.0) / 2)
    assert found["loss"] == pytest.approx((np.log(1 + np.exp(-0.4)) + np.log(1 + np.exp(-0.8))) / 2)
    assert (found["contradictions"], found["rows"], found["batches"]) == (0, 2, 1)


def test_known_positives_are_counted_and_leave_the_measures():
    queries = np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 0.0]])
    documents = np.array([[1.0, 0.0], [0.6, 0.8], [0.8, 0.6]])
    conflicts = find_conflicts([0, 1, 0], [0, 1, 2])  # rows 0 and 2 share their query
    found = measure_epoch(queries, documents, Batches(np.arange(3), 3), conflicts=conflicts)
    assert found["contradictions"] == 2
    assert found["hardness"] == pytest.approx((0.6 + 0.6 + 0.6) / 3)  # without masks: (.8 + .6 + 1) / 3


def measured(pairs, name, conflicts=None, **settings):
    conflicts = no_conflicts(1000) if conflicts is None else conflicts
    batches = BatchPlanner(name, settings).build(0, pairs, 50, rows=1000, conflicts=conflicts, seed=0)
    return measure_epoch(*pairs, batches, conflicts=conflicts)


def test_known_positives_meet_neither_in_hobit_s_batches_nor_in_random_ones(pairs):
    conflicts = find_conflicts([i // 4 for i in range(1000)], list(range(1000)))
    planned = [measured(pairs, name, conflicts, **settings) for name, settings in (("hobit", SMALL), ("random", {}))]
    assert [each["contradictions"] for each in planned] == [0, 0]


def test_hobit_is_harder_than_random_over_the_whole_epoch(pairs):
    hobit, random = measured(pairs, "hobit", **SMALL, alpha=0.0), measured(pairs, "random")
    assert hobit["hardness"] > random["hardness"] + 0.03
    assert hobit["loss"] > random["loss"]


class Hashed:
    """An encoder that sees letters: no model needed."""

    name, dimension, fingerprint = "letters", 26, "letters-1"

    def route(self, kind):
        return kind

    def encode(self, texts, kind):
        counts = np.array([[text.lower().count(chr(97 + k)) + 0.01 for k in range(26)] for text in texts], np.float32)
        return counts / np.linalg.norm(counts, axis=1, keepdims=True)


@pytest.fixture
def collection():
    rng = np.random.default_rng(0)
    words = ["".join(rng.choice(list("abcdefgh"), 5)) for _ in range(200)]
    documents = {f"d{i}": " ".join(rng.choice(words, 6)) for i in range(90)}
    documents["d89"] = documents["d0"]  # one text under two ids
    queries = {f"q{i}": " ".join(rng.choice(words, 3)) for i in range(60)}
    qrels = {f"q{i}": {f"d{i}": 1, f"d{i + 1}": 1, f"d{i + 2}": 0} for i in range(60)}
    qrels["q1"]["d89"] = 1
    return Collection.from_dicts("small", documents, queries, {"train": qrels, "test": {"q0": {"d5": 1}}})


def test_conflicts_of_a_collection_know_all_splits_and_equal_texts(collection):
    pairs = training_rows(collection, form="pairs")
    conflicts = known_conflicts(collection, pairs.query_rows, pairs.doc_rows)
    row = {(f"q{q}", f"d{d}"): i for i, (q, d) in enumerate(zip(pairs.query_rows, pairs.doc_rows, strict=True))}
    mask = conflicts.matrix(np.arange(len(pairs)))
    assert mask[row["q0", "d0"], row["q5", "d5"]]  # q0 is answered by d5 in the test split
    assert not mask[row["q5", "d5"], row["q0", "d0"]]
    assert mask[row["q1", "d1"], row["q0", "d0"]]  # q1 is answered by d89, whose text is d0's
    assert not mask[row["q30", "d30"], row["q40", "d40"]]
    first = training_rows(collection, form="pairs", max_positives=1)
    assert (len(first), first.capped) == (60, 61)
    alone = known_conflicts(collection, first.query_rows, first.doc_rows).matrix(np.arange(60))
    assert alone[1, 0]  # d89 is no row here, but it answers q1, and its text is d0's
    assert alone[0, 1]  # what answers a query beyond the one positive that is trained on …
    assert not alone[8, 7]  # … and nothing else


def test_random_batches_are_those_beside_them(collection, tmp_path):
    given = {"encoder": Hashed(), "vectors": VectorStore(tmp_path / "vectors")}
    planned = batch(collection, "random", batch_size=16, **given)
    assert planned.measures == {**planned.random, "seconds": planned.measures["seconds"]}


def test_a_written_plan_names_every_pair_once_an_epoch(collection, tmp_path):
    given = {"encoder": Hashed(), "vectors": VectorStore(tmp_path / "vectors"), "settings": SMALL}
    planned = batch(collection, batch_size=16, **given)
    planned.write(tmp_path / "plan.parquet")
    table = pq.read_table(tmp_path / "plan.parquet")
    assert table.column_names == ["epoch", "batch", "position", "query_id", "doc_id"]
    named = {(q, d) for q, found in zip(range(60), range(60), strict=True) for d in (found, found + 1)} | {(1, 89)}
    rows = table.to_pylist()
    assert sorted((int(r["query_id"][1:]), int(r["doc_id"][1:])) for r in rows) == sorted(named)
    assert [(r["epoch"], r["batch"], r["position"]) for r in rows] == [(0, i // 16, i % 16) for i in range(121)]
    made = json.loads(table.schema.metadata[b"foils"])
    assert made["stage"] == "batch"
    assert made["settings"]["with"] == "hobit"
    batch(collection, batch_size=16, **given).write(tmp_path / "again.parquet")
    assert (tmp_path / "again.parquet").read_bytes() == (tmp_path / "plan.parquet").read_bytes()
    facts = json.loads(json.dumps(planned.to_json(), allow_nan=False))
    assert facts["pairs"] == 121
    assert facts["random"]["contradictions"] == facts["measures"]["contradictions"] == 0
    shown = str(planned)
    assert "121 rows in 8 batches of 16, made of 121 pairs" in shown


def test_a_source_says_which_queries_take_part(collection, tmp_path):
    rows = [{"query_id": f"q{i}", "doc_id": f"d{i + 7}", "source": "s", "rank": 0, "score": 1.0} for i in range(20)]
    given = {"source": Negatives(pa.Table.from_pylist(rows)), "encoder": Hashed(), "vectors": VectorStore(tmp_path)}
    table = batch(collection, "random", batch_size=8, max_positives=1, **given).table()
    assert sorted(table["query_id"].to_pylist()) == sorted(f"q{i}" for i in range(20))
    assert all(f"d{int(row['query_id'][1:]) + 7}" == row["negative_id"] for row in table.to_pylist())
    assert len(batch(collection, "random", form="pairs", **given).table()) == 121
