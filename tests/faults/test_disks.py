"""A full disk and a place that cannot be written: a clear error for every verb's outputs, and nothing damaged."""

from __future__ import annotations

import json
import os
import resource
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch
from kept_formats import write_study
from safetensors.torch import save_file

from fakes import HashingEncoder
from foils.cli.app import run
from foils.data import Run
from foils.runtime.errors import FailureError
from foils.training.fit import writing_weights
from train_models import static_model

OLD = "what was there before"


@contextmanager
def full_disk(after: int = 200) -> Iterator[None]:
    """No file grows past so many bytes: the system itself refuses, as it does on a full disk."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (after, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, handler)


@pytest.fixture
def world(tmp_path, beir_folder, monkeypatch):
    """A collection that is in the cache with its vectors, tables to begin with, a study."""
    monkeypatch.setattr("foils.encode.load_encoder", lambda name, settings=None: HashingEncoder())
    monkeypatch.setattr("foils.encode.opening.load_encoder", lambda name, settings=None: HashingEncoder())
    monkeypatch.setenv("FOILS_CACHE", str(tmp_path / "cache"))
    for module in ("analysis", "outcomes"):
        monkeypatch.setattr(f"foils.experiments.{module}.RESAMPLES", 10)  # quick
    folder = beir_folder("made")
    for name in ("bm25", "dense"):
        assert run(["mine", str(folder), "--with", name, "-o", str(tmp_path / f"{name}.parquet")]) == 0
    assert run(["rate", str(folder), str(tmp_path / "dense.parquet"), "-o", str(tmp_path / "rated.parquet")]) == 0
    ranked = [(query, document, -at) for query in ("q4", "q5") for at, document in enumerate(("d1", "d2", "d8"))]
    Run.ranked(*map(list, zip(*ranked, strict=True)), name="made").write(tmp_path / "made.trec")
    write_study(tmp_path / "study")
    return tmp_path


# Each verb's outputs: @ is the world's folder, = the place of the outputs.
OUTPUTS: dict[str, list[str]] = {
    "mine": ["mine", "@/made", "--with", "bm25", "-o", "=/out"],
    "mine json": ["mine", "@/made", "--with", "random", "-o", "/dev/null", "--json", "=/out"],
    "mine dense": ["mine", "@/made", "--with", "dense", "-o", "=/out"],
    "mine export": ["mine", "@/made", "-o", "/dev/null", "--export", "triplets==/out"],
    "fuse": ["fuse", "@/made", "@/bm25.parquet", "@/dense.parquet", "-o", "=/out"],
    "score json": ["score", "@/made", "@/bm25.parquet", "--json", "=/out"],
    "score report": ["score", "@/made", "@/bm25.parquet", "--report", "=/out"],
    "rate": ["rate", "@/made", "@/bm25.parquet", "--judgements", "@/judged", "-o", "=/out"],
    "select": ["select", "@/rated.parquet", "--by", "percentile", "-o", "=/out"],
    "batch": ["batch", "@/made", "--with", "random", "--batch-size", "2", "-o", "=/out"],
    "evaluate": ["evaluate", "@/made", "--run", "@/made.trec", "--json", "=/out"],
    "search": ["search", "@/made", "--model", "m", "--dimensions", "rdime", "--run", "=/out"],
    "report": ["report", "@/study", "-o", "=/out"],
    "report json": ["report", "@/study", "-o", "/dev/null", "--json", "=/out"],
}  # fmt: skip


def arguments(name: str, world: Path, place: Path) -> list[str]:
    """The arguments of a verb; its output is `place`."""
    return [word.replace("@/", f"{world}/").replace("=/out", str(place)) for word in OUTPUTS[name]]


def files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def check_said(said: str, status: int, expected: str) -> None:
    assert f"foils: {'failed' if status == 1 else 'error'}: cannot " in said
    assert expected in said
    assert "Traceback" not in said


@pytest.mark.parametrize("name", OUTPUTS)
def test_a_full_disk(name, world, capsys):
    """Exit status 1, and the file of before is as it was; the second time, with room, the verb succeeds."""
    place = world / "outputs" / "out"
    place.parent.mkdir()
    assert run(arguments(name, world, place)) == 0  # whatever it caches is there now
    place.write_text(OLD)
    before = files(world)
    capsys.readouterr()
    with full_disk():
        status = run(arguments(name, world, place))
    check_said(capsys.readouterr().err, status, "File too large")
    assert status == 1
    assert files(world) == before
    assert run(arguments(name, world, place)) == 0
    assert place.read_bytes() != OLD.encode()


@pytest.mark.parametrize("name", ["mine dense", "rate"])
def test_a_full_disk_where_work_is_kept(name, world, capsys, monkeypatch):
    """The cache, the vectors, the judgements: what is not whole is not there, and the next run makes it."""
    monkeypatch.setenv("FOILS_CACHE", str(world / "another"))
    place = world / "out"
    with full_disk():
        status = run(arguments(name, world, place))
    check_said(capsys.readouterr().err, status, "File too large")
    assert status == 1
    assert not place.exists()
    assert not any(path.is_file() for folder in ("another", "judged") for path in (world / folder).rglob("*"))
    assert run(arguments(name, world, place)) == 0


def test_a_full_disk_under_a_model(world, capsys):
    """The folder of the model holds what it held before; with room, the training goes on."""
    static_model().save_pretrained(str(world / "static"))
    place = world / "model"
    train = ["train", f"{world}/made", f"{world}/bm25.parquet", "--model", f"{world}/static", "--batch-size", "2",
             "--epochs", "2", "--set-trainer", "save_steps=1", "-o", str(place)]  # fmt: skip
    capsys.readouterr()
    with full_disk():
        status = run(train)
    said = capsys.readouterr().err
    assert status == 1
    assert "foils: failed: " in said
    assert "Traceback" not in said
    assert not list(place.rglob("*.safetensors"))
    assert not (place / "README.md").exists()
    assert run([*train, "--resume"]) == 0
    assert list(place.rglob("*.safetensors"))


@pytest.fixture
def studying(world, monkeypatch):
    """The arguments of a small study, by its folder; it is quick, and writes checkpoints."""
    static_model().save_pretrained(str(world / "static"))
    monkeypatch.chdir(world)  # short commands
    return lambda folder: [
        "study", "made", "bm25.parquet", "dense.parquet", "--model", "static",
        "--hybrids", "2", "--seeds", "1", "--set", "batch_size=2", "--set", "save_steps=2",
        "-o", str(folder),
    ]  # fmt: skip


def without_seconds(folder: Path) -> dict[str, object]:
    """The files of a study, without checkpoints, its own name, and the seconds that trainings took (with checksums)."""
    found: dict[str, object] = {}
    for name, written in files(folder).items():
        data = written.replace(str(folder).encode(), b"FOLDER")
        if "checkpoint-" not in name:
            value = json.loads(data) if name.endswith(".json") else data
            found[name] = {**value, "seconds": 0, "checksum": ""} if isinstance(value, dict) else value
    return found


ROOM = {400: "cell.json", 2_000: "sources", 6_000: "trained", 100_000: "report.html"}  # what is the first to fail


@pytest.mark.slow
def test_a_full_disk_under_a_study(world, studying, capsys):
    """What is there is whole, and stays; with more room it goes on, and ends as one that had room from the start."""
    assert run(studying(world / "whole")) == 0
    expected, before = without_seconds(world / "whole"), 0
    for room, full in ROOM.items():
        capsys.readouterr()
        with full_disk(room):
            status = run(studying(world / "cut"))
        said = capsys.readouterr().err
        assert status == 1
        assert "foils: failed: cannot write " in said
        assert full in said
        assert "Traceback" not in said
        there = without_seconds(world / "cut")
        assert there.items() <= expected.items()
        assert before <= len(there) < len(expected)
        before = len(there)
    assert run(studying(world / "cut")) == 0
    assert without_seconds(world / "cut") == expected


@pytest.mark.slow
def test_a_full_disk_under_a_study_that_is_whole(world, studying, capsys):
    """Done again with more seeds, it keeps the page and the results that it had."""
    place = world / "whole"
    assert run(studying(place)) == 0
    before = files(place)
    capsys.readouterr()
    arguments = studying(place)
    arguments[arguments.index("--seeds") + 1] = "2"
    with full_disk():
        status = run(arguments)
    check_said(capsys.readouterr().err, status, "File too large")
    assert status == 1
    after = files(place)
    assert {name: after[name] for name in before} == before


def test_a_study_where_none_can_be(world, studying, capsys):
    (world / "file").write_text(OLD)
    for place in (world / "file", world / "file" / "study"):
        capsys.readouterr()
        status = run(studying(place))
        check_said(capsys.readouterr().err, status, str(world / "file"))
        assert status == 2
    assert (world / "file").read_text() == OLD


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_study_in_a_folder_that_is_read_only(world, studying, capsys):
    """One that is to begin, and one that is whole and stays as it is."""
    assert run(studying(world / "whole")) == 0
    before = files(world / "whole")
    (world / "empty").mkdir()
    for place in (world / "empty", world / "whole"):
        capsys.readouterr()
        place.chmod(0o555)
        try:
            status = run(studying(place))
        finally:
            place.chmod(0o755)
        check_said(capsys.readouterr().err, status, "Permission denied")
        assert status == 1
    assert files(world / "whole") == before
    assert not list((world / "empty").iterdir())


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


@pytest.mark.parametrize("name", OUTPUTS)
def test_a_place_that_cannot_be_written(name, world, capsys):
    """A folder that is a file: so it holds for whoever may write anywhere, too."""
    (world / "file").write_text(OLD)
    before = files(world / "made")
    capsys.readouterr()
    status = run(arguments(name, world, world / "file" / "out"))
    check_said(capsys.readouterr().err, status, str(world / "file"))
    assert status == 2
    assert (world / "file").read_text() == OLD
    assert files(world / "made") == before


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
@pytest.mark.parametrize("name", OUTPUTS)
def test_a_folder_that_is_read_only(name, world, capsys):
    place = world / "outputs"
    place.mkdir()
    place.chmod(0o555)
    try:
        status = run(arguments(name, world, place / "out"))
    finally:
        place.chmod(0o755)
    check_said(capsys.readouterr().err, status, "Permission denied")
    assert status == 1
    assert not list(place.iterdir())
