"""Options that have no effect beside the others are refused before the collection is even looked for."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Foils = Callable[..., Any]

MINE = "mine nowhere -o out"
SEARCH = "search nowhere --run r"
TRIAL = "search nowhere --experiment"
RATE = "rate nowhere s.parquet -o out"
FUSE = f"{MINE} --with fuse --source a --source b"

REFUSED = [
    *((f"{FUSE} {idle}", idle, "with --with filter --source FILE") for idle in (
        "--margin 0.1", "--relative-margin 0.1", "--share-of-positive 0.9", "--max-score 3.0", "--min-score 3.0",
        "--answers FILE", "--same-query 0.9", "--scorer encoder", "--keep-short", "--against mean",
        "--near-duplicate 0.5", "--ranks 5-9", "--draw uniform", "--split dev", "--k1 2.0", "--pool dense",
        "--domain law", "--llm-model m",
    )),
    (f"{FUSE} --rrf-k 9", "--rrf-k 9.0", "--method rrf"),
    (f"{FUSE} --method rrf --weight a=2", "--weight a=2", "--method weighted"),
    *((f"{MINE} --with llm {idle}", idle, "with --with filter --source FILE --scorer encoder") for idle in (
        "--margin 0.1", "--max-score 3.0", "--scorer encoder", "--keep-short", "--ranks 5-9", "--draw simans",
        "--b 0.5",
    )),
    *((f"{MINE} --with filter --source a --margin 0.1 {idle}", idle, "where the source is mined") for idle in (
        "--ranks 5-9", "--draw uniform", "--near-duplicate 0.5", "--top 3", "--keep-short", "--k1 2.0",
    )),
    (f"{MINE} --method rrf --top 3", "--method rrf", "with --with bm25; give it with --with fuse"),
    (f"{MINE} --domain law --no-schema", "--domain law, --no-schema", "give it with --with llm"),
    (f"{MINE} --with dense --b 0.5", "--b 0.5", "give it with --with bm25, cross-encoder"),
    (f"{MINE} --domain law --method rrf", "--method rrf, --domain law", "leave it out"),
    (f"{MINE} --with trisampler --draw uniform", "--draw uniform", "give it with --with random, bm25"),
    (f"{MINE} --cross-encoder m", "--cross-encoder m", "--scorer cross-encoder"),
    (f"{MINE} --max-score 3 --against mean", "--against mean", "--margin"),
    (f"{MINE} --with cross-encoder --cross-encoder m --source a --pool dense", "--pool dense", "with a --source"),
    *((f"{TRIAL} all {idle.replace(',', '')}", idle, "search without --experiment") for idle in (
        "--run r", "--tune dev", "--feedback FILE", "--second-pass retrieved", "--index flat",
        "--index flat, --index-file i",
    )),
    (f"{TRIAL} depths --feedback-depth 9", "--feedback-depth 9", "50, 300, 1,000"),
    (f"{SEARCH} --rerank-depth 2000", "--rerank-depth 2000", "--second-pass retrieved"),
    (f"{TRIAL} filters --k-plus 3", "--k-plus 3", "--experiment filters"),
    (f"{TRIAL} depths --dimensions rdime", "--dimensions rdime", "--experiment depths"),
    (f"{SEARCH} --tune dev --feedback FILE", "--feedback FILE", "leave --tune out"),
    (f"{SEARCH} --tune dev --share 0.5", "--share 0.5", "published settings"),
    (f"{SEARCH} --dimensions dime --tune dev --reading spread", "--reading spread", "with --tune of dime"),
    (f"{SEARCH} --dimensions dime --beta 2.0", "--beta 2.0", "with --dimensions dime"),
    (f"{SEARCH} --dimensions rdime --share 0.5", "--share 0.5", "with --dimensions rdime"),
    (f"{SEARCH} --dimensions none --k-plus 3", "--k-plus 3", "with --dimensions none"),
    (f"{SEARCH} --measure AP", "--measure AP", "--tune or --experiment"),
    (f"{SEARCH} --folds 3", "--folds 3", "without --experiment"),
    (f"{SEARCH} --answer-prompt FILE", "--answer-prompt FILE", "without --llm-model"),
    (f"{SEARCH} --most-tokens 9", "--most-tokens 9", "without --llm-model"),
    *((f"{RATE} {judges} --temperature 0.5", "--temperature 0.5", "--llm-temperature") for judges in (
        "--judge llm:m", "--judge recorded:r", "--judge llm:a --judge recorded:r",
    )),
    (f"{RATE} --judge recorded:r --judgements j", "--judgements j", "kept already"),
    (f"{RATE} --domain law", "--domain law", "--judge llm"),
    (f"{RATE} --judge cross-encoder:m --base-url u", "--base-url u", "--judge llm"),
    (f"{RATE} --distil-epochs 3", "--distil-epochs 3", "--distil FOLDER"),
]  # fmt: skip

TAKEN = [
    f"{FUSE} --method rrf --rrf-k 9 --top 3",
    f"{FUSE} --method weighted --weight a=2",
    f"{FUSE} --split dev --export triplets=FILE",
    f"{FUSE} --draw top --split train --encoder e --seed 3",
    f"{MINE} --with llm --llm-model m --top 3 --split dev --near-duplicate 0.5 --domain law --llm-temperature 0.6",
    f"{MINE} --with filter --source a --scorer cross-encoder --cross-encoder m --margin 0.1 --against mean --split dev",
    f"{MINE} --with trisampler --ranks 0-50 --margin 0.1",
    f"{MINE} --with cross-encoder --cross-encoder m --pool bm25,dense --pool-depth 50 --k1 2 --ranks 1- --draw uniform",
    f"{MINE} --with random --scorer encoder --relative-margin 0.1 --against each --keep-short",
    f"{SEARCH} --dimensions eclipse --tune dev --measure AP --reading spread --moon-pool 30 --feedback-depth 50",
    f"{SEARCH} --dimensions dime --tune dev --llm-model m --answer-prompt FILE --index flat --index-file i",
    f"{SEARCH} --dimensions rdime --k-plus 3 --feedback FILE --feedback-depth 50 --second-pass retrieved",
    f"{TRIAL} all --reading spread --measure P@5 --folds 3 --moon-pool 30 --k-plus 3 --report page.html",
    f"{TRIAL} filters --answers FILE --split train --top 100 --feedback-depth 50 --rerank-depth 200",
    f"{SEARCH} --top 10 --feedback-depth 50 --rerank-depth 200 --second-pass retrieved",
    f"{SEARCH} --tune dev --top 10 --rerank-depth 200",
    f"{RATE} --judge llm:m --judge cross-encoder:c --temperature 2 --domain law --asks 3 --judgements j",
    f"{RATE} --judge recorded:r --distil judge --distil-epochs 3",
    f"{RATE} --temperature 0.1",
]


@pytest.mark.parametrize(("line", "idle", "instead"), REFUSED, ids=[line for line, _, _ in REFUSED])
def test_an_option_that_would_do_nothing_is_refused(
    foils: Foils, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str, idle: str, instead: str
) -> None:
    monkeypatch.chdir(tmp_path)
    ended = foils(*line.split())
    assert (ended.status, ended.out) == (2, "")
    assert ended.err.startswith(f"foils: error: {idle}: no effect ")
    assert instead in ended.err
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("line", TAKEN)
def test_options_that_do_something_together_are_taken(
    foils: Foils, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str
) -> None:
    monkeypatch.chdir(tmp_path)
    ended = foils(*line.split())
    assert ended.status == 2
    assert "nowhere: no such folder" in ended.err
