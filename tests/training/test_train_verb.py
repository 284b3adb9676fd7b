from __future__ import annotations

import json

import numpy as np
import pytest

from foils.cli.app import run
from foils.data import Run
from train_models import bert_model, cross_encoder, made_up, static_model, table


@pytest.fixture
def world(tmp_path, beir_folder):
    """A BEIR folder, a rated table, a static model, a BERT and a cross-encoder."""
    collection = made_up()
    documents = {
        key: ("", text)
        for key, text in zip(*(collection.documents[c].to_pylist() for c in ("doc_id", "text")), strict=True)
    }
    queries = dict(zip(*(collection.queries[c].to_pylist() for c in ("query_id", "text")), strict=True))
    qrels = {
        split: {q: {q.replace("q", "d"): 1} for q in table_["query_id"].to_pylist()}
        for split, table_ in collection.qrels.items()
    }
    folder = beir_folder("made-up", documents=documents, queries=queries, qrels=qrels)
    table(collection, rated=True).write(tmp_path / "rated.parquet")
    static_model().save_pretrained(str(tmp_path / "static"))

    def call(*more, model="static", output="out", source="rated.parquet"):
        arguments = ["train", str(folder), *([str(tmp_path / source)] if source else [])]
        arguments += ["--model", str(tmp_path / model), "-o", str(tmp_path / output), "--learning-rate", "0.05"]
        return run([*arguments, "--batch-size", "16", "--json", str(tmp_path / f"{output}.json"), *more])

    return tmp_path, call


def result(folder, name="out"):
    return json.loads((folder / f"{name}.json").read_text())


def test_it_trains_writes_a_model_and_a_card_and_says_so(world, capsys):
    folder, call = world
    assert call("--epochs", "3", "--dev", "dev") == 0
    shown = capsys.readouterr().out
    assert "Training →" in shown
    assert "nDCG@10 on dev after" in shown
    found = result(folder)
    losses = [entry["loss"] for entry in found["history"] if "loss" in entry]
    assert losses[-1] < losses[0]
    assert found["provenance"]["settings"]["loss"] == "mnrl"
    assert found["scores"]["nDCG@10 on dev after"] == found["best_dev"]
    card = (folder / "out" / "README.md").read_text()
    assert "## Training with foils" in card
    assert "| rows | 80 |" in card
    assert "| learning_rate | 0.05 |" in card
    assert (folder / "out" / "model.safetensors").is_file() or list((folder / "out").rglob("*.safetensors"))
    assert not (folder / "out" / "checkpoints").exists()
    assert json.loads((folder / "out" / "foils_training.json").read_text()) == found


def test_same_seed_same_weights_and_the_model_is_usable(world):
    from sentence_transformers import SentenceTransformer

    folder, call = world
    for name, seed in (("a", "1"), ("b", "1"), ("c", "2")):
        assert call("--seed", seed, output=name) == 0
    vectors = [
        SentenceTransformer(str(folder / name), device="cpu").encode("ba be bi", show_progress_bar=False)
        for name in "abc"
    ]
    assert np.array_equal(vectors[0], vectors[1])
    for file in ("a/foils_training.json", "a/README.md", "a/0_StaticEmbedding/model.safetensors"):
        other = file.replace("a/", "b/", 1)
        assert not (folder / file).exists() or (folder / file).read_bytes() == (folder / other).read_bytes()
    assert (folder / "a.json").read_bytes() == (folder / "b.json").read_bytes()
    assert not np.array_equal(vectors[0], vectors[2])


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


@pytest.mark.parametrize("batches", ["random", "no-duplicates", "hobit", "hobit-c", "mutual", "ngame", "walks", "b3"])
def test_every_way_of_batching(batches, world):
    folder, call = world
    more = ["--set-batches", "seeds=2"] if batches.startswith("hobit") else []
    assert call("--batches", batches, "--epochs", "2", "--loss", "weighted", *more) == 0
    assert result(folder)["steps"] == 10
    assert result(folder)["provenance"]["settings"]["batch_settings"] == ({"seeds": 2} if more else {})


