"""From a collection and its negatives to a data set for sentence-transformers, and what is known about its pairs.

The data set holds row numbers; texts are looked up when a batch is read, so that no text is stored twice. A row carries
its number as label, by which a loss looks up what is known of the pairs that meet in its batch: labelled positives,
weights, ratings. There queries and documents are numbered by their texts, so equal texts are one document.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor, Future
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from scipy import sparse

from foils.batching.multi_dataset import Mixture, mixture_counts
from foils.data import Collection, Negatives
from foils.data.collection import DocumentTexts, PairIndex, Rows
from foils.data.negatives import negatives_table
from foils.data.read import CollectionLike, CollectionSettings, load_collection
from foils.data.sources import NamedSource, SourceLike, as_source
from foils.data.training_rows import (
    ABSENT,
    MAX_POSITIVES,
    TextNumbers,
    distinct_names,
    joined_collections,
    joined_negatives,
    training_rows,
)
from foils.encode.tokens import kept_tokens
from foils.runtime.errors import InputError, require
from foils.training.settings import TEACHER, MethodSettings

if TYPE_CHECKING:
    from datasets import Dataset

    from foils.training.models import TrainingLength

Codes = NDArray[np.int64]
Floats = NDArray[np.float64]
LeastGap = Callable[[int], float]
"""Epoch, counted from 1 → the gap that a negative must exceed to take part."""
SAMPLED = 1000  # documents whose tokens are counted, for the length of training
NONE = Negatives(negatives_table([], [], "none", [], []))


@dataclass(frozen=True)
class BatchFacts:
    """What the loss needs to know about b rows with 1 + k documents each.

    Candidate j·b + i is document j of row i: first all positives, then all first negatives, and so on.

    Attributes:
        labels: (b,) the rows' numbers in the data set.
        rows, columns: (m,) entries (query, candidate) of the (b, (1 + k)·b) matrix that have a log-weight of their own.
        log_weights: (m,) their log w: −inf leaves the candidate out for this query.
        absent: ((1 + k)·b,) candidates that are no document at all; nobody's negatives.
        ratings: (b, 1 + k) standardised ratings, NaN where there is none.
        sources: (b,) of a mixture, each row's data set: documents of another one are left out; None: there is one.
    """

    labels: Codes
    rows: Codes
    columns: Codes
    log_weights: Floats
    absent: NDArray[np.bool_]
    ratings: Floats
    sources: Codes | None = None

    def block(self, begin: int, end: int) -> NDArray[np.float32] | None:
        """Return the log-weights of queries begin … end − 1 as (end − begin, c), or None where all are 0."""
        inside = (self.rows >= begin) & (self.rows < end)
        if not inside.any() and not self.absent.any() and self.sources is None:
            return None
        block = np.zeros((end - begin, len(self.absent)), np.float32)
        block[:, self.absent] = -np.inf
        block[self.rows[inside] - begin, self.columns[inside]] = self.log_weights[inside]
        if self.sources is not None:  # documents of another data set than the query's
            block[self.sources[begin:end, None] != np.resize(self.sources, len(self.absent))] = -np.inf
        return block


@dataclass(frozen=True)
class PairFacts:
    """What is known about the pairs of a data set of N rows.

    Attributes:
        queries: (N,) number of each row's query.
        documents: (N, 1 + k) number of its positive and its negatives; −1: absent.
        ratings: (N, 1 + k) standardised ratings; NaN where there is none.
        known_query, known_document: (m,) pairs that are no plain negatives.
        known_log_weight: (m,) their log w; −inf for labelled positives and rejected rows.
        known_gap: (m,) their rating gap, NaN where there is none: what a curriculum looks at.
        sources: (N,) of a mixture, the data set of each row; None: there is one.

    Where a pair is given twice, the smaller weight counts.
    """

    queries: Codes
    documents: Codes
    ratings: Floats
    known_query: Codes
    known_document: Codes
    known_log_weight: Floats
    known_gap: Floats
    sources: Codes | None = None
    _known: sparse.csr_array = field(init=False, repr=False)

    def __post_init__(self) -> None:
        lightest = np.argsort(self.known_log_weight, kind="stable")
        kept = lightest[PairIndex(self.known_query[lightest], self.known_document[lightest]).distinct]
        for name in ("known_query", "known_document", "known_log_weight", "known_gap"):
            object.__setattr__(self, name, getattr(self, name)[kept])
        pairs = self.known_query, self.known_document
        both = zip((self.queries, self.documents), pairs, strict=True)
        shape = tuple(1 + max(int(each.max(initial=0)) for each in numbers) for numbers in both)
        object.__setattr__(self, "_known", sparse.csr_array((np.arange(len(kept)), pairs), shape=shape))

    def __len__(self) -> int:
        return len(self.queries)

    @property
    def negatives(self) -> int:
        """k, the negatives of a row."""
        return int(self.documents.shape[1]) - 1

    def batch(self, rows: Codes, *, least_gap: float | None = None) -> BatchFacts:
        """Return what is known about the pairs among these rows.

        A row's own positive keeps weight 1; any other candidate that is a known positive of its query (or equals one)
        is left out.

        Args:
            rows: (b,) row numbers.
            least_gap: of a curriculum: pairs whose gap is not above it are left out.

        Raises:
            InputError: rows that are not there.
        """
        if len(rows) and (rows.min() < 0 or rows.max() >= len(self)):
            raise InputError(f"rows {rows.min()} to {rows.max()}; the data set has {len(self)}")
        documents = self.documents[rows].T.ravel()
        order, known = np.argsort(documents, kind="stable"), self._known[self.queries[rows]].tocoo()
        # A known document may be several columns of the batch: those from `start` on, of the columns by document.
        start, end = (np.searchsorted(documents[order], known.col, side) for side in ("left", "right"))
        counts = end - start
        row, pair = np.repeat(known.row, counts), np.repeat(known.data, counts)
        column = order[np.arange(counts.sum()) + np.repeat(start - np.cumsum(counts) + counts, counts)]
        weight = self.known_log_weight[pair]
        if least_gap is not None:
            weight = np.where(self.known_gap[pair] <= least_gap, -np.inf, weight)
        kept = (column != row) & (weight != 0)
        absent, sources = documents == ABSENT, None if self.sources is None else self.sources[rows]
        return BatchFacts(
            labels=rows,
            rows=row[kept],
            columns=column[kept],
            log_weights=weight[kept],
            absent=absent,
            ratings=self.ratings[rows],
            sources=sources,
        )

    def own_log_weights(self) -> Floats:
        """Return (N, 1 + k) log w of each row's own documents; 0 at the positives, −inf where absent."""
        weights = self._own(self.known_log_weight, 0.0)
        weights[self.documents == ABSENT] = -np.inf
        weights[:, 0] = 0.0
        return weights

    def own_gaps(self) -> Floats:
        """Return (N, k) rating gap of each row's own negatives; NaN where there is none, or the negative is absent."""
        gaps = self._own(self.known_gap, np.nan)[:, 1:]
        gaps[self.documents[:, 1:] == ABSENT] = np.nan
        return gaps

    def _own(self, values: Floats, missing: float) -> Floats:
        """Return (N, 1 + k) the known pairs' values at each row's own documents."""
        rows = np.concatenate([self.queries[:, None], self.documents], 1)
        return own_values(rows, self.known_query, self.known_document, values, missing)


