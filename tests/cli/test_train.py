"""`foils train` and `foils.train` are one: the same model, card and numbers; and a plan is what training sees."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("datasets")
pytest.importorskip("sentence_transformers")

from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer

import foils as library
from foils.data import load_collection
from foils.encode import VectorStore
from foils.runtime.errors import InputError
from foils.training.settings import OPEN, RECIPES, Recipe, TrainSettings, completed
from train_models import WORDS, cross_encoder, static_model, table

HOBIT = {"batches": "hobit", "batch_settings": {"seeds": 2, "seed_order": "uniform"}}
STEPS = {"epochs": 2, "batch_size": 8, "learning_rate": 0.05, "seed": 3}


@pytest.fixture
def world(beir_folder, tmp_path):
    """A BEIR folder `made-up`, rated negatives, and a static model."""
    rng = np.random.default_rng(0)
    documents = {f"d{i}": ("", " ".join(rng.choice(WORDS, 6))) for i in range(60)}
    queries = {f"q{i}": " ".join(documents[f"d{i}"][1].split()[:3]) for i in range(30)}
    splits = {"train": range(20), "dev": range(20, 30)}
    qrels = {split: {f"q{i}": {f"d{i}": 1} for i in rows} for split, rows in splits.items()}
    folder = beir_folder("made-up", documents=documents, queries=queries, qrels=qrels)
    table(load_collection(folder), rated=True).write(tmp_path / "rated.parquet")
    static_model().save_pretrained(str(tmp_path / "static"))
    return folder


def files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def without_clock(text: str) -> list[str]:
    return re.sub(r"in [\d.,]+ s", "", text).split()


@pytest.mark.parametrize("form", ["triplets", "lists", "pairs"])
def test_a_plan_is_what_training_sees(form, world, tmp_path, monkeypatch):
    seen: list[list[int]] = []
    original = SentenceTransformerTrainer.compute_loss

    def noting(self, model, inputs, *given, **more):
        seen.append(inputs["label"].tolist())
        return original(self, model, inputs, *given, **more)

    monkeypatch.setattr(SentenceTransformerTrainer, "compute_loss", noting)
    collection, source = load_collection(world), tmp_path / "rated.parquet"
    shape = {"form": form, "max_positives": 1, **({} if form == "pairs" else {"per_query": 2})}
    plan = library.batch(
        collection, "hobit", source, encoder=static_model(), vectors=VectorStore(tmp_path / "v"), batch_size=8,
        settings=HOBIT["batch_settings"], seed=3, max_length=None, **shape,
    )  # fmt: skip
    library.train(
        collection, source, model=static_model(), output=tmp_path / "out", loss="weighted", **HOBIT, **STEPS, **shape
    )
    first = plan.plan.epochs[0]
    assert seen[: len(first)] == [rows.tolist() for rows in first]


def test_a_model_in_memory_is_trained(world, tmp_path):
    model = static_model()
    trained = library.train(world, tmp_path / "rated.parquet", model=model, output=tmp_path / "out", **STEPS)
    assert trained.model is model
    again = SentenceTransformer(str(tmp_path / "out"), device="cpu")
    assert np.array_equal(again.encode("ba be"), model.encode("ba be"))
    reranker = cross_encoder(tmp_path / "cross")
    with pytest.raises(InputError, match="CrossEncoder"):
        library.train(world, model=reranker, output=tmp_path / "other")
    given = {"reranker": True, "output": tmp_path / "other", "batch_size": 8}
    assert library.train(world, tmp_path / "rated.parquet", model=reranker, **given).model is reranker


def test_a_recipe_fills_in_what_is_open(tmp_path):
    hobit = RECIPES["hobit"].training
    assert completed(OPEN, Recipe(), evaluated=True) == TrainSettings()
    assert completed(OPEN, RECIPES["hobit"], evaluated=True) == hobit
    assert completed(OPEN, RECIPES["hobit"], evaluated=False).patience is None
    given = TrainSettings(**{**vars(OPEN), "batch_size": 128, "loss": "debiased", "loss_settings": {"prior": 0.2}})
    chosen = completed(given, RECIPES["eci-sem"], evaluated=False)
    assert (chosen.batch_size, chosen.loss_settings) == (128, {"prior": 0.2}), "a default that is given is given"
    assert (chosen.mini_batch_size, chosen.learning_rate) == (2048, 2e-5)
