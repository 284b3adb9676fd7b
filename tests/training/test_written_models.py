"""The folder of a model: it appears whole, may be read by whom the umask lets, knows its weights; resuming is exact."""

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

import foils
from foils.cli.app import run
from foils.data.run import Fusion
from foils.encode.models import CHECKSUMS, load_cross_encoder, load_model
from foils.runtime.errors import FormatError, InputError
from foils.runtime.files import fill_folder
from refusals import refused
from train_models import cross_encoder, made_up, made_up_folder, static_model, table


def flipped(path: Path, at: int = -3) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)


def trained(output: Path, **more):
    collection = made_up()
    how = {"model": static_model(), "device": "cpu", "batch_size": 8, **more}
    return foils.train(collection, table(collection), output=output, **how)


def test_the_modes_are_those_of_the_umask(tmp_path):
    for umask in (0o022, 0o027):
        before = os.umask(umask)
        try:
            trained(tmp_path / str(umask))
        finally:
            os.umask(before)
        for path in (tmp_path / str(umask)).rglob("*"):
            assert path.stat().st_mode & 0o777 == (0o777 if path.is_dir() else 0o666) & ~umask, path
    assert (tmp_path / "18" / "0_StaticEmbedding" / "model.safetensors").exists() or list(
        (tmp_path / "18").rglob("model.safetensors")
    )


@pytest.mark.parametrize("reranker", [False, True])
def test_one_flipped_bit_is_told_by_every_reader(reranker, tmp_path):
    collection, out = made_up(), tmp_path / "out"
    model = cross_encoder(tmp_path / "raw") if reranker else static_model()
    foils.train(collection, table(collection), model=model, reranker=reranker, output=out, batch_size=8, device="cpu")
    load = load_cross_encoder if reranker else load_model
    load(out, device="cpu")
    for name in ("model.safetensors", "tokenizer.json"):
        (file,) = out.rglob(name)
        whole = file.read_bytes()
        flipped(file)
        refused(rf"damaged \({file.relative_to(out)}.*{CHECKSUMS}", load, out, device="cpu")
        file.unlink()
        refused("damaged", load, out, device="cpu")
        file.write_bytes(whole)
    flipped(out / CHECKSUMS, 30)
    refused("damaged|malformed", load, out, device="cpu")
    (out / CHECKSUMS).unlink()  # as a model from elsewhere
    load(out, device="cpu")


def test_a_retriever_that_says_something_else_is_told(tmp_path):
    Fusion("z", 0.5, "both", "base").write(tmp_path / "retriever.json")
    assert Fusion.of(tmp_path) == Fusion("z", 0.5, "both", "base")
    text = (tmp_path / "retriever.json").read_text()
    (tmp_path / "retriever.json").write_text(text.replace("0.5", "0.4"))
    refused("no retriever", Fusion.of, tmp_path, error=FormatError)
    facts = json.loads(text)
    del facts["checksum"]
    (tmp_path / "retriever.json").write_text(json.dumps(facts))
    refused("tune again", Fusion.of, tmp_path, error=FormatError)


def test_training_over_a_model_replaces_it_and_keeps_what_is_not_its_own(tmp_path):
    out = tmp_path / "out"
    first = trained(out, learning_rate=0.1)
    (out / "notes.txt").write_text("mine")
    (out / "adapter_config.json").write_text("{}")  # would be read with the new weights
    (out / "deep" / "er").mkdir(parents=True)
    (out / "deep" / "er" / "notes").write_text("mine")
    second = trained(out, learning_rate=0.2)
    assert (out / "notes.txt").read_text() == (out / "deep" / "er" / "notes").read_text() == "mine"
    assert not (out / "adapter_config.json").exists()
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
    saved = load_model(out, device="cpu").state_dict()
    assert all(torch.equal(value, second.model.state_dict()[name]) for name, value in saved.items())
    assert not all(torch.equal(value, first.model.state_dict()[name]) for name, value in saved.items())


SWAPS = """
import sys
from pathlib import Path
from foils.runtime.files import fill_folder
print("ready", flush=True)
at = 0
while True:
    at += 1
    with fill_folder(sys.argv[1]) as aside:
        (aside / "inner").mkdir()
        for name in ("a", "b", "inner/c", "z"):
            (aside / name).write_text(str(at))
"""