def own_values(rows: Codes, query: Codes, document: Codes, values: Floats, missing: float = np.nan) -> Floats:
    """Return (N, 1 + k) the values of pairs at each row's own documents.

    Args:
        rows: (N, 2 + k) each row's query, and its documents; −1: absent.
        query: (m,) of each pair; of one that is given twice the first counts.
        document: (m,) likewise.
        values: (m,) the pairs' own.
        missing: where a document is absent or no pair's.
    """
    query_rows, documents = np.repeat(rows[:, 0], rows.shape[1] - 1), rows[:, 1:]
    places = PairIndex(query, document).places(query_rows, documents.ravel())
    return np.append(values, missing)[places].reshape(documents.shape)  # at −1 stands the last


def rated(what: str, values: Floats) -> Floats:
    """Return values that ratings give, of which there is one at least.

    Raises:
        InputError: there is none; the message says what needs them.
    """
    if not np.isfinite(values).any():
        raise InputError(f"{what} goes by ratings, and there are none; rate the negatives first")
    return values


@dataclass(frozen=True)
class RowTexts:
    """The transform of a data set: texts in the place of row numbers.

    Attributes:
        collection: has the texts of queries, and of documents from row 0 on.
        own: texts that a table of negatives brought along; text i has the row after the collection's documents, + i.
        documents: names of the data set's columns that hold document rows, or lists of them; the others but label
            hold query rows.
    """

    collection: Collection
    own: pa.Array | pa.ChunkedArray | None
    documents: frozenset[str]

    def __call__(self, batch: dict[str, Any]) -> dict[str, Any]:
        """Return a batch of the data set with texts in the place of rows."""
        return {name: rows if name == "label" else self.texts(name, rows) for name, rows in batch.items()}

    def texts(self, column: str, rows: Sequence[Any] | Rows) -> list[Any]:
        """Return the texts of a column's rows; of lists of rows, lists of texts."""
        if len(rows) and isinstance(rows[0], list):
            joined = iter(self.texts(column, [row for of in rows for row in of]))
            return [list(islice(joined, len(of))) for of in rows]
        return self.document_texts(rows) if column in self.documents else self.collection.query_texts(rows)

    def document_texts(self, rows: Sequence[int] | Rows) -> list[str]:
        """Return the text of each document row; an absent one has the empty text."""
        rows = np.asarray(rows, np.int64)
        texts = np.full(len(rows), "", object)
        texts[rows >= 0] = self.documents_of(rows[rows >= 0])[:]
        return list(texts)

    def documents_of(self, rows: Rows) -> DocumentTexts:
        """Return the texts of documents that are there, to be read in slices."""
        count = len(self.collection.documents)
        return DocumentTexts(self.collection, np.where(rows < count, rows, count - 1 - rows), self.own)


