import json

import numpy as np
import pytest
from sentence_transformers import SentenceTransformer
from tokenizers import Tokenizer

import foils
from foils.cli.app import run
from foils.data import Run
from foils.runtime.errors import InputError
from foils.training.models import load_trainable
from train_models import bert_model, cross_encoder, made_up, made_up_folder, static_model, table


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
        "--recipe hobit --epochs 1 --form triplets",
        "--recipe eci-sem --set temperature=0.2",
        "--set-trainer warmup_steps=0.5",
        "--set-trainer weight_decay=0.9",
        "--mask self --mask-margin -0.3",
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
        (["--batches", "no-duplicates", "--set-batches", "a=1"], "no settings"),
        (["--reranker", "--batches", "hobit"], "batches are random"),
        (["--reranker", "--document-prompt", "q: "], "one prompt for a pair"),
        (["--query-prompt", "@nowhere"], "nowhere"),
        (["--reranker", "--dev", "dev"], "--dev-run"),
        (["--set", "curriculum=true"], "unknown setting of the loss mnrl"),
        (["--batches", "progress", "--refresh", "1"], "which go by the ratings"),
        (["--refresh", "1", "--form", "pairs"], "--refresh 1: no effect with pairs"),
        (["--batches", "progress", "--form", "pairs"], "one negative"),
        (["--set-trainer", "report_to=tensorbord"], "tensorbord is not supported"),
        (["--mask", "other"], "expected self, or guide:MODEL"),
        (["--reranker", "--mask", "self"], "--mask self: no effect with --reranker"),
    ],
)
def test_bad_options_are_refused_with_a_message(more, said, world, capsys):
    assert world[1](*more) == 2
    assert said in capsys.readouterr().err


def test_a_guide_masks_and_the_shares_that_it_took_are_shown(world, capsys):
    folder, call = world
    static_model(seed=3).save_pretrained(str(folder / "guide"))
    assert call("--mask", f"guide:{folder / 'guide'}", "--mask-margin", "-0.4", "--epochs", "2") == 0
    assert "negatives masked in epoch 2: " in capsys.readouterr().out
    found = result(folder)
    mask, shares = found["masked"]["mask"], found["masked"]["shares"]
    assert (mask["margin"], len(mask["guide"]["fingerprint"]), list(shares)) == (-0.4, 32, ["1", "2"])
    assert all(0 < share < 1 for share in shares.values())
    assert f"masked in epoch 2 | {shares['2']:.2%}" in (folder / "out" / "README.md").read_text()
    anew = ("--refresh", "1", "--epochs", "2", "--per-query", "3")
    assert call("--mask", "self", *anew, source=None, output="anew") == 0
    found, wanted = result(folder, "anew"), {"refresh": 1, "form": "triplets", "per_query": 3}
    assert {name: settings(folder, "anew")[name] for name in wanted} == wanted
    assert (len(found["masked"]["shares"]), found["counts"]["rows"]) == (2, 60)


def test_a_static_embedding_from_a_word_table(tmp_path):
    source = bert_model(tmp_path / "bert")
    model = load_trainable(f"static:{tmp_path / 'bert'}", device="cpu")
    words = source[0].auto_model.embeddings.word_embeddings.weight.detach().numpy()
    ids = Tokenizer.from_file(str(tmp_path / "bert" / "tokenizer.json")).encode("ba be", add_special_tokens=False).ids
    assert np.allclose(model.encode("ba be", show_progress_bar=False), words[ids].mean(0), atol=1e-6)
    for name, said in ((f"static:{tmp_path}", "safetensors"), ("/no/such/model", "no such folder")):
        with pytest.raises(InputError, match=said):
            load_trainable(name)


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
