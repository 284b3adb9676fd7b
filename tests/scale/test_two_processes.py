"""foils train in two processes of torch.distributed (gloo), as torchrun starts them."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from safetensors.numpy import load_file

from train_models import made_up, made_up_folder, static_model, table

ROWS, BATCH, EPOCHS = 80, 8, 2


@pytest.mark.slow
def test_two_processes_share_the_batches_and_write_what_one_writes(tmp_path, write_beir):
    made_up_folder(lambda _, **contents: write_beir(tmp_path / "world", **contents))
    table(made_up()).write(tmp_path / "negatives.parquet")
    static_model().save_pretrained(str(tmp_path / "before"))
    how = f"--model before --batch-size {BATCH} --batches hobit-c --epochs {EPOCHS} --learning-rate 0.05"
    verb = ["train", "world", "negatives.parquet", *how.split(), "--set-trainer", "warmup_steps=0.5"]
    alone = [sys.executable, "-c", "from foils.cli import main; main()"]
    (tmp_path / "foils_program.py").write_text("from foils.cli import main\n\nmain()\n")
    both = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "foils_program.py"]
    own = {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "", "FOILS_CACHE": str(tmp_path / "cache")}
    for name, program in (("one", alone), ("two", both)):
        done = subprocess.run(
            [*program, *verb, "-o", name, "--json", f"{name}.json"],
            cwd=tmp_path, env=os.environ | own | {"HF_HUB_OFFLINE": "1"}, capture_output=True, text=True, timeout=600,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr[-3_000:]
    one, two = (json.loads((tmp_path / f"{name}.json").read_text()) for name in ("one", "two"))
    assert one["steps"] == EPOCHS * ROWS // BATCH
    assert two["steps"] == one["steps"]
    losses = [entry["loss"] for entry in two["history"] if "loss" in entry]
    assert losses[-1] < losses[0]
    for made in (one, two):  # the learning rate rises for half of the steps that are taken, however many processes
        rates = [entry["learning_rate"] for entry in made["history"] if "loss" in entry]
        assert len(rates) == made["steps"]
        assert rates.index(max(rates)) == made["steps"] // 2
    weights = {name: read(tmp_path / name) for name in ("before", "one", "two")}
    assert (weights["two"] != weights["before"]).any()
    # Adam enlarges what single precision rounds; in double the two agree to 1e-6 (tests/training/test_gathering.py)
    assert abs(weights["two"] - weights["one"]).mean() < 1e-4 < abs(weights["two"] - weights["before"]).mean()
    assert not list((tmp_path / "two").rglob("*.part"))


def read(folder: Path):
    return next(iter(load_file(next(folder.rglob("model.safetensors"))).values()))
