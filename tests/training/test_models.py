"""Models to train: learning rates by kind, weights between two, adapters; and the verb from the command line."""

import importlib
import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer
from tokenizers import Tokenizer
from transformers import TrainerCallback

import foils
from foils.cli.app import run
from foils.data import Run
from foils.encode import VectorStore
from foils.encode.encoder import logits
from foils.encode.models import load_cross_encoder, load_model
from foils.experiments import StudySettings, open_study, read_cells, run_cells
from foils.runtime.errors import InputError, MissingExtraError
from foils.runtime.files import write_json
from foils.training.fit import train_model
from foils.training.models import (
    LEARNING_RATES,
    WEIGHTS,
    add_adapters,
    kind_of,
    learning_rate_of,
    load_trainable,
    merged,
    with_defaults,
)
from foils.training.settings import TrainSettings
from refusals import refused
from train_models import (
    answering_decoder,
    bert_model,
    cross_encoder,
    decoder,
    made_up,
    made_up_folder,
    resumed_exactly,
    rows_of,
    scoring_decoder,
    static_model,
    table,
    weights,
)

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
            settings = replace(SETTINGS, learning_rate=rate)
            rows = rows_of("lists" if kind == "reranker" else "triplets")
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
    settings = replace(settings, training={"batch_size": 64, "learning_rate": RATE})
    run_cells(open_study(tmp_path / "study", collection, sources, models[:1], settings), store)
    assert len(read_cells(tmp_path / "study")) == 2, "the default and the same rate given are one"


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
    refused(r"alpha 1\.5; expected at least 0 and at most 1", merged, static_model(), static_model(), 1.5)
    refused("1 weights are not of the same names and shapes", merged, static_model(), static_model(dimension=8), 0.5)


# Training in little memory: low-rank adapters, gradient checkpointing, decoders


LORA = TrainSettings(batch_size=16, epochs=1, learning_rate=0.01, max_length=32, lora=2)
TEXTS = ["ba be bi", "ko ku ka mu", "na"]
PAIRS = [("ba be", "bi ba"), ("ko", "ku ka")]
ENCODERS = {"bert": bert_model, "decoder": decoder}
RERANKERS = {"cross-encoder": cross_encoder, "scoring decoder": scoring_decoder, "answering decoder": answering_decoder}
KINDS = {**ENCODERS, **RERANKERS}


def train(kind, place, folder, settings=LORA, **more):
    reranker = kind in RERANKERS
    settings = replace(settings, loss="listnet" if reranker else "mnrl")
    rows = rows_of("lists" if reranker else "triplets", rated=False)
    return train_model(KINDS[kind](place), rows, folder, settings=settings, **more)


def outputs(model):
    if hasattr(model, "predict"):
        return logits(model, PAIRS)
    return model.encode(TEXTS, show_progress_bar=False)


def state_of(model):
    return {name: each.detach().clone() for name, each in model.state_dict().items()}


def trained_weights(model):
    return {name: each.detach() for name, each in model.named_parameters() if each.requires_grad}


class Look(TrainerCallback):
    """Notes which weights are trained."""

    def on_step_end(self, args, state, control, model=None, **_):
        self.trained = trained_weights(model)


def test_adapters_alone_are_trained_and_become_part_of_the_weights(tmp_path):
    before, look = state_of(bert_model(tmp_path / "bert")), Look()
    model = train("bert", tmp_path / "bert", tmp_path / "out", callbacks=[look]).model
    linear = [module for module in model.modules() if isinstance(module, torch.nn.Linear)]
    assert all(".lora_" in name for name in look.trained)
    wanted = sum(LORA.lora * (module.in_features + module.out_features) for module in linear)
    assert sum(each.numel() for each in look.trained.values()) == wanted
    after = state_of(model)
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


def test_adapters_of_a_model_in_half_precision_learn_in_float32(tmp_path):
    model, look, settings = decoder(tmp_path / "raw").bfloat16(), Look(), replace(LORA, trainer={"bf16": True})
    run = train_model(model, rows_of(rated=False), tmp_path / "out", settings=settings, callbacks=[look])
    assert {each.dtype for each in look.trained.values()} == {torch.float32}
    assert {each.dtype for each in run.model.parameters()} == {torch.bfloat16}
    assert np.isfinite(outputs(run.model).astype(np.float32)).all()