@pytest.mark.parametrize(
    "more",
    [
        ["--loss", "hybrid", "--set", "mixing=gradnorm"],
        ["--loss", "debiased", "--set", "prior=0.2"],
        ["--loss", "weighted", "--set", "curriculum=true"],
        ["--batches", "progress"],
        ["--form", "lists", "--loss", "weighted"],
        ["--form", "pairs"],
        ["--per-query", "2"],
        ["--recipe", "hobit", "--epochs", "1", "--form", "triplets"],
        ["--recipe", "eci-sem", "--set", "temperature=0.2"],
        ["--set-trainer", "warmup_steps=0.5"],
        ["--set-trainer", "weight_decay=0.9"],
        ["--mask", "self", "--mask-margin", "-0.3"],
    ],
)
def test_options_change_the_training(more, world):
    folder, call = world
    assert call(output="plain") == 0
    assert call(*more) == 0
    plain, changed = ([e["loss"] for e in result(folder, name)["history"]] for name in ("plain", "out"))
    assert plain != changed


def test_pairs_need_no_source(world):
    folder, call = world
    assert call(source=None) == 0
    assert result(folder)["provenance"]["settings"]["form"] == "pairs"


def test_small_pieces_of_a_big_batch(world):
    folder, call = world
    bert_model(folder / "parts").save_pretrained(str(folder / "bert"))
    more = ("--recipe", "eci-sem", "--training-args", "mini_batch_size=4", "--max-length", "16")
    assert call(*more, model="bert") == 0
    assert result(folder)["provenance"]["settings"]["mini_batch_size"] == 4


def test_prompts_are_trained_with_and_stay_with_the_model(world):
    folder, call = world
    assert call(output="plain") == 0
    assert call("--training-args", "query_prompt=ba be: ,document_prompt=bo bu: ") == 0
    losses = [[e["loss"] for e in result(folder, name)["history"]] for name in ("plain", "out")]
    assert losses[0] != losses[1]
    kept = json.loads((folder / "out" / "config_sentence_transformers.json").read_text())["prompts"]
    assert {name: kept[name].strip() for name in ("query", "document")} == {"query": "ba be:", "document": "bo bu:"}
    assert call("--training-args", "query_prompt=@query,document_prompt=", model="out", output="again") == 0
    kept = json.loads((folder / "again" / "config_sentence_transformers.json").read_text())["prompts"]
    assert (kept["query"].strip(), kept["document"]) == ("ba be:", "")


def test_a_reranker(world):
    folder, call = world
    cross_encoder(folder / "cross")
    ids = [f"d{i}" for i in range(20, 40)]
    dev = [(f"q{i}", d, -j) for i in range(20, 30) for j, d in enumerate(ids)]
    queries, documents, scores = zip(*dev, strict=True)
    Run.ranked(list(queries), list(documents), np.array(scores, float), name="first").write(folder / "dev.trec")
    more = ("--reranker", "--dev", "dev", "--dev-run", str(folder / "dev.trec"), "--loss", "hybrid")
    assert call(*more, "--set", "alpha=0.7", model="cross") == 0
    assert 0 < result(folder)["best_dev"] <= 1
    assert call("--reranker", model="cross", output="listwise") == 0
    assert result(folder, "listwise")["provenance"]["settings"]["loss"] == "listnet"


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["--loss", "mrnl"], "Did you mean 'mnrl'"),
        (["--batches", "hobbit"], 'Did you mean "hobit"'),
        (["--recipe", "eci"], "eci-sem"),
        (["--set", "tempratur=1"], "temperature"),
        (["--form", "quads"], "triplets"),
        (["--training-args", "patience=2"], "patience"),
        (["--batches", "no-duplicates", "--set-batches", "a=1"], "no settings"),
        (["--dev-run", "x.trec"], "--dev-run x.trec: no effect without --dev"),
        (["--reranker", "--batches", "hobit"], "batches are random"),
        (["--reranker", "--training-args", "document_prompt=q: "], "one prompt for a pair"),
        (["--training-args", "query_prompt=@nowhere"], "nowhere"),
        (["--reranker", "--set-batches", "seeds=2"], "batches are random"),
        (["--reranker", "--dev", "dev"], "--dev-run"),
        (["--set", "curriculum=true"], "unknown setting of the loss mnrl"),
        (["--batches", "progress", "--refresh", "1"], "which go by the ratings"),
        (["--batches", "progress", "--set-batches", "seeds=2"], "progress has no settings"),
        (["--batches", "progress", "--form", "pairs"], "one negative"),
        (["--set-trainer", "report_to=tensorbord"], "tensorbord is not supported"),
        (["--mask-margin", "0.1"], "--mask-margin 0.1: no effect without --mask"),
        (["--mask", "other"], "expected self, or guide:MODEL"),
        (["--reranker", "--mask", "self"], "--mask self: no effect with --reranker"),
    ],
)
def test_bad_options_are_refused_with_a_message(more, said, world, capsys):
    _, call = world
    assert call(*more) == 2
    assert said in capsys.readouterr().err


