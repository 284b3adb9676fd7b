"""The door of searching."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any, cast

import pyarrow as pa

from foils.data.collection import Collection
from foils.data.read import CollectionLike, CollectionSettings
from foils.data.records import Complaints, json_objects, text_field
from foils.data.run import FUSED_DEPTH, Fusion, check_ids, deployed, fuse_runs
from foils.data.tokens import BM25Settings
from foils.encode import DEFAULT_MODEL
from foils.encode.opening import EmbeddingSettings, EncoderLike, description
from foils.llm import digest
from foils.runtime.errors import InputError
from foils.runtime.files import TREC
from foils.runtime.options import Option, Settings, door, spelled
from foils.runtime.parallel import ScaleSettings
from foils.searching.choosing import choose_settings, judged_queries
from foils.searching.dimensions import FEEDBACK_DEPTH, METHODS, DimensionSettings, ImportanceSettings, Method
from foils.searching.retriever import Answered, Retriever, answered, read_queries
from foils.searching.runs import Searched, bm25_run, embed_collection, search_collection

AnswersLike = str | Path | Mapping[str, str | None]
log = logging.getLogger(__name__)

DEPTH, ANSWERS = 1_000, 10  # documents of each query of a split, and of each one that is given
EMBEDS = {"model": lambda model: deployed(model) != "bm25"}
RANKS_BY_BM25 = {"model": lambda model: deployed(model) != "model"}
OF_SPLITS: dict[str, Any] = {"query": False, "queries": False}  # what is given is searched for as it is
OF_ANSWERS = {**OF_SPLITS, "dimensions": lambda method: method != "none"}
SHARPENED: list[dict[str, Any]] = [
    {"dimensions": METHODS[1:], "answers": False},
    {"dimensions": ["eclipse"]},
    {"dimensions": False, "tune": True, "answers": False},
]
TUNABLE = {"dimensions": lambda method: method not in ("none", "rdime")}
_OF_VECTORS = (
    *("dimensions", "answers", "importance", "scale", "embedding"),
    *("feedback_depth", "tune", "measure"),
)


@dataclass(frozen=True, kw_only=True)
class SearchSettings(Settings):
    """Whose queries are searched for, where, how deep, and how settings are chosen.

    Attributes:
        split: Split of the judgements whose queries are searched for.
        feedback_depth: Length of the feedback list, whose best documents make the sun and whose
            last ones the moon.
        tune: Choose the settings on this split, by the published grid (dime, eclipse) or by that of rocchio.
        measure: Measure by which settings are chosen: nDCG, AP, RR or R as ir_measures writes them,
            as nDCG@10.
    """

    needs = OF_SPLITS

    split: str = "test"
    feedback_depth: Annotated[int, Option(least=1, needs=SHARPENED)] = FEEDBACK_DEPTH
    tune: Annotated[str | None, Option(metavar="SPLIT", needs=TUNABLE)] = None
    measure: Annotated[str, Option(needs={"tune": True})] = "nDCG@10"


@door(needs={**dict.fromkeys(_OF_VECTORS, EMBEDS), "lexical": RANKS_BY_BM25})
def search(
    collection: CollectionLike,
    *,
    model: EncoderLike = DEFAULT_MODEL,
    dimensions: Annotated[Method | None, Option(names=METHODS, needs=OF_SPLITS)] = None,
    run: Annotated[str | Path | None, Option(metavar="FILE", writes=TREC, needs=OF_SPLITS)] = None,
    query: Annotated[list[str] | None, Option(metavar="TEXT", repeated=True)] = None,
    queries: Annotated[str | Path | None, Option(metavar="FILE")] = None,
    top: Annotated[int | None, Option(least=1)] = None,
    searching: SearchSettings,
    answers: Annotated[AnswersLike | None, Option(metavar="FILE", needs=OF_ANSWERS)] = None,
    importance: ImportanceSettings,
    lexical: BM25Settings,
    reading: CollectionSettings,
    scale: ScaleSettings,
    embedding: EmbeddingSettings,
) -> Searched | Answered:
    """Search with the queries as they are, or with queries sharpened by what they retrieve.

    What matters is estimated from what a first pass returns, without training and without a change
    to the index. A method helps on some collections and does harm on others, so choose its settings
    on another split.

    A folder of foils tune in the place of the collection answers new queries over the documents
    that it was tuned on.

    Args:
        model: Encoder: a sentence-transformers model (a folder, a hub name, the embedded
            all-MiniLM-L6-v2), or static:NAME for the word table of one; or bm25. A folder of foils
            tune searches as that found it best: by the model, by BM25, or by both together. In
            Python also a loaded model or an `Encoder`.
        dimensions: Which dimensions of a query are kept: all (none), a share (dime, eclipse), or
            those above the noise (rdime); or the query moves towards its feedback (rocchio).
            Default: none; rdime with answers, and rocchio where its settings are chosen on a split.
        run: File to which the run is written, in TREC form.
        query: A new query to answer, in the place of those of a split; may be given several times.
            `--json -` prints a line of JSON for each.
        queries: File of new queries, one on each line; - is standard input.
        top: Number of documents returned for each query. Default: 1,000, and 10 for a query that is given.
        answers: JSONL file of {"query_id", "answer"}, as a language model may write them: their
            vectors are the suns. In Python also a dictionary; None stands for no answer.

    Example:
        foils search better/ --query "how is a keel laid"

    Raises:
        InputError: something that cannot be read, or options that have no effect together.
        UnknownNameError: an unknown split.
    """
    asked = [*(query or []), *(read_queries(queries) if queries is not None else [])]
    if Fusion.of(collection) is not None:
        if not asked:
            ways = f"give {spelled('query')} TEXT, or search a collection with {spelled('model', str(collection))}"
            raise InputError(f"{collection} is a retriever; {ways}")
        return answered(Retriever.load(cast(str, collection), embedding=embedding), asked, top or ANSWERS)
    loaded, fusion, ranks_by = reading.open(collection), Fusion.of(model), deployed(model)
    if asked:
        retriever = Retriever(loaded, model, lexical=lexical, embedding=embedding)
        return answered(retriever, asked, top or ANSWERS)
    split, top = searching.split, top or DEPTH
    if run is not None:
        check_ids(loaded.all_ids())
    facts: dict[str, Any] = {"collection": loaded.name, "split": split}
    if ranks_by != "model":
        lexical = lexical.over(fusion.bm25 if fusion else {}).resolved(loaded)
        facts["bm25"] = lexical.facts
    if ranks_by == "bm25":
        searched = Searched(bm25_run(loaded, split, depth=top, lexical=lexical), loaded, split, "BM25")
        facts |= {"encoder": None, "top": top}
    else:
        depth = max(top, FUSED_DEPTH) if ranks_by == "both" else top
        method = dimensions or ("rocchio" if searching.tune else "none" if answers is None else "rdime")
        texts = read_answers(answers) if isinstance(answers, (str, Path)) else answers
        searched = _search_vectors(loaded, model, importance.of(method), searching, texts, embedding, depth)
        tune = {"split": searching.tune, "measure": searching.measure} if searching.tune else None
        facts |= {"tune": tune, "top": top, "feedback_depth": searching.feedback_depth, "dimensions": method}
        facts["answers"] = None if texts is None else digest("answers", sorted(texts.items()))
    if fusion is not None:
        facts["fused_with_bm25"] = vars(fusion)
        if ranks_by == "both":
            by_bm25 = bm25_run(loaded, split, depth=depth, lexical=lexical)
            fused = fuse_runs([by_bm25, searched.run], name=f"{searched.run.name}+bm25", **fusion.how)
            searched = replace(searched, run=fused.first(top), ranked_by=f"BM25 + {searched.ranked_by}")
    if run is not None:
        searched.write(run)
    return replace(searched, facts={**facts, **searched.facts, "run": None if run is None else str(run)})


def _search_vectors(
    collection: Collection,
    model: EncoderLike,
    settings: DimensionSettings,
    searching: SearchSettings,
    answers: Mapping[str, str | None] | None,
    embedding: EmbeddingSettings,
    depth: int,
) -> Searched:
    """Search by a model's vectors, with settings that are chosen on another split where one is named."""
    tune, split = searching.tune, searching.split
    if tune is not None:
        judged = collection.judgements(tune, "tune")["query_id"].to_pylist()
        asked = collection.queries["query_id"].take(pa.array(collection.asked(split))).to_pylist()
        if shared := sorted({*judged} & {*asked}):
            both = f"{spelled('tune')} {tune} {spelled('split')} {split}"
            listed = f"share {len(shared):,} queries: {', '.join(shared[:5])}…"
            raise InputError(f"{both} {listed}; tune on others, or see foils.searching.cross_validate")
    encoder, store = embedding.open_encoder(model, collection), embedding.open_store()
    embedded = partial(embed_collection, collection, encoder, store, answers=answers, device=embedding.device)
    depths: dict[str, Any] = {"k": depth, "feedback_depth": searching.feedback_depth}
    if tune is not None:
        judged = judged_queries(embedded(split=tune), **depths, measures=[searching.measure])
        settings = choose_settings(judged, settings.method, searching.measure)
        log.info("chosen on %s: %s", tune, settings)
    vectors = embedded(split=split)
    name = f"{encoder.name}-{settings.method}"
    searched = search_collection(vectors, settings, **depths, name=name)
    return replace(searched, facts={"encoder": description(encoder)})


def read_answers(path: str | Path) -> dict[str, str | None]:
    """Read lines of {"query_id": …, "answer": …}; an answer that is null is none.

    The vectors of answers take the place of the sun (LLM DIME and LLM Eclipse).

    Raises:
        InputError: no such file.
        FormatError: a line of another form, a blank answer, or a second answer to a query; all are listed.

    Source: DIME (Faggioli et al. 2024), LLM DIM estimators; Eclipse eq. 2 and 4.
    """
    complaints = Complaints(path)
    answers: dict[str, str | None] = {}
    for line, record in json_objects(path, complaints):
        query, answer = text_field(record.get("query_id")), text_field(record.get("answer"))
        missing = "answer" in record and record["answer"] is None
        if query is None or not (missing or (answer or "").strip()):
            complaints.add('expected {"query_id": string, "answer": a text that is not empty, or null}', line)
        elif query in answers:
            complaints.add(f"{query!r} has an answer on an earlier line already", line)
        else:
            answers[query] = answer
    complaints.raise_if_any()
    return answers
