"""Batches of training from ids that are there: the model's own features, the same weights, each text tokenised once."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformerTrainer, SentenceTransformerTrainingArguments
from sentence_transformers.sentence_transformer.data_collator import SentenceTransformerDataCollator
from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss

import foils
from foils.batching.vectors import encoder_of
from foils.encode import tokens
from foils.training import data as data_module
from foils.training.data import TokenCollator, training_set
from foils.training.fit import train_model
from foils.training.settings import TrainSettings
from train_models import bert_model, cross_encoder, made_up, static_model, table

COLLECTION = made_up()
NEGATIVES = table(COLLECTION)
SETTINGS = TrainSettings(batch_size=16, epochs=2, learning_rate=0.05, max_length=32)


@pytest.fixture
def asked(monkeypatch):
    """Every text that a tokenizer was asked for, by the prompt before it."""
    texts: list[tuple[str, Any]] = []
    call = tokens.Tokenizer.__call__

    def noted(self: Any, given: Any) -> Any:
        texts.extend((self.prompt, text) for text in given if text not in tokens.PROBES)
        return call(self, given)

    monkeypatch.setattr(tokens.Tokenizer, "__call__", noted)
    return texts


@pytest.mark.parametrize("form", ["triplets", "lists", "pairs"])
@pytest.mark.parametrize("make", [bert_model, lambda place: static_model(dimension=8)])
def test_a_batch_is_that_of_sentence_transformers_collator(make, form, tmp_path):
    model, data = make(tmp_path / "model"), training_set(COLLECTION, NEGATIVES, form=form)
    prompts = {"anchor": "ba be ", "positive": "ga "}
    theirs = SentenceTransformerDataCollator(preprocess_fn=model.preprocess, prompts=prompts)
    with ThreadPoolExecutor(1) as pool:
        ours = TokenCollator(replace(theirs), model, pool)
        for rows in ([0, 1, 2], [5, 0, 7, 7], [3]):
            features = [data.dataset[row] for row in rows]
            batch, expected = ours(features).to("cpu"), theirs(features)
            assert batch.keys() == expected.keys()
            for name, value in expected.items():
                assert torch.equal(batch[name], value) if isinstance(value, torch.Tensor) else batch[name] == value


@pytest.mark.parametrize("batches", ["random", "hobit", "hobit-c"])
def test_weights_are_those_of_batches_that_the_model_itself_makes(batches, tmp_path, monkeypatch):
    data, trained = training_set(COLLECTION, NEGATIVES), []
    for own in (False, True):
        if own:
            monkeypatch.setattr(data_module, "kept_tokens", lambda *_, **__: None)
        model = bert_model(tmp_path / f"bert{own}", dropout=0.1)
        run = train_model(model, data, tmp_path / f"out{own}", settings=SETTINGS, batches=batches)
        trained.append((run.history, torch.cat([each.flatten() for each in model.parameters()])))
    assert trained[0][0] == trained[1][0]
    assert torch.equal(trained[0][1], trained[1][1])


@pytest.mark.parametrize("batches", ["random", "hobit"])
def test_no_text_is_tokenised_twice_in_a_training_nor_for_the_batches(batches, tmp_path, asked):
    data = training_set(COLLECTION, NEGATIVES)
    train_model(bert_model(tmp_path / "bert"), data, tmp_path / "out", settings=SETTINGS, batches=batches)
    texts = {text for column in ("anchor", "positive", "negative") for text in data.dataset[:][column]}
    assert {text for _, text in asked} == texts
    assert len(asked) == len(texts)


@pytest.mark.parametrize("form", ["triplets", "lists"])
def test_many_texts_are_tokenised_in_the_first_of_their_trainings(form, tmp_path, asked, monkeypatch):
    """The next one maps their ids from the cache, and learns the same; one that reads a part of the rows does not."""
    monkeypatch.setenv("FOILS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(tokens, "LEAST_KEPT", 10)
    data, weights = training_set(COLLECTION, NEGATIVES, form=form), []
    for run, settings in enumerate((replace(SETTINGS, steps=1), SETTINGS, SETTINGS)):
        asked.clear()
        model = bert_model(tmp_path / f"bert{run}")
        train_model(model, data, tmp_path / f"out{run}", settings=settings, batches="hobit")
        weights.append(torch.cat([each.flatten() for each in model.parameters()]))
        assert bool(asked) == (run < 2)
        assert len([*tmp_path.glob("cache/tokens/*/meta.json")]) == (run > 0)
    assert torch.equal(*weights[1:])


def test_a_pair_of_a_reranker_is_tokenised_once(tmp_path, asked, monkeypatch):
    data = training_set(COLLECTION, NEGATIVES, form="lists")
    how, weights = replace(SETTINGS, loss="listnet"), []
    for own in (False, True):
        if own:
            assert len(asked) == len(set(asked)) > 20
            monkeypatch.setattr(data_module, "kept_tokens", lambda *_, **__: None)
        model = cross_encoder(tmp_path / f"bert{own}")
        train_model(model, data, tmp_path / f"out{own}", settings=how)
        weights.append(torch.cat([each.flatten() for each in model.parameters()]))
    assert torch.equal(*weights)


def test_batches_are_built_from_the_models_own_vectors(tmp_path):
    for model in (bert_model(tmp_path / "bert"), static_model(dimension=8)):
        encode = encoder_of(model.train())
        texts = ["ba be bi", "fo", "ga ge gi go gu"] * 9
        np.testing.assert_allclose(encode(texts, "anchor"), model.encode(texts), atol=1e-6)
        model.train()
        encode(texts, "anchor")
        assert model.training


@pytest.mark.parametrize("name", ["random", "hobit", "hobit-c"])
def test_sampler_data_set_and_collator_work_in_sentence_transformers_own_trainer(name, tmp_path):
    """Whoever makes the batches, the trainer takes the same steps; the sampler's first epoch covers every row once."""
    data, trained, rows = training_set(COLLECTION, NEGATIVES), [], []
    settings = {} if name == "random" else {"candidates": 16}

    class Noting(TokenCollator):
        def __call__(self, features: list[dict[str, Any]]) -> Any:
            rows.extend(feature["label"] for feature in features)
            return super().__call__(features)

    for ours in (False, True):
        model = bert_model(tmp_path / f"bert{ours}")
        sampler = foils.batch_sampler(name, model, **settings)
        args = SentenceTransformerTrainingArguments(
            output_dir=str(tmp_path / f"out{ours}"), num_train_epochs=2, per_device_train_batch_size=16,
            learning_rate=0.01, batch_sampler=sampler, report_to="none", save_strategy="no", disable_tqdm=True,
            use_cpu=True, seed=3,
        )  # fmt: skip
        loss = MultipleNegativesRankingLoss(model)
        trainer = SentenceTransformerTrainer(model=model, args=args, train_dataset=data.dataset, loss=loss)
        with ThreadPoolExecutor(1) as pool:
            if ours:
                trainer.data_collator = Noting(trainer.data_collator, model, pool)
            trainer.train()
        trained.append(torch.cat([each.detach().flatten() for each in model.parameters()]))
        assert [entry["epoch"] for entry in sampler.history] == [0, 1]
    assert torch.equal(*trained)
    assert sorted(rows[: len(data)]) == list(range(len(data)))
