"""A retriever that answers new queries: what `foils tune` advises, over a collection, kept ready between."""

from __future__ import annotations

import hashlib
import json
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from foils.data.collection import Collection, DocumentTexts, Rows
from foils.data.read import CollectionLike, load_collection
from foils.data.records import Complaints, numbered_lines
from foils.data.run import FUSED_DEPTH, TUNED_FILE, Fusion, deployed
from foils.data.tables import update_digest
from foils.data.tokens import BM25Settings
from foils.encode import EmbeddingSettings, VectorStore
from foils.encode.nearest import ExactIndex
from foils.encode.opening import EncoderLike
from foils.mining.retrievers import BM25Retriever
from foils.pages import shortened
from foils.runtime.errors import InputError, require
from foils.runtime.options import Option
from foils.runtime.results import Result, Table, counted, number

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
        depth = max(k, FUSED_DEPTH) if self.ranked_by == "both" else k
        lexical, dense = self._lexical(asked, depth), self._dense(asked, depth)
        fused = [self.fusion.fuse(*lists)[:k] for lists in zip(lexical, dense, strict=True)]
        rows = np.array([row for hits in fused for row, _ in hits], np.int64)
        ids = self.collection.documents["doc_id"].take(pa.array(rows)).to_pylist()
        documents = zip(rows.tolist(), ids, self.collection.document_texts(rows), strict=True)
        shown = {row: (doc_id, text) for row, doc_id, text in documents}
        return [[Hit(shown[row][0], score, shown[row][1]) for row, score in hits] for hits in fused]

    def _lexical(self, queries: list[str], depth: int) -> list[dict[int, float]]:
        """BM25's documents and scores of each query; none where BM25 is not deployed."""
        if self._bm25 is None:
            return [{} for _ in queries]
        ids = [str(number) for number in range(len(queries))]
        table = pa.table({"query_id": ids, "text": queries}, schema=self.collection.queries.schema)
        asking = self._bm25.over_queries(table)
        return _lists(*asking.search(np.arange(len(queries)), min(depth, len(self.collection.documents))))

    def _dense(self, queries: list[str], depth: int) -> list[dict[int, float]]:
        """The model's documents and similarities of each query; none where no model is deployed."""
        if self._index is None:
            return [{} for _ in queries]
        vectors = self._encoder.encode(queries, "query")
        return _lists(*self._index.search(vectors, min(depth, len(self.collection.documents))))


def _lists(rows: Rows, scores: npt.NDArray[np.floating]) -> list[dict[int, float]]:
    """Each query's documents with their scores, best first; −1 stands for none."""
    lists = []
    for listed, values in zip(rows.tolist(), scores.tolist(), strict=True):
        lists.append({row: value for row, value in zip(listed, values, strict=True) if row >= 0})
    return lists


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

    @property
    def brief(self) -> str:
        """How many queries, and by what they were answered, for `repr`."""
        return f"{counted(len(self.queries), 'queries')} over {self.collection} by {self.ranked_by}"

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


def answered(retriever: Retriever, queries: Sequence[str], k: int) -> Answered:
    """Search for new queries, and return what is found as a result of `foils.search`."""
    hits = tuple(tuple(listed) for listed in retriever.search(queries, k))
    return Answered(tuple(queries), hits, retriever.collection.name, retriever.ranked_by)


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