@pytest.mark.parametrize("kind", ["bert", "cross-encoder", "answering decoder"])
def test_what_is_written_is_a_model_like_any_other(kind, tmp_path):
    load = load_cross_encoder if kind in RERANKERS else load_model
    KINDS[kind](tmp_path / "raw").save_pretrained(str(tmp_path / "base"))
    untrained = load(tmp_path / "base", device="cpu")
    trained = train(kind, tmp_path / "again", tmp_path / "work", LORA).model
    assert np.abs(outputs(trained) - outputs(untrained)).max() > 1e-4
    trained.save_pretrained(str(tmp_path / "merged"))
    merged = load(tmp_path / "merged", device="cpu")
    np.testing.assert_allclose(outputs(merged), outputs(trained), atol=1e-5)
    assert list(merged.state_dict()) == list(untrained.state_dict())
    assert not (tmp_path / "merged" / "adapter_config.json").exists()


@pytest.mark.parametrize(("kind", "stop"), [("bert", 4), ("scoring decoder", 2)])
def test_a_killed_training_resumes_exactly_from_adapters_alone(kind, stop, tmp_path):
    def run(folder, **more):
        how = replace(LORA, trainer={"logging_steps": 1, "save_steps": 2})
        return train(kind, tmp_path / "raw", folder, how, **more)

    resumed_exactly(run, tmp_path, stop)
    checkpoint = max((tmp_path / "cut").glob("checkpoint-*"))
    assert (checkpoint / WEIGHTS).is_file()
    assert not list(checkpoint.rglob("model.safetensors"))


def test_the_best_adapters_on_dev_are_the_model(tmp_path):
    scores, seen = iter([0.2, 0.9, 0.1]), []

    def score(model):
        seen.append(outputs(model))
        return next(scores)

    found = train("bert", tmp_path / "bert", tmp_path / "out", replace(LORA, epochs=3), score=score)
    assert found.best == 0.9
    np.testing.assert_allclose(outputs(found.model), seen[1], atol=1e-6)


def test_gradient_checkpointing_changes_no_weights_beyond_rounding(tmp_path):
    found = []
    for on in (False, True):
        settings = replace(LORA, mini_batch_size=4, trainer={"gradient_checkpointing": on})
        found.append(train("bert", tmp_path / f"m{on}", tmp_path / str(on), settings).model.state_dict())
    for name, each in found[0].items():
        assert torch.allclose(each, found[1][name], atol=1e-5)


def test_models_without_a_transformer_or_without_peft_are_refused(tmp_path, monkeypatch):
    real, collection = importlib.import_module, made_up()

    def missing(name, *more):
        if name == "peft":
            raise ModuleNotFoundError("No module named 'peft'", name="peft")
        return real(name, *more)

    with pytest.raises(InputError, match=r"static embedding.*leave it out"):
        train_model(static_model(), rows_of(rated=False), tmp_path, settings=LORA)
    with pytest.raises(InputError, match=r"lora 4: no effect with model static"):
        foils.train(collection, model="static:all-MiniLM-L6-v2", output=tmp_path / "out", lora=4)
    monkeypatch.setattr(importlib, "import_module", missing)
    refused(r"foils\[lora\]", train, "bert", tmp_path / "bert", tmp_path / "out", error=MissingExtraError)
    with pytest.raises(MissingExtraError, match=r"foils\[lora\]"):
        foils.train(collection, model=str(tmp_path / "bert"), lora=2, output=tmp_path / "out")


@pytest.mark.parametrize("reranker", [False, True])
def test_code_of_a_model_is_run_where_it_is_trusted(reranker, tmp_path, monkeypatch):
    asked = []

    def noted(name, *, trust_remote_code, **_):
        asked.append(trust_remote_code)
        raise InputError("noted")

    loader = "encode.models.load_cross_encoder" if reranker else "training.models.load_model"
    monkeypatch.setattr(f"foils.{loader}", noted)
    how = {"model": "m", "reranker": reranker, "output": tmp_path / "out"}
    for trusted in (False, True):
        refused("noted", foils.train, made_up(), table(made_up()), trust_remote_code=trusted, **how)
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


# The verb, from the command line


@pytest.fixture
def world(tmp_path, beir_folder):
    """The folder of models and results, and a function that trains and returns the exit code."""
    collection = made_up_folder(beir_folder)
    table(made_up(), rated=True).write(tmp_path / "rated.parquet")
    static_model().save_pretrained(str(tmp_path / "static"))

    def call(*more, model="static", output="out", source="rated.parquet"):
        arguments = ["train", str(collection), *([str(tmp_path / source)] if source else [])]
        arguments += ["--model", str(tmp_path / model), "-o", str(tmp_path / output), "--learning-rate", "0.05"]
        return run([*arguments, "--batch-size", "16", "--json", str(tmp_path / f"{output}.json"), *more])

    return tmp_path, call


