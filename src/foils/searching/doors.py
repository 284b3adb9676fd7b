"""The door of searching."""

from __future__ import annotations

import logging
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any

from foils.data.read import CollectionLike, CollectionSettings
from foils.data.run import FUSED_DEPTH, Fusion, fuse_runs
from foils.encode import DEFAULT_MODEL
from foils.encode.index import ExactIndex, FaissIndex
from foils.encode.opening import EmbeddingSettings, EncoderLike, description
from foils.llm import digest
from foils.runtime.errors import InputError
from foils.runtime.options import Option, door
from foils.runtime.parallel import ScaleSettings
from foils.searching.choosing import choose_settings, judged_queries
from foils.searching.runs import Searched, bm25_run, embed_collection, search_collection
from foils.searching.settings import (
    METHODS,
    AnswersLike,
    ImportanceSettings,
    Method,
    SearchSettings,
    check_search,
    chosen_method,
    read_answers,
)

log = logging.getLogger(__name__)


@door(check=check_search)
def search(
    collection: CollectionLike,
    *,
    model: EncoderLike = DEFAULT_MODEL,
    dimensions: Annotated[Method | None, Option(names=METHODS)] = None,
    run: Annotated[str | Path | None, Option(metavar="FILE")] = None,
    searching: SearchSettings,
    answers: Annotated[AnswersLike | None, Option(metavar="FILE")] = None,
    importance: ImportanceSettings,
    reading: CollectionSettings,
    scale: ScaleSettings,
    embedding: EmbeddingSettings,
) -> Searched:
    """Search with the queries as they are, or with queries sharpened by what they retrieve.

    What matters is estimated from what a first pass returns, without training and without a change to the index. A
    method helps on some collections and does harm on others, so choose its settings on another split.

    Args:
        model: Encoder: a sentence-transformers model (a folder, a hub name, the embedded all-MiniLM-L6-v2), or
            static:NAME for the word table of one. A folder of foils tune searches as that found it best, with BM25 too.
            In Python also a loaded model or an `Encoder`.
        dimensions: Which dimensions of a query are kept: all (none), a share (dime, eclipse), or those above the noise
            (rdime); or the query moves towards its feedback (rocchio). Default: none; rdime with answers, and rocchio
            where its settings are chosen on a split.
        run: File to which the run is written, in TREC form.
        answers: JSONL file of {"query_id", "answer"}, as a language model may write them: their vectors are the suns.
            In Python also a dictionary; None stands for no answer.

    Example:
        foils search scifact/ --tune train --run out.trec

    Raises:
        InputError: something that cannot be read, or options that have no effect together.
        UnknownNameError: an unknown split.
    """
    loaded, fusion = reading.open(collection), Fusion.of(model)
    method = chosen_method(dimensions, tune=searching.tune, answers=answers)
    settings, asked = importance.of(method), searching.top
    if fusion:
        searching = replace(searching, top=max(asked, FUSED_DEPTH))
    depths: dict[str, Any] = {"k": searching.top, "feedback_depth": searching.feedback_depth}
    if (tune := searching.tune) is not None:
        ids = [
            {*loaded.judgements(name, option)["query_id"].to_pylist()}
            for name, option in ((tune, "tune"), (searching.split, "split"))
        ]
        if shared := sorted(ids[0] & ids[1]):
            raise InputError(
                f"the splits {tune!r} and {searching.split!r} share {len(shared):,} queries: {', '.join(shared[:5])}…; "
                "settings chosen on the queries that are searched for say nothing of others; take them out of one"
            )
    texts = read_answers(answers) if isinstance(answers, (str, Path)) else answers
    encoder, store = embedding.open_encoder(model, loaded), embedding.open_store()
    embedded = partial(embed_collection, loaded, encoder, store, answers=texts)
    if tune is not None:
        judged = judged_queries(embedded(split=tune), **depths, measures=[searching.measure])
        settings = choose_settings(judged, settings.method, searching.measure)
        log.info("chosen on %s: %s", tune, settings)
    vectors = embedded(split=searching.split)
    index: Any = searching.index
    if isinstance(index, str):
        index = ExactIndex(vectors.documents) if index == "exact" else FaissIndex.build(vectors.documents, index)
    searched = search_collection(
        vectors, settings, index=index, **depths, second_pass=searching.second_pass,
        name=f"{encoder.name}-{settings.method}",
    )  # fmt: skip
    facts = {
        "collection": loaded.name, "split": searching.split, "encoder": description(encoder),
        "dimensions": settings.method, **searching.to_json(),
        "answers": None if texts is None else digest("answers", sorted(texts.items())),
    }  # fmt: skip
    if fusion:  # with BM25's run beside it, that alone, or as it is, whatever `foils tune` found best
        found = searched.run
        if fusion.deploys != "model":
            found = bm25_run(loaded, searching.split, depth=searching.top)
        if fusion.deploys == "both":
            found = fuse_runs([found, searched.run], name=f"{searched.run.name}+bm25", **fusion.how)
        searched = replace(searched, run=found.first(asked))
        facts |= {"top": asked, "fused_with_bm25": vars(fusion)}
    if run is not None:
        searched.write(run)
    return replace(searched, facts={**facts, "run": None if run is None else str(run)})
