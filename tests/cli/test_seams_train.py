"""`foils train` and `foils.train` are one: the same model, card and numbers; and a plan is what training sees."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("datasets")
pytest.importorskip("sentence_transformers")

from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer

import foils as library
from foils.data import Negatives, load_collection
from foils.encode import VectorStore
from foils.runtime.errors import InputError, UnknownNameError
from foils.runtime.files import write_json
from foils.training.settings import OPEN, RECIPES, Recipe, TrainSettings, completed
from train_models import WORDS, cross_encoder, static_model, table

Foils = Callable[..., Any]
HOBIT = {"batches": "hobit", "batch_settings": {"seeds": 2, "seed_order": "uniform"}}
STEPS = {"epochs": 2, "batch_size": 8, "learning_rate": 0.05, "seed": 3}


@pytest.fixture
def world(beir_folder: Callable[..., Path], tmp_path: Path) -> Path:
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


def test_train(foils: Foils, world: Path, tmp_path: Path) -> None:
    source, model, out = tmp_path / "rated.parquet", tmp_path / "static", tmp_path / "out"
    options = ["--loss", "weighted", "--set", "temperature=0.1", "--batches", "hobit", "--set-batches", "seeds=2"]
    options += ["--set-batches", "seed_order=uniform", "--per-query", 2, "--dev", "dev"]
    options += [part for name, value in STEPS.items() for part in (f"--{name.replace('_', '-')}", value)]
    ended = foils(
        "train", world, f"rated={source}", "--model", model, *options, "-o", out, "--json", tmp_path / "program.json"
    )
    assert ended.status == 0, ended.err
    program = files(out)
    collection, negatives = load_collection(world), Negatives.read(source)
    for number, given in enumerate((f"rated={source}", negatives)):
        trained = library.train(
            collection if number else world, given, model=model if number else str(model), output=out,
            loss="weighted", loss_settings={"temperature": 0.1}, per_query=2, dev="dev",
            **HOBIT, **STEPS,
        )  # fmt: skip
        if number == 0:
            assert files(out) == program
            write_json(tmp_path / "library.json", trained.to_json())
            assert (tmp_path / "library.json").read_bytes() == (tmp_path / "program.json").read_bytes()
            assert without_clock(str(trained)) == without_clock(ended.out)
        weights = {name: data for name, data in files(out).items() if name.endswith("safetensors")}
        assert weights == {name: data for name, data in program.items() if name.endswith("safetensors")}
    assert trained.path == out
    evaluated = library.evaluate(collection, {"tuned": trained.model, "written": str(out)}, split="dev")
    tuned, written = evaluated.to_json()["systems"]
    assert tuned["measures"] == written["measures"]
    assert tuned["measures"]["nDCG@10"] == pytest.approx(trained.scores["nDCG@10 on dev after"])


def test_a_teachers_scores_are_learned_from(foils: Foils, world: Path, tmp_path: Path) -> None:
    source, model, taught = tmp_path / "rated.parquet", tmp_path / "static", tmp_path / "taught.parquet"
    other = tmp_path / "other"
    static_model(seed=3).save_pretrained(str(other))
    teachers = [f"bi-encoder:{other}", f"bi-encoder:{model}"]
    vectors = f"vectors={tmp_path / 'vectors'}"
    options = ["--teacher", teachers[0], "--teacher", teachers[1], "--average", "rank", "--encoder-args", vectors]
    ended = foils("score-pairs", world, source, *options, "-o", taught, "--json", tmp_path / "scored.json")
    assert ended.status == 0, ended.err
    assert "prefers the positive" in ended.out
    use = {"vectors": tmp_path / "vectors"}
    scored = library.score_pairs(world, source, teacher=teachers, average="rank", **use)
    scored.write(tmp_path / "library.parquet")
    assert taught.read_bytes() == (tmp_path / "library.parquet").read_bytes()
    assert json.loads((tmp_path / "scored.json").read_text()) == scored.to_json()
    steps = ["--loss", "distil", "--set", "alpha=0.5", "--form", "lists", "--batch-size", 8]
    ended = foils("train", world, taught, "--model", model, *steps, "-o", tmp_path / "out")
    assert ended.status == 0, ended.err


@pytest.mark.parametrize("form", ["triplets", "lists", "pairs"])
def test_a_plan_is_what_training_sees(form: str, world: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[list[int]] = []
    original = SentenceTransformerTrainer.compute_loss

    def noting(self: Any, model: Any, inputs: dict[str, Any], *given: Any, **more: Any) -> Any:
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


def test_a_model_in_memory_is_trained(world: Path, tmp_path: Path) -> None:
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


def test_a_recipe_fills_in_what_is_open(tmp_path: Path) -> None:
    hobit = RECIPES["hobit"].training
    assert completed(OPEN, Recipe(), evaluated=True) == TrainSettings()
    assert completed(OPEN, RECIPES["hobit"], evaluated=True) == hobit
    assert completed(OPEN, RECIPES["hobit"], evaluated=False).patience is None
    given = TrainSettings(**{**vars(OPEN), "batch_size": 128, "loss": "debiased", "loss_settings": {"prior": 0.2}})
    chosen = completed(given, RECIPES["eci-sem"], evaluated=False)
    assert (chosen.batch_size, chosen.loss_settings) == (128, {"prior": 0.2}), "a default that is given is given"
    assert (chosen.mini_batch_size, chosen.learning_rate) == (2048, 2e-5)


def test_what_does_not_go_together_is_refused_in_both(foils: Foils, small: Any, tmp_path: Path) -> None:
    ended = foils("train", "nowhere", "-o", tmp_path / "out", "--training-args", "patience=3")
    assert (ended.status, "--training-args patience=3: no effect without --dev" in ended.err) == (2, True)
    output = tmp_path / "out"
    with pytest.raises(InputError, match="patience 3: no effect without dev"):
        library.train(small, output=output, patience=3)
    with pytest.raises(InputError, match="give dev_run"):
        library.train(small, output=output, reranker=True, dev="dev")
    with pytest.raises(InputError, match="no effect with reranker, which has no in-batch negatives"):
        library.train(small, output=output, reranker=True, batch_settings={"seeds": 2})
    with pytest.raises(InputError, match="no settings"):
        library.train(small, output=output, batches="no-duplicates", batch_settings={"seeds": 2})
    with pytest.raises(InputError, match="unknown setting of ngame 'seeds'"):
        library.train(small, output=output, batches="ngame", batch_settings={"seeds": 2})
    with pytest.raises(UnknownNameError, match="hobit"):
        library.train(small, output=output, batches="hobits")
    assert not output.exists()


def test_help_names_the_defaults_that_hold() -> None:
    defaults = library.train.settings  # type: ignore[attr-defined]
    assert json.dumps({name: defaults[name].default for name in ("batch_size", "seed", "precision")}) == (
        '{"batch_size": null, "seed": 0, "precision": "auto"}'
    )
