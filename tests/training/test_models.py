"""The learning rate of each kind of model, told from the loaded model and overridable; weights between two models'."""

from dataclasses import replace

import pytest
import torch

from foils.cli.app import run
from foils.encode import VectorStore
from foils.experiments import StudySettings, open_study, read_cells, run_cells
from foils.runtime.errors import InputError
from foils.runtime.files import write_json
from foils.training.models import LEARNING_RATES, kind_of, learning_rate_of, load_trainable, merged, with_defaults
from foils.training.settings import RECIPES, TrainSettings
from foils.training.train import train_model
from train_models import bert_model, cross_encoder, made_up, made_up_folder, rows_of, static_model, table, weights

SETTINGS = TrainSettings(batch_size=16, max_length=32)
STATIC = "static embedding"
RATE = LEARNING_RATES[STATIC][0]


@pytest.fixture(scope="module")
def places(tmp_path_factory):
    """Folders of a language model, and of an embedding model that was made of it."""
    folder = tmp_path_factory.mktemp("kinds")
    for name in ("language", "raw"):
        (folder / name).mkdir()
    bert_model(folder / "language").save_pretrained(str(folder / "encoder"))
    static_model().save_pretrained(str(folder / "static"))
    return folder


def test_a_model_s_kind_is_told_from_what_was_loaded(places):
    assert kind_of(load_trainable(str(places / "language"), device="cpu")) == "language model"
    assert kind_of(load_trainable(str(places / "encoder"), device="cpu")) == "encoder"
    assert kind_of(load_trainable(str(places / "static"), device="cpu")) == STATIC
    assert kind_of(static_model()) == STATIC
    assert kind_of(bert_model(places / "raw")) == "language model"  # put together by hand: nobody trained its vectors
    assert kind_of(cross_encoder(places / "raw")) == "reranker"


def test_each_kind_has_a_rate_and_a_given_one_stays():
    assert with_defaults(SETTINGS, static_model()).learning_rate == RATE
    given = replace(SETTINGS, loss="mnrl", learning_rate=0.5)
    assert with_defaults(given, static_model()) is given
    assert all(recipe.training.learning_rate is not None for recipe in RECIPES.values())  # as published, for every kind
    assert 10 * LEARNING_RATES["encoder"][0] < RATE


def test_a_wider_transformer_has_a_lower_rate(places):
    model = load_trainable(str(places / "language"), device="cpu")
    rate, measured = LEARNING_RATES["language model"]
    assert learning_rate_of(model) == rate  # narrower than the one measured: no higher
    model.transformers_model.config.hidden_size = 6 * measured
    assert learning_rate_of(model) == pytest.approx(rate / 6)


def test_every_function_that_trains_takes_it(tmp_path, places):
    for kind, make in ((STATIC, static_model), ("reranker", lambda: cross_encoder(places / "raw"))):
        found = []
        for rate in (None, LEARNING_RATES[kind][0]):
            settings, rows = (
                replace(SETTINGS, learning_rate=rate),
                rows_of("lists" if kind == "reranker" else "triplets"),
            )
            found.append(weights(train_model(make(), rows, tmp_path / f"{kind} {rate}", settings=settings).model))
        assert torch.equal(*found)


def test_the_verb_and_the_study_tell_the_rate_that_was_used(tmp_path, places, beir_folder):
    collection = made_up()
    negatives = table(collection)
    folder = made_up_folder(beir_folder)
    negatives.write(tmp_path / "n.parquet")
    how = ["--batch-size", "16", "--model", str(places / "static")]
    assert run(["train", str(folder), str(tmp_path / "n.parquet"), "-o", str(tmp_path / "out"), *how]) == 0
    assert f"| learning_rate | {RATE} |" in (tmp_path / "out" / "README.md").read_text()
    sources, store = {"a": negatives, "b": table(collection, seed=1)}, VectorStore(tmp_path / "v")
    models = [str(places / name) for name in ("static", "encoder")]
    settings = StudySettings(seeds=1, training={"batch_size": 64})
    run_cells(open_study(tmp_path / "study", collection, sources, models, settings), store)
    rates = {cell.facts["model"]["name"]: cell.facts["settings"]["training"] for cell in read_cells(tmp_path / "study")}
    assert {name: each["learning_rate"] for name, each in rates.items()} == {
        models[0]: RATE, models[1]: LEARNING_RATES["encoder"][0],
    }  # fmt: skip
    write_json(tmp_path / "same.json", rates)  # plain values


def test_the_default_and_the_same_rate_given_are_one_cell_of_a_study(tmp_path, places):
    collection, store = made_up(), VectorStore(tmp_path / "v")
    sources = {"a": table(collection), "b": table(collection, seed=1)}
    for training in ({"batch_size": 16}, {"batch_size": 16, "learning_rate": RATE}):
        settings = StudySettings(seeds=1, training=training)
        run_cells(open_study(tmp_path / "study", collection, sources, [str(places / "static")], settings), store)
    assert len(read_cells(tmp_path / "study")) == 1


@pytest.mark.parametrize("alpha", [0.0, 0.25, 1.0])
def test_every_weight_lies_between(alpha):
    base, tuned = static_model(0), static_model(1)
    first, second = weights(base).clone(), weights(tuned).clone()
    between = weights(merged(base, tuned, alpha))
    torch.testing.assert_close(between, (1 - alpha) * first + alpha * second)
    assert torch.equal(weights(base), first)
    assert torch.equal(between, second) == (alpha == 1)
    assert torch.equal(between, first) == (alpha == 0)


def test_what_cannot_be_merged(tmp_path):
    with pytest.raises(InputError, match=r"alpha 1\.5; expected a number from 0 to 1"):
        merged(static_model(), static_model(), 1.5)
    with pytest.raises(InputError, match="1 weights are not of the same names and shapes"):
        merged(static_model(), static_model(dimension=8), 0.5)
