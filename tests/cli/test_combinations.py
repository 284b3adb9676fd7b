"""Options that have no effect beside the others are refused before the collection is even looked for."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Foils = Callable[..., Any]

SEARCH = "search nowhere --run r"
RATE = "rate nowhere s.parquet -o out"
SCORE = "score nowhere a.parquet b.parquet"
TRAIN = "train nowhere -o out"
EVALUATE = "evaluate nowhere"
STUDY = "study nowhere a.parquet --model m -o out"
RATED = "select rated.parquet -o out"
COMPOSED = "compose nowhere a b -o out"

DIM = "--dimension-args"
PATIENCE, MINI_BATCH = "--training-args patience=3", "--training-args mini_batch_size=8"
IDENTICAL = "--collection-args keep_identical_ids=true"
ENCODER = (
    "--encoder e", "--max-length 64", "--device cpu", "--encoder-args query_prompt=q",
    "--encoder-args document_prompt=d", "--encoder-args similarity=dot",
    "--encoder-args precision=bfloat16", "--encoder-args backend=onnx",
    "--encoder-args encode_batch=8", "--encoder-args trust_remote_code=true", "--encoder-args storage=float16",
    "--encoder-args vectors=v", "--ray local",
)  # fmt: skip
OF_CROSS_ENCODERS = ("--max-length 64", "--device cpu", "--encoder-args trust_remote_code=true")
BI_ENCODER = [each for each in ENCODER if each not in (*OF_CROSS_ENCODERS, "--encoder-args vectors=v")]

REFUSED = [
    (f"{SEARCH} --tune dev --feedback FILE", "--feedback FILE", "on --tune"),
    (f"{SEARCH} --tune dev {DIM} share=0.5", f"{DIM} share=0.5", "on --tune"),
    (f"{SEARCH} --dimensions dime {DIM} beta=2.0", f"{DIM} beta=2.0", "with --dimensions dime"),
    (f"{SEARCH} --dimensions rdime {DIM} share=0.5", f"{DIM} share=0.5", "with --dimensions rdime"),
    (f"{SEARCH} --dimensions none {DIM} k_plus=3", f"{DIM} k_plus=3", "with --dimensions none"),
    (f"{SEARCH} --measure AP", "--measure AP", "without --tune"),
    (f"{SEARCH} --dimensions dime {DIM} scaled=false", f"{DIM} scaled=false", "with --dimensions dime"),
    *((f"{RATE} {judges} --temperature 0.5", "--temperature 0.5", "--llm-args temperature=") for judges in (
        "--judge llm:m", "--judge recorded:r", "--judge llm:a --judge recorded:r",
    )),
    (f"{RATE} --judge recorded:r --judgements j", "--judgements j", "kept already"),
    (f"{RATE} --llm-args domain=law", "--llm-args domain=law", "--judge llm"),
    (f"{RATE} --judge cross-encoder:m --base-url u", "--base-url u", "--judge llm"),
    (f"{RATE} --distil-args epochs=3", "--distil-args epochs=3", "--distil FOLDER"),
    *((f"{RATE} --judge {judge} --encoder e", "--encoder e", "--judge bi-encoder") for judge in (
        "bi-encoder:m", "m", "cross-encoder:m", "recorded:r",
    )),
    *((f"{RATE} --judge {judge} {' '.join(idle)}", ", ".join(idle), "which embeds no text") for judge, idle in (
        ("llm:m", ENCODER[1:-1]), ("recorded:r", ENCODER[1:-1]),  # the fit of ratings is spread over machines
        ("pairwise:f --judge recorded:r", [each for each in ENCODER[1:-1] if each != "--device cpu"]),
        ("cross-encoder:m", [*BI_ENCODER[1:-1], "--encoder-args vectors=v"]),
    )),
    (f"{RATED} --collection nowhere --split dev {IDENTICAL}",
     f"--collection nowhere, --split dev, {IDENTICAL}", "--report or --export"),
    *((f"{RATED} --by {by} --seed 3", "--seed 3", "as --by mixture and simans do") for by in (
        "table", "percentile", "relative", "denoise", "optimal", "curriculum", "progress",
    )),
    (f"{EVALUATE} --run r --top 10 {' '.join(ENCODER[1:])}", ", ".join(["--top 10", *ENCODER[1:]]),
     "without an encoder"),
    (f"{EVALUATE} --model bm25 --top 10 {' '.join(ENCODER[1:])}", ", ".join(ENCODER[1:]), "without an encoder"),
    (f"{EVALUATE} --run r --reranker m {' '.join(BI_ENCODER[1:])} --encoder-args vectors=v",
     ", ".join([*BI_ENCODER[1:-1], "--encoder-args vectors=v", "--ray local"]), "without an encoder"),
    (f"{EVALUATE} --model m --rerank-depth 9", "--rerank-depth 9", "without --reranker"),
    *((f"{EVALUATE} --run r {idle}", idle, "with one system") for idle in ("--against r",)),
    (f"{SEARCH} --dimensions selective --answers FILE", "--answers FILE", "take --dimensions rdime"),
    (f"{SEARCH} {DIM} share=0.5", f"{DIM} share=0.5", "take --dimensions eclipse"),
    *((f"{SEARCH} --dimensions {way} --answers FILE {DIM} k_plus=3", f"{DIM} k_plus=3", "which are the sun")
      for way in ("dime", "rdime", "eclipse")),
    *((f"{SEARCH} --dimensions {way} --answers FILE --feedback FILE --feedback-depth 50",
       "--feedback-depth 50, --feedback FILE", "take --dimensions eclipse") for way in ("dime", "rdime")),
    (f"{SEARCH} --dimensions none --feedback-depth 50 --feedback FILE --answers FILE --second-pass rerank",
     "--feedback-depth 50, --feedback FILE, --answers FILE, --second-pass rerank", "with all dimensions"),
    *((f"{TRAIN} {more} {PATIENCE}", PATIENCE, "without --dev") for more in ("", "--reranker")),
    (f"{TRAIN} a --reranker --training-args similarity=dot", "--training-args similarity=dot", "has no vectors"),
    (f"{TRAIN} a --reranker --dev-run r", "--dev-run r", "without --dev"),
    *((f"{TRAIN} --model static:m {idle}", idle, "a bag of words") for idle in (MINI_BATCH, "--max-length 64")),
    *((f"{TRAIN} a --reranker --loss {loss} {MINI_BATCH}", MINI_BATCH, "--batch-size") for loss in (
        "regression", "binary",
    )),
    *((f"{TRAIN} {more} --per-query 3", "--per-query 3", "with pairs") for more in (
        "", "a --form pairs", "a --recipe hobit", "--recipe hobit",
    )),
    (f"{STUDY} --minutes 5.0", "--minutes 5.0", "without --until-reliable"),
    (f"{STUDY} --first-stage bm25 --study-args rerank_depth=9",
     "--first-stage bm25, --study-args rerank_depth=9", "without --reranker"),
    (f"{STUDY} --reranker --batches hobit --study-args similarity=dot", "--study-args similarity=dot, --batches hobit",
     "which has no vectors"),
]  # fmt: skip

TAKEN = [
    f"{SEARCH} {DIM} k_plus=3,scaled=false --feedback FILE --feedback-depth 50 --second-pass rerank",
    f"{SEARCH} --dimensions eclipse --tune dev --measure AP --feedback-depth 50",
    f"{SEARCH} --dimensions dime --tune dev --index flat",
    f"{SEARCH} --dimensions rdime {DIM} k_plus=3 --feedback FILE --feedback-depth 50 --second-pass rerank",
    "answer nowhere --llm-model m --split dev --split test --llm-args max_tokens=9 -o out",
    f"{RATE} --judge llm:m --judge cross-encoder:c --temperature 2 --llm-args domain=law,asks=3 --judgements j",
    f"{RATE} --judge recorded:r --distil judge --distil-args epochs=3",
    f"{RATE} --temperature 0.1",
    *(f"{RATE} {judges} {' '.join(ENCODER[:-1])} --seed 3" for judges in (
        "", "--judge bi-encoder", "--judge bi-encoder --judge llm:m",
    )),
    f"{RATE} --judge bi-encoder:m {' '.join(ENCODER[1:-1])}",
    f"{RATE} --judge cross-encoder:m {' '.join(OF_CROSS_ENCODERS)} --seed 3",
    f"{RATE} --judge pairwise:f --device cpu --seed 3",
    f"{RATE} --judge recorded:r --distil judge --device cpu --seed 3",
    f"{COMPOSED} --top 3 --lambda 0.5 --split dev {' '.join(ENCODER[:-1])}",
    *(f"{RATED} --collection nowhere --split dev {IDENTICAL} --{page} --by simans --seed 3" for page in (
        "report r", "export triplets=t",
    )),
    f"{RATED} --collection nowhere --by table --report r --seed 3",
    f"{EVALUATE} --model m --top 10 --seed 3 {' '.join(ENCODER[1:-1])}",
    f"{EVALUATE} --run r --reranker m --rerank-depth 9 --against r --seed 3 {' '.join(OF_CROSS_ENCODERS)}",
    f"{EVALUATE} --run r --seed 3",
    f"{SEARCH} --dimensions eclipse --answers FILE --feedback FILE --feedback-depth 50 {DIM} k_minus=3",
    "batch nowhere -o out --with random --seed 3 --encoder e",
    f"{TRAIN} --seed 3 --device cpu --dev dev --training-args patience=3",
    f"{TRAIN} --model m --training-args similarity=dot --training-args mini_batch_size=8 --max-length 64",
    f"{TRAIN} --refresh 1 --per-query 3",
    f"{TRAIN} a --reranker --per-query 3 --training-args mini_batch_size=8",
    f"{STUDY} --device cpu --encoder-args vectors=v",
]  # fmt: skip


@pytest.mark.parametrize(("line", "idle", "instead"), REFUSED, ids=[line for line, _, _ in REFUSED])
def test_an_option_that_would_do_nothing_is_refused(
    foils: Foils, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str, idle: str, instead: str
) -> None:
    monkeypatch.chdir(tmp_path)
    ended = foils(*line.split())
    assert (ended.status, ended.out) == (2, "")
    refused = ended.err.removeprefix("foils: error: ").partition(": no effect ")[0]
    assert sorted(refused.split(", ")) == sorted(idle.split(", "))
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
