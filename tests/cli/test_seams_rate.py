"""`foils rate` and `foils.rate` are one: the same bytes and the same provenance; what it returns goes on to select."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fakes import HashingEncoder
from foils.data import Negatives, load_collection
from foils.encode import VectorStore
from foils.rating import BiEncoderJudge, JudgementRecord, rate_negatives
from foils.rating.doors import rate
from foils.runtime.errors import InputError
from foils.runtime.files import write_json
from foils.selection.doors import select

Foils = Callable[..., Any]


def mined(foils: Foils, folder: Path, tmp_path: Path) -> Path:
    path = tmp_path / "random.parquet"
    assert foils("mine", folder, "--with", "random", "--top", 3, "-o", path).status == 0
    return path


@pytest.mark.parametrize(
    ("given", "options"),
    [
        ({}, []),
        ({"degree": 2, "rounds": 1, "model": "bradley-terry", "validate": "all", "temperature": 0.2, "seed": 3},
         ["--degree", 2, "--rating-args", "rounds=1,model=bradley-terry", "--validate", "all", "--temperature", 0.2,
          "--seed", 3]),
    ],
)  # fmt: skip
def test_by_a_bi_encoder(
    foils: Foils,
    loaded: object,
    beir_folder: Callable[..., Path],
    tmp_path: Path,
    given: dict[str, Any],
    options: list[object],
) -> None:
    folder = beir_folder()
    path = mined(foils, folder, tmp_path)
    program, json, page = (tmp_path / f"program.{name}" for name in ("parquet", "json", "html"))
    kept = ["--judgements", tmp_path / "program-kept", "--encoder-args", f"vectors={tmp_path / 'v'}"]
    ended = foils("rate", folder, path, *options, *kept, "-o", program, "--json", json, "--report", page)
    assert ended.status == 0, ended.err
    encoder, store, table = HashingEncoder(), VectorStore(tmp_path / "v"), Negatives.read(path)
    for number, source in enumerate((path, f"random={path}", table)):
        collection = load_collection(folder) if source is table else folder
        rated = rate(
            collection, source, encoder=encoder, vectors=store, judgements=tmp_path / f"kept-{number}", **given
        )
        assert rated.digest == Negatives.read(program).digest
        write_json(tmp_path / "library.json", rated.to_json())
        assert (tmp_path / "library.json").read_bytes() == json.read_bytes()
    rated.report(tmp_path / "library.html")
    assert (tmp_path / "library.html").read_bytes() == page.read_bytes()
    assert str(rated).split()[6:] == ended.out.split()[8:]
    judge = BiEncoderJudge(encoder, temperature=given.pop("temperature", 0.05), store=store)
    record = JudgementRecord(tmp_path / "beneath", {})
    beneath = rate_negatives(load_collection(folder), table, judge, record=record, **given)
    assert beneath.digest == rated.digest
    assert (rated.provenance["stage"], rated.provenance["before"]["stage"]) == ("rate", "mine")


def test_judges_are_names_or_objects_and_the_table_goes_on(
    foils: Foils, loaded: object, beir_folder: Callable[..., Path], tmp_path: Path
) -> None:
    folder = beir_folder()
    path = mined(foils, folder, tmp_path)
    object_ = BiEncoderJudge(HashingEncoder())
    first = rate(folder, path, judge=object_, judgements=tmp_path / "kept")
    named = ["--judge", f"recorded:{tmp_path / 'kept'}", "--judge", "bi-encoder:m"]
    assert foils("rate", folder, path, *named, "-o", tmp_path / "both.parquet").status == 0
    both = rate(folder, path, judge=[f"recorded:{tmp_path / 'kept'}", object_])
    np.testing.assert_array_equal(both.table["gap"], Negatives.read(tmp_path / "both.parquet").table["gap"])
    first.write(tmp_path / "rated.parquet")
    from_memory, from_file = select(first), select(tmp_path / "rated.parquet")
    assert from_memory.digest == from_file.digest


def test_the_library_refuses_what_the_program_refuses(tmp_path: Path) -> None:
    refused: list[tuple[dict[str, Any], str]] = [
        ({"judge": "llm:m", "temperature": 0.5}, "give llm_temperature"),
        ({"domain": "law"}, "domain law: no effect without judge llm"),
        ({"judge": ["recorded:a", "recorded:b"], "judgements": "j"}, "whose judgements are kept already"),
        ({"distil_epochs": 3}, "without distil FOLDER"),
        ({"judge": "m", "encoder": "e"}, "without judge bi-encoder"),
        ({"judge": BiEncoderJudge(HashingEncoder()), "max_length": 64}, "with judge an object, which embeds no text"),
        ({"judge": BiEncoderJudge(HashingEncoder()), "temperature": 1.0}, "no scores to divide"),
    ]
    for given, message in refused:
        with pytest.raises(InputError, match=message):
            rate(tmp_path, "nowhere", **given)
