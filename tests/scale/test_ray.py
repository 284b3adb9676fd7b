"""On a cluster of three nodes, one of which dies in the middle of the work."""

import os
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import scale_world
from scale_world import DOCUMENTS, QUERIES, WORK, WatchedEncoder, WatchedRetriever, cut_small, embedded, table, world

import fakes
import foils
from fakes import HashingEncoder, memory_of
from foils.mining import Miner, RandomRetriever
from foils.runtime import memory
from foils.runtime.errors import FailureError, InputError, MissingExtraError
from foils.runtime.parallel import map_shards, on_ray
from foils.runtime.progress import reporting
from refusals import refused

NODE = {"num_cpus": 1, "object_store_memory": 200_000_000}


@pytest.fixture
def cluster(monkeypatch):
    """A head without processors and three nodes of one each; nobody is connected to them yet."""
    ray = pytest.importorskip("ray")
    from ray.cluster_utils import Cluster

    for module in (fakes, scale_world):  # which workers could not import
        ray.cloudpickle.register_pickle_by_value(module)
    monkeypatch.setattr("foils.runtime.parallel.workers", lambda: 1)
    for name, value in (("RAY_USAGE_STATS_ENABLED", "0"), ("RAY_worker_niceness", "0"), ("OMP_NUM_THREADS", "1")):
        monkeypatch.setenv(name, value)
    head = {**NODE, "num_cpus": 0, "include_dashboard": False}
    started = Cluster(initialize_head=True, head_node_args=head)
    try:
        for _ in range(3):
            started.add_node(**NODE)
        yield started
    finally:
        ray.shutdown()
        started.shutdown()


class Killer:
    """Listens to the progress; after so many shards it kills a node, other than the head, that is at another one.

    After each of those before, it kills a worker alone.
    """

    def __init__(self, cluster: Any, notes: Path, watched: str = "embedding", after: int = 1) -> None:
        self.cluster, self.notes, self.watched, self.after = cluster, notes, watched, after
        self.killed: str | None = None
        self.progress: list[int] = []

    @contextmanager
    def task(self, description: str, total: int | None, unit: str) -> Iterator[Any]:
        def advance(count: int) -> None:
            if description.startswith(self.watched) and count:
                self.progress.append(count)
                if self.killed is None:
                    self.kill(machine=len(self.progress) == self.after)

        yield advance

    def kill(self, machine: bool) -> None:
        for _ in range(600):
            for node in self.cluster.list_all_nodes()[1:]:
                for note in under_way(self.notes, node.node_id):
                    os.kill(int(note.read_text()), signal.SIGKILL)  # a machine that dies takes its workers along
                    if machine:
                        self.cluster.remove_node(node, allow_graceful=False)
                        self.killed = node.node_id
                    else:
                        note.rename(note.with_suffix(".killed"))
                    return
            time.sleep(0.05)
        raise AssertionError("no node was at work")


def under_way(notes: Path, node: str) -> list[Path]:
    """Shards that a node began and did not end."""
    return [path for path in notes.glob(f"*-{node}.begun") if not path.with_suffix(".ended").exists()]


