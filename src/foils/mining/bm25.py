"""BM25 negatives, with the index of bm25s."""

from __future__ import annotations

import re
from collections.abc import Iterator

import bm25s
import numpy as np
import Stemmer
from scipy import sparse

from foils.data.collection import Collection, Rows
from foils.data.tokens import alphanumeric_2
from foils.mining.pairs import Scores, TextPairs
from foils.runtime import memory, progress
from foils.runtime.errors import InputError

QUERIES = 256  # scored at once, at most
_ASCII = re.compile(r"\b\w\w+\b", re.ASCII)
ENTRY = 16  # bytes of a score and its document, while the product is made


class BM25Retriever:
    """Ranks documents by BM25 (Lucene's variant), with English stop words left out and Snowball stemming.

    A document that shares no term with the query is not ranked at all. The index is made by bm25s; since its
    variant scores only documents with a term of the query, a block of queries is one sparse matrix product.

    Args:
        collection: documents and queries.
        k1: saturation of the term frequency, at least 0; at 0 a term counts once, however often it is there.
        b: how much a long document is held against its terms, in [0, 1].
        language: of stemmer and stop words, as Snowball names it.

    Raises:
        InputError: k1 or b out of range.
    """

    name = column = "bm25"
    short = "no further document shares a term with the query"

    def __init__(self, collection: Collection, *, k1: float = 1.2, b: float = 0.75, language: str = "english") -> None:
        if not (np.isfinite(k1) and k1 >= 0):
            raise InputError(f"k1 {k1}; expected a finite number of at least 0")
        if not 0 <= b <= 1:
            raise InputError(f"b {b}; expected a number from 0 to 1")
        self._collection = collection
        self._tokenizer = bm25s.tokenization.Tokenizer(
            splitter=words, stopwords=language, stemmer=Stemmer.Stemmer(language), lower=True
        )
        documents = len(collection.documents)
        with progress.task("indexing for BM25", total=documents, unit="documents") as advance:
            ids = [tokens for part in self._document_ids(documents, advance) for tokens in part]
        index = bm25s.BM25(method="lucene", k1=k1, b=b)
        with np.errstate(invalid="ignore"):  # the mean length of documents without a term is 0
            index.index((ids, self._tokenizer.get_vocab_dict()), show_progress=False, create_empty_token=False)
        stored = index.scores
        terms = len(stored["indptr"]) - 1
        self._scores = sparse.csr_array((stored["data"], stored["indices"], stored["indptr"]), shape=(terms, documents))

    def search(self, query_rows: Rows, depth: int) -> tuple[Rows, Scores]:
        """Return (n, depth) document rows and BM25 scores; −1 and NaN after the last document that shares a term."""
        rows = np.full((len(query_rows), depth), -1, np.int64)
        scores = np.full((len(query_rows), depth), np.nan)
        queries = self._at_once()
        for start in range(0, len(query_rows), queries):
            ranked = self._product(query_rows[start : start + queries])
            for at in range(ranked.shape[0]):
                part = slice(ranked.indptr[at], ranked.indptr[at + 1])
                best, values = _best(ranked.indices[part], ranked.data[part], depth)
                rows[start + at, : len(best)], scores[start + at, : len(best)] = best, values
        return rows, scores

    def score(self, pairs: TextPairs) -> Scores:
        """Return the BM25 score of each pair, (n,), 0 where no term is shared.

        Raises:
            InputError: a document that is not in the collection.
        """
        if (pairs.doc_rows < 0).any():
            raise InputError("documents with a text of their own are not in the BM25 index; use another scorer")
        rows, index = np.unique(pairs.query_rows, return_inverse=True)
        scores = np.zeros(len(pairs))
        queries = self._at_once()
        for start in range(0, len(rows), queries):
            ranked = self._product(rows[start : start + queries])
            here = np.flatnonzero((index >= start) & (index < start + queries))
            scores[here] = ranked[index[here] - start, pairs.doc_rows[here]]
        return scores

    def _at_once(self) -> int:
        """How many queries to score at once: a common term may rank every document for each of them."""
        return memory.rows_at_once(ENTRY * self._scores.shape[1], most=QUERIES)

    def _document_ids(self, documents: int, advance: progress.Advance) -> Iterator[list[list[int]]]:
        for start in range(0, documents, 10_000):
            texts = self._collection.document_texts(np.arange(start, min(documents, start + 10_000)))
            yield self._ids(texts, grow=True)
            advance(len(texts))

    def _ids(self, texts: list[str], *, grow: bool) -> list[list[int]]:
        """Term numbers of each text, none where it has none: two texts of stop words share no term."""
        numbers: list[list[int]] = self._tokenizer.tokenize(
            texts, update_vocab=grow, show_progress=False, return_as="ids", allow_empty=False
        )
        return numbers

    def _product(self, query_rows: Rows) -> sparse.csr_array:
        """Scores of all documents that share a term with the queries, sparse (n, documents)."""
        texts = self._collection.query_texts(query_rows)
        lists = self._ids(texts, grow=False)
        terms = self._scores.shape[0]
        known = [[term for term in listed if 0 <= term < terms] for listed in lists]
        offsets = np.cumsum([0, *map(len, known)])
        flat = np.fromiter((term for listed in known for term in listed), np.int64, int(offsets[-1]))
        counts = sparse.csr_array((np.ones(len(flat), np.float32), flat, offsets), shape=(len(texts), terms))
        return counts @ self._scores


def words(text: str) -> list[str]:
    """Return the words of a text, of two characters and more: bm25s' own, where they are ASCII, and else with marks.

    bm25s cuts words at combining marks, and so finds nothing in scripts that write vowels with them.
    """
    return _ASCII.findall(text) if text.isascii() else alphanumeric_2(text)


def _best(rows: Rows, scores: Scores, depth: int) -> tuple[Rows, Scores]:
    """The `depth` best of one query, ties by document position."""
    positive = scores > 0
    rows, scores = rows[positive], scores[positive]
    if len(rows) > depth:
        least = np.partition(scores, len(scores) - depth)[len(scores) - depth]
        rows, scores = rows[scores >= least], scores[scores >= least]
    order = np.lexsort((rows, -scores))[:depth]
    return rows[order], scores[order]
