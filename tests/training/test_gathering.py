"""Several processes: a batch is shared out, and its loss is that of one process."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from gathering_training import CASES

from foils.runtime.errors import InputError
from foils.training import losses
from foils.training.losses import Share, average_gradients

PROGRAM = Path(__file__).with_name("gathering_training.py")


@pytest.fixture(scope="module")
def weights(tmp_path_factory):
    """What every training ends with, in one process and in two."""
    own = {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "", "ACCELERATE_USE_CPU": "true", "HF_HUB_OFFLINE": "1"}
    torchrun = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    found = []
    for name, before in (("one", []), ("two", torchrun)):
        folder = tmp_path_factory.mktemp(name)
        done = subprocess.run(
            [sys.executable, *before, str(PROGRAM), str(folder)],
            env=os.environ | own, capture_output=True, text=True, timeout=1_800,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr[-3_000:]
        found.append([np.load(folder / f"{place}.npy") for place in range(len(CASES))])
    return found


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_two_processes_train_what_one_trains(weights, name):
    one, two = (of[list(CASES).index(name)] for of in weights)
    np.testing.assert_allclose(two, one, rtol=0, atol=1e-6)


def test_one_process_exchanges_nothing():
    share, vectors = Share.of(3, gather=True), torch.randn(3, 2, requires_grad=True)
    assert (share.begin, share.size) == (0, 3)
    assert share.gathered(vectors) is vectors
    assert share.own_of(vectors) is vectors
    assert share.averaged(vectors) is vectors
    torch.testing.assert_close(share.norm(vectors, vectors), torch.sqrt(2 * vectors.square().sum()))
    vectors.grad = torch.ones(3, 2)
    average_gradients([vectors])
    assert (vectors.grad == 1).all()


def test_shares_of_different_sizes_are_refused(monkeypatch):
    def gather(into, own):
        into[:] = [own, 2]

    monkeypatch.setattr(losses, "rank_and_count", lambda: (0, 2))
    monkeypatch.setattr(losses.dist, "all_gather_object", gather)
    with pytest.raises(InputError, match=r"the processes have \[3, 2\] rows of a batch"):
        Share.of(3, gather=True)
    assert Share.of(3, gather=False) == Share(3)


def test_the_own_documents_of_each_column_are_taken(monkeypatch):
    # two processes of 2 rows, 3 columns: candidates are numbered column after column, rows in the order of processes
    monkeypatch.setattr(losses, "_summed", lambda values: values)
    candidates = torch.arange(12.0)
    assert Share(2, 0, 2).own_of(candidates).tolist() == [0, 1, 4, 5, 8, 9]
    assert Share(2, 1, 2).own_of(candidates).tolist() == [2, 3, 6, 7, 10, 11]
