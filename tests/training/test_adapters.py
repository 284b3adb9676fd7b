"""Training in little memory: low-rank adapters, gradient checkpointing, decoders."""

from __future__ import annotations

import importlib
from dataclasses import replace

import numpy as np
import pytest
import torch
from transformers import TrainerCallback

import foils
from foils.encode.cross_encoders import load_cross_encoder, logits
from foils.encode.models import load_model
from foils.runtime.errors import InputError, MissingExtraError
from foils.training.data import training_set
from foils.training.models import (
    LEARNING_RATES,
    OF_ADAPTERS,
    WEIGHTS,
    add_adapters,
    learning_rate_of,
    with_defaults,
)
from foils.training.settings import TrainSettings
from foils.training.train import train_model
from train_models import (
    answering_decoder,
    bert_model,
    cross_encoder,
    decoder,
    made_up,
    masked_language_model,
    scoring_decoder,
    static_model,
    table,
)

LORA = TrainSettings(batch_size=16, epochs=1, learning_rate=0.01, max_length=32, lora=2)
TEXTS = ["ba be bi", "ko ku ka mu", "na"]
PAIRS = [("ba be", "bi ba"), ("ko", "ku ka")]


@pytest.fixture(scope="module")
def data():
    collection = made_up()
    return training_set(collection, table(collection))


@pytest.fixture(scope="module")
def lists():
    collection = made_up()
    return training_set(collection, table(collection), form="lists")


def train(model, data, folder, settings=LORA, **more):
    return train_model(model, data, folder, settings=settings, **more)


def outputs(model):
    if hasattr(model, "predict"):
        return logits(model, PAIRS)
    return model.encode(TEXTS, show_progress_bar=False)


def weights(model):
    return {name: each.detach().clone() for name, each in model.state_dict().items()}


def trained_weights(model):
    return {name: each.detach() for name, each in model.named_parameters() if each.requires_grad}


class Look(TrainerCallback):
    """Notes which weights are trained, and may end the process, as it were, after a step."""

    def __init__(self, stop=None):
        self.stop, self.trained = stop, {}

    def on_step_end(self, args, state, control, model=None, **_):
        self.trained = trained_weights(model)
        if state.global_step == self.stop:
            raise KilledError


class KilledError(Exception):
    pass


def test_adapters_alone_are_trained_and_become_part_of_the_weights(data, tmp_path):
    before, look = weights(bert_model(tmp_path / "bert")), Look()
    model = train(bert_model(tmp_path / "bert"), data, tmp_path / "out", callbacks=[look]).model
    linear = [module for module in model.modules() if isinstance(module, torch.nn.Linear)]
    assert all(".lora_" in name for name in look.trained)
    assert sum(each.numel() for each in look.trained.values()) == sum(
        LORA.lora * (module.in_features + module.out_features) for module in linear
    )
    after = weights(model)
    assert list(after) == list(before)
    changed = {name for name in after if not torch.equal(after[name], before[name])}
    assert changed
    assert all(name.endswith(".weight") and after[name].ndim == 2 and "embeddings" not in name for name in changed)
    assert all(each.requires_grad for each in model.parameters())
    name = next(name for name in sorted(changed) if "attention" in name)
    low, up = (
        next(each for key, each in look.trained.items() if f"{name.removesuffix('.weight')}.lora_{part}." in key)
        for part in "AB"
    )
    assert torch.allclose(after[name], before[name] + 2 * up @ low, atol=1e-6)


def test_adapters_begin_as_the_model_itself_and_are_drawn_from_the_seed(tmp_path):
    plain, one, same, other = (bert_model(tmp_path / str(i)) for i in range(4))
    for model, seed in ((one, 1), (same, 1), (other, 2)):
        add_adapters(model, 2, seed=seed)
    assert np.array_equal(outputs(one), outputs(plain))
    drawn = [torch.cat([each.flatten() for each in trained_weights(model).values()]) for model in (one, same, other)]
    assert torch.equal(drawn[0], drawn[1])
    assert not torch.equal(drawn[0], drawn[2])


