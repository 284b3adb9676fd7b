"""Dense mining where a device is named: what it screens is ranked as the processor ranks everything."""

from __future__ import annotations

import numpy as np
import pytest

from foils.encode import Vectors, nearest
from foils.encode.opening import EncodingSettings
from foils.mining.dense import DenseRetriever
from foils.mining.methods import Models
from train_models import made_up

pytest.importorskip("torch")


def test_a_retriever_on_a_device_ranks_the_same():
    rng = np.random.default_rng(0)
    queries, documents = (Vectors.of(rng.normal(size=(n, 8)).astype(np.float32)) for n in (12, 300))
    rows = np.arange(12)
    devices = (None, "cpu", "cuda:0")  # the last with or without a GPU
    found = [DenseRetriever(queries, documents, device=device).search(rows, 20) for device in devices]
    assert len({rows.tobytes() + scores.tobytes() for rows, scores in found}) == 1


@pytest.mark.parametrize(("named", "used"), [(None, None), ("cpu", None), ("cuda:0", "cuda:0"), ("mps", None)])
def test_the_device_is_the_encoders_where_it_is_no_processor(named, used):
    assert Models(made_up(), "train", None, EncodingSettings(device=named)).gpu == used


def test_the_device_is_handed_on(monkeypatch):
    seen = []

    class Noting(nearest._DeviceScreen):
        def __init__(self, *given):
            seen.append(given[-1])
            super().__init__(*given)

    monkeypatch.setattr(nearest, "_DeviceScreen", Noting)
    held = Vectors.of(np.eye(4, dtype=np.float32))
    DenseRetriever(held, held).search(np.arange(4), 2)
    assert seen == []
    DenseRetriever(held, held, device="cpu").search(np.arange(4), 2)
    assert seen == ["cpu"]
