"""The door of searching, and the retriever behind it that answers new queries, ready to be asked again and again."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any, NamedTuple, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from foils.data.collection import Collection, DocumentTexts
from foils.data.read import CollectionLike, CollectionSettings, load_collection
from foils.data.records import Complaints, json_objects, numbered_lines, text_field
from foils.data.run import FUSED_DEPTH, TUNED_FILE, Fusion, check_ids, deployed, fuse_runs
from foils.data.tables import update_digest
from foils.data.tokens import BM25Settings
from foils.encode import DEFAULT_MODEL, VectorStore
from foils.encode.nearest import ExactIndex, search_lists
from foils.encode.vectors import EmbeddingSettings, EncoderLike, description
from foils.llm import digest
from foils.mining.retrievers import BM25Retriever
from foils.pages import shortened
from foils.runtime.errors import InputError, require
from foils.runtime.files import TREC
from foils.runtime.options import Option, Settings, door, spelled
from foils.runtime.parallel import ScaleSettings
from foils.runtime.results import Result, Table, number
from foils.searching.choosing import dime_grid, evaluate_grid, judged_queries, oracle, published_grid
from foils.searching.dimensions import FEEDBACK_DEPTH, METHODS, DimensionSettings, ImportanceSettings, Method
from foils.searching.runs import Searched, bm25_run, embed_collection, search_collection

AnswersLike = str | Path | Mapping[str, str | None]
log = logging.getLogger(__name__)

SHOWN = 60  # characters of a document in a table
VECTORS = "vectors"  # folder of the documents' vectors, beside retriever.json


class Hit(NamedTuple):
    """A document that was found.

    Attributes:
        doc_id: its id in the collection.
        score: higher is better: BM25's, the model's similarity, or the fused one.
        text: its title and text.
    """

    doc_id: str
    score: float
    text: str


class Retriever:
    """Answers queries over the documents of a collection by BM25, a model, or both together.

    Indexes are made once, when it is made; vectors of documents are kept in a store, so that it
    opens quickly again.

    Args:
        collection: its documents are searched.
        model: as `foils.search` takes it: a folder of `foils tune`, a model, or `bm25`.
        lexical: how BM25 reads texts; what a folder of `foils tune` says goes before it.
        embedding: how the model is loaded.
        store: keeps the documents' vectors; None: that of `embedding`, the cache.

    Raises:
        InputError: the model cannot be loaded.
    """

    def __init__(
        self,
        collection: Collection,
        model: EncoderLike,
        *,
        lexical: BM25Settings | None = None,
        embedding: EmbeddingSettings | None = None,
        store: VectorStore | None = None,
    ) -> None:
        self.collection, self.ranked_by = collection, deployed(model)
        self.fusion = Fusion.of(model) or Fusion("z", 0.5, self.ranked_by)
        self._bm25: BM25Retriever | None = None
        self._index: ExactIndex | None = None
        if self.ranked_by != "model":
            read_as = (lexical or BM25Settings()).over(self.fusion.bm25)
            self._bm25 = BM25Retriever(collection, **vars(read_as.resolved(collection)))
        if self.ranked_by != "bm25":
            embedding = embedding or EmbeddingSettings()
            self._encoder = embedding.open_encoder(model, collection)
            kept = store or embedding.open_store()
            vectors = kept.embed(self._encoder, DocumentTexts(collection), "document")
            self._index = ExactIndex(vectors, device=embedding.device or getattr(self._encoder, "device", None))

    @classmethod
    def load(
        cls,
        folder: str | Path,
        collection: CollectionLike | None = None,
        *,
        embedding: EmbeddingSettings | None = None,
    ) -> Retriever:
        """Open a folder of `foils tune`, or a model that `foils train` wrote, with the collection to search.

        Args:
            folder: with retriever.json, and the model unless BM25 or the base alone is deployed; or
                of a model.
            collection: documents to search in the place of those that it was tuned on: added to, or
                other ones. A model without retriever.json needs it.
            embedding: how the model is loaded.

        Raises:
            InputError: the folder is none that `foils tune` wrote, it names no collection, or that
                one has changed.
        """
        fusion = Fusion.of(folder)
        if collection is not None:
            loaded = load_collection(collection)
        else:
            known = fusion.collection if fusion else {}
            if "source" not in known:
                raise InputError(f"{folder} names no collection in its {TUNED_FILE}; give the one to search")
            source, corpus = (_place(folder, known.get(name)) for name in ("source", "corpus"))
            loaded = load_collection(str(source), columns=known.get("columns"), corpus=corpus)
            if known["documents"] != documents_digest(loaded):
                raise InputError(f"{source} has changed since {folder} was tuned; give it to search it now")
        return cls(loaded, str(folder), embedding=embedding, store=VectorStore(Path(folder) / VECTORS))

    def search(self, queries: str | Sequence[str], k: int = 10) -> list[list[Hit]]:
        """Return each query's k best documents, best first; fewer where no more share a term with it (BM25).

        Args:
            queries: texts; one text is one query.
            k: at least 1.

        Raises:
            InputError: a query without text, or k below 1.
        """
        asked = [queries] if isinstance(queries, str) else list(queries)
        if empty := [number for number, query in enumerate(asked) if not str(query).strip()]:
            raise InputError(f"queries without text: {', '.join(map(str, empty))} (counted from 0)")
        Option(least=1).check("k", k)
        depth = min(max(k, FUSED_DEPTH) if self.ranked_by == "both" else k, len(self.collection.documents))
        lexical = dense = [dict[int, float]() for _ in asked]  # what is not deployed finds nothing
        if self._bm25 is not None:
            ids = [str(number) for number in range(len(asked))]
            table = pa.table({"query_id": ids, "text": asked}, schema=self.collection.queries.schema)
            lexical = _scored(self._bm25.over_queries(table), np.arange(len(asked)), depth)
        if self._index is not None:
            dense = _scored(self._index, self._encoder.encode(asked, "query"), depth)
        fused = [self.fusion.fuse(*lists)[:k] for lists in zip(lexical, dense, strict=True)]
        rows = np.array([row for hits in fused for row, _ in hits], np.int64)
        ids = self.collection.documents["doc_id"].take(pa.array(rows)).to_pylist()
        documents = zip(rows.tolist(), ids, self.collection.document_texts(rows), strict=True)
        shown = {row: (doc_id, text) for row, doc_id, text in documents}
        return [[Hit(shown[row][0], score, shown[row][1]) for row, score in hits] for hits in fused]


def _scored(index: Any, queries: npt.NDArray[Any], depth: int) -> list[dict[int, float]]:
    """Each query's documents with their scores, best first."""
    lists = zip(*search_lists(index, queries, depth), strict=True)
    return [dict(zip(rows.tolist(), scores.tolist(), strict=True)) for rows, scores in lists]


