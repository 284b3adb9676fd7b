"""The doors of studies: train on every source and compare, look again at what was measured, and the demo."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Annotated

import numpy as np

from foils.data import load_collection
from foils.data.store import provenance, write_json
from foils.encode import DocumentTexts
from foils.encode.opening import AT_128, EncodingSettings
from foils.mining import BM25Retriever, DenseRetriever, RandomRetriever, mine_negatives
from foils.runtime.doors import door
from foils.runtime.errors import require
from foils.runtime.options import Option
from foils.runtime.surroundings import ScaleSettings
from foils.scoring import Scores
from foils.scoring.doors import score

PAGE = "report.html"

log = logging.getLogger(__name__)


@door
def demo(
    output: Annotated[Path, Option(flag="--output", short="-o", metavar="FOLDER")] = Path("foils-demo"),
    *,
    top: Annotated[int, Option(least=1)] = 10,
    sample: Annotated[int | None, Option(least=1)] = None,
    seed: Annotated[int, Option(least=0)] = 0,
    scale: ScaleSettings,
    encoding: EncodingSettings = AT_128,
) -> Scores:
    """Mine random, BM25 and dense negatives from the documentation of installed packages, and rank them.

    It needs no network and no data: the texts are read from the installed packages, and the encoder comes with one.

    Args:
        output: Folder for the tables of negatives, scores.json and report.html.
        top: Negatives per query.
        sample: Score a seeded sample of this many records. Default: all records.
        seed: Seed of random negatives and of the scores; the same seed gives the same bytes.
    """
    require("plotly.offline", "report")
    collection, folder = load_collection("pydocs"), Path(output)
    documents, queries = len(collection.documents), len(collection.queries)
    log.info("pydocs: %s documents, %s queries, from the documentation of installed packages",
             f"{documents:,}", f"{queries:,}")  # fmt: skip
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
        sources[retriever.name] = mine_negatives(collection, retriever, split="train", top=top, made=made)
        sources[retriever.name].write(folder / f"{retriever.name}.parquet")
    scores: Scores = score(collection, sources, encoder=encoder, vectors=store, sample=sample, seed=seed)
    write_json(folder / "scores.json", scores.to_json())
    scores.report(folder / PAGE)
    log.info("report: %s", folder / PAGE)
    return scores
