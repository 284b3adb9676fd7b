"""The doors of mining: negatives from a ranking, from a language model, from several sources, and by rules."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Annotated, Any

import numpy as np

from foils.data.formats import NegativesResult
from foils.data.read import CollectionLike, CollectionSettings
from foils.data.sources import SourceLike, SourcesLike, as_source, as_sources
from foils.data.tables import provenance
from foils.encode.opening import AT_128, EmbeddingSettings, EncodingSettings
from foils.llm import LLMSettings
from foils.mining.best_ranks import BestRanksSettings, ranks_of
from foils.mining.candidates import mine_negatives
from foils.mining.carrying import carried_by_filter, carried_by_fusion
from foils.mining.checking import check_filtering, check_mining
from foils.mining.filters import filter_negatives
from foils.mining.fusion import fuse_sources
from foils.mining.generation import SAMPLING, first_prompt, generate_negatives
from foils.mining.generation_prompt import WritingSettings
from foils.mining.methods import METHODS, Models
from foils.mining.planting import PLANTED
from foils.mining.results import FirstPrompt, Fused, Generated, Mined, ScoredPairs
from foils.mining.settings import (
    FilterSettings,
    FusionSettings,
    RankingSettings,
    TakeSettings,
    WindowSettings,
)
from foils.mining.teachers import TEACHER, TaughtPairs, TeacherSettings, averaged, check_teachers, open_teachers
from foils.runtime.doors import door
from foils.runtime.errors import InputError
from foils.runtime.options import Option
from foils.runtime.surroundings import MemorySettings, ScaleSettings

WRITER = LLMSettings(llm_temperature=SAMPLING.temperature)


@door(check=check_mining)
def mine(
    collection: CollectionLike,
    method: Annotated[str, Option(flag="--with")] = "bm25",
    *,
    window: WindowSettings,
    ranking: RankingSettings,
    filters: FilterSettings,
    best: BestRanksSettings,
    reading: CollectionSettings,
    scale: ScaleSettings,
    encoding: EncodingSettings = AT_128,
) -> Mined:
    """Mine negatives: the best-ranked documents that are not labelled relevant.

    Documents that equal or nearly equal a positive stay in the table, rejected with a reason. With the best ranks, it
    mines deep, shows what each window of ranks is worth for the training, and takes the best one.

    Args:
        method: What ranks the documents: random, bm25, dense, cross-encoder, ance, trisampler, or the own similarity of
            the encoder where that is a sparse or multi-vector model (sparse, multi-vector).

    Raises:
        InputError: a collection that cannot be read, a split without positives, or options that have no effect.
        UnknownNameError: no such method.
    """
    loaded = reading.open(collection)
    models = Models(loaded, window.split, filters, encoding, ranking, window.seed)
    if method == "trisampler" and window.ranks is None:
        window = replace(window, ranks=(0, 10 * window.top))
    way = METHODS[method](models)
    scorer, scored_by = models.scorer()
    positives = models.positive_scores(scorer, way.retriever)
    rules = [*way.rules, *filters.rules(loaded, positives)]
    draw = way.draw or window.drawn(positives)
    facts = {
        "with": method,
        **{name: getattr(window, name) for name in ("top", "split", "near_duplicate")},
        **way.facts,
        **scored_by,
        **(
            {"rules": {**filters.describe(), **window.changed("keep_short")}}
            if rules or scorer or filters.score_positives
            else {}
        ),
        **({"keep_identical_ids": True} if loaded.keep_identical_ids else {}),
        **({"draw": window.draw, "seed": window.seed} if draw is not None else {}),
    }

    def mined(top: int, ranks: tuple[int, int | None], more: dict[str, Any]) -> Mined:
        shown = {"ranks": ranks} if ranks != (0, None) else {}
        return mine_negatives(
            loaded,
            way.retriever,
            split=window.split,
            top=top,
            near_duplicate=window.near_duplicate,
            ranks=ranks,
            rules=rules,
            scorer=scorer,
            fill=not window.keep_short,
            draw=draw,
            seed=window.seed,
            plant=PLANTED,
            made=provenance("mine", {**facts, **shown, **more}, inputs={"collection": loaded.digest}),
        )

    if isinstance(window.ranks, str):
        depth = best.depth_of(window.top)
        curve = best.curve(mined(depth, (0, depth), {}), *models.encoder, size=window.top, seed=window.seed)
        result = mined(window.top, ranks_of(curve), {"best_of": best.describe(depth, curve)}).altered(curve=curve)
    else:
        result = mined(window.top, window.ranks or (0, None), {})
    if not filters.score_positives:
        return result
    return result.altered(table=positives().beside(result, loaded, scorer.column if scorer else "score").table)


@door(check=check_teachers)
def score_pairs(
    collection: CollectionLike,
    source: SourceLike,
    *,
    teaching: TeacherSettings,
    split: str = "train",
    reading: CollectionSettings,
    llm: LLMSettings,
    embedding: EmbeddingSettings,
) -> ScoredPairs:
    """Score kept negatives and labelled positives by teachers: a column `teacher`, for losses that learn from one.

    A positive's score stands in a rejected row of its own, which is added where it has none. Of several teachers the
    scores of each are in `teacher_1`, `teacher_2` and so on. Scores, vectors and answers are kept by the model and the
    texts, so that no pair is scored twice. A pair that a teacher gave no score has none in `teacher`.

    Args:
        split: Split of the judgements whose positives are scored, of queries with a kept negative.

    Raises:
        InputError: no teacher, a model or table that cannot be read, or the table has the columns already.
        UnknownNameError: no such split.
        FailureError: a score is infinite, or a language model's server failed; what it answered is kept.
    """
    loaded = reading.open(collection)
    named = as_source(source, loaded)
    taught = TaughtPairs.of(named.negatives, loaded, split)
    teachers = open_teachers(teaching, loaded, llm, embedding)
    scores = np.stack([each.scorer.score(taught.pairs) for each in teachers])
    each_one = {f"{TEACHER}_{i}": own for i, own in enumerate(scores, 1)} if len(teachers) > 1 else {}
    joined = averaged(scores, taught.pairs.query_rows, teaching.average) if each_one else scores[0]
    of = [*zip((each.name for each in teachers), scores, strict=True), *([("average", joined)] if each_one else [])]
    facts = {
        "split": split,
        "teachers": [each.describe() for each in teachers],
        **({"average": teaching.average} if each_one else {}),
    }
    inputs = {"collection": loaded.digest, named.name: named.digest}
    return ScoredPairs.of(
        taught.with_columns({**each_one, TEACHER: joined}),
        provenance=provenance("score_pairs", facts, inputs=inputs, before=named.negatives.provenance),
        title=f"{named.name}, scored by {', '.join(each.name for each in teachers)}",
        collection=loaded,
        split=split,
        teachers=tuple((name, int(np.isfinite(own).sum()), taught.preferred(own)) for name, own in of),
        models={each.name: each.asked.use(llm.price) for each in teachers if each.asked is not None},
    )


@door
def generate(
    collection: CollectionLike,
    *,
    taking: TakeSettings,
    limit: Annotated[int | None, Option(least=1)] = None,
    dry_run: bool = False,
    writing: WritingSettings,
    llm: LLMSettings = WRITER,
    reading: CollectionSettings,
) -> Generated | FirstPrompt:
    """Let a language model write negatives: texts that resemble an answer to the query but are not one.

    The model is asked through any OpenAI-compatible server, as vLLM or llama.cpp offer one. Answers are kept as they
    come, so that a stopped run asks only for what is missing. Near-duplicates of a positive stay in the table,
    rejected with a reason.

    Args:
        limit: Ask for this many queries alone, the first ones. Default: all.
        dry_run: Show the first prompt, and ask nothing.

    Raises:
        InputError: a collection that cannot be read, no model, or a server that refuses the key or the model.
        FailureError: the server fails query after query; what was finished is kept.
        MissingExtraError: the openai package is not installed.
    """
    if dry_run:
        loaded = reading.open(collection)
        return FirstPrompt(first_prompt(loaded, writing, split=taking.split, top=taking.top))
    client, loaded = llm.client(), reading.open(collection)
    generated = generate_negatives(
        loaded,
        client,
        llm.folder(loaded),
        split=taking.split,
        top=taking.top,
        writing=writing,
        sampling=replace(llm.sampling(), seed=taking.seed),
        limit=limit,
        near_duplicate=taking.near_duplicate,
    )
    return replace(generated, price=llm.price)


@door
def fuse(
    collection: CollectionLike,
    sources: SourcesLike,
    *,
    fusion: FusionSettings,
    split: str = "train",
    reading: CollectionSettings,
    machine: MemorySettings,
) -> Fused:
    """Fuse several sources of negatives into one, each document of a query once.

    The table shows each source's rank and score. A row that any source rejected is rejected.

    Args:
        split: Split of the judgements whose positives exports take.

    Raises:
        InputError: fewer than two sources, one that cannot be read, or sources that cannot be fused in this way.
    """
    loaded = reading.open(collection)
    named = as_sources(sources, loaded)
    if len(named) < 2:
        raise InputError(f"fusion needs at least two sources, not {len(named)}")
    fused_by = partial(
        fuse_sources,
        method=fusion.method,
        top=fusion.top,
        k=fusion.rrf_k,
        weights=fusion.weights and {name: float(weight) for name, weight in fusion.weights.items()},
        digests={each.name: each.digest for each in named},
    )
    tables = {each.name: each.negatives for each in named}
    negatives = fused_by(tables)
    return Fused.of(
        negatives.with_provenance(carried_by_fusion(tables, negatives, loaded, fused_by)),
        title=f"{fusion.method} of {len(named)} sources",
        collection=loaded,
        split=split,
        sources={each.name: len(each.negatives) for each in named},
    )


@door(check=check_filtering)
def filter(
    collection: CollectionLike,
    source: SourceLike,
    *,
    filters: FilterSettings,
    split: str = "train",
    reading: CollectionSettings,
    scale: ScaleSettings,
    encoding: EncodingSettings = AT_128,
) -> NegativesResult:
    """Reject likely false negatives of a source by rules; no row is dropped.

    A row that was rejected before keeps its reason; of several rules the first that holds gives the reason.

    Args:
        split: Split of the judgements whose positives margins are held against, and exports take.

    Raises:
        InputError: no rule, a source that cannot be read, or options that have no effect.
    """
    loaded = reading.open(collection)
    named = as_source(source, loaded)
    models = Models(loaded, split, filters, encoding)
    scorer, scored_by = models.scorer()
    rules = filters.rules(loaded, models.positive_scores(scorer))
    marked = filter_negatives(named.negatives, loaded, rules, scorer=scorer)
    facts = {"split": split, "rules": filters.describe(), **scored_by}
    inputs = {"collection": loaded.digest, named.name: named.digest}
    before = {name: value for name, value in named.negatives.provenance.items() if name != "planted"}
    carried = carried_by_filter(named.negatives, marked, loaded, rules, scorer=scorer)
    origin = provenance("filter", facts, inputs=inputs, before=before, **carried)
    if filters.score_positives:
        marked = models.positive_scores(scorer)().beside(marked, loaded, scorer.column if scorer else "score")
    title = f"{named.name}, filtered"
    return NegativesResult.of(marked, provenance=origin, title=title, collection=loaded, split=split)
