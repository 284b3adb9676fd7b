"""The doors of searching: search, the answers of a language model that may guide it, and sweeps of its settings."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np

from foils.data import Collection, Run
from foils.data.read import CollectionLike, CollectionSettings
from foils.encode import DEFAULT_MODEL, Encoder, Vectors
from foils.encode.models import own_kind
from foils.encode.opening import EmbeddingSettings, EncoderLike, description
from foils.llm import LLMSettings
from foils.llm.prompts import TemplateLike
from foils.runtime.doors import door
from foils.runtime.errors import InputError
from foils.runtime.options import Option
from foils.runtime.surroundings import ScaleSettings
from foils.searching.answers import (
    ANSWERING,
    THE_ANSWERS,
    Answers,
    AnswersLike,
    answer_prompt,
    answers_digest,
    as_answers,
    ask_answers,
)
from foils.searching.bench import MEASURES
from foils.searching.checks import check_search, check_sweep
from foils.searching.experiments import choose_settings
from foils.searching.faiss_index import FaissIndex
from foils.searching.findings import Findings
from foils.searching.grids import dime_grid, published_grid
from foils.searching.index import ExactIndex
from foils.searching.own import Retrieved, check_own_search, search_own
from foils.searching.runs import Embedded, Searched, embed_collection, search_collection
from foils.searching.settings import (
    METHODS,
    DimensionSettings,
    ImportanceSettings,
    IndexSettings,
    Method,
    RunLike,
    SearchSettings,
    SweepSettings,
    TuneSettings,
    chosen_method,
)
from foils.searching.trials import EXPERIMENTS, run_experiments

if TYPE_CHECKING:
    SplitsLike = str | Sequence[str]
else:
    SplitsLike = str

log = logging.getLogger(__name__)


@door(check=check_search)
def search(
    collection: CollectionLike,
    *,
    model: EncoderLike = DEFAULT_MODEL,
    dimensions: Annotated[Method | None, Option(names=METHODS)] = None,
    run: Annotated[str | Path | None, Option(metavar="FILE")] = None,
    searching: SearchSettings,
    feedback: Annotated[RunLike | None, Option(metavar="FILE")] = None,
    answers: Annotated[AnswersLike | None, Option(metavar="FILE", help=THE_ANSWERS)] = None,
    importance: ImportanceSettings,
    tuning: TuneSettings,
    index: IndexSettings,
    reading: CollectionSettings,
    scale: ScaleSettings,
    embedding: EmbeddingSettings,
) -> Searched | Retrieved:
    """Search with all dimensions, or with those that matter to each query.

    What matters is estimated from what a first pass returns, without training and without a change to the index. rdime
    and selective have nothing to tune; dime and eclipse have, so choose their settings on another split.

    Args:
        model: Encoder: a sentence-transformers model (a folder, a hub name, the embedded all-MiniLM-L6-v2), or
            static:NAME for the word table of one. A sparse or multi-vector model searches by its own similarity, with
            all that it gives a query. In Python also a loaded model or an `Encoder`.
        dimensions: Which dimensions of a query are kept: all (none), a share (dime, eclipse), those above the noise
            (rdime), or those for queries whose feedback is trusted (selective). Default: selective; rdime with answers,
            and eclipse where its settings are chosen on a split.
        run: File to which the run is written, in TREC form.
        feedback: TREC run, as of BM25, whose documents make sun and moon. In Python also a `Run`.

    Raises:
        InputError: something that cannot be read, or options that have no effect together.
        UnknownNameError: an unknown split.
    """
    loaded = reading.open(collection)
    if own_kind(model):
        depths = searching.changed("feedback_depth", "rerank_depth", "seed")
        idle = {**importance.changed(), **depths, **tuning.changed(), **index.changed()}
        check_own_search(model, dimensions, {**idle, "feedback": feedback, "answers": answers})
        return search_own(embedding.open_own(model), loaded, searching.split, k=searching.top, run=run)
    _check_queries(loaded, searching.split, tuning.tune)
    texts = as_answers(answers)
    encoder, store = embedding.open_encoder(model, loaded), embedding.open_store()
    embedded = partial(embed_collection, loaded, encoder, store, answers=texts)
    rng = np.random.default_rng(searching.seed)
    method = chosen_method(dimensions, tune=tuning.tune, answered=texts is not None)
    settings = importance.of(method)
    if tuning.tune is not None:
        settings = _tuned(embedded(split=tuning.tune), settings, searching, tuning, rng)
    vectors = embedded(split=searching.split)
    searched = search_collection(
        vectors, settings, index=_index(index, vectors.documents, encoder.fingerprint), k=searching.top,
        feedback_depth=searching.feedback_depth, second_pass=index.second_pass, rng=rng,
        rerank_depth=searching.rerank_depth if index.second_pass == "retrieved" else None,
        feedback=feedback if feedback is None or isinstance(feedback, Run) else Run.read(feedback),
        name=f"{encoder.name}-{settings.method}",
    )  # fmt: skip
    if run is not None:
        searched.write(run)
    reranks = index.second_pass == "retrieved" or tuning.tune is not None
    facts = {
        **_head(loaded, encoder, searching, texts), "dimensions": method, "run": _named(run),
        "chosen_by": importance.chosen_by(method, tuning.tune), "feedback": _named(feedback),
        **index.to_json(), "tune": tuning.to_json(), **searching.depths(reranks=reranks),
    }  # fmt: skip
    return replace(searched, facts=facts)


@door
def answer(
    collection: CollectionLike,
    *,
    split: Annotated[SplitsLike, Option(metavar="SPLIT", parse=list, repeated=True)] = "test",
    template: Annotated[TemplateLike | None, Option(metavar="FILE")] = None,
    seed: Annotated[int, Option(least=0)] = 0,
    llm: LLMSettings = ANSWERING,
    reading: CollectionSettings,
) -> Answers:
    """Let a language model answer the queries: texts whose vectors may guide a search (foils search --answers FILE).

    The model is asked through any OpenAI-compatible server, as vLLM or llama.cpp offer one. Answers are kept as they
    come, so that a stopped run asks only for what is missing. A query without an answer is listed with the reason, and
    a search keeps every dimension of it.

    Args:
        split: Split of the judgements whose queries are answered; may be given several times. In Python also a list.
        template: Prompt of your own: a text file with {query}. In Python also a `Template`.
        seed: Seed that is sent to the server, which may heed it.

    Raises:
        InputError: a collection, template or server that cannot be used.
        FailureError: the server fails query after query; what was finished is kept.
    """
    prompt, client = answer_prompt(template), llm.client()
    loaded = reading.open(collection)
    splits = [split] if isinstance(split, str) else split
    ids = dict.fromkeys(query for name in splits for query in loaded.judgements(name)["query_id"].to_pylist())
    queries = dict(zip(ids, loaded.query_texts(loaded.query_rows([*ids])), strict=True))
    sampling = replace(llm.sampling(), seed=seed)
    answers = ask_answers(queries, client, llm.folder(loaded), prompt=prompt, sampling=sampling)
    asking = {"collection": loaded.name, "splits": [*splits], **answers.asking}
    return replace(answers, asking=asking, price=llm.price)


@door(check=check_sweep)
def sweep(
    collection: CollectionLike,
    experiment: Annotated[str, Option(names=(*EXPERIMENTS, "all"))] = "all",
    *,
    model: EncoderLike = DEFAULT_MODEL,
    searching: SearchSettings,
    answers: Annotated[AnswersLike | None, Option(metavar="FILE", help=THE_ANSWERS)] = None,
    importance: ImportanceSettings,
    sweeping: SweepSettings,
    reading: CollectionSettings,
    scale: ScaleSettings,
    embedding: EmbeddingSettings,
) -> Findings:
    """Compare ways to choose the dimensions of a query, with honest numbers and oracle ones, and tests.

    filters compares all dimensions, RDIME, DIME and Eclipse; shares how many dimensions are kept; depths how long the
    feedback list is; moons drawn at random with the last ones, at the settings that are chosen or at those given.
    Settings are chosen by cross-validation (honest), and on the queries themselves (oracle), as published. Documents
    are ranked again within those that an exact search returns.

    Args:
        experiment: What is compared: filters, shares, depths, moons, single queries, or all of these.
        model: Encoder: a sentence-transformers model (a folder, a hub name, the embedded all-MiniLM-L6-v2), or
            static:NAME for the word table of one. In Python also a SentenceTransformer or an `Encoder`.

    Raises:
        InputError: something that cannot be read, or options that have no effect together.
        UnknownNameError: an unknown split.
    """
    loaded = reading.open(collection)
    texts = as_answers(answers)
    encoder, store = embedding.open_encoder(model, loaded), embedding.open_store()
    settings = importance.of("eclipse") if importance.changed().keys() - {"moon_pool"} else None
    findings = run_experiments(
        experiment,
        embed_collection(loaded, encoder, store, split=searching.split, answers=texts),
        settings,
        published_grid(sweeping.reading, moon_pool=importance.moon_pool),
        searching=searching,
        measures=list(dict.fromkeys([*MEASURES, sweeping.measure])),
        folds=sweeping.folds,
        rng=np.random.default_rng(searching.seed),
    )
    facts = {
        **_head(loaded, encoder, searching, texts), "experiment": experiment, **vars(sweeping),
        "settings": settings and settings.to_json(), "second_pass": "retrieved", "index": "exact",
        **searching.depths(reranks=True),
    }  # fmt: skip
    return replace(findings, encoder=encoder.name, facts=facts)


def _head(
    collection: Collection, encoder: Encoder, searching: SearchSettings, texts: Mapping[str, str | None] | None
) -> dict[str, Any]:
    """What JSON says of any search, with the digest of the answers."""
    return {
        "collection": collection.name, "split": searching.split, "encoder": description(encoder),
        "seed": searching.seed, "answers": None if texts is None else answers_digest(texts),
    }  # fmt: skip


def _named(run: RunLike | None) -> str | None:
    """The name of a run, or of its file."""
    return run.name if isinstance(run, Run) else None if run is None else str(run)


def _check_queries(collection: Collection, split: str, tuned_on: str | None = None) -> None:
    """Raise an InputError where the split to choose settings on shares queries with the one searched for."""
    if tuned_on is None:
        return
    tuned, searched = (
        {*collection.judgements(name, option)["query_id"].to_pylist()}
        for name, option in ((tuned_on, "tune"), (split, "split"))
    )
    if shared := sorted(tuned & searched):
        raise InputError(
            f"the splits {tuned_on!r} and {split!r} share {len(shared):,} queries: {', '.join(shared[:5])}…; "
            "settings chosen on the queries that are searched for say nothing of others; take them out of one"
        )


def _tuned(
    embedded: Embedded, settings: DimensionSettings, searching: SearchSettings, tuning: TuneSettings,
    rng: np.random.Generator,
) -> DimensionSettings:  # fmt: skip
    """The best settings of the published grid on a split's queries."""
    grid = dime_grid() if settings.method == "dime" else published_grid(tuning.reading, moon_pool=settings.moon_pool)
    chosen = choose_settings(
        embedded,
        grid,
        measure=tuning.measure,
        k=searching.top,
        feedback_depth=searching.feedback_depth,
        rerank_depth=searching.rerank_depth,
        rng=rng,
    )
    log.info("chosen on %s: %s", embedded.split, chosen)
    return chosen


def _index(settings: IndexSettings, documents: Vectors, encoder: str) -> Any:
    """The index over the documents: read from its file, or built, and kept where there is to be a file.

    Args:
        settings: which index, and its file.
        documents: vectors to search.
        encoder: fingerprint of what made them.

    Raises:
        InputError: the file's index was built from something else.
    """
    path, kind = settings.index_file, settings.index
    if kind == "exact":
        return ExactIndex(documents)
    if not isinstance(kind, str):
        return kind
    if path and path.exists():
        return FaissIndex.load(path, documents, kind=kind, encoder=encoder)
    built = FaissIndex.build(documents, kind)  # type: ignore[arg-type]  # one of INDEXES
    if path:
        built.save(path, documents, encoder=encoder)
    return built
