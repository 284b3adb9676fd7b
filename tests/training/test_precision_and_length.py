"""What a training computes in, what it saves, and where it cuts texts: the model's own type and length stay its own."""

import copy
import json
import shutil

import pytest
import torch
from safetensors.torch import load_file
from sentence_transformers import CrossEncoder, SentenceTransformer

import foils
from foils.encode.encoder import EncoderSettings, SentenceEncoder
from foils.encode.models import at_length, set_length
from foils.training.fit import train_model
from foils.training.models import types_of
from foils.training.settings import TrainSettings
from train_models import bert_model, cross_encoder, made_up, rows_of, static_model, table, weights

TINY = 1e-5  # a step too small for weights of half precision: bfloat16 has 8 bits
STEPS = TrainSettings(batch_size=8, epochs=2, learning_rate=TINY, max_length=8)
HALF = [torch.bfloat16, torch.float16]
MAKE = {"encoder": bert_model, "reranker": cross_encoder, "word table": lambda _: static_model()}


@pytest.mark.parametrize("dtype", HALF)
@pytest.mark.parametrize("kind", MAKE)
def test_half_precision_is_trained_as_float32_is_and_saved_in_its_type(kind, dtype, tmp_path):
    half = MAKE[kind](tmp_path / "raw").to(dtype)
    exact, before = copy.deepcopy(half).float(), weights(half).float()
    rows = rows_of("lists" if kind == "reranker" else "triplets")
    moved = {}
    for name, model in (("half", half), ("exact", exact)):
        run = train_model(model, rows, tmp_path / name, settings=STEPS)
        moved[name] = weights(run.model).float()
    assert moved["exact"].sub(before).abs().max() < 100 * TINY
    assert torch.equal(moved["half"], moved["exact"].to(dtype).float())
    half.save_pretrained(str(tmp_path / "saved"))
    assert {each.dtype for each in load_file(tmp_path / "saved" / "model.safetensors").values()} == {dtype}


def test_the_verb_says_what_was_computed_and_what_is_saved(tmp_path):
    collection, place = made_up(), tmp_path / "base"
    bert_model(tmp_path / "raw").to(torch.bfloat16).save_pretrained(str(place))
    how = {"dev": "dev", "output": tmp_path / "out", "learning_rate": 0.01, "epochs": 3, "batch_size": 8}
    trained = foils.train(collection, table(collection), model=place, device="cpu", **how)
    facts = json.loads((tmp_path / "out" / "foils_training.json").read_text())
    assert "float32; weights in bfloat16" in str(trained.tables()[0])
    assert (facts["precision"], facts["weights"]) == ("float32", "bfloat16")
    assert {each.dtype for each in load_file(tmp_path / "out" / "model.safetensors").values()} == {torch.bfloat16}


@pytest.mark.parametrize("dtype", HALF)
def test_adapters_of_half_precision_leave_its_type(dtype, tmp_path):
    model = bert_model(tmp_path).to(dtype)
    before = weights(model).float()
    settings = TrainSettings(batch_size=8, epochs=3, learning_rate=0.02, max_length=8, lora=2)
    run = train_model(model, rows_of(), tmp_path / "run", settings=settings)
    assert set(types_of(run.model).values()) == {dtype}
    assert run.facts["weights"] == str(dtype).removeprefix("torch.")
    assert not torch.equal(weights(run.model).float(), before)


@pytest.mark.parametrize("reranker", [False, True])
def test_a_model_keeps_its_own_length_whatever_it_is_trained_at(reranker, tmp_path):
    model = (cross_encoder if reranker else bert_model)(tmp_path)
    model.max_seq_length = 48
    seen, rows = [], rows_of("lists" if reranker else "triplets")
    preprocess = type(model[0]).preprocess

    def noted(self, inputs, **more):
        seen.append(self.max_seq_length)
        return preprocess(self, inputs, **more)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(model[0]), "preprocess", noted)
        on_dev = []
        run = train_model(
            model, rows, tmp_path / "run", settings=STEPS, score=lambda it: on_dev.append(it.max_seq_length) or 0.5
        )
    assert set(seen) == {8}
    assert set(on_dev) == {48}
    assert run.model.max_seq_length == run.facts["model_max_length"] == 48
    run.model.save_pretrained(str(tmp_path / "saved"))
    again = (CrossEncoder if reranker else SentenceTransformer)(str(tmp_path / "saved"), device="cpu")
    assert again.max_seq_length == 48


def test_the_length_of_training_changes_what_is_learned_and_not_where_the_written_model_cuts(tmp_path, caplog):
    collection, place, found = made_up(), tmp_path / "base", []
    model = bert_model(tmp_path / "raw")
    model.max_seq_length = 32
    model.save_pretrained(str(place))
    for length in (3, 16):
        with caplog.at_level("INFO"):
            trained = foils.train(
                collection, model=place, output=tmp_path / str(length), max_length=length, batch_size=8, device="cpu"
            )
        assert SentenceTransformer(str(tmp_path / str(length)), device="cpu").max_seq_length == 32
        said = f"cut after {length} tokens in training; the written model cuts them after 32"
        assert any(said in line for line in caplog.messages)
        assert trained.provenance["settings"]["max_length"] == length
        found.append(weights(trained.model))
    assert not torch.equal(*found)


def test_a_length_beyond_the_model_s_positions_is_no_crash(tmp_path, caplog):
    model, text = bert_model(tmp_path), ["ba " * 200]
    encoder = SentenceEncoder(copy.deepcopy(model), EncoderSettings(max_length=1000))
    assert encoder.max_length == 64
    assert encoder.encode(text, "document").shape == (1, 16)
    assert any("at 64 tokens, not 1000" in line for line in caplog.messages)
    with at_length(model, 1000):
        model.encode(text)
    table = static_model()
    set_length(table, 5)  # reads whole texts
    assert table.max_seq_length == float("inf")
    shutil.rmtree(tmp_path)