@dataclass(frozen=True)
class TrainingSet:
    """A data set to train on.

    Attributes:
        dataset: columns anchor, positive, then negative or negative_1 … negative_k; label: the row's number. Rows are
            in the order of the judgements, then of the table.
        facts: what is known about the rows.
        rows: (N, 2 + k) query row, positive's and negatives' document rows; −1 where a list is short.
        counts: what was used and what was left out, and why.
        texts: the transform from its rows to their texts.
        negatives: the table that it was made of; None: pairs alone.
        mixture: which data set each row is of, and what an epoch takes of it; None: there is one.
        elo_sd: standard deviation of the table's ratings, in whose units the facts have them.
    """

    dataset: Dataset
    facts: PairFacts
    rows: Rows
    counts: dict[str, int]
    texts: RowTexts
    negatives: Negatives | None = None
    mixture: Mixture | None = None
    elo_sd: float = 1.0

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def epoch_rows(self) -> int:
        """Rows of an epoch: all, or what a mixture takes of its data sets."""
        return len(self) if self.mixture is None else self.mixture.epoch_rows

    @property
    def documents(self) -> int:
        """Pairs of a query and one of its documents, each counted once."""
        query = np.repeat(self.rows[:, 0], self.rows.shape[1] - 1)
        document = self.rows[:, 1:].ravel()
        return len(np.unique(np.stack([query, document])[:, document != ABSENT], axis=1).T)

    def length_for(self, model: Any, tokens: int | None = None) -> TrainingLength:
        """Return after how many tokens training cuts the documents, by a sample of them (`training_length`).

        Args:
            model: a SentenceTransformer, or a CrossEncoder, which reads pairs.
            tokens: the length, where it is chosen already; None: the shortest that suits.
        """
        from sentence_transformers import CrossEncoder

        from foils.training.models import training_length

        rows, columns = np.nonzero(self.rows[:, 1:] != ABSENT)
        drawn = np.sort(np.random.default_rng(0).permutation(len(rows))[:SAMPLED])
        documents = self.texts.document_texts(self.rows[rows[drawn], 1 + columns[drawn]])
        if isinstance(model, CrossEncoder):
            queries = self.texts.collection.query_texts(self.rows[rows[drawn], 0])
            return training_length(model, list(zip(queries, documents, strict=True)), tokens=tokens)
        return training_length(model, documents, tokens=tokens)

    def without(self, left_out: NDArray[np.bool_], *, reason: str) -> TrainingSet:
        """Return the set without some rows, which are counted under the reason and numbered anew.

        Args:
            left_out: (N,) True for rows to leave out.
            reason: for the counts.

        Raises:
            InputError: no row is left, or the set is a mixture.
        """
        if self.mixture is not None:
            raise InputError(f"rows of a mixture cannot be left out ({reason}); train on one data set")
        kept = np.flatnonzero(~left_out)
        if not len(kept):
            raise InputError(f"nothing to train on: all {len(self)} rows are left out ({reason})")
        facts, rows = self.facts, self.rows[kept]
        facts = replace(
            facts, queries=facts.queries[kept], documents=facts.documents[kept], ratings=facts.ratings[kept]
        )
        counts = {**self.counts, reason: int(left_out.sum()), "rows": len(kept)}
        names = [name for name in self.dataset.column_names if name != "label"]
        return replace(self, dataset=_dataset(names, rows, self.texts), facts=facts, rows=rows, counts=counts)

    def distinct(self) -> tuple[Rows, Rows, Rows, Rows]:
        """Return the query rows and (N,) the place of each row's own; the document rows, and (N, 1 + k) places.

        In the place of an absent document stands its row's positive.
        """
        queries, query = np.unique(self.rows[:, 0], return_inverse=True)
        there = np.where(self.rows[:, 1:] == ABSENT, self.rows[:, 1:2], self.rows[:, 1:])
        documents, document = np.unique(there, return_inverse=True)
        return queries, query, documents, document.reshape(there.shape)

    def weighed(self) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        """Return which documents of each row have a weight other than 1, and which negatives are positives after all.

        Each is (N, 1 + k). A negative is a positive where the collection labels its text for a query of the same text.
        """
        there, weights = self.rows[:, 1:] >= 0, self.facts.own_log_weights()
        return there & np.isfinite(weights) & (weights != 0), there & np.isneginf(weights)

    def ratings_within(self) -> Floats:
        """Return (N, 1 + k) `facts.ratings`; of queries without an offset the ratings within the query, in that unit.

        The latter can be compared with others of the same query alone.
        """
        if self.negatives is None:
            return self.facts.ratings
        table = _Table.read(self.negatives, self.texts.collection, offsets=False)
        ratings, spread = _ratings(self.texts.collection, self.rows, table)
        return np.where(np.isnan(self.facts.ratings), ratings * spread / self.elo_sd, self.facts.ratings)

    def teacher_scores(self) -> Floats:
        """Return (N, 1 + k) the teacher's scores of each row's documents; NaN where there is none.

        Positives have their scores in rejected rows, as `foils score-pairs` adds them.

        Raises:
            InputError: there is no column teacher of numbers, or no row has one for its positive and for a negative.
        """
        scoring = "foils.score_pairs scores positives and negatives"
        if self.negatives is None:
            raise InputError(f"pairs alone have no scores of negatives; give a table with a column teacher: {scoring}")
        table = self.negatives.table
        if TEACHER not in table.column_names or not pa.types.is_floating(table.schema.field(TEACHER).type):
            raise InputError(f"the table has no numbers in a column teacher; {scoring}")
        read = _Table.read(self.negatives, self.texts.collection)
        scores = own_values(self.rows, read.query, read.document, np.asarray(table[TEACHER].to_numpy(), np.float64))
        scores[np.isnan(scores[:, 0]) | np.isnan(scores[:, 1:]).all(1)] = np.nan
        if not np.isfinite(scores).any():
            raise InputError(f"no row has a number in teacher for its positive and for a negative; {scoring}")
        return scores


