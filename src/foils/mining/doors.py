"""The doors of mining: negatives from a ranking, from a language model, from several sources, and by rules."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from functools import partial
from typing import Annotated

import numpy as np

from foils.data.negatives import Negatives
from foils.data.read import CollectionLike, CollectionSettings
from foils.data.sources import SourceLike, SourcesLike, as_source, as_sources
from foils.data.tables import provenance
from foils.encode.opening import AT_128, EmbeddingSettings, EncodingSettings
from foils.llm import AnswerStore, LLMSettings, Usage, ask_missing
from foils.mining.fusion import Fused, FusionSettings, fuse_sources
from foils.mining.generation import (
    ATTEMPTS,
    PASSAGE_TOKENS,
    TEMPERATURE,
    Generated,
    WritingSettings,
    generated_table,
    near_positives,
    records_of,
    write_negatives,
)
from foils.mining.methods import FILTERING_NEEDS, RULES, FilterSettings, Models
from foils.mining.planting import planted_by_filter, planted_by_fusion
from foils.mining.rules import NEAR, filter_negatives
from foils.mining.scorers import (
    TEACHER,
    ScoredPairs,
    TeachersLike,
    check_teachers,
    open_teachers,
    preferred_share,
    taught_pairs,
)
from foils.runtime.errors import InputError
from foils.runtime.options import Option, door, spelled
from foils.runtime.parallel import ScaleSettings

WRITER = LLMSettings(llm_temperature=TEMPERATURE)


@door(check=check_teachers)
def score_pairs(
    collection: CollectionLike,
    source: SourceLike,
    *,
    teacher: Annotated[TeachersLike, Option(metavar="TEACHER", parse=list, repeated=True)] = (),
    split: str = "train",
    reading: CollectionSettings,
    embedding: EmbeddingSettings,
) -> ScoredPairs:
    """Score kept negatives and labelled positives by teachers: a column `teacher`, for losses that learn from one.

    A positive's score stands in a rejected row of its own, which is added where it has none. Queries without labels
    are scored, too. Of several teachers the scores of each are in `teacher_1`, `teacher_2` and so on, and `teacher` is
    their mean, which suits teachers of one scale, as the logits of cross-encoders. Scores and vectors are kept by the
    model and the texts, so that no pair is scored twice.

    Args:
        teacher: Who scores: bi-encoder:MODEL by the similarity of its vectors, cross-encoder:MODEL by its logits; may
            be given several times. In Python also a SentenceTransformer, an `Encoder` or a CrossEncoder, or a list.
        split: Split of the judgements whose positives are scored, of queries with a kept negative.

    Example:
        foils score-pairs scifact/ bm25.parquet --teacher bi-encoder:all-MiniLM-L6-v2 -o taught.parquet

    Raises:
        InputError: no teacher, a model or table that cannot be read, or the table has the columns already.
        UnknownNameError: no such split.
        FailureError: a score is infinite.
    """
    loaded = reading.open(collection)
    named = as_source(source, loaded)
    widened, rows, positive, pairs = taught_pairs(named.negatives, loaded, split)
    teachers = open_teachers(teacher, loaded, embedding)
    scores = np.stack([scorer.score(pairs) for _, scorer in teachers])
    names = [str(facts["name"]) for facts, _ in teachers]
    each_one = {f"{TEACHER}_{i}": own for i, own in enumerate(scores, 1)} if len(teachers) > 1 else {}
    mean = scores.mean(0)
    columns = {}
    for name, own in {**each_one, TEACHER: mean}.items():
        columns[name] = np.full(len(widened), np.nan)  # rows that are not scored
        columns[name][rows] = own
    of = [*zip(names, scores, strict=True), *([("average", mean)] if each_one else [])]
    facts = {"split": split, "teachers": [facts for facts, _ in teachers]}
    inputs = {"collection": loaded.digest, named.name: named.digest}
    return ScoredPairs.of(
        widened.with_columns(columns),
        provenance=provenance("score_pairs", facts, inputs=inputs, before=named.negatives.provenance),
        title=f"{named.name}, scored by {', '.join(names)}",
        collection=loaded,
        split=split,
        teachers=tuple((name, len(own), preferred_share(pairs.query_rows, positive, own)) for name, own in of),
    )


@door
def generate(
    collection: CollectionLike,
    *,
    top: Annotated[int, Option(least=1)] = 10,
    split: str = "train",
    seed: Annotated[int, Option(least=0)] = 0,
    limit: Annotated[int | None, Option(least=1)] = None,
    writing: WritingSettings,
    llm: LLMSettings = WRITER,
    reading: CollectionSettings,
) -> Generated:
    """Let a language model write negatives: texts that resemble an answer to the query but are not one.

    The model is asked through any OpenAI-compatible server, as vLLM or llama.cpp offer one, for each query with its
    first labelled positive, and up to three times while negatives are missing. Answers are checked against all
    positives of the query, and kept as they come, so that a stopped run asks only for what is missing. Near-duplicates
    of a positive stay in the table, rejected with a reason.

    Args:
        top: Negatives per query.
        split: Split of the judgements; its queries that have a positive get negatives.
        seed: Seed of the model's sampling, where the server heeds it, and of what is drawn for a prompt.
        limit: Ask for this many queries alone, the first ones. Default: all.

    Example:
        foils generate scifact/ --base-url http://localhost:8000/v1 --llm-model NAME --limit 100 -o llm.parquet

    Raises:
        InputError: a collection that cannot be read, no model, or a server that refuses the key or the model.
        FailureError: the server fails query after query; what was finished is kept.
        MissingExtraError: the openai package is not installed.
    """
    client, loaded = llm.client(), reading.open(collection)
    sampling = replace(llm.sampling(), seed=seed)
    asked = {**writing.describe(), "number": top, "attempts": ATTEMPTS, **sampling.describe()}
    records = records_of(loaded, writing, (client.identity, asked), split, limit, seed)
    by_key = ask_missing(
        client,
        AnswerStore(llm.folder(loaded)),
        {record.key: record for record in records},
        partial(write_negatives, writing=writing, sampling=sampling, number=top),
        text_of=lambda record: writing.asked(record.query, record.positives[0], top, record.drawn),
        answer_tokens=top * PASSAGE_TOKENS,
        task="asking for negatives",
        unit="queries",
    )
    answers = [by_key[record.key] for record in records]
    counts = [len(answer["negatives"]) for answer in answers]
    facts = {"split": split, "limit": limit, **client.describe(), **asked}
    table = generated_table([record.query_id for record in records], [answer["negatives"] for answer in answers])
    negatives = Negatives(table, provenance("generate", facts, inputs={"collection": loaded.digest}))
    return Generated.of(
        negatives.reject(near_positives(negatives, loaded), NEAR),
        title=f"negatives of {loaded.name} ({split}) by {client.model}",
        collection=loaded,
        split=split,
        top=top,
        queries=len(records),
        answered=sum(count > 0 for count in counts),
        short=sum(0 < count < top for count in counts),
        failed=dict(Counter(str(answer["failure"]) for answer in answers if not answer["negatives"])),
        turned_away=dict(sum((Counter(answer["turned_away"]) for answer in answers), Counter())),
        usage=Usage.total(answers),
        price=llm.price,
    )


@door
def fuse(
    collection: CollectionLike,
    sources: SourcesLike,
    *,
    fusion: FusionSettings,
    reading: CollectionSettings,
) -> Fused:
    """Fuse several sources of negatives into one, each document of a query once.

    The table shows each source's rank and score. A row that any source rejected is rejected.

    Raises:
        InputError: fewer than two sources, one that cannot be read, or sources that cannot be fused in this way.

    Example:
        foils fuse scifact/ bm25.parquet dense.parquet --method rrf -o both.parquet
    """
    loaded = reading.open(collection)
    named = as_sources(sources, loaded)
    fused_by = partial(
        fuse_sources,
        method=fusion.method,
        top=fusion.top,
        k=fusion.rrf_k,
        weights=fusion.weights and {name: float(weight) for name, weight in fusion.weights.items()},
        normalisation=fusion.normalisation,
        digests={each.name: each.digest for each in named},
    )
    tables = {each.name: each.negatives for each in named}
    negatives = fused_by(tables)
    return Fused.of(
        negatives.with_provenance(planted_by_fusion(tables, negatives, loaded, fused_by)),
        title=f"{fusion.method} of {len(named)} sources",
        collection=loaded,
        sources={each.name: len(each.negatives) for each in named},
    )


@door(needs=FILTERING_NEEDS)
def filter(
    collection: CollectionLike,
    source: SourceLike,
    *,
    filters: FilterSettings,
    split: str = "train",
    reading: CollectionSettings,
    machine: ScaleSettings,
    encoding: EncodingSettings = AT_128,
) -> Negatives:
    """Reject likely false negatives of a source by rules; no row is dropped.

    A row that was rejected before keeps its reason; of several rules the first that holds gives the reason.

    Args:
        split: Split of the judgements whose positives margins are held against.

    Example:
        foils filter scifact/ llm.parquet --scorer encoder --margin 0.05 -o filtered.parquet

    Raises:
        InputError: no rule, a source that cannot be read, or options that have no effect.
    """
    if not filters.changed(*RULES):
        raise InputError(f"no rule to filter by; give one of {', '.join(map(spelled, RULES))}")
    loaded = reading.open(collection)
    named = as_source(source, loaded)
    models = Models(loaded, split, filters, encoding)
    scorer, scored_by = models.scorer()
    rules = filters.rules(partial(models.positive_scores, scorer))
    marked = filter_negatives(named.negatives, loaded, rules, scorer=scorer)
    facts = {"split": split, "rules": filters.describe(), **scored_by}
    inputs = {"collection": loaded.digest, named.name: named.digest}
    before = {name: value for name, value in named.negatives.provenance.items() if name != "planted"}
    planted = planted_by_filter(named.negatives, marked, loaded, rules, scorer=scorer)
    origin = provenance("filter", facts, inputs=inputs, before=before, **planted)
    title = f"{named.name}, filtered"
    return Negatives.of(marked, provenance=origin, title=title, collection=loaded, split=split)
