"""Mining from the program and from Python: the same bytes, provenance, defaults and refusals."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import foils as library
from fakes import HashingEncoder
from foils.data import Negatives, load_collection
from foils.data.formats import NegativesResult
from foils.deciding.mine import mine
from foils.encode import VectorStore
from foils.llm import Client
from foils.mining.doors import filter as filter_door
from foils.mining.doors import fuse, generate
from foils.runtime.errors import InputError, UnknownNameError
from foils.runtime.files import write_json
from llm_server import Reply, serving

Foils = Callable[..., Any]
MINED: dict[str, tuple[list[object], dict[str, Any]]] = {
    "default": ([], {}),
    "random": (["--with", "random", "--seed", 3], {"method": "random", "seed": 3}),
    "rules": (
        ["--top", 2, "--relative-margin", 0.3, "--max-score", 3],
        {"top": 2, "relative_margin": 0.3, "max_score": 3.0},
    ),
    "window": (["--ranks", "1-6", "--draw", "simans:5,-1"], {"ranks": (1, 6), "draw": "simans:5,-1"}),
    "open window": (["--ranks", "2-"], {"ranks": (2, None)}),
    "dense": (["--with", "dense", "--top", 3, "--collection-args", "keep_identical_ids=true"],
              {"method": "dense", "top": 3, "keep_identical_ids": True}),
    "best ranks": (
        ["--with", "dense", "--top", 1, "--ranks", "best"],
        {"method": "dense", "top": 1, "ranks": "best"},
    ),
    "trisampler": (["--with", "trisampler", "--top", 2], {"method": "trisampler", "top": 2}),
}  # fmt: skip
EMBEDS = ("dense", "best ranks", "trisampler")


def check(result: NegativesResult, program: Path, tmp_path: Path, out: str = "") -> None:
    """The result writes the bytes that the program wrote, and prints what it printed."""
    result.write(tmp_path / "library.parquet")
    write_json(tmp_path / "library.json", result.to_json())
    for ending in ("parquet", "json"):
        assert (tmp_path / f"library.{ending}").read_bytes() == program.with_suffix(f".{ending}").read_bytes()
    assert str(result).split() == out.replace(f"→ {program}", "").split()
    assert "<table>" in result._repr_html_()


@pytest.mark.parametrize("name", MINED)
def test_mine(foils: Foils, loaded: object, beir_folder: Callable[..., Path], tmp_path: Path, name: str) -> None:
    folder, out = beir_folder(), tmp_path / "program.parquet"
    typed, given = MINED[name]
    vectors = ["--encoder-args", f"vectors={tmp_path / 'v'}"] if name in EMBEDS else []
    ended = foils("mine", folder, *typed, *vectors, "-o", out, "--json", out.with_suffix(".json"))
    assert ended.status == 0, ended.err
    models = {"encoder": HashingEncoder(), "vectors": VectorStore(tmp_path / "v")} if vectors else {}
    for collection in (folder, str(folder), load_collection(folder)):
        check(mine(collection, **given, **models), out, tmp_path, ended.out)


def test_a_pool_and_a_scorer_are_names_paths_and_tables(
    foils: Foils, loaded: object, beir_folder: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, out = beir_folder(), tmp_path / "program.parquet"
    options = [
        "--with",
        "random",
        "--scorer",
        "encoder",
        "--margin",
        0.05,
        "--encoder-args",
        f"vectors={tmp_path / 'v'}",
    ]
    ended = foils("mine", folder, *options, "-o", out, "--json", out.with_suffix(".json"))
    assert ended.status == 0, ended.err
    models = {"encoder": HashingEncoder(), "vectors": tmp_path / "v"}
    check(mine(folder, "random", scorer="encoder", margin=0.05, **models), out, tmp_path, ended.out)


def test_fuse_and_filter(foils: Foils, beir_folder: Callable[..., Path], tmp_path: Path) -> None:
    folder, out = beir_folder(), tmp_path / "program.parquet"
    collection = load_collection(folder)
    tables = {name: mine(collection, name, top=3) for name in ("bm25", "random")}
    for name, table in tables.items():
        table.write(tmp_path / f"{name}.parquet")
    paths = [tmp_path / f"{name}.parquet" for name in tables]
    write = ["-o", out, "--json", out.with_suffix(".json")]
    ended = foils("fuse", folder, *paths, "--method", "rrf", "--rrf-k", 9, *write)
    assert ended.status == 0, ended.err
    for sources in (paths, tables, list(tables.values()), {name: Negatives(each.table, each.provenance)
                                                            for name, each in tables.items()}):  # fmt: skip
        check(fuse(collection, sources, method="rrf", rrf_k=9), out, tmp_path, ended.out)
    export = ["--export", f"triplets={tmp_path / 'program.jsonl'}"]
    ended = foils("filter", folder, paths[0], "--max-score", 1, *write, *export)
    assert ended.status == 0, ended.err
    for source in (paths[0], str(paths[0]), tables["bm25"]):
        filtered = filter_door(collection, source, max_score=1.0)
        check(filtered, out, tmp_path, ended.out)
    filtered.export(tmp_path / "library.jsonl", form="triplets")
    assert (tmp_path / "library.jsonl").read_bytes() == (tmp_path / "program.jsonl").read_bytes()
    assert filtered.provenance["before"]["stage"] == "mine"


def test_generate_reads_pairs_as_the_others_do(foils: Foils, tmp_path: Path) -> None:
    pairs = tmp_path / "pairs.csv"
    pairs.write_text("asked,said\nwho rows?,The crew.\nwhat is a keel?,A spine.\n", "utf-8")
    options = ("--columns", "query=asked,positive=said", "--collection-args", "split_shares=1,0,0", "--dry-run")
    ended = foils("generate", pairs, *options, "-o", tmp_path / "llm.parquet")
    prompt = generate(pairs, columns={"query": "asked", "positive": "said"}, split_shares=(1, 0, 0), dry_run=True)
    assert "who rows?" in prompt.text or "what is a keel?" in prompt.text
    assert str(prompt).split() == ended.out.split()


def test_generate(foils: Foils, beir_folder: Callable[..., Path], tmp_path: Path) -> None:
    folder, out = beir_folder(), tmp_path / "program.parquet"
    reply = Reply(json.dumps({"negatives": ["A boat in the wind", "Of bread and wind", "Of bees"]}))
    with serving(lambda *_: reply) as server:
        options = ["--base-url", server.url, "--llm-model", "m", "--top", 3, "--limit", 2]
        options += ["--llm-args", f"log={tmp_path / 'log'},price=1000000,0"]
        ended = foils("generate", folder, *options, "-o", out, "--json", out.with_suffix(".json"))
        assert ended.status == 0, ended.err
        for models in ({"llm_model": "m", "base_url": server.url}, {"llm_model": Client("m", server.url)}):
            table = generate(folder, **models, log=tmp_path / "log", top=3, limit=2, price=(1e6, 0))
            check(table, out, tmp_path, ended.out)
    assert generate(folder, dry_run=True, domain="bees").text.count("Field: bees") == 1
    assert {source.as_py() for source in table.table["source"]} == {"llm"}
    check_next = filter_door(folder, table, answers={"q1": ["bees"]})
    assert check_next.rejected() == {"holds an answer": 1}


def test_llm_fuse_and_filter_are_verbs_of_their_own(foils: Foils, tmp_path: Path) -> None:
    for name, verb in (("llm", "generate"), ("fuse", "fuse"), ("filter", "filter")):
        ended = foils("mine", "nowhere", "--with", name, "-o", tmp_path / "x")
        assert (ended.status, ended.out) == (2, "")
        assert f"--with {name}: mining ranks documents; use {verb}" in ended.err
        with pytest.raises(InputError, match=rf"method {name}: .* use {verb}"):
            mine("nowhere", name)


MINE, FUSE = "mine nowhere -o out", "fuse nowhere a b -o out"
FILTER = "filter nowhere a -o out --min-score 1"
ENCODER = (
    "--encoder e", "--max-length 64", "--device cpu", "--encoder-args query_prompt=q",
    "--encoder-args document_prompt=d", "--encoder-args similarity=dot",
    "--encoder-args precision=bfloat16", "--encoder-args backend=onnx",
    "--encoder-args encode_batch=8", "--encoder-args trust_remote_code=true", "--encoder-args storage=float16",
    "--encoder-args vectors=v", "--ray local",
)  # fmt: skip
OF_CROSS_ENCODERS = (
    "--max-length 64", "--device cpu", "--encoder-args trust_remote_code=true", "--encoder-args vectors=v",
)  # fmt: skip
BI_ENCODER = [each for each in ENCODER if each not in OF_CROSS_ENCODERS]
CROSS = "--cross-encoder m"

REFUSED = [
    (f"{FUSE} --rrf-k 9", "--rrf-k 9.0", "--method rrf"),
    (f"{FUSE} --method rrf --weight a=2", "--weight a=2.0", "--method weighted"),
    (f"{FUSE} --split dev", "--split dev", "without --export"),
    (f"{MINE} --pool dense --pool-depth 9", "--pool dense, --pool-depth 9", "--with cross-encoder"),
    (f"{MINE} --with trisampler --draw uniform", "--draw uniform", "draws by itself"),
    (f"{MINE} --cross-encoder m", "--cross-encoder m", "--scorer cross-encoder"),
    (f"{FILTER} --cross-encoder m", "--cross-encoder m", "--scorer cross-encoder"),
    *((f"{MINE} --with {way} {' '.join(idle)}", ", ".join(idle), "embed no text") for way, idle in (
        ("bm25", ENCODER),
        ("random", ENCODER[:-1]),  # the ranking is spread over machines
        (f"random --scorer cross-encoder {CROSS} --min-score 1", BI_ENCODER),
        (f"cross-encoder {CROSS} --pool random,bm25", BI_ENCODER),
        (f"cross-encoder {CROSS} --pool a.parquet", BI_ENCODER),
    )),
    (f"{FILTER} {' '.join(ENCODER)}", ", ".join(ENCODER), "embed no text"),
]  # fmt: skip

TAKEN = [
    f"{FUSE} --method rrf --rrf-k 9 --top 3",
    f"{FUSE} --method weighted --weight a=2",
    f"{FUSE} --split dev --export triplets=FILE",
    "generate nowhere -o out --llm-model m --top 3 --split dev --prompt eci --domain law --seed 3",
    f"filter nowhere a -o out --scorer cross-encoder {CROSS} --margin 0.1 --split dev",
    f"{FILTER} --scorer encoder {' '.join(ENCODER)}",
    f"{MINE} --with trisampler --ranks 0-50 --margin 0.1 --seed 3",
    f"{MINE} --with cross-encoder {CROSS} --pool bm25,dense --pool-depth 50 --ranks 1-",
    f"{MINE} --with random --scorer encoder --relative-margin 0.1 --seed 3",
    *(f"{MINE} --with {way} {' '.join(ENCODER)}" for way in (
        "dense", "ance", "trisampler", "random --scorer encoder --min-score 1",
        f"cross-encoder {CROSS} --pool bm25,dense",
    )),
    *(f"{MINE} --with {way} {' '.join(OF_CROSS_ENCODERS)}" for way in (
        f"cross-encoder {CROSS}", f"bm25 --scorer cross-encoder {CROSS} --min-score 1",
    )),
    f"{MINE} --with random --ray local",
    f"{MINE} --with bm25 --draw uniform --seed 3",
    *(f"{MINE} --with {way} --seed 3" for way in ("bm25", "dense --ranks best", "bm25 --margin 0.1")),
    f"{MINE} --with cross-encoder {CROSS} --pool bm25,random --seed 3",
]  # fmt: skip


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


def test_the_library_refuses_by_its_own_names() -> None:
    for given, said in (
        ({"encoder": "m"}, "encoder m: no effect with method bm25 and scorer own"),
        ({"pool": "dense"}, "pool dense: no effect with method bm25"),
        ({"draw": "simans:1"}, "draw simans:1: expected simans:A,B"),
    ):
        with pytest.raises(InputError, match=said):
            library.mine("nowhere", **given)  # type: ignore[arg-type]
    with pytest.raises(UnknownNameError, match=r"unknown method 'bm52'.*Did you mean 'bm25'"):
        library.mine("nowhere", "bm52")


def test_the_signature_shows_every_setting() -> None:
    parameters = inspect.signature(library.mine).parameters
    assert list(parameters)[:2] == ["collection", "method"]
    assert (parameters["max_length"].default, parameters["top"].default, parameters["near_duplicate"].default) == (
        128, 10, 0.9,
    )  # fmt: skip
    assert inspect.signature(library.generate).parameters["llm_temperature"].default == 0.8