class TokenCollator:
    """Makes batches of ids that are there already, in a thread: the next batch while the model learns from one.

    It takes the place of the collator of sentence-transformers' trainer. Which rows are in a batch is decided when it
    always was; its texts are tokenised once in a training, however often they come.

    Args:
        collator: the trainer's, whose columns, prompts and labels are kept; it is changed.
        model: whose texts are tokenised.
        pool: of one thread.
    """

    def __init__(self, collator: Any, model: Any, pool: Executor) -> None:
        self.collator, self._model, self._pool = collator, model, pool
        collator.preprocess_fn = self.preprocess

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["collator"], name)

    def __call__(self, features: list[dict[str, Any]]) -> PromisedBatch:
        """Return the batch of these rows, which is made meanwhile."""
        return PromisedBatch(self._pool.submit(self.collator, features))

    def preprocess(self, texts: list[str], prompt: str | None = None, task: str | None = None, **more: Any) -> Any:
        """Return the features of texts as the model's own `preprocess` does."""
        kept = None if more or not texts else kept_tokens(self._model, prompt=prompt or "", task=task)
        if kept is None:
            return self._model.preprocess(texts, prompt=prompt, task=task, **more)
        return kept(texts).batch(np.arange(len(texts)), pinned=self._model.device.type == "cuda")


