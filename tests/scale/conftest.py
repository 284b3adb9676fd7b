"""A Ray cluster of three nodes on this machine."""

import pytest

NODE = {"num_cpus": 1, "object_store_memory": 200_000_000}


@pytest.fixture(scope="session")
def _quiet_ray():
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        patch.setenv("RAY_worker_niceness", "0")
        patch.setenv("OMP_NUM_THREADS", "1")
        yield


@pytest.fixture
def cluster(_quiet_ray, monkeypatch):
    """Three nodes of one processor each; nobody is connected to them yet."""
    ray = pytest.importorskip("ray")
    import scale_world
    from ray.cluster_utils import Cluster

    import fakes

    for module in (fakes, scale_world):  # which workers could not import
        ray.cloudpickle.register_pickle_by_value(module)
    monkeypatch.setattr("foils.runtime.scale.workers", lambda: 1)
    started = Cluster(initialize_head=True, head_node_args={**NODE, "include_dashboard": False})
    try:
        for _ in range(2):
            started.add_node(**NODE)
        yield started
    finally:
        ray.shutdown()
        started.shutdown()
