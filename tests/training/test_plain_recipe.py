"""What `foils train` does where nothing else is said: batch, steps, learning rate and length by the data and model."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest
import torch

import foils
from foils.cli.app import run
from foils.encode.models import length_of
from foils.runtime import progress
from foils.runtime.errors import InputError
from foils.training.data import training_set
from foils.training.models import learning_rate_of, plain_recipe, training_length
from foils.training.settings import OPEN
from train_models import bert_model, cross_encoder, made_up, made_up_folder, static_model, table, weights


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """A model of each kind."""
    folder = tmp_path_factory.mktemp("kinds")
    language = bert_model(folder)
    language.save_pretrained(str(folder / "encoder"))
    encoder = type(language)(str(folder / "encoder"), device="cpu")
    return {"static": static_model(), "encoder": encoder, "language": language, "reranker": cross_encoder(folder)}


@pytest.mark.parametrize(
    ("kind", "rows", "batch", "steps", "times"),
    [
        ("encoder", 724, 64, 200, 3),  # 12 steps an epoch
        ("encoder", 20_000, 64, 313, 600 / 313),
        ("encoder", 100_000, 64, 1563, 1),
        ("encoder", 64, 16, 160, 3),  # 4 steps an epoch, 40 epochs
        ("encoder", 1, 16, 40, 3),
        ("static", 724, 128, 200, 1),
        ("static", 100_000, 128, 782, 1),
        ("language", 724, 64, 200, 1),
        ("reranker", 724, 16, 200, 1),
    ],
)
def test_steps_batch_and_rate_by_the_number_of_rows(models, kind, rows, batch, steps, times):
    recipe = plain_recipe(rows, models[kind])
    assert (recipe.batch_size, recipe.steps) == (batch, steps)
    assert recipe.learning_rate == pytest.approx(times * learning_rate_of(models[kind]))


def asked(**settings):
    return replace(OPEN, **settings)


def test_what_is_given_holds_and_the_rest_suits_it(models):
    model = models["encoder"]
    usual = learning_rate_of(model)
    assert plain_recipe(724, model, asked(batch_size=8)).batch_size == 8
    many = plain_recipe(724, model, asked(epochs=100))
    assert (many.steps, many.epochs, many.steps_of(724)) == (None, 100, 1200)
    assert many.learning_rate == usual
    assert plain_recipe(724, model, asked(steps=300)).learning_rate == pytest.approx(2 * usual)
    given = plain_recipe(724, model, asked(learning_rate=0.5, loss="debiased", loss_settings={"prior": 0.2}))
    assert (given.learning_rate, given.loss, given.loss_settings) == (0.5, "debiased", {"prior": 0.2})
    assert plain_recipe(724, model, asked(lora=8)).learning_rate == pytest.approx(10 * usual)
    accumulated = plain_recipe(100_000, model, asked(trainer={"gradient_accumulation_steps": 4}))
    assert accumulated.steps == math.ceil(100_000 / 256)


def test_more_data_never_takes_fewer_steps_or_a_higher_rate(models):
    recipes = [plain_recipe(rows, models["encoder"]) for rows in (1, 10, 100, 1_000, 10_000, 100_000, 10**6)]
    assert all(np.diff([each.steps for each in recipes]) >= 0)
    assert all(np.diff([each.learning_rate for each in recipes]) <= 0)
    assert all(np.diff([each.batch_size for each in recipes]) >= 0)


def test_the_verb_trains_by_the_recipe_and_says_so(tmp_path, beir_folder):
    folder = made_up_folder(beir_folder)
    static_model().save_pretrained(str(tmp_path / "static"))
    common = ["train", str(folder), "--model", str(tmp_path / "static"), "--device", "cpu"]
    for name, more, steps in (("plain", [], 80), ("steps", ["--steps", "7"], 7), ("epochs", ["--epochs", "3"], 6)):
        assert run([*common, *more, "-o", str(tmp_path / name)]) == 0
        written = json.loads((tmp_path / name / "foils_training.json").read_text())
        assert written["steps"] == steps, name
        assert written["provenance"]["settings"]["batch_size"] == 16
    assert run([*common, "--steps", "7", "--epochs", "3", "-o", str(tmp_path / "both")]) == 2
    assert not (tmp_path / "both").exists()


def test_steps_and_epochs_exclude_one_another(tmp_path):
    with pytest.raises(InputError, match=r"steps 7: no effect with epochs 3"):
        foils.train(made_up(), model=static_model(), steps=7, epochs=3, output=tmp_path / "out")


def test_steps_of_the_number_of_epochs_make_the_same_weights(tmp_path):
    how = {"batch_size": 8, "learning_rate": 0.05, "device": "cpu"}
    one = foils.train(made_up(), model=static_model(), epochs=3, output=tmp_path / "a", **how)
    other = foils.train(made_up(), model=static_model(), steps=9, output=tmp_path / "b", **how)
    assert one.run.steps == other.run.steps == 9
    assert torch.equal(weights(one.model), weights(other.model))


def test_dev_is_looked_at_a_few_times_within_the_steps(tmp_path):
    how = {"dev": "dev", "steps": 20, "batch_size": 8, "device": "cpu"}
    trained = foils.train(made_up(), model=static_model(), output=tmp_path / "out", **how)
    measured = {int(entry["step"]): entry["dev"] for entry in trained.run.history if "dev" in entry}
    assert [*measured] == [5, 10, 15, 20]
    assert trained.run.best == max(measured.values())


def test_the_steps_of_the_pairs_alone_are_said_where_they_differ(tmp_path):
    collection = made_up()
    negatives = table(collection)  # four for each of 20 queries
    how = {"model": static_model(), "batch_size": 8, "device": "cpu"}
    trained = foils.train(collection, negatives, epochs=1, output=tmp_path / "a", **how)
    assert trained.run.steps == 10
    expected = "10 steps; in-batch negatives alone would have 3: to compare, train both for 10 steps (--steps)"
    assert expected in str(trained)
    for same in ({"steps": 10}, {"form": "lists", "epochs": 1}):
        trained = foils.train(collection, negatives, output=tmp_path / "b", **same, **how)
        assert "in-batch negatives alone" not in str(trained)
    assert "in-batch negatives alone" not in str(foils.train(collection, epochs=1, output=tmp_path / "c", **how))


def test_the_program_says_the_steps_in_its_own_words(tmp_path, beir_folder, capsys):
    collection = made_up()
    table(collection).write(tmp_path / "made.parquet")
    static_model().save_pretrained(str(tmp_path / "static"))
    arguments = ["train", str(made_up_folder(beir_folder)), str(tmp_path / "made.parquet"), "--model"]
    arguments += [str(tmp_path / "static"), "--epochs", "1", "--batch-size", "8", "-o", str(tmp_path / "out")]
    assert run(arguments) == 0
    assert "to compare, train both for 10 steps (--steps)" in " ".join(capsys.readouterr().out.split())


def test_an_epoch_of_a_reranker_that_learns_from_pairs_is_of_pairs(tmp_path):
    collection = made_up(queries=120, documents=160)
    negatives = table(collection)  # four for each of 60 queries
    how = {"reranker": True, "batch_size": 1, "device": "cpu"}
    for loss, steps in (("binary", 300), ("listnet", 200)):
        model = cross_encoder(tmp_path / loss)
        trained = foils.train(collection, negatives, model=model, loss=loss, output=tmp_path / f"{loss}-out", **how)
        assert trained.run.steps == steps
        assert trained.run.history[-1]["epoch"] == pytest.approx(steps / (300 if loss == "binary" else 60), abs=0.1)


WORDS = "ba be bi bo bu"


def documents_of(lengths):
    """Texts of so many words, each one token."""
    return [" ".join((WORDS.split() * length)[:length]) for length in lengths]


@pytest.mark.parametrize(
    ("lengths", "own", "expected"),
    [
        ([64] * 10, 512, 64),
        ([65] * 10, 512, 64),  # one of 65
        ([68] * 10, 512, 128),  # 4 of 68 are more than 5 %
        ([20] * 100 + [200], 512, 128),  # 136 of 2200 at 64, 72 of 2200 at 128
        ([300] * 3, 512, 512),
        ([300] * 3, 256, 256),  # none is short enough: the model's own
        ([60] * 3, 48, 48),
        ([600] * 3, 700, 700),
    ],
)
def test_the_shortest_length_that_cuts_fewer_than_five_percent(lengths, own, expected, tmp_path):
    model = bert_model(tmp_path)
    model.max_seq_length = own
    found = training_length(model, documents_of(lengths))
    assert found.tokens == expected
    assert found.cut == pytest.approx(sum(max(0, length - expected) for length in lengths) / sum(lengths))
    assert length_of(model) == own
    given = training_length(model, documents_of(lengths), tokens=32)
    assert given.tokens == 32
    assert given.cut == pytest.approx(sum(max(0, length - 32) for length in lengths) / sum(lengths))


def test_a_word_table_cuts_nothing():
    found = training_length(static_model(), documents_of([1000]))
    assert (found.tokens, found.cut) == (None, 0.0)


@pytest.mark.parametrize("reranker", [False, True])
def test_the_verb_chooses_the_length_and_says_what_is_cut(reranker, tmp_path):
    model = (cross_encoder if reranker else bert_model)(tmp_path / "raw")
    model.max_seq_length = 32
    short = made_up()
    texts = {f"d{i}": " ".join([word] * 80) for i, word in enumerate(WORDS.split())}
    judged = {"train": {"q0": {"d0": 1}, "q1": {"d1": 1}}}
    long = foils.Collection.from_dicts("long", texts, {"q0": "ba", "q1": "be"}, judged)
    how = {"model": model, "steps": 1, "reranker": reranker, "device": "cpu"}
    for collection, cut in ((short, ""), (long, "documents are cut after 32 tokens in training: ")):
        mined = foils.mine(collection, "random", top=2) if reranker else None
        trained = foils.train(collection, mined, output=tmp_path / collection.name, **how)
        assert trained.provenance["settings"]["max_length"] == 32
        assert trained.run.facts["model_max_length"] == 32
        assert bool(cut) == ("cut after" in str(trained))
        assert cut in str(trained)


def test_progress_shows_the_loss_and_the_result_its_beginning_and_end(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(progress, "LEAST", 0.0)
    with progress.reporting(progress.bars):
        trained = foils.train(made_up(), model=static_model(), steps=20, output=tmp_path / "out", device="cpu")
    losses = [entry["loss"] for entry in trained.run.history if "loss" in entry]
    assert len(losses) == 20
    said = [line for line in capsys.readouterr().err.splitlines() if "foils: training: 20 steps" in line]
    assert said[0].endswith(f", loss {losses[-1]:.4f}")
    first, last = np.mean(losses[:2]), np.mean(losses[-2:])
    assert f"loss: {first:.4f} in the first tenth of the steps, {last:.4f} in the last" in str(trained)


def test_an_epoch_of_two_data_sets_has_the_rows_of_both(tmp_path):
    small, large = made_up(queries=8), made_up(seed=1)
    trained = foils.train(small, also=[large], model=static_model(), epochs=1, batch_size=4,
                          output=tmp_path / "out", device="cpu")  # fmt: skip
    assert trained.run.steps == -(-(4 + len(training_set(large))) // 4)
    assert len(training_set(small)) == 4
