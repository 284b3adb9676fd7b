"""foils rate in OpenAI's batch form: the same ratings as from a server, no question lost and none asked twice."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from foils.cli.app import run
from foils.data import Negatives
from foils.data.negatives import negatives_table
from llm_server import Reply, serving

QUERIES, DOCUMENTS = 4, 6


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, beir_folder: Callable[..., Path]) -> Path:
    """A few queries, each with all documents as candidates; one of them has a label."""
    monkeypatch.setenv("FOILS_CACHE", str(tmp_path / "cache"))
    queries = {f"q{i}": f"query {i}" for i in range(QUERIES)}
    documents = {f"d{i}": ("", f"w{i}") for i in range(DOCUMENTS)}
    made = beir_folder("small", documents=documents, queries=queries, qrels={"train": {"q0": {"d5": 1}}})
    rows = [(query, f"d{i}", i) for query in queries for i in range(DOCUMENTS)]
    ids = [pa.array(column) for column in list(zip(*rows, strict=True))[:2]]
    Negatives(negatives_table(*ids, "s", [rank for _, _, rank in rows], np.zeros(len(rows)))).write(
        made / "negatives.parquet"
    )
    return made


def rate(folder: Path, name: str, *more: str) -> int:
    given = [str(folder), str(folder / "negatives.parquet"), "--split", "all", "--degree", "4"]
    return run(["rate", *given, "-o", str(folder / name), *more])


def requested(batch: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for file in sorted(batch.glob("requests-*")) for line in file.read_text().splitlines()]


def compares(asked: dict[str, Any]) -> Reply:
    first, second = (int(one) for one in re.findall(r"\nw(\d)", asked["messages"][0]["content"]))
    return Reply(json.dumps({"preference": 0.85 if first > second else 0.25}))


def answered(batch: Path, lines: list[dict[str, Any]], name: str) -> None:
    """What the service would write: the lines in another order, each with the answer that a server gives, too."""
    results = []
    for line in reversed(lines):
        body = json.loads(compares(line["body"]).bytes())
        response = {"status_code": 200, "request_id": "r", "body": body}
        results.append({"id": f"b-{line['custom_id']}", "custom_id": line["custom_id"], "response": response})
    (batch / name).write_text("".join(json.dumps({**result, "error": None}) + "\n" for result in results))


def test_a_batch_rates_as_the_server_does(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    batch = folder / "batch"
    judges = ["--judge", "llm:one", "--judge", "llm:two,temperature=0.5"]
    by_batch = [*judges, "--llm-args", f"batch={batch}"]
    assert rate(folder, "rated.parquet", *by_batch) == 1
    said = capsys.readouterr().err
    lines = requested(batch)
    pairs = QUERIES * DOCUMENTS * 4 // 2
    assert len(lines) == len({line["custom_id"] for line in lines}) == 2 * 2 * pairs, "two judges, both orders"
    assert said.count(f"{2 * pairs} questions to") == 2
    assert not (folder / "rated.parquet").exists()
    for file in batch.glob("requests-*"):
        assert len({json.loads(line)["body"]["model"] for line in file.read_text().splitlines()}) == 1
    assert rate(folder, "rated.parquet", *by_batch) == 1
    assert len(requested(batch)) == len(lines), "what waits is not asked again"
    answered(batch, lines[:30], "first.jsonl")
    assert rate(folder, "rated.parquet", *by_batch) == 1
    assert len(requested(batch)) == len(lines)
    answered(batch, lines[30:], "second.jsonl")
    assert rate(folder, "rated.parquet", *by_batch) == 0
    with serving(lambda number, asked: Reply(status=401)) as server:  # nobody is to be asked
        assert rate(folder, "again.parquet", *by_batch, "--base-url", server.url) == 1
    with serving(lambda number, asked: compares(asked)) as server:
        assert rate(folder, "online.parquet", *judges, "--base-url", server.url) == 0
        assert len(server.seen) == len(lines)
    columns = [Negatives.read(folder / name).table["elo"].to_numpy() for name in ("rated.parquet", "online.parquet")]
    np.testing.assert_array_equal(*columns)


def test_comparisons_between_queries_are_a_batch_of_their_own(folder: Path) -> None:
    batch = folder / "batch"
    how = ["--judge", "llm:one", "--llm-args", f"batch={batch}", "--rating-args", "between=2"]
    assert rate(folder, "rated.parquet", *how) == 1
    within = requested(batch)
    answered(batch, within, "a.jsonl")
    assert rate(folder, "rated.parquet", *how) == 1
    between = requested(batch)[len(within) :]
    assert len(between) == 2 * QUERIES, "a cycle over the queries, both orders"
    assert "Query" in between[0]["body"]["messages"][0]["content"]
    answered(batch, between, "b.jsonl")
    assert rate(folder, "rated.parquet", *how) == 0
    assert np.isfinite(Negatives.read(folder / "rated.parquet").kept()["offset"].to_numpy()).all()


def test_weights_of_judges_are_heeded_and_checked(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with serving(lambda number, asked: compares(asked)) as server:
        judges = ["--judge", "llm:one", "--judge", "static:all-MiniLM-L6-v2", "--base-url", server.url]
        elo = {}
        for weights in ("1,1", "1,0"):
            assert rate(folder, "rated.parquet", *judges, "--rating-args", f"weights={weights}") == 0
            elo[weights] = Negatives.read(folder / "rated.parquet").table["elo"].to_numpy()
        assert rate(folder, "alone.parquet", *judges[:2], *judges[4:]) == 0
        alone = Negatives.read(folder / "alone.parquet").table["elo"].to_numpy()
        np.testing.assert_allclose(elo["1,0"], alone)
        assert np.abs(elo["1,1"] - alone).max() > 1
        capsys.readouterr()
        assert rate(folder, "rated.parquet", *judges[:2], *judges[4:], "--rating-args", "weights=1,2") == 2
        assert "a single one" in capsys.readouterr().err
        assert rate(folder, "rated.parquet", *judges, "--rating-args", "weights=high") == 2
        assert "expected auto, or numbers" in capsys.readouterr().err
        assert rate(folder, "rated.parquet", *judges, "--rating-args", "weights=auto") == 2
        assert "three or more" in capsys.readouterr().err
