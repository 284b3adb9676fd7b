"""The same trainings in one process or in several, for `test_losses.py`: each writes the weights that it ends with.

In float64, so that what differs is not rounding, which Adam would enlarge.
"""

from __future__ import annotations

import copy
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sentence_transformers import SentenceTransformer

sys.path.insert(0, str(Path(__file__).parents[1]))

import foils
from foils.batching.vectors import rank_and_count
from foils.data import Collection, Negatives
from foils.data.read import CollectionSettings
from foils.training.data import TrainingSet, read_data_sets, training_set
from foils.training.fit import train_model
from foils.training.losses import TEACHER_LOSSES
from foils.training.settings import MethodSettings, TrainSettings
from train_models import bert_model, made_up, static_model, table

LEARNED = {"learn_temperature": True}
CASES: dict[str, dict[str, Any]] = {
    "mnrl": {"loss": "mnrl"},
    "weighted, learned temperature, cached": {"loss": "weighted", "loss_settings": LEARNED, "mini_batch_size": 3},
    "hard-weighted, cached": {"loss": "hard-weighted", "mini_batch_size": 3},
    "hybrid": {"loss": "hybrid"},
    "hybrid, uncertainty, cached": {"loss": "hybrid", "loss_settings": {"mixing": "uncertainty"}, "mini_batch_size": 3},
    "hybrid, gradnorm": {"loss": "hybrid", "loss_settings": {"mixing": "gradnorm"}},
    "hybrid, gradnorm, cached": {"loss": "hybrid", "loss_settings": {"mixing": "gradnorm"}, "mini_batch_size": 3},
    "margin-mse": {"loss": "margin-mse", "loss_settings": {"alpha": 0.5}},
    "distil, cached": {"loss": "distil", "loss_settings": {"alpha": 0.3}, "mini_batch_size": 3},
    "matryoshka, cached": {"loss": "mnrl", "matryoshka": (16, 8), "mini_batch_size": 3},
    **{f"batches {name}": {"batches": name} for name in ("hobit-c", "ngame")},
    "batches hobit, annealed": {"batches": "hobit", "batch_settings": {"seeds": 2, "warmup": 1, "anneal": 1}},
    "batches hobit, a mixture": {"batches": "hobit", "batch_settings": {"seeds": 2}, "mixed": True},
    "batches b3": {"batches": "b3", "batch_settings": {"skip": 2, "ranks": 10, "community_size": 8}},
}


def trained(case: dict[str, Any], folder: Path, bert: SentenceTransformer) -> np.ndarray:
    """The weights after two epochs of 64 triplets, and what the loss learned."""
    collection = made_up(queries=64)
    negatives = table(collection, per_query=2, rated=True)
    if case.get("loss") in TEACHER_LOSSES:
        vectors = str(folder.with_name(f"vectors-{os.environ.get('RANK', 0)}"))
        negatives = foils.score_pairs(collection, negatives, teacher=static_model(seed=3), vectors=vectors)
    data = mixture(collection, negatives) if "mixed" in case else training_set(collection, negatives, form="triplets")
    rows = len(data)
    assert rows % 16 == 0
    transformer = "mini_batch_size" in case or case.get("loss") == "mnrl"
    model = (copy.deepcopy(bert) if transformer else static_model()).double()
    batching = {name: case[name] for name in ("batches", "batch_settings") if name in case}
    steps = {name: value for name, value in case.items() if name not in (*batching, "mixed")}
    settings = TrainSettings(**{"batch_size": 16, "epochs": 2, "learning_rate": 1e-2, "max_length": None, **steps})
    run = train_model(model, data, folder / "run", settings=settings, **batching)
    assert run.steps == 2 * rows // settings.batch_size
    own = [value for path in sorted((folder / "run").glob("checkpoint-*/foils_loss.safetensors"))[-1:] for value in
           _values(path)]  # fmt: skip
    weights = [value.detach().numpy().ravel() for value in run.model.parameters()]
    losses = [entry["loss"] for entry in run.history if "loss" in entry]
    return np.concatenate([*weights, *own, np.asarray(losses)])


def mixture(collection: Collection, negatives: Negatives) -> TrainingSet:
    """The collection and another of as many rows."""
    other = made_up(queries=64, seed=1)
    settings = MethodSettings(also=[(other, table(other, per_query=2))])
    data, *_ = read_data_sets(collection, negatives, settings, CollectionSettings())
    assert np.bincount(data.facts.sources).tolist() == [64, 64]
    return data


def _values(path: Path) -> list[np.ndarray]:
    from safetensors.numpy import load_file

    return [value.astype(np.float64).ravel() for _, value in sorted(load_file(path).items())]


def main() -> None:
    folder = Path(sys.argv[1])
    chosen = sys.argv[2:] or list(CASES)
    bert = bert_model(folder / f"base-{os.environ.get('RANK', 0)}")  # before processes meet: then only the first saves
    torch.set_num_threads(1)
    for place, name in enumerate(chosen):
        weights = trained(CASES[name], folder / str(place), bert)
        if rank_and_count()[0] == 0:
            np.save(folder / f"{list(CASES).index(name)}.npy", weights)


if __name__ == "__main__":
    main()