def test_a_guide_masks_and_the_shares_that_it_took_are_shown(world, capsys):
    folder, call = world
    static_model(seed=3).save_pretrained(str(folder / "guide"))
    more = ["--mask", f"guide:{folder / 'guide'}", "--mask-margin", "-0.4", "--epochs", "2"]
    assert call(*more) == 0
    shown = capsys.readouterr().out
    assert "negatives masked in epoch 2: " in shown
    found = result(folder)
    masked = found["masked"]
    assert masked["mask"]["margin"] == -0.4
    assert len(masked["mask"]["guide"]["fingerprint"]) == 32
    assert list(masked["shares"]) == ["1", "2"]
    assert all(0 < share < 1 for share in masked["shares"].values())
    assert all(0 < entry["masked"] < 1 for entry in found["history"] if "loss" in entry)
    assert f"masked in epoch 2: {masked['shares']['2']:.2%}" in (folder / "out" / "README.md").read_text()
    assert call("--mask", "self", "--refresh", "1", "--epochs", "2", source=None, output="anew") == 0
    assert len(result(folder, "anew")["masked"]["shares"]) == 2


def test_a_static_embedding_from_a_word_table(tmp_path):
    from tokenizers import Tokenizer

    from foils.runtime.errors import InputError
    from foils.training.models import load_trainable

    source = bert_model(tmp_path / "bert")
    model = load_trainable(f"static:{tmp_path / 'bert'}", device="cpu")
    table_ = source[0].auto_model.embeddings.word_embeddings.weight.detach().numpy()
    ids = Tokenizer.from_file(str(tmp_path / "bert" / "tokenizer.json")).encode("ba be", add_special_tokens=False).ids
    assert np.allclose(model.encode("ba be", show_progress_bar=False), table_[ids].mean(0), atol=1e-6)
    with pytest.raises(InputError, match="safetensors"):
        load_trainable(f"static:{tmp_path}")
    with pytest.raises(InputError, match="no such folder"):
        load_trainable("/no/such/model")


def test_negatives_are_mined_anew_while_it_trains(world, capsys):
    folder, call = world
    assert call("--refresh", "1", "--epochs", "2", "--per-query", "3", source=None) == 0
    found = result(folder)
    assert found["provenance"]["settings"]["refresh"] == 1
    assert found["provenance"]["settings"]["form"] == "triplets"
    assert found["provenance"]["settings"]["per_query"] == 3
    assert found["counts"]["rows"] == 60
    assert call("--refresh", "1", "--form", "pairs", output="other") == 2
    assert call("--refresh", "1", "--reranker", output="other") == 2
    assert "--refresh" in capsys.readouterr().err


def test_a_training_without_any_negative_says_that_nothing_was_learned(tmp_path, capsys):
    static_model().save_pretrained(str(tmp_path / "static"))
    warnings = []
    for name, second in (("same", "ba be bi"), ("two", "da de di")):
        (tmp_path / f"{name}.csv").write_text(f"query,positive\nba be,ba be bi\nda de,{second}\n")
        arguments = [str(tmp_path / f"{name}.csv"), "--model", str(tmp_path / "static"), "-o", str(tmp_path / name)]
        assert run(["train", *arguments]) == 0
        warnings.append("nothing was learned" in capsys.readouterr().err)
    assert warnings == [True, False]
