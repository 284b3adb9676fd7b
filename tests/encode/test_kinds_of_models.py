"""A model is taken for what it is: other kinds, models that are not whole, and damaged files are refused by name."""

import json
import shutil

import pytest
import torch
from sentence_transformers import CrossEncoder, SentenceTransformer

import foils
from foils.cli.app import run
from foils.encode import EncoderSettings, as_encoder
from foils.encode.models import load_cross_encoder, load_model
from foils.encode.vectors import EmbeddingSettings
from foils.runtime.errors import InputError
from refusals import refused
from tiny_models import tiny_sparse_and_multi_vector
from train_models import bert_model, cross_encoder, made_up, made_up_folder, masked_language_model, static_model, table

POOLING, NO_CROSS_ENCODER = "without pooling", "kind encoder, not cross-encoder"
LACKS = r"no whole cross-encoder: its files lack \d weights.*classifier.*foils train COLLECTION --reranker"
CROSS = "kind cross-encoder, not encoder.*--model bm25 --reranker"


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """Models of every kind by name."""
    place = tmp_path_factory.mktemp("kinds")
    masked_language_model(place / "masked")
    bert_model(place / "plain").save_pretrained(str(place / "encoder"))
    static_model().save_pretrained(str(place / "static"))
    cross_encoder(place / "old-cross-encoder").save_pretrained(str(place / "cross-encoder"))  # first without modules
    tiny_sparse_and_multi_vector(place, [f"w{i}" for i in range(40)])
    return place


@pytest.mark.parametrize(
    ("name", "as_an_encoder", "as_a_cross_encoder"),
    [
        ("encoder", "", NO_CROSS_ENCODER),
        ("static", "", NO_CROSS_ENCODER),
        ("cross-encoder", CROSS, ""),
        ("old-cross-encoder", CROSS, ""),
        ("plain", POOLING, LACKS),
        ("masked", POOLING, LACKS),
        ("splade", "kind SparseEncoder, not encoder", "kind SparseEncoder, not cross-encoder"),
        ("colbert", "kind MultiVectorEncoder, not encoder", "kind MultiVectorEncoder, not cross-encoder"),
    ],
)
def test_each_kind_is_what_it_is_and_nothing_else(name, as_an_encoder, as_a_cross_encoder, world):
    for load, said in ((load_model, as_an_encoder), (load_cross_encoder, as_a_cross_encoder)):
        if said:
            refused(said, load, world / name, device="cpu")
        else:
            assert load(world / name, device="cpu").drawn_weights == ()


def test_training_may_give_a_head_and_says_what_it_drew(world):
    assert load_model(world / "masked", device="cpu", new_head=True).get_embedding_dimension() == 16
    for name in ("encoder", "plain", "masked"):
        one, other = (load_cross_encoder(world / name, device="cpu", new_head=True, seed=seed) for seed in (0, 1))
        changed = {
            key.removeprefix("0.model.") for key, value in one.state_dict().items()
            if not torch.equal(value, other.state_dict()[key])
        }  # fmt: skip
        assert changed == {key for key in one.drawn_weights if key.endswith("weight")}
    refused("cross-encoder, not encoder", load_model, world / "cross-encoder", device="cpu", new_head=True)
    refused("kind SparseEncoder", load_cross_encoder, world / "splade", device="cpu", new_head=True)


def test_loaded_models_of_another_kind(world):
    encoder = SentenceTransformer(str(world / "encoder"), device="cpu")
    scores = CrossEncoder(str(world / "cross-encoder"), device="cpu")
    refused("not cross-encoder", EmbeddingSettings().open_cross_encoder, encoder)
    refused("not encoder", as_encoder, scores, EncoderSettings())
    assert EmbeddingSettings().open_cross_encoder(scores) is scores


