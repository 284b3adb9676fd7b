"""What data and models may not do: run code, unpickle, write outside their folder, reach the network."""

from __future__ import annotations

import json
import pickle
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from sentence_transformers.sentence_transformer.modules import Dense

import foils
from fakes import HashingEncoder
from foils.data import Collection, Negatives, Run
from foils.data.negatives import FORMS, Exported
from foils.encode import load_encoder
from foils.encode.models import load_cross_encoder
from foils.experiments import StudySettings, analyse, open_study, read_cells, run_cells
from foils.runtime.errors import InputError
from foils.training.models import load_trainable
from hostile import assert_harmless, hostile_world
from in_browser import assert_fits_everyone, in_chromium, needs_chromium
from rated_rows import with_positives
from refusals import refused
from train_models import bert_model, cross_encoder, static_model

SOURCES = Path(__file__).parents[2] / "src" / "foils"


class Bomb:
    """Unpickling it writes a file."""

    def __init__(self, path: Path) -> None:
        self.path = str(path)

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (Path(self.path),)


@pytest.fixture
def bomb(tmp_path):
    """A pickle, and the file that is there once it has been loaded."""
    mark = tmp_path / "exploded"
    data = pickle.dumps(Bomb(mark))
    pickle.loads(data)
    assert mark.exists(), "it would be seen"
    mark.unlink()
    return data, mark


LOADERS: dict[str, tuple[Callable[[Path], Any], Callable[[Path], object]]] = {
    "encoder": (bert_model, load_encoder),
    "trainable": (bert_model, lambda path: load_trainable(str(path))),
    "static": (bert_model, lambda path: load_trainable(f"static:{path}")),
    "cross-encoder": (cross_encoder, load_cross_encoder),
}


@pytest.mark.parametrize("name", LOADERS)
def test_weights_that_are_pickled_are_not_loaded(name, tmp_path, bomb):
    (make, load), place = LOADERS[name], tmp_path / "model"
    make(tmp_path / "parts").save_pretrained(str(place))
    load(place)  # it is a good model
    (weights,) = place.rglob("*.safetensors")
    weights.unlink()
    weights.with_name("pytorch_model.bin").write_bytes(bomb[0])
    refused(r"(?i)cannot load|needs model\.safetensors|pickled weights", load, place)
    assert not bomb[1].exists()


def test_pickled_weights_of_a_module_after_the_transformer_run_no_code(tmp_path, bomb):
    model, place = bert_model(tmp_path / "parts"), tmp_path / "model"
    model.append(Dense(model.get_embedding_dimension(), 4))
    model.save_pretrained(str(place))
    load_encoder(place)
    (weights,) = place.glob("*_Dense/model.safetensors")
    weights.unlink()
    weights.with_name("pytorch_model.bin").write_bytes(bomb[0])
    refused("cannot load", load_encoder, place)
    assert not bomb[1].exists()


@pytest.mark.parametrize("name", ["encoder", "trainable"])
def test_code_of_a_model_is_not_run_unless_asked_for(name, tmp_path):
    place, mark = tmp_path / "model", tmp_path / "ran"
    bert_model(tmp_path / "parts").save_pretrained(str(place))
    (place / "own.py").write_text(f"from pathlib import Path\nPath({str(mark)!r}).touch()\nclass Own: ...\n")
    config = json.loads((place / "config.json").read_text())
    config["auto_map"] = {"AutoConfig": "own.Own", "AutoModel": "own.Own"}
    config["model_type"] = "of its own"
    (place / "config.json").write_text(json.dumps(config))
    with pytest.raises(InputError):
        LOADERS[name][1](place)
    assert not mark.exists()


@pytest.mark.parametrize("read", [Negatives.read, Run.read])
def test_files_that_are_pickles_are_refused(read, tmp_path, bomb):
    path = tmp_path / "file"
    path.write_bytes(bomb[0])
    with pytest.raises(InputError):
        read(path)
    assert not bomb[1].exists()


def test_no_module_unpickles():
    words = ["pickle", "cPickle", "dill", "cloudpickle", "joblib", "shelve", "marshal"]
    imported = re.compile(rf"^\s*(import|from) ({'|'.join(words)})\b", re.M)
    for path in SOURCES.rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        assert not imported.search(text), path
        assert "torch.load" not in text, path
        assert "allow_pickle" not in text.replace("allow_pickle=False", ""), path


STRANGE = ["../../out", "/etc/passwd", "..", "a/b", "con\\x", "a\nb", "q%2F..", "<script>"]