@dataclass(frozen=True)
class Answered(Result):
    """What was found for new queries.

    Attributes:
        queries: their texts.
        hits: the documents of each, best first.
        collection: name of what was searched.
        ranked_by: what ranked: bm25, model or both.
    """

    queries: tuple[str, ...]
    hits: tuple[tuple[Hit, ...], ...] = field(repr=False)
    collection: str
    ranked_by: str

    def tables(self) -> list[Table]:
        """Return a table for each query."""
        tables = []
        for query, hits in zip(self.queries, self.hits, strict=True):
            rows = [
                (str(at), hit.doc_id, number(hit.score, 4), shortened(hit.text, SHOWN))
                for at, hit in enumerate(hits, 1)
            ]
            tables.append(Table(query, ["rank", "document", "score", "text"], rows, words=frozenset({1, 3})))
        return tables

    def records(self) -> list[dict[str, Any]]:
        """Return a record for each query, with its hits."""
        both = zip(self.queries, self.hits, strict=True)
        return [{"query": query, "hits": [hit._asdict() for hit in hits]} for query, hits in both]

    def to_pandas(self) -> Any:
        """Return a row for each hit of each query as a pandas DataFrame."""
        return require("pandas", "hub").json_normalize(self.records(), "hits", "query")

    def to_json(self) -> dict[str, Any]:
        """Return the collection, what ranked, and the hits of each query."""
        return {"collection": self.collection, "ranked_by": self.ranked_by, "queries": self.records()}

    def json_text(self) -> str:
        """Return a line of JSON for each query."""
        return "".join(f"{json.dumps(record, ensure_ascii=False)}\n" for record in self.records())


def read_queries(path: str | Path) -> list[str]:
    """Return the queries of a file, one a line, or of standard input (`-`); blank lines do not count.

    Raises:
        InputError: no such file, or no query in it.
    """
    if str(path) == "-":
        queries = [line.strip() for line in sys.stdin if line.strip()]
    else:
        complaints = Complaints(path)
        queries = [line.strip() for _, line in numbered_lines(path, complaints)]
        complaints.raise_if_any()
    if not queries:
        raise InputError(f"{path}: no query in it; expected one on each line")
    return queries


def _place(folder: str | Path, named: str | None) -> str | None:
    """A file that retriever.json names, or a name that is none of a file."""
    return str(Path(folder) / named) if named and (Path(folder) / named).exists() else named


def documents_digest(collection: Collection) -> str:
    """Return a digest of the documents of a collection, whatever its queries and judgements are."""
    hasher = hashlib.blake2b(digest_size=16)
    update_digest(collection.documents, hasher)
    return hasher.hexdigest()


def named_collection(collection: Collection, named_by: Mapping[str, Any], folder: str | Path) -> dict[str, Any]:
    """Return how retriever.json names the documents that were tuned on; nothing where they came from memory.

    Args:
        collection: the one that was read.
        folder: that retriever.json lies in; files are named from there, so that both may move together.
        named_by: its `collection`, a path or a name, and the `columns` and `corpus` by which it was
            read, where given.
    """
    source = str(named_by["collection"])
    if not (Path(source).exists() or ":" in source or source == "pydocs"):
        return {}
    named = {"source": source, **{name: named_by[name] for name in ("columns", "corpus") if named_by.get(name)}}
    for name in ("source", "corpus"):
        if name in named and Path(named[name]).exists():
            named[name] = os.path.relpath(Path(named[name]).resolve(), Path(folder).resolve())
    return {**named, "documents": documents_digest(collection)}


