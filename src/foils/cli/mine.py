"""foils mine: from a collection to a table of negatives."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from foils.cli import options as opt
from foils.cli.show import show_table
from foils.errors import InputError, UnknownNameError

if TYPE_CHECKING:
    from foils.data import Collection
    from foils.mine import Retriever


@dataclass(frozen=True)
class _Settings:
    """What the retrievers need of the command line."""

    seed: int
    k1: float
    b: float
    encoder: opt.EncoderOptions


def _random(collection: Collection, settings: _Settings) -> tuple[Retriever, dict[str, Any]]:
    from foils.mine import RandomRetriever

    return RandomRetriever(collection, seed=settings.seed), {"seed": settings.seed}


def _bm25(collection: Collection, settings: _Settings) -> tuple[Retriever, dict[str, Any]]:
    from foils.mine import BM25Retriever

    return BM25Retriever(collection, k1=settings.k1, b=settings.b), {"k1": settings.k1, "b": settings.b}


def _dense(collection: Collection, settings: _Settings) -> tuple[Retriever, dict[str, Any]]:
    import numpy as np

    from foils.encode import DocumentTexts
    from foils.mine import DenseRetriever

    encoder, store = settings.encoder.open(collection)
    queries = store.embed(encoder, collection.query_texts(np.arange(len(collection.queries))), "query")
    documents = store.embed(encoder, DocumentTexts(collection), "document")
    return DenseRetriever(queries, documents), {"encoder": encoder.describe()}


METHODS: dict[str, Callable[[Collection, _Settings], tuple[Retriever, dict[str, Any]]]] = {
    "random": _random,
    "bm25": _bm25,
    "dense": _dense,
}


@opt.takes_encoder
def mine(
    collection: opt.CollectionName,
    output: opt.Output,
    method: Annotated[str, typer.Option("--with", help="random, bm25, dense, or fuse.")] = "bm25",
    top: Annotated[int, typer.Option("--top", min=1, help="Negatives per query.")] = 10,
    split: opt.Split = "train",
    source: Annotated[
        list[str] | None,
        typer.Option("--source", metavar="SOURCE", help="With fuse: a source to unite; give it several times."),
    ] = None,
    near_duplicate: Annotated[
        float,
        typer.Option(min=0.0, help="Reject documents whose token sets have this Jaccard similarity to a positive's."),
    ] = 0.9,
    k1: Annotated[float, typer.Option(min=0.0, help="BM25: saturation of the term frequency.")] = 1.2,
    b: Annotated[float, typer.Option(min=0.0, max=1.0, help="BM25: weight of the document length.")] = 0.75,
    seed: opt.Seed = 0,
    encoding: opt.EncoderOptions = opt.DEFAULTS,
    json: opt.Json = None,
) -> None:
    """Mine negatives: the best-ranked documents that are not labelled relevant.

    Documents that equal or nearly equal a positive stay in the table, rejected with a reason.

    Example: foils mine scifact/ --with bm25 --top 10 --split train -o bm25.parquet
    """
    from foils.data import load_collection
    from foils.data.store import provenance, write_json
    from foils.mine import mine as mine_negatives

    if method == "fuse":
        _fuse(collection, source or [], output, json)
        return
    if method not in METHODS:
        raise UnknownNameError("way of mining", method, [*METHODS, "fuse"])
    if source:
        raise InputError("--source goes with --with fuse alone")
    loaded = load_collection(collection)
    retriever, settings = METHODS[method](loaded, _Settings(seed, k1, b, encoding))
    settings = {"with": method, "top": top, "split": split, "near_duplicate": near_duplicate, **settings}
    made = provenance("mine", settings, inputs={"collection": loaded.digest})
    mined = mine_negatives(loaded, retriever, split=split, top=top, near_duplicate=near_duplicate, made=made)
    mined.negatives.write(output)
    kept = int(mined.negatives.keep.sum())
    rows = [
        ("queries", f"{mined.queries:,}"),
        ("negatives", f"{kept:,}"),
        ("per query", f"{kept / mined.queries:.2f}"),
        ("labelled positives left out", f"{mined.positives_left_out:,}"),
        *((f"rejected: {reason}", f"{count:,}") for reason, count in mined.rejected.items()),
        *((f"queries with fewer than {top}: {reason}", f"{count:,}") for reason, count in mined.short.items()),
    ]
    show_table(f"{retriever.name} negatives of {loaded.name} ({split}) → {output}", ["", "count"], rows)
    if json:
        facts = {
            "queries": mined.queries,
            "negatives": kept,
            "positives_left_out": mined.positives_left_out,
            "rejected": mined.rejected,
            "short": mined.short,
        }
        write_json(json, {"source": retriever.name, "settings": settings, **facts})


def _fuse(collection: str, specs: list[str], output: Path, json: Path | None) -> None:
    from foils.data import load_collection
    from foils.data.sources import read_sources
    from foils.data.store import write_json
    from foils.mine.fuse import union

    if len(specs) < 2:
        raise InputError(f"--with fuse needs at least two --source, found {len(specs)}")
    loaded = load_collection(collection)
    sources = read_sources(specs, loaded)
    united = union({source.name: source.negatives for source in sources}, {s.name: s.digest for s in sources})
    united.write(output)
    rows = [(source.name, f"{len(source.negatives):,}") for source in sources]
    rows.append(("+".join(source.name for source in sources), f"{len(united):,}"))
    show_table(f"union of {len(sources)} sources → {output}", ["source", "rows"], rows)
    if json:
        write_json(json, {"sources": {source.name: len(source.negatives) for source in sources}, "rows": len(united)})