@pytest.mark.parametrize("form", list(FORMS))
def test_ids_are_no_paths(form, tmp_path):
    """Whatever ids say, an export writes its file, and its file alone."""
    documents = {name: f"text {i} about boats" for i, name in enumerate([*STRANGE, "d"])}
    collection = Collection.from_dicts("../../c", documents, {n: f"query {n}" for n in STRANGE}, {
        "train": {name: {"d": 1} for name in STRANGE},
    })  # fmt: skip
    rows = [
        {"query_id": q, "doc_id": d, "source": "../s", "rank": i, "score": float(-i)}
        for q in STRANGE
        for i, d in enumerate(STRANGE[:2])
    ]
    inside = tmp_path / "a" / "b" / "c"
    inside.mkdir(parents=True)
    before = {path for path in tmp_path.rglob("*") if path.is_file()}
    table, *positives = Negatives(pa.Table.from_pylist(rows)), pa.array(STRANGE), pa.array(["d"] * len(STRANGE))
    table = with_positives(table, *positives, {"score": np.arange(len(STRANGE))})
    Exported(collection, table, form, "train", "score").write(inside / "out")
    after = {path for path in tmp_path.rglob("*") if path.is_file()} - before
    assert after <= {inside / "out"}
    assert not any(path.is_symlink() for path in tmp_path.rglob("*"))


def test_judgements_of_a_folder_cannot_name_files_outside_the_cache(beir_folder):
    """A split is a file's name: it cannot hold a path; what a link in the folder points to is read, not written."""
    from foils.data import load_collection

    folder = beir_folder()
    shutil.copy(folder / "qrels" / "train.tsv", folder / "qrels" / "a%2F..%2Fevil.tsv")
    assert "a%2F..%2Fevil" in load_collection(folder).splits
    assert not list(folder.rglob("*.arrow"))
    assert not list(folder.parent.rglob("*evil.arrow"))


@pytest.mark.slow
def test_nothing_is_downloaded_when_offline(tmp_path, beir_folder):
    """Names of models and data sets that are not here end in an error, and no address is looked up."""
    program = f"""
import socket, sys
def refused(*arguments, **_):
    print("ASKED", arguments, flush=True)
    raise OSError("no network in this test")
socket.socket.connect = refused
socket.getaddrinfo = refused
from foils.cli.app import run
here, folder = {str(tmp_path / "out")!r}, {str(beir_folder())!r}
print(run(["mine", "hf:someone/something", "-o", here + "/x"]))
print(run(["train", folder, "--model", "someone/something", "-o", here + "/m"]))
print(run(["evaluate", folder, "--model", "someone/something", "--split", "train"]))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=300)
    assert "ASKED" not in done.stdout, done.stdout
    assert done.stdout.split() == ["2", "2", "2"], done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "out").exists()


# The pages of a decision and of a study of a collection whose every name, id and text is an attack


NAME = "<img src=x onerror=document.title='owned'>"  # what a folder may be called
TITLES = {"score": "Which hard negatives to train on", "study": "Did the score predict the training?"}


@pytest.fixture(scope="module", params=TITLES)
def page(request, tmp_path_factory):
    """The title of a page, and its place."""
    place, (collection, sources) = tmp_path_factory.mktemp("hostile"), hostile_world()
    vectors = foils.VectorStore(place / "vectors")
    if request.param == "score":
        foils.score(collection, sources, encoder=HashingEncoder(), vectors=vectors).report(place / "page.html")
    else:
        static_model().save_pretrained(str(place / NAME))
        settings = StudySettings(seeds=1, training={"batch_size": 8})
        run_cells(open_study(place / "study", collection, sources, [str(place / NAME)], settings), vectors)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("foils.experiments.analysis.RESAMPLES", 10)  # quick
            analyse(read_cells(place / "study")).report(place / "page.html")
        assert all(path.resolve().is_relative_to(place) for path in place.rglob("*"))
    return TITLES[request.param], place / "page.html"


def test_what_users_bring_is_escaped_and_nothing_is_fetched(page):
    title, path = page
    assert f"<title>{title}</title>" in path.read_text("utf-8")
    assert_harmless(path.read_text("utf-8"))


@pytest.mark.slow
@needs_chromium
def test_no_script_of_a_collection_runs_in_a_browser(page):
    title, path = page
    shown = in_chromium(path)
    assert f"<title>{title}</title>" in shown
    assert "<img" not in shown
    assert_fits_everyone(path)
