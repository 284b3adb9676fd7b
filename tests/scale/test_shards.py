"""Where shards are done changes nothing: everything goes to other processes and back, in any order, even twice."""

import pickle

import numpy as np
import pytest
from scale_world import WORK, Elsewhere, cut_small, dense, world

from fakes import HashingEncoder
from foils.data import Collection, load_collection
from foils.encode import Vectors, VectorStore
from foils.runtime.parallel import executing, map_shards


def squared(value: int) -> int:
    return value * value


def test_without_an_executor_shards_are_done_here_one_after_the_other():
    seen: list[int] = []

    def work(value):
        seen.append(value)
        return squared(value)

    found = map_shards(work, iter(range(4)))
    assert next(found) == 0
    assert seen == [0]  # the second is not begun before it is asked for
    assert list(found) == [1, 4, 9]
    assert list(map_shards(work, [])) == []


def test_an_executor_gets_the_shards_and_their_results_come_in_order():
    elsewhere = Elsewhere()
    with executing(elsewhere):
        assert list(map_shards(squared, range(12))) == [value**2 for value in range(12)]
        assert list(map_shards(squared, [])) == []
        assert list(map_shards(squared, [3])) == [9]  # a single one is done here, unless it runs a model
        assert elsewhere.maps == [12]
        assert list(map_shards(squared, [3], model=True)) == [9]
    assert list(map_shards(squared, range(3))) == [0, 1, 4]
    assert elsewhere.maps == [12, 1]


@pytest.mark.parametrize("verb", WORK)
def test_other_processes_give_the_same_bytes(verb, tmp_path, monkeypatch):
    cut_small(monkeypatch)
    here, elsewhere = WORK[verb](tmp_path / "here"), Elsewhere()
    with executing(elsewhere):
        there = WORK[verb](tmp_path / "there")
    assert there.keys() == here.keys()
    assert [name for name in here if here[name] != there[name]] == []
    assert sum(shards > 1 for shards in elsewhere.maps) >= (1 if verb == "embed" else 3)


def test_mapped_vectors_are_sent_by_their_path(tmp_path):
    store = VectorStore(tmp_path)
    found = store.embed(HashingEncoder(256), [f"text {i}" for i in range(500)], "document").select([7, 3, 499])
    sent = pickle.dumps(found)
    assert len(sent) < 2_000 < found.array.nbytes
    np.testing.assert_array_equal(pickle.loads(sent).take(slice(None)), found.take(slice(None)))
    in_memory = Vectors.of(np.arange(6.0).reshape(3, 2))
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(in_memory)).take([2]), [[4, 5]])
    part = Vectors(found.array[:, :3], found.positions)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(part)).take([1]), part.take([1]))


def test_a_stored_collection_is_sent_by_its_folder(beir_folder, tmp_path, monkeypatch):
    monkeypatch.setenv("FOILS_CACHE", str(tmp_path / "cache"))
    stored = load_collection(str(beir_folder()))
    fewer = Collection(stored.name, stored.documents, stored.queries, {"test": stored.qrels["test"]}, "", stored.folder)
    again = pickle.loads(pickle.dumps(fewer))
    assert again.documents.equals(stored.documents)
    assert again.splits == ["test"]
    assert len(pickle.dumps(stored)) < 20_000
    assert pickle.loads(pickle.dumps(world())).documents.equals(world().documents)


def test_what_is_not_portable_stays_here(tmp_path, monkeypatch):
    from foils.mining import Miner

    cut_small(monkeypatch)
    collection, retriever = dense(tmp_path)
    portable = Miner(collection, retriever, top=3).mined("train")
    monkeypatch.setattr(type(retriever), "portable", False)
    elsewhere = Elsewhere()
    with executing(elsewhere):
        here = Miner(collection, retriever, top=3).mined("train")
    assert elsewhere.maps == []
    assert here.table.equals(portable.table)
