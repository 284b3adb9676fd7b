"""Disks that fill up, fail, or lose what was not flushed."""

import json
import resource
import shutil
import signal
from contextlib import contextmanager, nullcontext
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from fakes import HashingEncoder
from foils.cli.app import run
from foils.data import Run
from foils.runtime.errors import FailureError
from foils.training.fit import writing_weights
from train_models import static_model
from tune_world import write_study

OLD = "what was there before"
OUTPUTS = {
    "mine": "mine made --with bm25 -o OUT",
    "mine dense": "mine made --with dense -o OUT",
    "export": "export made bm25.parquet -o OUT",
    "fuse": "fuse made bm25.parquet dense.parquet -o OUT",
    "score json": "score made bm25.parquet --json OUT",
    "score report": "score made bm25.parquet --report OUT",
    "rate": "rate made bm25.parquet -o OUT",
    "select": "select rated.parquet --by percentile -o OUT",
    "batch": "batch made --with random --batch-size 2 -o OUT",
    "evaluate": "evaluate made --run made.trec --json OUT",
    "search": "search made --model m --dimensions rdime --run OUT",
    "report": "report study -o OUT",
}
STUDY = ("study made bm25.parquet dense.parquet --model static --seeds 1 --set batch_size=2 "
         "--set save_steps=2 -o OUT")  # fmt: skip
TRAIN = "train made bm25.parquet --model static --batch-size 2 --epochs 2 --set-trainer save_steps=1 -o OUT"


@contextmanager
def full_disk(after=200):
    """No file grows past so many bytes: the system itself refuses, as it does on a full disk."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (after, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, handler)


@pytest.fixture(scope="module")
def made(tmp_path_factory, write_beir):
    """A folder with a collection, tables to begin with, a model, a study; encoders need no model."""
    folder = tmp_path_factory.mktemp("disks")
    with pytest.MonkeyPatch.context() as patch:
        for place in ("foils.encode.load_encoder", "foils.encode.vectors.load_encoder"):
            patch.setattr(place, lambda name, settings=None: HashingEncoder())
        patch.setattr("foils.experiments.analysis.RESAMPLES", 10)  # quick
        patch.chdir(folder)
        write_beir(Path("made"))
        for name in ("bm25", "dense"):
            assert run(["mine", "made", "--with", name, "-o", f"{name}.parquet"]) == 0
        assert run(["rate", "made", "dense.parquet", "-o", "rated.parquet"]) == 0
        ranked = [(query, document, -at) for query in ("q4", "q5") for at, document in enumerate(("d1", "d2", "d8"))]
        Run.ranked(*map(list, zip(*ranked, strict=True)), name="made").write("made.trec")
        static_model().save_pretrained("static")
        write_study(Path("study"))
        yield folder


@pytest.fixture
def world(made, tmp_path, monkeypatch):
    """Change to a copy of it, with a cache of its own."""
    shutil.copytree(made, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FOILS_CACHE", str(tmp_path / "cache"))
    return tmp_path


@pytest.fixture
def fails(capsys):
    """Run a command that has so much room (None: no end of it), and hold its status and message."""

    def check(command, out, status, said, room=200):
        capsys.readouterr()
        with nullcontext() if room is None else full_disk(room):
            found = run(command.replace("OUT", str(out)).split())
        err = capsys.readouterr().err
        assert found == status
        assert f"foils: {'failed' if status == 1 else 'error'}: cannot " in err
        assert said in err
        assert "Traceback" not in err

    return check


def works(command, out):
    assert run(command.replace("OUT", str(out)).split()) == 0


def files(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("name", OUTPUTS)
def test_a_full_disk(name, world, fails):
    """Exit status 1, and the file of before is as it was; the second time, with room, the verb succeeds."""
    works(OUTPUTS[name], "out")  # whatever it caches is there now
    (world / "out").write_text(OLD)
    before = files(world)
    fails(OUTPUTS[name], "out", 1, "File too large")
    assert files(world) == before
    works(OUTPUTS[name], "out")
    assert (world / "out").read_bytes() != OLD.encode()


@pytest.mark.parametrize("name", ["mine dense", "rate"])
def test_a_full_disk_where_work_is_kept(name, world, fails):
    """The cache, the vectors, the judgements: what is not whole is not there, and the next run makes it."""
    fails(OUTPUTS[name], "out", 1, "File too large")
    assert not (world / "out").exists()
    assert not any(path.is_file() for folder in ("cache", "judged") for path in (world / folder).rglob("*"))
    works(OUTPUTS[name], "out")


@pytest.mark.parametrize("name", [*OUTPUTS, "study"])
def test_a_place_that_cannot_be_written(name, world, fails):
    """A folder that is a file: so it holds for whoever may write anywhere, too."""
    (world / "file").write_text(OLD)
    before = files(world / "made")
    fails({**OUTPUTS, "study": STUDY}[name], "file/out", 2, "file", room=None)
    assert (world / "file").read_text() == OLD
    assert files(world / "made") == before


def test_a_full_disk_under_a_model(world, capsys):
    """The folder of the model holds what it held before; with room, the training goes on."""
    place = world / "model"
    with full_disk():
        assert run(TRAIN.replace("OUT", "model").split()) == 1
    said = capsys.readouterr().err
    assert "foils: failed: " in said
    assert "Traceback" not in said
    assert not list(place.rglob("*.safetensors"))
    assert not (place / "README.md").exists()
    works(f"{TRAIN} --resume", "model")
    assert list(place.rglob("*.safetensors"))


def without_seconds(folder):
    """The files of a study, without checkpoints, its own name, and the seconds that trainings took (with checksums)."""
    found = {}
    for name, written in files(folder).items():
        data = written.replace(folder.name.encode(), b"FOLDER")
        if "checkpoint-" not in name:
            value = json.loads(data) if name.endswith(".json") else data
            found[name] = {**value, "seconds": 0, "checksum": ""} if isinstance(value, dict) else value
    return found


@pytest.mark.slow
def test_a_full_disk_under_a_study(world, fails):
    """What is there is whole, and stays; with more room it goes on, and ends as one that had room from the start."""
    works(STUDY, "whole-study")
    expected, before = without_seconds(world / "whole-study"), 0
    for room, full in {2_000: "sources", 6_000: "trained"}.items():
        fails(STUDY, "other-study", 1, full, room)
        there = without_seconds(world / "other-study")
        assert there.items() <= expected.items()
        assert before <= len(there) < len(expected)
        before = len(there)
    works(STUDY, "other-study")
    assert without_seconds(world / "other-study") == expected
    whole = files(world / "other-study")
    fails(STUDY.replace("--seeds 1", "--seeds 2"), "other-study", 1, "File too large")
    after = files(world / "other-study")
    assert {name: after[name] for name in whole} == whole


@pytest.mark.parametrize("write", [
    lambda path: save_file({"weights": torch.ones(1_000)}, path / "weights.safetensors"),
    lambda path: torch.save(torch.ones(1_000), path / "optimizer.pt"),
    lambda path: (path / "card.md").write_text("card" * 1_000),
])  # fmt: skip
def test_whatever_writes_weights_tells_of_a_full_disk(write, tmp_path):
    with pytest.raises(FailureError, match=f"cannot write {tmp_path}"), full_disk(), writing_weights(tmp_path):
        write(tmp_path)


def test_other_failures_of_training_stay_what_they_are():
    with pytest.raises(RuntimeError, match="shapes"), writing_weights(Path()):
        raise RuntimeError("shapes differ")
