"""The lexical side of ECI_sem: how much of a query's tokens, by idf, a negative repeats."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from scipy import sparse

from foils.data.collection import DocumentTexts
from foils.data.tokens import TOKENIZERS, inverse_document_frequency
from foils.encode.vectors import Texts, text_keys
from foils.runtime import progress
from foils.runtime.errors import check_names
from foils.scoring.gates import Float64s
from foils.scoring.triplets import Records

if TYPE_CHECKING:
    from sklearn.feature_extraction.text import CountVectorizer

IDF_CORPORA = ("pooled", "collection", "pooled+queries", "uniform")
_SLICE = 10_000  # texts that are tokenised together
_TRIPLETS = 65_536  # whose tokens are compared together


@dataclass(frozen=True)
class Lexicon:
    """Token sets of the records' queries and of the pooled texts, over the queries' vocabulary.

    Only tokens of queries count in the coverage, so no other is kept.

    Attributes:
        counter: of the vocabulary, the tokens in the order in which they first come.
        queries: (T, vocabulary) sparse, 1 where the query has the token.
        texts: (P, vocabulary) the same of the pooled texts.
    """

    counter: CountVectorizer
    queries: sparse.csr_array
    texts: sparse.csr_array

    @classmethod
    def of(cls, records: Records, *, tokenizer: str = "alphanumeric") -> Lexicon:
        """Tokenise queries and pooled texts.

        Raises:
            UnknownNameError: no such tokenizer.
        """
        check_names("tokenizer", [tokenizer], list(TOKENIZERS))
        from sklearn.feature_extraction.text import CountVectorizer

        tokens, queries = TOKENIZERS[tokenizer], records.collection.query_texts(records.queries)
        words = [*dict.fromkeys(token for query in queries for token in tokens(query))] or [""]  # sklearn wants one
        counter = CountVectorizer(analyzer=tokens, vocabulary=words, binary=True, dtype=np.float64)
        return cls(counter, *(_sets(texts, counter) for texts in (queries, records.texts)))

    def coverage(self, records: Records, idf: Float64s) -> Float64s:
        """Return C = Σ_{a∈T(q)∩T(n)} idf(a) / Σ_{a∈T(q)} idf(a) of each triplet, (m,) in [0, 1] (ECI_sem eq. 7).

        0 where the query has no token. Weights are non-negative, since idf ≥ 1 − ln 2 > 0.
        """
        shared, below = np.empty(len(records.record)), (self.queries @ idf)[records.record]
        for start in range(0, len(shared), _TRIPLETS):
            part = slice(start, start + _TRIPLETS)
            both = self.queries[records.record[part]].multiply(self.texts[records.document[part]])
            shared[part] = both @ idf
        coverage: Float64s = np.divide(shared, below, out=np.zeros(len(shared)), where=below > 0)
        return np.minimum(coverage, 1.0)

    def idf(self, records: Records, corpus: str = "pooled") -> tuple[Float64s, int]:
        """Return idf (vocabulary,) over a scoring corpus, and M, the number of its texts.

        Args:
            records: whose pool.
            corpus: "pooled", the distinct positives and negatives of the sources scored together, the control's left
                out; "collection", all its documents, which does not change with the set of sources;
                "pooled+queries", the pooled texts and the records' queries; "uniform", idf = 1 everywhere.

        Raises:
            UnknownNameError: no such corpus.
        """
        check_names("idf corpus", [corpus], IDF_CORPORA)
        if corpus == "uniform":
            return np.ones(self.queries.shape[1]), 0
        if corpus == "collection":
            parts = [_sets(DocumentTexts(records.collection), self.counter)]
        else:
            parts = [self.texts[records.corpus], *[self.queries] * (corpus == "pooled+queries")]
        count = sum(part.shape[0] for part in parts)
        frequencies = [np.bincount(part.indices, minlength=part.shape[1]) for part in parts]
        return inverse_document_frequency(np.sum(frequencies, axis=0), count), count


def corpus_digest(records: Records, corpus: str = "pooled") -> str:
    """Return a digest of the texts that idf is counted over, whatever their order; empty where it is not counted."""
    if corpus in ("uniform", "collection"):
        return records.collection.digest if corpus == "collection" else ""
    queries = f"+{_digest(records.collection.query_texts(records.queries))}" if corpus == "pooled+queries" else ""
    return _digest(records.texts.select(records.corpus)) + queries


def _digest(texts: Texts) -> str:
    keys = [text_keys(texts[start : start + _SLICE], "") for start in range(0, len(texts), _SLICE)]
    every = np.concatenate(keys) if keys else np.zeros((0, 2), np.uint64)
    return hashlib.blake2b(every[np.lexsort(every.T)].tobytes(), digest_size=16).hexdigest()


def _sets(texts: Texts, counter: CountVectorizer) -> sparse.csr_array:
    def every() -> Iterator[str]:
        with progress.task("tokenising", total=len(texts), unit="texts") as advance:
            for start in range(0, len(texts), _SLICE):
                part = texts[start : start + _SLICE]
                yield from part
                advance(len(part))

    return sparse.csr_array(counter.transform(every()))