def test_adapters_of_a_model_in_half_precision_learn_in_float32(data, tmp_path):
    model, look = decoder(tmp_path / "raw").bfloat16(), Look()
    run = train(model, data, tmp_path / "out", replace(LORA, trainer={"bf16": True}), callbacks=[look])
    assert {each.dtype for each in look.trained.values()} == {torch.float32}
    assert {each.dtype for each in run.model.parameters()} == {torch.bfloat16}
    assert np.isfinite(outputs(run.model).astype(np.float32)).all()


KINDS = {"bert": bert_model, "decoder": decoder, "cross-encoder": cross_encoder, "scoring decoder": scoring_decoder,
         "answering decoder": answering_decoder}  # fmt: skip


@pytest.mark.parametrize("kind", ["bert", "cross-encoder", "answering decoder"])
def test_what_is_written_is_a_model_like_any_other(kind, data, lists, tmp_path):
    reranker = "encoder" in kind or "ing" in kind
    settings = replace(LORA, loss="listnet" if reranker else "mnrl", mini_batch_size=4)
    load = load_cross_encoder if reranker else load_model
    KINDS[kind](tmp_path / "raw").save_pretrained(str(tmp_path / "base"))
    model = load(tmp_path / "base", device="cpu")
    untrained, names = outputs(model), list(model.state_dict())
    run = train(model, lists if reranker else data, tmp_path / "work", settings)
    trained = outputs(model)
    model.save_pretrained(str(tmp_path / "merged"))
    assert np.isfinite([entry["loss"] for entry in run.history]).all()
    assert np.abs(trained - untrained).max() > 1e-3
    merged = load(tmp_path / "merged", device="cpu")
    np.testing.assert_allclose(outputs(merged), trained, atol=1e-5)
    assert list(merged.state_dict()) == names
    assert not (tmp_path / "merged" / "adapter_config.json").exists()


@pytest.mark.parametrize(("kind", "stop"), [("bert", 4), ("scoring decoder", 2)])
def test_a_killed_training_resumes_exactly(kind, stop, data, lists, tmp_path):
    how = replace(LORA, trainer={"logging_steps": 1, "save_steps": 2}, loss="mnrl" if kind == "bert" else "listnet")
    rows = data if kind == "bert" else lists

    def run(folder, *more, resume=False):
        return train(KINDS[kind](tmp_path / "raw"), rows, tmp_path / folder, how, callbacks=more, resume=resume)

    whole = run("whole")
    with pytest.raises(KilledError):
        run("broken", Look(stop))
    resumed = run("broken", resume=True)
    for run_, name in ((whole, "a"), (resumed, "b")):
        run_.model.transformers_model.save_pretrained(str(tmp_path / name))
    one, two = ((tmp_path / name / "model.safetensors").read_bytes() for name in "ab")
    assert one == two
    assert [entry["loss"] for entry in resumed.history] == [entry["loss"] for entry in whole.history]
    checkpoint = max((tmp_path / "broken").glob("checkpoint-*"))
    assert (checkpoint / WEIGHTS).is_file()
    assert not list(checkpoint.rglob("model.safetensors"))


def test_the_best_adapters_on_dev_are_the_model(data, tmp_path):
    scores, seen = iter([0.2, 0.9, 0.1]), []

    def score(model):
        seen.append(outputs(model))
        return next(scores)

    found = train(bert_model(tmp_path / "bert"), data, tmp_path / "out", replace(LORA, epochs=3), score=score)
    assert found.best == 0.9
    np.testing.assert_allclose(outputs(found.model), seen[1], atol=1e-6)


def test_checkpoints_of_another_rank_are_refused(data, tmp_path):
    with pytest.raises(KilledError):
        train(bert_model(tmp_path / "a"), data, tmp_path / "out", replace(LORA, trainer={"save_steps": 2}),
              callbacks=[Look(4)])  # fmt: skip
    with pytest.raises(InputError, match="of another training"):
        train(bert_model(tmp_path / "b"), data, tmp_path / "out", replace(LORA, lora=3), resume=True)