DEPTH, ANSWERS = 1_000, 10  # documents of each query of a split, and of each one that is given
EMBEDS = {"model": lambda model: deployed(model) != "bm25"}
RANKS_BY_BM25 = {"model": lambda model: deployed(model) != "model"}
OF_SPLITS: dict[str, Any] = {"query": False, "queries": False}  # what is given is searched for as it is
OF_ANSWERS = {**OF_SPLITS, "dimensions": lambda method: method != "none"}
SHARPENED: list[dict[str, Any]] = [
    {"dimensions": METHODS[1:], "answers": False},
    {"dimensions": ["eclipse"]},
]
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
        tune: Choose the settings on this split, by the published grid (dime, eclipse).
        measure: Measure by which settings are chosen: nDCG, AP, RR or R as ir_measures writes them,
            as nDCG@10.
    """

    split: str = "test"
    feedback_depth: Annotated[int, Option(least=1, needs=SHARPENED)] = FEEDBACK_DEPTH
    tune: Annotated[str | None, Option(metavar="SPLIT", needs={"dimensions": ["dime", "eclipse"]})] = None
    measure: Annotated[str, Option(needs={"tune": True})] = "nDCG@10"


@door(needs={**dict.fromkeys(_OF_VECTORS, EMBEDS), "lexical": RANKS_BY_BM25, "searching": OF_SPLITS})
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
            Default: none; rdime with answers.
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
    is_retriever = Fusion.of(collection) is not None
    if asked:
        if is_retriever:
            retriever = Retriever.load(cast(str, collection), embedding=embedding)
        else:
            retriever = Retriever(reading.open(collection), model, lexical=lexical, embedding=embedding)
        hits = tuple(map(tuple, retriever.search(asked, top or ANSWERS)))
        return Answered(tuple(asked), hits, retriever.collection.name, retriever.ranked_by)
    if is_retriever:
        ways = f"give {spelled('query')} TEXT, or search a collection with {spelled('model', str(collection))}"
        raise InputError(f"{collection} is a retriever; {ways}")
    loaded, fusion, ranks_by = reading.open(collection), Fusion.of(model), deployed(model)
    split, top = searching.split, top or DEPTH
    if run is not None:
        check_ids(loaded.queries["query_id"], loaded.documents["doc_id"])
    facts: dict[str, Any] = {"collection": loaded.name, "split": split}
    if ranks_by != "model":
        lexical = lexical.over(fusion.bm25 if fusion else {}).resolved(loaded)
        facts["bm25"] = lexical.facts
    if ranks_by == "bm25":
        searched = Searched(bm25_run(loaded, split, depth=top, lexical=lexical), loaded, split, "BM25")
        facts |= {"encoder": None, "top": top}
    else:
        depth = max(top, FUSED_DEPTH) if ranks_by == "both" else top
        method = dimensions or ("none" if answers is None else "rdime")
        texts = read_answers(answers) if isinstance(answers, (str, Path)) else answers
        settings, tune = DimensionSettings(method, **vars(importance)), searching.tune
        if tune is not None:
            _check_apart(loaded, tune, split)
        encoder, store = embedding.open_encoder(model, loaded), embedding.open_store()
        embedded = partial(embed_collection, loaded, encoder, store, answers=texts, device=embedding.device)
        depths: dict[str, Any] = {"k": depth, "feedback_depth": searching.feedback_depth}
        if tune is not None:
            judged = judged_queries(embedded(split=tune), **depths, measures=[searching.measure])
            grid = dime_grid() if method == "dime" else published_grid()
            settings = oracle(evaluate_grid(judged, grid), searching.measure).settings[0]
            log.info("chosen on %s: %s", tune, settings)
        searched = search_collection(embedded(split=split), settings, **depths, name=f"{encoder.name}-{method}")
        searched = replace(searched, facts={"encoder": description(encoder)})
        facts["tune"] = None if tune is None else {"split": tune, "measure": searching.measure}
        facts |= {"top": top, "feedback_depth": searching.feedback_depth, "dimensions": method}
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


def _check_apart(collection: Collection, tune: str, split: str) -> None:
    """Refuse to choose settings on queries of the split that is searched for."""
    judged = collection.judgements(tune, "tune")["query_id"].to_pylist()
    asked = collection.queries["query_id"].take(pa.array(collection.asked(split))).to_pylist()
    if shared := sorted({*judged} & {*asked}):
        both = f"{spelled('tune')} {tune} {spelled('split')} {split}"
        listed = f"share {len(shared):,} queries: {', '.join(shared[:5])}…"
        raise InputError(f"{both} {listed}; tune on others, or see foils.searching.cross_validate")


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
