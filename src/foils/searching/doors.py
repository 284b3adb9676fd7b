"""The door of searching."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import numpy as np

from foils.data import Collection, Run
from foils.data.resolve import CollectionLike, CollectionSettings
from foils.encode import DEFAULT_MODEL, Encoder, Vectors
from foils.encode.opening import EmbeddingSettings, EncoderLike, description
from foils.llm import LLMSettings
from foils.runtime.doors import door
from foils.runtime.errors import InputError
from foils.runtime.options import Option
from foils.runtime.surroundings import ScaleSettings
from foils.searching.answers import ANSWERING, answer_prompt, read_answers, written_answers
from foils.searching.bench import MEASURES
from foils.searching.checks import USUAL, check_options
from foils.searching.experiments import choose_settings
from foils.searching.faiss_index import FaissIndex
from foils.searching.findings import Findings
from foils.searching.grids import dime_grid, published_grid
from foils.searching.index import ExactIndex
from foils.searching.runs import Embedded, Searched, embed_collection, search_collection
from foils.searching.settings import (
    METHODS,
    DimensionSettings,
    FeedbackSettings,
    ImportanceSettings,
    IndexSettings,
    Method,
    SearchSettings,
    TrialSettings,
)
from foils.searching.trials import run_experiments

log = logging.getLogger(__name__)


@door(check=check_options)
def search(
    collection: CollectionLike,
    *,
    model: EncoderLike = DEFAULT_MODEL,
    dimensions: Annotated[Method, Option(names=METHODS)] = USUAL,
    run: Annotated[str | Path | None, Option(metavar="FILE")] = None,
    searching: SearchSettings,
    importance: ImportanceSettings,
    feedback: FeedbackSettings,
    index: IndexSettings,
    trial: TrialSettings,
    llm: LLMSettings = ANSWERING,
    reading: CollectionSettings,
    scale: ScaleSettings,
    embedding: EmbeddingSettings,
) -> Searched | Findings:
    """Search with all dimensions, or with those that matter to each query.

    What matters is estimated from what a first pass returns, without training and without a change to the index. rdime
    has nothing to tune; dime and eclipse have, so choose their settings on another split, or look at the experiments,
    which tell honest numbers from oracle ones.

    Args:
        model: Encoder: a sentence-transformers model (a folder, a hub name, the embedded all-MiniLM-L6-v2), or
            static:NAME for the word table of one. In Python also a SentenceTransformer or an `Encoder`.
        dimensions: Which dimensions of a query are kept: all (none), a share (dime, eclipse), or those above the noise
            (rdime).
        run: File to which the run is written, in TREC form.

    Raises:
        InputError: something that cannot be read, or options that have no effect together.
        UnknownNameError: an unknown split.
    """
    loaded = reading.open(collection)
    splits = [searching.split, *([trial.tune] if trial.tune else [])]
    _check_queries(loaded, *splits)
    answers, facts = _answers(loaded, splits, feedback, llm, searching.seed)
    encoder, store = embedding.open_encoder(model, loaded), embedding.open_store()
    embedded = partial(embed_collection, loaded, encoder, store, answers=answers)
    rng = np.random.default_rng(searching.seed)
    settings = importance.of(dimensions)
    head = {
        "collection": loaded.name, "split": searching.split, "encoder": description(encoder), "dimensions": dimensions,
        "seed": searching.seed, **facts,
    }  # fmt: skip
    if trial.experiment is not None:
        findings = _experiment(embedded(split=searching.split), settings, searching, trial, rng)
        return replace(findings, encoder=encoder.name, facts={**head, **findings.facts})
    if trial.tune is not None:
        settings = _tuned(embedded(split=trial.tune), settings, searching, trial, rng)
    searched = _searched(embedded(split=searching.split), encoder, settings, searching, feedback, index, rng)
    reranks = index.second_pass == "retrieved" or trial.tune is not None
    how = {**searched.facts, "tune": trial.tuning(), **searching.depths(reranks=reranks)}
    if run is not None:
        searched.write(run)
    return replace(searched, facts={**head, "run": None if run is None else str(run), **how})


def _answers(
    collection: Collection, splits: Sequence[str], feedback: FeedbackSettings, llm: LLMSettings, seed: int
) -> tuple[Mapping[str, str | None] | None, dict[str, Any]]:
    """The answers to the queries of the splits, None where there are none; and what JSON says of them."""
    if llm.llm_model:
        texts, facts = written_answers(collection, splits, llm, answer_prompt(feedback.answer_prompt), seed=seed)
        return texts, {"answers": facts}
    if isinstance(feedback.answers, (str, Path)):
        return read_answers(feedback.answers), {}
    return feedback.answers, {}


def _check_queries(collection: Collection, split: str, tuned_on: str | None = None) -> None:
    """Raise an InputError where the split to choose settings on shares queries with the one searched for."""
    if tuned_on is None:
        return
    tuned, searched = ({*collection.judgements(name)["query_id"].to_pylist()} for name in (tuned_on, split))
    if shared := sorted(tuned & searched):
        raise InputError(
            f"the splits {tuned_on!r} and {split!r} share {len(shared):,} queries: {', '.join(shared[:5])}…; "
            "settings chosen on the queries that are searched for say nothing of others; take them out of one"
        )


def _experiment(
    embedded: Embedded, settings: DimensionSettings, searching: SearchSettings, trial: TrialSettings,
    rng: np.random.Generator,
) -> Findings:  # fmt: skip
    findings = run_experiments(
        str(trial.experiment),
        embedded,
        settings,
        published_grid(trial.reading, moon_pool=settings.moon_pool),
        searching=searching,
        measures=list(dict.fromkeys([*MEASURES, trial.measure])),
        folds=trial.folds,
        rng=rng,
    )
    facts = {
        "experiment": trial.experiment, "folds": trial.folds, "reading": trial.reading, "measure": trial.measure,
        "settings": settings.to_json(), "second_pass": "retrieved", "index": "exact", **searching.depths(reranks=True),
    }  # fmt: skip
    return replace(findings, facts=facts)


def _tuned(
    embedded: Embedded, settings: DimensionSettings, searching: SearchSettings, trial: TrialSettings,
    rng: np.random.Generator,
) -> DimensionSettings:  # fmt: skip
    """The best settings of the published grid on a split's queries."""
    grid = dime_grid() if settings.method == "dime" else published_grid(trial.reading, moon_pool=settings.moon_pool)
    chosen = choose_settings(
        embedded,
        grid,
        measure=trial.measure,
        k=searching.top,
        feedback_depth=searching.feedback_depth,
        rerank_depth=searching.rerank_depth,
        rng=rng,
    )
    log.info("chosen on %s: %s", embedded.split, chosen)
    return chosen


def _searched(
    embedded: Embedded,
    encoder: Encoder,
    settings: DimensionSettings,
    searching: SearchSettings,
    feedback: FeedbackSettings,
    index: IndexSettings,
    rng: np.random.Generator,
) -> Searched:
    run = feedback.feedback
    searched = search_collection(
        embedded,
        settings,
        index=_index(index, embedded.documents, encoder.fingerprint),
        k=searching.top,
        feedback_depth=searching.feedback_depth,
        rerank_depth=searching.rerank_depth if index.second_pass == "retrieved" else None,
        feedback=run if run is None or isinstance(run, Run) else Run.read(run),
        second_pass=index.second_pass,
        rng=rng,
        name=f"{encoder.name}-{settings.method}",
    )
    name = run.name if isinstance(run, Run) else None if run is None else str(run)
    return replace(searched, facts={"feedback": name, **index.to_json()})


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
    if path and path.exists() and not settings.rebuild_index:
        return FaissIndex.load(path, documents, kind=kind, encoder=encoder)
    built = FaissIndex.build(documents, kind)  # type: ignore[arg-type]  # one of INDEXES
    if path:
        built.save(path, documents, encoder=encoder)
    return built