def result(folder, name="out"):
    return json.loads((folder / f"{name}.json").read_text())


def losses(folder, name="out"):
    return [entry["loss"] for entry in result(folder, name)["history"] if "loss" in entry]


def settings(folder, name="out"):
    return result(folder, name)["provenance"]["settings"]


def test_it_trains_writes_a_model_and_a_card_and_says_so(world, capsys):
    folder, call = world
    assert call("--epochs", "3", "--dev", "dev") == 0
    shown, card, found = capsys.readouterr().out, (folder / "out" / "README.md").read_text(), result(folder)
    for part in ("Training →", "nDCG@10 on dev after"):
        assert part in shown
    for part in ("## Training with foils", "| rows | 80 |", "| learning_rate | 0.05 |"):
        assert part in card
    assert losses(folder)[-1] < losses(folder)[0]
    assert settings(folder)["loss"] == "mnrl"
    assert found["scores"]["nDCG@10 on dev after"] == found["best_dev"]
    assert list((folder / "out").rglob("*.safetensors"))
    assert not (folder / "out" / "checkpoints").exists()
    assert json.loads((folder / "out" / "foils_training.json").read_text()) == found


def test_same_seed_same_bytes_and_the_model_is_usable(world):
    folder, call = world
    for name, seed in (("a", "1"), ("b", "1"), ("c", "2")):
        assert call("--seed", seed, output=name) == 0
    models = (SentenceTransformer(str(folder / name), device="cpu") for name in "abc")
    a, b, c = (model.encode("ba be bi", show_progress_bar=False) for model in models)
    assert np.array_equal(a, b)
    assert not np.array_equal(a, c)
    for file in [folder / "a.json", *filter(lambda path: path.is_file(), (folder / "a").rglob("*"))]:
        other = folder / str(file.relative_to(folder)).replace("a", "b", 1)
        assert file.read_bytes() == other.read_bytes(), file


def test_checkpoints_are_resumed_when_asked_to_and_not_trained_over(world, monkeypatch, capsys):
    folder, call = world
    with monkeypatch.context() as patched:  # as if the run had been killed before it cleaned up
        patched.setattr("shutil.rmtree", lambda *_, **__: None)
        assert call() == 0
    assert call() == 2
    assert "resume" in capsys.readouterr().err
    first = result(folder)
    assert call("--resume") == 0
    assert result(folder)["steps"] == first["steps"]
    assert not (folder / "out" / "checkpoints").exists()


@pytest.fixture(scope="module")
def plain():
    return {}


@pytest.mark.parametrize(
    "more",
    [
        "--loss hybrid --set mixing=gradnorm",
        "--loss debiased --set prior=0.2",
        "--loss weighted --set curriculum=true",
        "--batches progress",
        "--form lists --loss weighted",
        "--form pairs",
        "--per-query 2",
        "--loss weighted --batches hobit",
        "--set temperature=0.2",
        "--set-trainer warmup_steps=0.5",
        "--set-trainer weight_decay=0.9",
    ],
)
def test_options_change_the_training(more, world, plain):
    folder, call = world
    if not plain:
        assert call(output="plain") == 0
        plain["losses"] = losses(folder, "plain")
    assert call(*more.split()) == 0
    assert losses(folder) != plain["losses"]


def test_pairs_need_no_source_and_small_pieces_of_a_big_batch(world):
    folder, call = world
    bert_model(folder / "parts").save_pretrained(str(folder / "bert"))
    more = ("--mini-batch-size", "4", "--max-length", "16")
    assert call(*more, model="bert", source=None) == 0
    assert (settings(folder)["form"], settings(folder)["mini_batch_size"]) == ("pairs", 4)


def test_prompts_are_trained_with_and_stay_with_the_model(world):
    folder, call = world
    assert call(output="plain") == 0
    assert call("--query-prompt", "ba be: ", "--document-prompt", "bo bu: ") == 0
    assert losses(folder, "plain") != losses(folder)
    kept = json.loads((folder / "out" / "config_sentence_transformers.json").read_text())["prompts"]
    assert {name: kept[name].strip() for name in ("query", "document")} == {"query": "ba be:", "document": "bo bu:"}
    assert call("--query-prompt", "@query", "--document-prompt", "", model="out", output="again") == 0
    kept = json.loads((folder / "again" / "config_sentence_transformers.json").read_text())["prompts"]
    assert (kept["query"].strip(), kept["document"]) == ("ba be:", "")