@dataclass(frozen=True)
class PromisedBatch:
    """A batch that is made in a thread, until it is moved to the device of the model."""

    making: Future[dict[str, Any]]

    def to(self, device: Any, non_blocking: bool = False) -> dict[str, Any]:
        """Return the batch on a device; a copy from pinned memory is not waited for."""
        return {
            name: value.to(device, non_blocking=non_blocking or value.is_pinned())
            if hasattr(value, "is_pinned")
            else value
            for name, value in self.making.result().items()
        }


def training_set(
    collection: Collection,
    negatives: Negatives | None = None,
    *,
    split: str = "train",
    form: str | None = None,
    per_query: int | None = None,
    max_positives: int = MAX_POSITIVES,
) -> TrainingSet:
    """Make the data set of a split's positives and the kept rows of a table.

    Args:
        collection: with judgements of the split, unless the table was rated.
        negatives: what to train on; columns weight, elo, offset and gap are used where they are there.
        split: whose judgements; `all`: those of every split.
        form: `triplets`, `lists` or `pairs`, as `foils.data.training_rows` makes them; in short lists nothing is padded
            with other documents. None: triplets with a table, pairs without.
        per_query: negatives of a query at most, by rank; None: all (for lists: the longest list's length).
        max_positives: labelled positives of a query, the first so many.

    Raises:
        InputError: no table for triplets or lists, a number below 1, or no row is left.
        UnknownNameError: no such form or split.
    """
    form = form or ("pairs" if negatives is None else "triplets")
    chosen = training_rows(
        collection, negatives, split=split, form=form, per_query=per_query, max_positives=max_positives
    )
    table = _Table.read(NONE if negatives is None else negatives, collection)
    absent = chosen.negatives < 0
    lists = np.full(chosen.negatives.shape, ABSENT)
    lists[~absent] = table.document[chosen.negatives[~absent]]
    rows = np.concatenate([chosen.query_rows[:, None], chosen.doc_rows[:, None], lists], 1)
    counts = {"queries": chosen.queries, "pairs": chosen.pairs + chosen.uncovered}
    remarks = {
        "queries without a label, the candidate rated best in the positive's place": chosen.unlabelled,
        "queries without a label, their candidate rated best not in the collection, left out": chosen.outside,
        f"pairs beyond {max_positives} positives of a query, left out": chosen.capped,
    }
    counts |= {what: count for what, count in remarks.items() if count}
    if form != "pairs":
        counts["pairs without a negative, left out"] = chosen.uncovered
    if form == "lists":
        counts["short lists"] = int(absent.any(1).sum())
    counts["rows"] = len(rows)
    pattern = "negative" if form == "triplets" else "negative_{}"
    names = ["anchor", "positive", *(pattern.format(i + 1) for i in range(rows.shape[1] - 2))]
    texts = RowTexts(collection, table.own, frozenset(names[1:]))
    ratings, elo_sd = _ratings(collection, rows, table)
    facts = _facts(collection, rows, table, texts, ratings)
    if np.isfinite(facts.ratings).any():
        counts["positives without a rating"] = len(np.unique(rows[np.isnan(facts.ratings[:, 0]), :2], axis=0))
    return TrainingSet(
        dataset=_dataset(names, rows, texts),
        facts=facts,
        rows=rows,
        counts=counts,
        texts=texts,
        negatives=negatives,
        elo_sd=elo_sd,
    )


