"""What ranks documents: BM25, an encoder, chance, and a cross-encoder."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from importlib.metadata import version
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from scipy import sparse

from foils.data.collection import Collection, DocumentTexts, Rows
from foils.data.run import grouped
from foils.data.tokens import AUTO, BM25Settings, bm25_tokenizer, load_bm25s
from foils.encode.encoder import Encoder
from foils.encode.nearest import gpu, top_inner_products
from foils.encode.vectors import Vectors, VectorStore, paired_products
from foils.mining.rules import WHOLE, Retriever, Scores, TextPairs
from foils.mining.scorers import CrossEncoderScorer
from foils.runtime import memory, progress
from foils.runtime.errors import InputError
from foils.runtime.files import META, cache_place, kept_folder
from foils.runtime.parallel import map_blocks, workers

AT_ONCE = LEAST_KEPT = 10_000  # documents whose terms BM25 counts; those from which its index is kept
PARTS = ("data", "indices", "indptr")  # of an index: scores, their documents, and where each term's begin
QUERIES = 128  # that a thread ranks by BM25 at once, at most
ENTRY = 16  # bytes of a BM25 score and its document, while the product is made
FEW = 50_000  # documents of a query's terms: up to here the product is faster than sparing documents
ROUNDING = 2.0**-20  # a term: more than float32 sums of the same scores, in any order, differ by
SAMPLE = 64  # times the depth: documents among which a threshold is looked for first
LOOKUP = 32  # times as long as adding a term's score to its next document takes finding one document's

Floats = npt.NDArray[np.floating]

# of the terms of a text, none where it has none: two texts of stop words share no term
AS_NUMBERS: dict[str, Any] = {"show_progress": False, "return_as": "ids", "allow_empty": False}
_DRAWS = 256  # random documents at once; fixed, so that a deeper search begins with the same ones


class BM25Retriever:
    """Ranks documents by BM25 (Lucene's variant) of the terms of `bm25_tokenizer`.

    A document that shares no term with the query is not ranked at all. The index is made by bm25s.
    Of frequent terms, only the documents are scored that may still be among the best; the ranking
    is that of a search through all.

    The index of a stored collection of 10,000 documents and more is kept in the cache, and mapped.

    Args:
        collection: documents and queries.
        language: of stemmer and stop words, one of `foils.data.tokens.LANGUAGES`.
        k1: saturation of the term frequency, at least 0; None: 1.2.
        b: how much a long document is held against its terms, in [0, 1]; None: 0.75.

    Raises:
        InputError: k1 or b out of range.
        UnknownNameError: no such language.
    """

    name = column = "bm25"
    short = "no further document shares a term with the query"

    def __init__(
        self, collection: Collection, *, language: str = AUTO, k1: float | None = None, b: float | None = None
    ) -> None:
        self._collection = collection
        self.settings = BM25Settings(language=language, k1=k1, b=b).resolved(collection)
        self._tokenizer = bm25_tokenizer(self.settings.language)
        self.portable = False
        if collection.folder is not None and len(collection.documents) >= LEAST_KEPT:
            versions = map(version, ("foils", "bm25s", "PyStemmer"))  # that make and score terms
            key = repr((collection.digest, *versions, *self.settings.facts.values()))
            place = cache_place("bm25", hashlib.blake2b(key.encode(), digest_size=16).hexdigest())
            read = partial(self._read, place)
            scores, rows, offsets = kept_folder(place, "index of BM25", read, self._indexed, self._write)
            self.portable = (place / META).is_file()  # other processes open it by its place
        else:
            scores, rows, offsets = self._indexed()
        # Short numbers spare a copy.
        offsets = offsets.astype(rows.dtype if len(rows) < np.iinfo(rows.dtype).max else np.int64)
        self._scores = sparse.csr_array((scores, rows, offsets), shape=(len(offsets) - 1, len(collection.documents)))
        # Of each term's documents.
        self._sizes, self._largest = np.diff(offsets), np.maximum.reduceat(scores, offsets[:-1])

    def __reduce__(self) -> tuple[Any, ...]:
        """Send it by the collection, whose index the other process opens."""
        return partial(BM25Retriever, **vars(self.settings)), (self._collection,)

    def over_queries(self, queries: pa.Table) -> BM25Retriever:
        """Return a retriever with the same index for other queries, given as a collection's table of them."""
        other = object.__new__(type(self))  # copy.copy goes by __reduce__, which makes the index anew
        vars(other).update(vars(self) | {"_collection": replace(self._collection, queries=queries, qrels={})})
        return other

    def _indexed(self) -> tuple[npt.NDArray[Any], ...]:
        """Values, documents and offsets of the terms."""
        collection, documents = self._collection, len(self._collection.documents)
        with progress.task("indexing for BM25", total=documents, unit="documents") as advance:
            ids = []
            for start in range(0, documents, AT_ONCE):
                texts = collection.document_texts(np.arange(start, min(start + AT_ONCE, documents)))
                ids += self._tokenizer.tokenize(texts, update_vocab=True, **AS_NUMBERS)
                advance(len(texts))
        bm25 = load_bm25s().BM25(method="lucene", k1=self.settings.k1, b=self.settings.b)
        with np.errstate(invalid="ignore"):  # the mean length of documents without a term is 0
            bm25.index((ids, self._tokenizer.get_vocab_dict()), show_progress=False, create_empty_token=False)
        return tuple(bm25.scores[name] for name in PARTS)

    def _read(self, place: Path) -> tuple[npt.NDArray[Any], ...]:
        self._tokenizer.load_vocab(str(place))
        return tuple(np.load(place / f"{name}.npy", mmap_mode="r") for name in PARTS)

    def _write(self, place: Path, parts: tuple[npt.NDArray[Any], ...]) -> None:
        for name, part in zip(PARTS, parts, strict=True):
            np.save(place / f"{name}.npy", part)
        self._tokenizer.save_vocab(str(place))

    def search(self, query_rows: Rows, depth: int) -> tuple[Rows, Scores]:
        """Return (n, depth) document rows and BM25 scores; −1 and NaN after the last with a shared term."""
        rows = np.full((len(query_rows), depth), -1, np.int64)
        scores = np.full((len(query_rows), depth), np.nan)

        def rank(block: tuple[int, list[list[int]], sparse.csr_array]) -> None:
            start, terms, counts = block
            many, sums = counts @ self._sizes > FEW, np.zeros(self._scores.shape[1], np.float32)
            ranked = counts[~many] @ self._scores
            ends = iter(zip(ranked.indptr, ranked.indptr[1:], strict=False))
            for at, pruned in enumerate(many):
                if pruned:
                    candidates = self._candidates(terms[at], depth, sums)
                    best, values = _best(candidates, self._scored(terms[at], candidates), depth)
                else:
                    part = slice(*next(ends))
                    best, values = _best(ranked.indices[part], ranked.data[part], depth)
                rows[start + at, : len(best)], scores[start + at, : len(best)] = best, values

        for _ in map_blocks(rank, self._counted(query_rows)):
            pass
        return rows, scores

    def score(self, pairs: TextPairs) -> Scores:
        """Return the BM25 score of each pair, (n,), 0 where no term is shared.

        Raises:
            InputError: a document that is not in the collection.
        """
        if (pairs.doc_rows < 0).any():
            raise InputError("documents with their own text are not in the BM25 index; use another scorer")
        rows, groups, scores = np.unique(pairs.query_rows), grouped(pairs.query_rows), np.zeros(len(pairs))
        for start, terms, _ in self._counted(rows):
            for listed, pairs_of_query in zip(terms, groups[start:], strict=False):
                scores[pairs_of_query] = self._scored(listed, pairs.doc_rows[pairs_of_query])
        return scores

    def _candidates(self, terms: list[int], depth: int, sums: npt.NDArray[np.float32]) -> Rows:
        """Return documents that may be among a query's `depth` best; `sums`, of all documents, is 0 again.

        Terms are taken from the rarest on. `floor` is below a score that `depth` documents reach.
        Where the terms that are left cannot add up to it, no new document matters, and none of the
        old ones that they cannot lift to it.

        Source: Turtle and Flood, "Query evaluation: strategies and optimizations" (1995), MaxScore.
        """
        counts, best, floor = Counter(terms), np.zeros(0, self._scores.indices.dtype), 0.0
        left = sum(count * float(self._largest[term]) for term, count in counts.items())
        lists = sorted(((*self._list(term), term) for term in counts), key=lambda each: len(each[0]))
        added = 0
        for documents, scores, term in lists:
            if left < floor and LOOKUP * len(best) < len(documents):
                break
            added += 1
            before = sums[documents]
            if left >= floor:
                best = np.concatenate([best, documents[before == 0]])
            sums[documents] = before + scores * counts[term]
            left -= counts[term] * float(self._largest[term])
            values = sums[best]
            if len(best) > depth:
                # A threshold of some leaves few of all.
                few = values[:: max(1, len(best) // (SAMPLE * depth))]
                few = values[values >= np.partition(few, -depth)[-depth]]
                floor = max(floor, float(np.partition(few, -depth)[-depth]) * (1 - ROUNDING * len(terms)))
                best = best[values >= floor - left]
        for documents, *_ in lists[:added]:
            sums[documents] = 0
        return np.sort(best)  # in order, they are found faster

    def _scored(self, terms: list[int], documents: Rows) -> npt.NDArray[np.float32]:
        """Return the score of each document, summed in the order of the terms, 0 without any of them."""
        scores, sought = np.zeros(len(documents), np.float32), documents.astype(self._scores.indices.dtype, copy=False)
        for listed, values in map(self._list, terms):
            at = np.minimum(np.searchsorted(listed, sought), len(listed) - 1)
            scores += np.where(listed[at] == sought, values[at], np.float32(0))
        return scores

    def _list(self, term: int) -> tuple[Rows, npt.NDArray[np.float32]]:
        """Return the documents that have a term, ascending, and its score in each."""
        part = slice(self._scores.indptr[term], self._scores.indptr[term + 1])
        return self._scores.indices[part], self._scores.data[part]

    def _counted(self, query_rows: Rows) -> Iterator[tuple[int, list[list[int]], sparse.csr_array]]:
        """Yield where a block of queries begins, and each query's terms that documents have, with counts."""
        terms, documents = self._scores.shape
        size = memory.rows_at_once(ENTRY * min(FEW, documents) * workers(), most=QUERIES)
        for start in range(0, len(query_rows), size):
            texts = self._collection.query_texts(query_rows[start : start + size])
            lists = self._tokenizer.tokenize(texts, update_vocab=False, **AS_NUMBERS)
            known = [[term for term in listed if 0 <= term < terms] for listed in lists]
            bounds, ids = np.cumsum([0, *map(len, known)]), np.array([*chain.from_iterable(known)], np.int64)
            counts = sparse.csr_array((np.ones(len(ids), np.float32), ids, bounds), shape=(len(lists), terms))
            yield start, known, counts


def _best(rows: Rows, scores: Floats, depth: int) -> tuple[Rows, Floats]:
    """The `depth` best of one query, ties by document position."""
    positive = scores > 0
    rows, scores = rows[positive], scores[positive]
    if len(rows) > depth:
        least = np.partition(scores, len(scores) - depth)[len(scores) - depth]
        rows, scores = rows[scores >= least], scores[scores >= least]
    order = np.lexsort((rows, -scores))[:depth]
    return rows[order], scores[order]


class RandomRetriever:
    """Ranks documents uniformly at random, without repetition, each query by its own seeded generator.

    Args:
        collection: whose documents.
        seed: of all generators, at least 0; a query's draw depends on it and on the query's row alone.
    """

    name = "random"
    portable = True
    short = WHOLE

    def __init__(self, collection: Collection, *, seed: int = 0) -> None:
        self._documents, self._seed = len(collection.documents), seed

    def search(self, query_rows: Rows, depth: int) -> tuple[Rows, Scores]:
        """Return (n, depth) distinct document rows and NaN for their scores."""
        rows = np.array([self._draw(int(query), depth) for query in query_rows], np.int64).reshape(-1, depth)
        return rows, np.full(rows.shape, np.nan)

    def _draw(self, query: int, depth: int) -> Rows:
        rng = np.random.default_rng([self._seed, query])
        drawn: dict[int, None] = {}
        while len(drawn) < min(depth, self._documents):
            drawn.update(dict.fromkeys(rng.integers(self._documents, size=_DRAWS).tolist()))
        rows = np.full(depth, -1, np.int64)
        rows[: self._documents] = list(drawn)[:depth]
        return rows


class DenseRetriever:
    """Ranks documents by their vectors' inner product with the query's (ECI_sem eq. 1–2: cosine, if unit).

    Exact, ties by document position. Documents are read block by block from where the vectors lie,
    so the corpus may be larger than memory.

    Args:
        queries: vectors of all queries of the collection, or of those that will be asked for, by query row.
        documents: vectors of all documents, by row.
        device: torch device that searches where it is a GPU of CUDA that this process has; else the
            processor does. The ranking is the same, bit for bit.
        name: of the source.
    """

    column = "dense"
    portable = True
    short = WHOLE

    def __init__(self, queries: Vectors, documents: Vectors, *, device: str | None = None, name: str = "dense") -> None:
        self.queries, self.documents, self.name = queries, documents, name
        self._device = device

    @classmethod
    def of_model(
        cls,
        collection: Collection,
        encoder: Encoder,
        store: VectorStore,
        *,
        query_rows: Rows | None = None,
        device: str | None = None,
        name: str = "dense",
    ) -> DenseRetriever:
        """Embed a collection's documents, and its queries or those of `query_rows`, and rank by the vectors.

        They are searched on the encoder's device, unless `device` names another.

        With the checkpoint of a model in training it ranks as ANCE does, by exact search in the
        place of an approximate one: other weights have another fingerprint, so no vector of an
        older checkpoint is used.

        Source: Xiong et al., ANCE (ICLR 2021); HOBIT, baselines.
        """
        rows = np.arange(len(collection.queries)) if query_rows is None else query_rows
        queries = store.embed(encoder, collection.query_texts(rows), "query").spread(rows, len(collection.queries))
        documents = store.embed(encoder, DocumentTexts(collection), "document")
        return cls(queries, documents, device=device or getattr(encoder, "device", None), name=name)

    def search(self, query_rows: Rows, depth: int) -> tuple[Rows, Scores]:
        """Return (n, depth) document rows and inner products; −1 and NaN after the last document."""
        return top_inner_products(self.queries.take(query_rows), self.documents, depth, device=gpu(self._device))

    def score(self, pairs: TextPairs) -> Scores:
        """Return the inner product of each pair, (n,).

        Raises:
            InputError: a document that is not in the collection; `EncoderScorer` scores those too.
        """
        if (pairs.doc_rows < 0).any():
            raise InputError("documents with their own text have no vector here; score them with an encoder")
        return paired_products(self.queries, pairs.query_rows, self.documents, pairs.doc_rows)


class CrossEncoderRetriever:
    """Ranks a pool's best documents anew by a cross-encoder's logit, ties by document position.

    Documents that are labelled relevant for the query are left out before they cost a score.

    Args:
        collection: documents, queries, judgements.
        scorer: the cross-encoder.
        pool: ranks the candidates.
        depth: how many of the pool's documents are scored for each query, at least 1.
    """

    name = "cross-encoder"

    def __init__(
        self, collection: Collection, scorer: CrossEncoderScorer, pool: Retriever, *, depth: int = 100
    ) -> None:
        self._collection, self._scorer, self._pool, self._depth = collection, scorer, pool, depth
        self.column = scorer.column
        self.short = f"the pool ({pool.name}, {depth} deep) has no further document"

    def with_judgements(self, collection: Collection) -> CrossEncoderRetriever:
        """Return it for other judgements, which leave out other documents."""
        return CrossEncoderRetriever(collection, self._scorer, self._pool, depth=self._depth)

    def search(self, query_rows: Rows, depth: int) -> tuple[Rows, Scores]:
        """Return (n, depth) document rows and scores; −1 and NaN after the pool's end."""
        rows, _ = self._pool.search(query_rows, min(self._depth, len(self._collection.documents)))
        queries = np.broadcast_to(np.asarray(query_rows)[:, None], rows.shape)
        labelled = self._collection.known_positives.contain(queries.ravel(), rows.ravel()).reshape(rows.shape)
        kept = (rows >= 0) & ~labelled
        scores = np.full(rows.shape, np.nan)
        scores[kept] = self.score(TextPairs(self._collection, queries[kept], rows[kept], scores[kept]))
        order = np.lexsort((rows, np.where(kept, -scores, np.inf)), axis=1)[:, :depth]
        ranked = np.take_along_axis(np.where(kept, rows, -1), order, axis=1)
        end = ((0, 0), (0, depth - order.shape[1]))
        values = np.take_along_axis(scores, order, axis=1)
        return np.pad(ranked, end, constant_values=-1), np.pad(values, end, constant_values=np.nan)

    def score(self, pairs: TextPairs) -> Scores:
        """Return the score of each pair, (n,)."""
        return self._scorer.score(pairs)