@pytest.mark.parametrize(
    "verb",
    [
        "evaluate COLLECTION --model bm25 --reranker ENCODER",
        "evaluate COLLECTION --model CROSS",
        "mine COLLECTION --with cross-encoder --cross-encoder ENCODER -o OUT",
        "filter COLLECTION SOURCE --scorer cross-encoder --cross-encoder ENCODER --margin 0.1 -o OUT",
        "score-pairs COLLECTION SOURCE --teacher cross-encoder:ENCODER -o OUT",
        "mine COLLECTION --with dense --encoder CROSS -o OUT",
    ],
)
def test_verbs_refuse_with_what_to_type_instead(verb, world, beir_folder, tmp_path, capsys):
    names = {"COLLECTION": made_up_folder(beir_folder), "ENCODER": world / "plain", "CROSS": world / "cross-encoder"}
    names["OUT"] = tmp_path / "n.parquet"
    table(made_up()).write(tmp_path / "source.parquet")
    names["SOURCE"] = tmp_path / "source.parquet"
    words = [word.replace(":ENCODER", f":{world / 'plain'}") for word in verb.split()]
    assert run([str(names.get(word, word)) for word in words]) == 2
    said = capsys.readouterr().err
    assert "foils " in said.partition("; ")[2]
    assert "Traceback" not in said
    assert not names["OUT"].exists()


def test_a_transformer_becomes_an_encoder_by_training(world, tmp_path):
    collection = made_up()
    refused(POOLING, foils.evaluate, collection, str(world / "plain"))
    foils.train(collection, model=world / "plain", output=tmp_path / "out", batch_size=8, device="cpu")
    assert len(load_model(tmp_path / "out", device="cpu")) == 2


def _json(file, change):
    def edit(folder):
        facts = json.loads((folder / file).read_text())
        (folder / file).write_text(json.dumps(change(facts)))

    return edit


def _bytes(file, change):
    return lambda folder: (folder / file).write_bytes(change((folder / file).read_bytes()))


DAMAGE = {
    "weights cut short": _bytes("model.safetensors", lambda old: old[: len(old) // 2]),
    "weights gone": lambda folder: (folder / "model.safetensors").unlink(),
    "no weights at all": _bytes("model.safetensors", lambda old: b""),
    "tokenizer cut short": _bytes("tokenizer.json", lambda old: old[:40]),
    "tokenizer of another kind": _json("tokenizer.json", lambda old: {**old, "model": {"type": "Nope"}}),
    "config cut short": _bytes("config.json", lambda old: old[:40]),
    "config is a list": _json("config.json", lambda old: []),
    "modules cut short": _bytes("modules.json", lambda old: old[:40]),
    "modules of another shape": _json("modules.json", lambda old: {"a": 1}),
    "modules that are no modules": _json("modules.json", lambda old: [{**old[0], "type": "os.system"}]),
    "no pooling among the modules": _json("modules.json", lambda old: old[:1]),
    "fewer layers": _json("config.json", lambda old: {**old, "num_hidden_layers": 0}),
    "more layers": _json("config.json", lambda old: {**old, "num_hidden_layers": 2}),
    "wider layers": _json("config.json", lambda old: {**old, "hidden_size": 32}),
    "another vocabulary": _json("config.json", lambda old: {**old, "vocab_size": 999}),
    "everything gone": lambda folder: [shutil.rmtree(folder), folder.mkdir()],
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_damaged_files_are_told_and_never_a_traceback(damage, world, tmp_path):
    folder = tmp_path / "encoder"
    shutil.copytree(world / "encoder", folder)
    DAMAGE[damage](folder)
    with pytest.raises(InputError) as told:
        load_model(folder, device="cpu")
    assert str(folder) in str(told.value)
    assert "ignore_mismatched_sizes" not in str(told.value)


def test_weights_and_config_of_different_models_do_not_belong_together(world, tmp_path):
    for load, name in ((load_model, "encoder"), (load_cross_encoder, "cross-encoder")):
        for layers in (0, 2):
            folder = tmp_path / f"{name}{layers}"
            shutil.copytree(world / name, folder)
            _json("config.json", lambda old, layers=layers: {**old, "num_hidden_layers": layers})(folder)
            refused("do not belong together", load, folder, device="cpu")
            if name == "cross-encoder":
                refused("do not belong together", load, folder, device="cpu", new_head=True)


def test_systems_that_cut_texts_elsewhere_are_told(world, tmp_path, caplog):
    model = SentenceTransformer(str(world / "encoder"), device="cpu")
    model.max_seq_length = 9
    model.save_pretrained(str(tmp_path / "short"))
    names = {"long": str(world / "encoder"), "short": str(tmp_path / "short")}
    collection = made_up()
    foils.evaluate(collection, names)
    assert any("long: 64, short: 9" in line for line in caplog.messages)
    caplog.clear()
    foils.evaluate(collection, names, max_length=9)
    assert not any("different numbers of tokens" in line for line in caplog.messages)