@dataclass(frozen=True)
class _Table:
    """A table of negatives by rows of the collection, its own texts after the collection's."""

    query: Rows
    document: Rows
    keep: NDArray[np.bool_]
    weight: Floats
    elo: Floats
    gap: Floats
    own: pa.Array | pa.ChunkedArray | None

    @classmethod
    def read(cls, negatives: Negatives, collection: Collection, *, offsets: bool = True) -> _Table:
        query, texts = negatives.texts_in(collection)
        document = np.arange(0) if texts.rows is None else texts.rows

        def column(name: str, missing: float) -> Floats:
            if name not in negatives.table.column_names:
                return np.full(len(negatives), missing)
            return np.asarray(negatives.table[name].to_numpy(), np.float64)

        weight = column("weight", 1.0)
        wrong = negatives.keep & ~((weight > 0) & np.isfinite(weight))
        if wrong.any():
            raise InputError(
                f"{int(wrong.sum())} kept rows have a weight that is not above 0; a row of weight 0 is rejected "
                "(foils select does it)"
            )
        document = np.where(document < 0, len(collection.documents) - 1 - document, document)
        elo = column("elo", np.nan)
        if offsets:
            elo = elo + column("offset", 0.0)
        return cls(
            query=query,
            document=document,
            keep=negatives.keep,
            weight=weight,
            elo=elo,
            gap=column("gap", np.nan),
            own=texts.own,
        )


def _dataset(names: Sequence[str], rows: Rows, texts: RowTexts) -> Dataset:
    datasets = require("datasets", "train")
    columns = {name: pa.array(rows[:, i]) for i, name in enumerate(names)}
    dataset = datasets.Dataset(pa.table({**columns, "label": pa.array(np.arange(len(rows)))}))
    return dataset.with_transform(texts)


def _facts(collection: Collection, rows: Rows, table: _Table, texts: RowTexts, ratings: Floats) -> PairFacts:
    """Number queries and documents by their texts, and say what is known about their pairs."""
    queries, positives = collection.known_positives.pairs()
    query_number = TextNumbers(np.concatenate([rows[:, 0], queries]), collection.query_texts)
    relevant = np.isin(query_number(queries), query_number(rows[:, 0]))
    queries, positives = queries[relevant], positives[relevant]
    listed = np.isin(table.query, rows[:, 0])
    known = np.concatenate([positives, table.document[listed]])
    used = np.unique(np.concatenate([rows[:, 1:].ravel(), known]))
    document_number = TextNumbers(used[used >= 0], texts.document_texts)
    weight = np.where(table.keep, table.weight, 0.0)[listed]
    with np.errstate(divide="ignore"):
        log_weight = np.concatenate([np.full(len(queries), -np.inf), np.log(weight)])
    return PairFacts(
        queries=query_number(rows[:, 0]),
        documents=document_number(rows[:, 1:]),
        ratings=ratings,
        known_query=query_number(np.concatenate([queries, table.query[listed]])),
        known_document=document_number(known),
        known_log_weight=log_weight,
        known_gap=np.concatenate([np.full(len(queries), np.nan), table.gap[listed]]),
    )


