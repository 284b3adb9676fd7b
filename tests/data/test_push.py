"""Pushing to a hub on loopback, and reading from it again, by library and program in processes of their own."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import foils
from foils.data import Negatives
from foils.data.push import last_parts
from foils.data.tables import provenance
from foils.runtime.errors import InputError

pytest.importorskip("huggingface_hub")
from hub_server import TOKEN, Hub, Repository, hub


@pytest.fixture
def server() -> Iterator[Hub]:
    with hub() as running:
        yield running


@pytest.fixture
def negatives(tmp_path: Path) -> Path:
    rows = [("q1", "d5", 0, 2.5, True, None), ("q1", "d9", 1, 2.0, False, "labelled"), ("q2", "d7", 0, 1.5, True, None)]
    columns = list(zip(*rows, strict=True))
    names = ("query_id", "doc_id", "rank", "score", "keep", "reason")
    table = pa.table({name: list(column) for name, column in zip(names, columns, strict=True)})
    table = table.append_column("source", pa.array(["bm25"] * 3))
    Negatives(table, provenance("mine", {"with": "bm25", "top": 2}, inputs={"collection": "c0ffee"})).write(
        tmp_path / "bm25.parquet"
    )
    return tmp_path / "bm25.parquet"


def run(server: Hub, home: Path, *arguments: object, **env: str) -> subprocess.CompletedProcess[str]:
    """Run the program, or Python's code after -c, with this hub as the hub."""
    first = ["-m", "foils"] if arguments[0] != "-c" else []
    return subprocess.run(
        [sys.executable, *first, *map(str, arguments)],
        env={
            **os.environ, "HF_ENDPOINT": server.url, "HF_HUB_OFFLINE": "0", "HF_HUB_DISABLE_XET": "1",
            "HF_TOKEN": TOKEN, "HF_HOME": str(home), "HF_HUB_DISABLE_TELEMETRY": "1",
            "FOILS_CACHE": str(home / "foils"), **env,
        },
        capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip


def header(card: str) -> dict[str, Any]:
    import yaml

    _, head, _ = card.split("---\n", 2)
    return yaml.safe_load(head)  # type: ignore[no-any-return]


@pytest.mark.slow
def test_a_table_is_pushed_privately_and_read_again_with_its_digest(
    server: Hub, negatives: Path, beir_folder: Any, tmp_path: Path
) -> None:
    folder = beir_folder()
    pushed = run(
        server, tmp_path, "push", negatives, "hf:me/hard", "--license", "cc-by-4.0", "--json", tmp_path / "p.json"
    )
    assert pushed.returncode == 0, pushed.stderr
    repository = server.repositories["dataset", "me/hard"]
    assert repository.private
    assert repository.files.keys() == {".gitattributes", "README.md", "negatives.parquet"}
    assert repository.files["negatives.parquet"] == negatives.read_bytes()
    card = repository.files["README.md"].decode()
    assert header(card)["license"] == "cc-by-4.0"
    assert header(card)["configs"] == [{"config_name": "default", "data_files": "negatives.parquet"}]
    for shown in ("| rows | 3 |", "| rejected: labelled | 1 |", "| from bm25 | 3 |", '"with": "bm25"', "c0ffee"):
        assert shown in card
    digest = hashlib.sha256(negatives.read_bytes()).hexdigest()
    assert f"`{digest}`" in card
    result = json.loads((tmp_path / "p.json").read_text())
    assert (result["public"], result["name"]) == (False, "me/hard")
    assert result["files"]["negatives.parquet"] == negatives.stat().st_size

    code = (
        "from foils.data import load_collection\nfrom foils.data.sources import as_source, as_table\n"
        f"c = load_collection({str(folder)!r})\n"
        "for s in (as_source('hf:me/hard', c), as_source('mine=hf:me/hard', c), as_table('hf:me/hard')):\n"
        "    print(s.name, s.digest, len(s.negatives))"
    )
    read = run(server, tmp_path, "-c", code)
    assert read.stdout.splitlines() == [f"hard {digest} 3", f"mine {digest} 3", f"hard {digest} 3"], read.stderr
    by_program = run(server, tmp_path, "fuse", folder, "hf:me/hard", f"other={negatives}", "-o", tmp_path / "f.parquet")
    assert by_program.returncode == 0, by_program.stderr
    missing = run(server, tmp_path, "fuse", folder, "hf:me/none", negatives, "-o", tmp_path / "g.parquet")
    assert missing.returncode == 2
    assert "cannot read hf:me/none, as negatives.parquet of a data set" in missing.stderr
    server.repositories["dataset", "me/other"] = Repository(private=False)
    other = run(server, tmp_path, "fuse", folder, "hf:me/other", negatives, "-o", tmp_path / "g.parquet")
    assert (other.returncode, "cannot read hf:me/other (" in other.stderr) == (2, True), other.stderr


@pytest.mark.slow
def test_the_library_pushes_what_the_program_pushes(server: Hub, negatives: Path, tmp_path: Path) -> None:
    assert run(server, tmp_path, "push", negatives, "hf:me/same", "--license", "mit", "--public").returncode == 0
    first = server.repositories.pop(("dataset", "me/same"))
    code = (
        f"import foils\nfoils.push(foils.Negatives.read({str(negatives)!r}), 'hf:me/same', license='mit', public=True)"
    )
    done = run(server, tmp_path, "-c", code)
    assert done.returncode == 0, done.stderr
    assert first == server.repositories.pop(("dataset", "me/same"))
    assert not first.private


@pytest.mark.slow
def test_what_is_there_is_not_replaced_unasked(server: Hub, negatives: Path, tmp_path: Path) -> None:
    push = ("push", negatives, "hf:me/kept", "--license", "mit")
    assert run(server, tmp_path, *push).returncode == 0
    repository = server.repositories["dataset", "me/kept"]
    repository.files["notes.md"] = b"mine"
    before = dict(repository.files)
    refused = run(server, tmp_path, *push)
    assert refused.returncode == 2
    assert "hf:me/kept holds 3 files already" in refused.stderr
    assert "--overwrite" in refused.stderr
    repository.private = False
    exposed = run(server, tmp_path, *push, "--overwrite")
    assert exposed.returncode == 2
    assert "is there, and public; give --public" in exposed.stderr
    assert repository.files == before
    assert run(server, tmp_path, *push, "--overwrite", "--public").returncode == 0
    assert repository.files.keys() == {".gitattributes", "README.md", "negatives.parquet"}


@pytest.mark.slow
def test_a_hub_that_refuses_or_is_not_there(server: Hub, negatives: Path, tmp_path: Path) -> None:
    push = ("push", negatives, "hf:me/x", "--license", "mit")
    for env in ({"HF_TOKEN": "hf_wrong"}, {"HF_ENDPOINT": "http://127.0.0.1:9"}):
        ended = run(server, tmp_path, *push, **env)
        assert ended.returncode == 1
        assert "cannot push to hf:me/x" in ended.stderr
        assert "hf auth login" in ended.stderr
    assert not server.repositories


@pytest.mark.slow
def test_nothing_is_sent_offline_and_without_a_licence(server: Hub, negatives: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="HF_HUB_OFFLINE is set, so that nothing may be sent"):
        foils.push(negatives, "hf:me/x", license="mit")  # as all tests run
    ended = run(server, tmp_path, "push", negatives, "hf:me/x", "--license", "mit", HF_HUB_OFFLINE="1")
    assert ended.returncode == 2
    assert "HF_HUB_OFFLINE is set" in ended.stderr
    ended = run(server, tmp_path, "push", negatives, "hf:me/x")
    assert ended.returncode == 2
    assert "license" in ended.stderr
    ended = run(server, tmp_path, "push", tmp_path, "hf:me/x", "--license", "mit")
    assert "expected a table of negatives; a model's folder is pushed by hf upload" in ended.stderr
    with pytest.raises(InputError, match="expected hf:OWNER/NAME"):
        foils.push(negatives, "me/x", license="mit")
    assert not server.requests


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("/home/me/a b", "a b"), ("--run=/tmp/x/run.trec and", "--run=run.trec and"), ("~/models/m", "m"),
        (r"C:\Users\me\m", "m"), ("x /data/s/ y", "x … y"), ("https://a.b/c/d", "https://a.b/c/d"),
        ("and/or, 1/2, BAAI/bge", "and/or, 1/2, BAAI/bge"), ("</td></tr>", "</td></tr>"), ("a\n/n", "a\n/n"),
        ("../data/x", "../data/x"),
    ],
)  # fmt: skip
def test_paths_of_this_machine_lose_their_folders(text: str, expected: str) -> None:
    assert last_parts({"a": [text]}) == {"a": [expected]}