def test_a_kill_leaves_one_whole_model(tmp_path):
    """Killed at any moment, the folder is of one writing: never some files of one and some of another."""
    out, seen = tmp_path / "out", set()
    with fill_folder(out) as aside:
        (aside / "inner").mkdir()
        for name in ("a", "b", "inner/c", "z"):
            (aside / name).write_text("0")
    for trial in range(12):
        process = subprocess.Popen([sys.executable, "-c", SWAPS, str(out)], stdout=subprocess.PIPE)
        assert process.stdout.readline()
        time.sleep(0.003 * trial)
        process.kill()
        process.wait()
        process.stdout.close()
        found = {(out / name).read_text() for name in ("a", "b", "inner/c", "z")}
        assert len(found) == 1, found
        seen |= found
    assert seen - {"0"}


@pytest.mark.parametrize("plain", [False, True])
def test_folders_change_places_with_and_without_the_system_s_help(plain, tmp_path, monkeypatch):
    if plain:
        monkeypatch.setattr("ctypes.CDLL", lambda *_, **__: object())
    for text in ("old", "new"):
        with fill_folder(tmp_path / "out") as aside:
            (aside / text).write_text(text)
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["new", "old"]
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


@pytest.mark.parametrize("place", ["file/out", "/proc/foils-model", "closed/out"])
def test_a_folder_that_cannot_be_written_is_refused_before_anything(place, tmp_path, monkeypatch, beir_folder, capsys):
    (tmp_path / "file").write_text("mine")
    (tmp_path / "closed").mkdir(mode=0o555)
    if place.startswith("closed") and os.access(tmp_path / "closed", os.W_OK):
        pytest.skip("this user may write anywhere")
    read = []
    monkeypatch.setattr("foils.training.data.read_data_sets", lambda *given, **_: read.append(given))
    static_model().save_pretrained(str(tmp_path / "static"))
    arguments = ["train", str(made_up_folder(beir_folder)), "--model", str(tmp_path / "static")]
    assert run([*arguments, "-o", str(tmp_path / place)]) == 2
    assert "cannot write" in capsys.readouterr().err
    assert not read
    assert (tmp_path / "file").read_text() == "mine"


class StoppedError(Exception):
    pass


def stopped(output: Path, **more):
    """A training that left its first checkpoint."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("foils.training.fit.cast", lambda *_: (_ for _ in ()).throw(StoppedError))
        with pytest.raises(StoppedError):
            trained(output, **more)
    assert list((output / "checkpoints").glob("checkpoint-*"))


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        ({"seed": 3}, "seed was 0, is 3"),
        ({"learning_rate": 0.5}, "learning_rate was"),
        ({"epochs": 3}, "epochs was 1, is 3"),
        ({"batch_size": 4}, "batch_size was 8, is 4"),
        ({"loss": "weighted"}, "loss was mnrl, is weighted"),
        ({"loss_settings": {"temperature": 0.2}}, "loss_settings was"),
        ({"batches": "ngame"}, "batches was random, is ngame"),
        ({"similarity": "dot"}, "similarity was"),
        ({"dev": "dev"}, "dev was None, is dev"),
        ({"trainer": {"weight_decay": 0.1}}, "trainer was"),
        ({"model": static_model(1)}, "model was"),
        ({"seed": 3, "epochs": 3}, "epochs was 1, is 3.*seed was 0, is 3|seed was 0, is 3.*epochs was 1, is 3"),
    ],
)
def test_resuming_refuses_what_changes_the_result(changed, named, tmp_path):
    stopped(tmp_path / "out")
    before = (tmp_path / "out" / "checkpoints" / "foils_arguments.json").read_bytes()
    refused(named, trained, tmp_path / "out", resume=True, **changed)
    refused("resume it", trained, tmp_path / "out")  # not over it, and what it began with stays written down
    assert (tmp_path / "out" / "checkpoints" / "foils_arguments.json").read_bytes() == before


def test_resuming_with_the_same_arguments_ends_as_one_training(tmp_path):
    whole = trained(tmp_path / "whole", epochs=2)
    stopped(tmp_path / "out", epochs=2)
    shutil.rmtree(max((tmp_path / "out" / "checkpoints").glob("checkpoint-*"), key=lambda path: int(path.name[11:])))
    again = trained(tmp_path / "out", epochs=2, resume=True, trainer={"logging_steps": 1})
    first, second = (load_file(next(path.rglob("model.safetensors"))) for path in (whole.path, again.path))
    assert all(torch.equal(first[name], second[name]) for name in first)
    assert not (again.path / "checkpoints").exists()


def test_other_negatives_are_another_training(tmp_path):
    stopped(tmp_path / "out")
    collection = made_up()
    how = {"model": static_model(), "device": "cpu", "batch_size": 8, "output": tmp_path / "out", "resume": True}
    with pytest.raises(InputError, match="other arguments"):
        foils.train(collection, table(collection, seed=1), **how)