@pytest.mark.slow
def test_a_node_killed_in_the_middle_costs_its_shard_and_nothing_else(cluster, tmp_path, monkeypatch):
    cut_small(monkeypatch)
    here = embedded(tmp_path / "here")
    notes = tmp_path / "notes"
    notes.mkdir()
    killer = Killer(cluster, notes)
    with on_ray(cluster.address), reporting(killer.task):
        there = embedded(tmp_path / "there", WatchedEncoder(notes, 1.0))
    lost = under_way(notes, killer.killed)
    assert killer.killed is not None
    assert len(lost) == 1
    shards = sum(-(-min(64, DOCUMENTS - start) // 16) for start in range(0, DOCUMENTS, 64))  # of 16 texts, in slices
    begun, ended = (sorted(notes.glob(f"*.{kind}")) for kind in ("begun", "ended"))
    assert len(ended) == shards
    assert len(begun) == shards + 1  # one shard was done again
    nodes = {path.stem.partition("-")[2] for path in ended}
    assert len(nodes) >= 2
    assert sum(killer.progress) == DOCUMENTS
    assert len(killer.progress) == shards
    assert {name for name in there if not name.endswith(".part")} == here.keys()
    assert all(there[name] == here[name] for name in here)


@pytest.mark.slow
def test_mining_with_a_worker_and_a_node_killed_gives_the_bytes_of_one_process(cluster, tmp_path, monkeypatch):
    cut_small(monkeypatch)
    collection = world()
    here = Miner(collection, RandomRetriever(collection), top=5).mined("train")
    killer = Killer(cluster, tmp_path, "mining", after=2)
    with on_ray(cluster.address), reporting(killer.task):
        there = Miner(collection, WatchedRetriever(collection, tmp_path, 1.0), top=5).mined("train")
    assert table(there) == table(here)
    assert len(killer.progress) == QUERIES // 32
    assert len([*tmp_path.glob("*.killed")]) == 1
    assert len(under_way(tmp_path, killer.killed)) == 1
    assert len([*tmp_path.glob("*.ended")]) == QUERIES // 32  # two blocks were done again


@pytest.mark.slow
@pytest.mark.parametrize("nodes", [1, 3])
def test_any_number_of_nodes_gives_the_bytes_of_one_process(nodes, cluster, tmp_path, monkeypatch):
    cut_small(monkeypatch)
    for node in cluster.list_all_nodes()[1 + nodes :]:
        cluster.remove_node(node)
    for verb, work in WORK.items():
        here = work(tmp_path / "here" / verb)
        with on_ray(cluster.address):
            assert work(tmp_path / "there" / verb) == here, verb


@pytest.mark.slow
def test_errors_and_the_memory_budget_travel_and_a_shard_that_kills_every_worker_fails_in_the_end(cluster):
    def work(value):
        import os

        if value == "refused":
            raise InputError("that is too much; give 2")
        if value == "killed":
            os._exit(1)
        return memory.budget()

    with on_ray(cluster.address):
        with memory_of(3 * memory.LEAST):
            assert set(map_shards(work, range(3))) == {3 * memory.LEAST}
        refused("give 2", list, map_shards(work, ["fine", "refused", "fine"]))
    with on_ray(cluster.address, retries=1), pytest.raises(FailureError, match="2 times on Ray"):
        list(map_shards(work, ["fine", "killed"]))


@pytest.mark.slow
def test_a_task_larger_than_every_machine_is_refused(cluster, monkeypatch):
    monkeypatch.setattr("foils.runtime.parallel.workers", lambda: 5)
    with pytest.raises(InputError, match="set OMP_NUM_THREADS=1"), on_ray(cluster.address):
        pass


def test_an_address_without_a_cluster_is_refused():
    pytest.importorskip("ray")
    with pytest.raises(InputError, match="no Ray cluster can be reached at localhost"), on_ray("localhost:99999"):
        pass


def test_without_ray_its_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(MissingExtraError, match=r"foils\[ray\]"), on_ray():
        pass


@pytest.mark.slow
@pytest.mark.parametrize("method", ["random", "bm25", "dense"])
def test_mining_on_several_machines_is_mining_on_one(cluster, tmp_path, monkeypatch, method, write_beir):
    """5,000 queries of 10,000 documents go out in several parts, each with what looks for copies, or BM25's index."""
    monkeypatch.setenv("FOILS_CACHE", str(tmp_path))
    documents = {f"d{at}": ("", f"word{at % 97} term{at % 1009} item{at} of the text") for at in range(10_000)}
    queries = {f"q{at}": f"term{at % 1009} item{at}" for at in range(5_000)}
    judged = {f"q{at}": {f"d{at}": 1} for at in range(5_000)}
    collection = foils.load(
        write_beir(tmp_path / "many", documents=documents, queries=queries, qrels={"train": judged})
    )
    how = {"method": method, "top": 2, "near_duplicate": 0.9}
    how |= {"encoder": HashingEncoder()} if method == "dense" else {}
    here = foils.mine(collection, **how)
    there = foils.mine(collection, **how, ray=cluster.address)
    assert there.table.drop_columns("score").equals(here.table.drop_columns("score"))  # none of random ones: NaN
