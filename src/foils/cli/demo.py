"""foils demo: the main job, offline, on real text with a real encoder."""

from __future__ import annotations

import sys
import webbrowser
from pathlib import Path
from typing import Annotated

import typer

from foils.cli import options as opt
from foils.cli.groups import takes
from foils.cli.show import say
from foils.runtime.terminal import print_tables


@takes(opt.EncoderOptions, "encoding")
def demo(
    *,
    output: Annotated[Path, typer.Option("-o", "--output", metavar="FOLDER", help="Where to write.")] = Path(
        "foils-demo"
    ),
    top: Annotated[int, typer.Option(min=1, help="Negatives per query.")] = 10,
    sample: Annotated[int | None, typer.Option(min=1, help="Score a seeded sample of so many records.")] = None,
    open_report: Annotated[
        bool, typer.Option("--open/--no-open", help="Open the report in a browser (on a terminal).")
    ] = True,
    seed: opt.Seed = 0,
    encoding: opt.EncoderOptions,
) -> None:
    """Mine random, BM25 and dense negatives from the documentation of installed packages, and rank them.

    Needs no network and no data: pydocs is read from the installed packages, the encoder comes from a package.

    Example: foils demo -o foils-demo/
    """
    import numpy as np

    from foils.data import load_collection
    from foils.data.store import provenance, write_json
    from foils.encode import DocumentTexts
    from foils.mining import BM25Retriever, DenseRetriever, RandomRetriever, mine
    from foils.scoring import ScoreSettings, score_sources

    collection = load_collection("pydocs")
    documents, queries = len(collection.documents), len(collection.queries)
    say(f"pydocs: {documents:,} documents, {queries:,} queries, from the documentation of installed packages")
    encoder, store = encoding.open(collection)
    query_vectors = store.embed(encoder, collection.query_texts(np.arange(queries)), "query")
    document_vectors = store.embed(encoder, DocumentTexts(collection), "document")
    retrievers = (
        RandomRetriever(collection, seed=seed),
        BM25Retriever(collection),
        DenseRetriever(query_vectors, document_vectors),
    )
    sources = {}
    for retriever in retrievers:
        made = provenance("mine", {"with": retriever.name, "top": top}, inputs={"collection": collection.digest})
        mined = mine(collection, retriever, split="train", top=top, made=made)
        mined.negatives.write(output / f"{retriever.name}.parquet")
        sources[retriever.name] = mined.negatives
    scores = score_sources(collection, sources, encoder, store, ScoreSettings(sample=sample, seed=seed))
    print_tables(scores.tables())
    write_json(output / "scores.json", scores.to_json())
    page = output / "report.html"
    scores.report(page)
    say(f"report: {page}")
    if open_report and sys.stdout.isatty():
        webbrowser.open(page.resolve().as_uri())