def test_a_reranker(world):
    folder, call = world
    cross_encoder(folder / "cross")
    dev = [(f"q{i}", f"d{j}", -j) for i in range(20, 30) for j in range(20, 40)]
    queries, documents, scores = zip(*dev, strict=True)
    Run.ranked(list(queries), list(documents), np.array(scores, float), name="first").write(folder / "dev.trec")
    more = ("--reranker", "--dev", "dev", "--dev-run", str(folder / "dev.trec"), "--loss", "hybrid")
    assert call(*more, "--set", "alpha=0.7", model="cross") == 0
    assert 0 < result(folder)["best_dev"] <= 1
    assert call("--reranker", model="cross", output="listwise") == 0
    assert settings(folder, "listwise")["loss"] == "listnet"


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["--loss", "mrnl"], "Did you mean 'mnrl'"),
        (["--set", "tempratur=1"], "temperature"),
        (["--patience", "2"], "patience"),
        (["--batches", "progress", "--set-batches", "a=1"], "no effect with --batches progress"),
        (["--reranker", "--batches", "hobit"], "no effect with --reranker"),
        (["--reranker", "--document-prompt", "q: "], "no effect with --reranker"),
        (["--query-prompt", "@nowhere"], "nowhere"),
        (["--reranker", "--dev", "dev"], "--dev-run"),
        (["--set", "curriculum=true"], "unknown setting of the loss mnrl"),
        (["--batches", "progress", "--form", "pairs"], "one negative"),
        (["--set-trainer", "report_to=tensorbord"], "tensorbord is not supported"),
        (["--draw-negatives", "2"], "--draw-negatives 2: no effect without --reranker"),
        (["--reranker", "--mask", "guide"], "--mask guide: no effect with --reranker"),
    ],
)
def test_bad_options_are_refused_with_a_message(more, said, world, capsys):
    assert world[1](*more) == 2
    assert said in capsys.readouterr().err


def test_the_result_names_the_guide_of_a_mask(world):
    folder, call = world
    static_model(seed=3).save_pretrained(str(folder / "guide"))
    assert call("--mask", str(folder / "guide"), "--mask-margin", "-0.4") == 0
    settings = result(folder)["provenance"]["settings"]
    assert (settings["mask"], settings["mask_margin"]) == (str(folder / "guide"), -0.4)


def test_a_static_embedding_from_a_word_table(tmp_path):
    source = bert_model(tmp_path / "bert")
    model = load_trainable(f"static:{tmp_path / 'bert'}", device="cpu")
    words = source[0].auto_model.embeddings.word_embeddings.weight.detach().numpy()
    ids = Tokenizer.from_file(str(tmp_path / "bert" / "tokenizer.json")).encode("ba be", add_special_tokens=False).ids
    assert np.allclose(model.encode("ba be", show_progress_bar=False), words[ids].mean(0), atol=1e-6)
    for name, said in ((f"static:{tmp_path}", "safetensors"), ("/no/such/model", "no such folder")):
        refused(said, load_trainable, name)


def test_a_training_without_any_negative_says_that_nothing_was_learned(tmp_path, capsys):
    static_model().save_pretrained(str(tmp_path / "static"))
    warnings = []
    for name, second in (("same", "ba be bi"), ("two", "da de di")):
        (tmp_path / f"{name}.csv").write_text(f"query,positive\nba be,ba be bi\nda de,{second}\n")
        arguments = [str(tmp_path / f"{name}.csv"), "--model", str(tmp_path / "static"), "-o", str(tmp_path / name)]
        assert run(["train", *arguments, "--split", "all"]) == 0
        warnings.append("nothing was learned" in capsys.readouterr().err)
    assert warnings == [True, False]


def test_tensorboard_keeps_its_files_beside_the_model(tmp_path):
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    collection = made_up()
    trained = foils.train(
        collection, table(collection), model=static_model(), output=tmp_path / "model",
        trainer={"report_to": "tensorboard"},
        batch_size=16, epochs=2, dev="dev", learning_rate=0.05,
    )  # fmt: skip
    (folder,) = (tmp_path / "model" / "runs").iterdir()
    events = EventAccumulator(str(folder))
    events.Reload()
    for name, tag in (("loss", "train/loss"), ("dev", "eval/dev")):
        entries = [entry[name] for entry in trained.run.history if name in entry]
        assert [event.value for event in events.Scalars(tag)] == pytest.approx(entries, rel=1e-6)