def test_adapters_take_ten_times_the_learning_rate(tmp_path):
    model = bert_model(tmp_path)
    assert with_defaults(replace(LORA, learning_rate=None), model).learning_rate == pytest.approx(
        OF_ADAPTERS * learning_rate_of(model)
    )
    assert learning_rate_of(model) == LEARNING_RATES["language model"][0]


def test_gradient_checkpointing_changes_no_weights_beyond_rounding(data, tmp_path):
    settings = replace(LORA, mini_batch_size=4)
    plain, thrifty = (
        train(bert_model(tmp_path / f"m{on}", dropout=0.1), data, tmp_path / str(on), replace(settings, **how)).model
        for on, how in enumerate(({}, {"trainer": {"gradient_checkpointing": True}}))
    )
    for name, each in thrifty.state_dict().items():
        assert torch.allclose(each, plain.state_dict()[name], atol=1e-5)


def test_a_static_embedding_is_refused(data, tmp_path):
    with pytest.raises(InputError, match=r"static embedding.*leave it out"):
        train(static_model(), data, tmp_path)
    with pytest.raises(InputError, match=r"lora .*bag of words"):
        foils.train(made_up(), model="static:all-MiniLM-L6-v2", output=tmp_path / "out", lora=4)


def test_settings_that_do_not_fit_are_refused(tmp_path):
    with pytest.raises(InputError, match="lora 0; expected at least 1"):
        TrainSettings(lora=0)


def test_without_peft_the_extra_is_named(data, tmp_path, monkeypatch):
    real = importlib.import_module

    def missing(name, *more):
        if name == "peft":
            raise ModuleNotFoundError("No module named 'peft'", name="peft")
        return real(name, *more)

    monkeypatch.setattr(importlib, "import_module", missing)
    with pytest.raises(MissingExtraError, match=r"foils\[lora\]"):
        train(bert_model(tmp_path / "bert"), data, tmp_path / "out")
    with pytest.raises(MissingExtraError, match=r"foils\[lora\]"):
        foils.train(made_up(), model=str(tmp_path / "bert"), lora=2, output=tmp_path / "out")


@pytest.mark.parametrize("reranker", [False, True])
def test_code_of_a_model_is_run_where_it_is_trusted(reranker, tmp_path, monkeypatch):
    asked = []

    def noted(name, *, trust_remote_code, **_):
        asked.append(trust_remote_code)
        raise InputError("noted")

    loader = "encode.cross_encoders.load_cross_encoder" if reranker else "training.models.load_model"
    monkeypatch.setattr(f"foils.{loader}", noted)
    for trusted in (False, True):
        with pytest.raises(InputError, match="noted"):
            foils.train(made_up(), table(made_up()), model="m", reranker=reranker, output=tmp_path / "out",
                        trust_remote_code=trusted)  # fmt: skip
    assert asked == [False, True]


def test_a_model_that_has_adapters_is_trained_and_written_with_them(tmp_path):
    from peft import LoraConfig

    bert_model(tmp_path / "raw").save_pretrained(str(tmp_path / "base"))
    model = load_model(tmp_path / "base", device="cpu")
    model.add_adapter(LoraConfig(r=2, target_modules="all-linear"))
    collection, how = made_up(), {"batch_size": 8, "learning_rate": 0.01, "device": "cpu"}
    own = foils.train(collection, model=model, output=tmp_path / "own", **how)
    assert (own.path / "adapter_config.json").is_file()
    assert not list(own.path.glob("model.safetensors"))
    merged = foils.train(collection, model=str(own.path), lora=2, output=tmp_path / "again", **how)
    assert "| lora | 2 |" in (merged.path / "README.md").read_text()
    assert (merged.path / "model.safetensors").is_file()


def test_a_reranker_with_a_new_head_is_written_merged(tmp_path):
    collection = made_up()
    (tmp_path / "mlm").mkdir()
    masked_language_model(tmp_path / "mlm")
    how = {"model": str(tmp_path / "mlm"), "reranker": True, "lora": 2, "batch_size": 8, "device": "cpu"}
    found = foils.train(collection, table(collection), output=tmp_path / "out", learning_rate=0.01, **how)
    np.testing.assert_allclose(outputs(load_cross_encoder(found.path, device="cpu")), outputs(found.model), atol=1e-6)