def _ratings(collection: Collection, rows: Rows, table: _Table) -> tuple[Floats, float]:
    """Ratings of each row's documents, each its own, standardised over all that the table rates; NaN where it is not.

    With offsets of queries it is the rating between queries, elo + offset.

    A rated positive has a row in the table. Without one, elo + gap of a query's negatives is the rating of its only
    positive; of several nobody knows which.

    Returns:
        the ratings, and the standard deviation of the table's.
    """
    query, document, elo = table.query, table.document, table.elo
    with_gap = np.flatnonzero(np.isfinite(elo) & np.isfinite(table.gap))
    rated_query, first = np.unique(query[with_gap], return_index=True)
    labelled, positive = collection.known_positives.pairs()
    labelled, at, counts = np.unique(labelled, return_index=True, return_counts=True)
    single = np.isin(rated_query, labelled[counts == 1])
    rated_query, first = rated_query[single], with_gap[first[single]]
    query = np.concatenate([query, rated_query])
    document = np.concatenate([document, positive[at[np.searchsorted(labelled, rated_query)]]])
    elo = np.concatenate([elo, (table.elo + table.gap)[first]])
    rated = np.isfinite(elo)
    if not rated.any():
        return np.full((len(rows), rows.shape[1] - 1), np.nan), 1.0
    query, document, elo = query[rated], document[rated], elo[rated]
    known = elo[PairIndex(query, document).distinct]
    spread = float(known.std() or 1.0)
    return (own_values(rows, query, document, elo) - known.mean()) / spread, spread


@dataclass(frozen=True)
class DataSets:
    """The data sets of a training, by name, and their joint collection.

    Attributes:
        collections: name → collection, at least one.
        sources: name → its negatives; where there are none, no entry.
        shares: of the data sets in an epoch; None: by their sizes.
        whole: the one collection, or all joined.
    """

    collections: Mapping[str, Collection]
    sources: Mapping[str, NamedSource]
    shares: Sequence[float] | None
    whole: Collection

    @property
    def mixed(self) -> bool:
        """Whether there are several."""
        return len(self.collections) > 1

    @property
    def inputs(self) -> dict[str, str]:
        """Digests of what was read, by name, for provenance."""
        if not self.mixed:
            return {"collection": self.whole.digest, **{each.name: each.digest for each in self.sources.values()}}
        named = {f"{name}: {each.name}": each.digest for name, each in self.sources.items()}
        return {**{name: each.digest for name, each in self.collections.items()}, **named}

    def training_set(self, **rows: Any) -> TrainingSet:
        """Return what is trained on; of several data sets, one set that knows which row is whose.

        Args:
            rows: settings of `foils.training.data.training_set`.

        Raises:
            InputError: a data set without rows.
        """
        tables = {name: each.negatives for name, each in self.sources.items()}
        if not self.mixed:
            return training_set(self.whole, next(iter(tables.values()), None), **rows)
        data = training_set(self.whole, joined_negatives(tables) if tables else None, **rows)
        ends = np.cumsum([len(each.queries) for each in self.collections.values()])
        source_of = np.searchsorted(ends, data.rows[:, 0], "right").astype(np.int64)
        sizes = np.bincount(source_of, minlength=len(ends))
        drawn = mixture_counts(np.maximum(sizes, 1).tolist(), self.shares)
        mixture, counts = Mixture(tuple(self.collections), source_of, drawn), dict(data.counts)
        for name, size, count in zip(self.collections, sizes, drawn, strict=True):
            counts |= {f"rows of {name}": int(size), f"rows of {name} in an epoch": int(count)}
        return replace(data, facts=replace(data.facts, sources=source_of), mixture=mixture, counts=counts)


def read_data_sets(
    collection: CollectionLike, source: SourceLike | None, method: MethodSettings, reading: CollectionSettings
) -> DataSets:
    """Read the data sets of a training.

    Args:
        collection: the first; columns, a corpus and judgements to add are its own.
        source: its negatives; None: it has none.
        method: names the others, and says how they are mixed.
        reading: how the first one is read.

    Raises:
        InputError: one that cannot be read.
    """
    others = [each if isinstance(each, tuple) else (each, None) for each in method.also]
    opened = [(reading.open(collection), source), *((load_collection(each), table) for each, table in others)]
    names = distinct_names(each.name for each, _ in opened)
    collections = {name: each for name, (each, _) in zip(names, opened, strict=True)}
    named = zip(names, opened, strict=True)
    sources = {name: as_source(table, each) for name, (each, table) in named if table is not None}
    whole = opened[0][0] if len(opened) == 1 else joined_collections(collections)
    return DataSets(collections, sources, method.mixture, whole)
