"""From a collection and its negatives to a data set for sentence-transformers, and facts of its pairs.

The data set holds row numbers; texts are looked up when a batch is read, so that no text is stored
twice. A row carries its number as label, by which a loss looks up what is known of the pairs that
meet in its batch: labelled positives, weights, ratings. There queries and documents are numbered by
their texts, so equal texts are one document.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from scipy import sparse

from foils.batching.vectors import DistinctTexts
from foils.data import Collection, Negatives
from foils.data.collection import DocumentTexts, PairIndex, Rows, TextNumbers
from foils.data.description import distinct_names, joined_collections, joined_negatives
from foils.data.negatives import negatives_table
from foils.data.read import CollectionLike, CollectionSettings, load_collection
from foils.data.sources import ABSENT, MAX_POSITIVES, SourceLike, as_source, training_rows
from foils.encode.tokens import KeptTokens, Text, kept_tokens
from foils.runtime.errors import InputError, require
from foils.training.models import TrainingLength, training_length
from foils.training.settings import MethodSettings

if TYPE_CHECKING:
    from datasets import Dataset


Codes = NDArray[np.int64]
Floats = NDArray[np.float64]
LeastGap = Callable[[int], float]
"""Epoch, counted from 1 → the gap that a negative must exceed to take part."""
SAMPLED = 1000  # documents whose tokens are counted, for the length of training
NONE = Negatives(negatives_table([], [], "none", [], []))
MISSING = {"weight": 1.0, "elo": np.nan, "offset": 0.0, "gap": np.nan, "teacher": np.nan}


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
        sources: (N,) the data set of each row; None: there is one.

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
    _known: sparse.csr_array = field(init=False, repr=False)  # the number of each known pair, from 1

    def __post_init__(self) -> None:
        lightest = np.argsort(self.known_log_weight, kind="stable")
        kept = lightest[PairIndex(self.known_query[lightest], self.known_document[lightest]).distinct]
        for name in ("known_query", "known_document", "known_log_weight", "known_gap"):
            object.__setattr__(self, name, getattr(self, name)[kept])
        pairs = self.known_query, self.known_document
        both = zip((self.queries, self.documents), pairs, strict=True)
        shape = tuple(2 + max(int(each.max(initial=0)) for each in numbers) for numbers in both)
        object.__setattr__(self, "_known", sparse.csr_array((np.arange(1, len(kept) + 1), pairs), shape=shape))

    def __len__(self) -> int:
        return len(self.queries)

    def log_weights(
        self, rows: Codes, begin: int, end: int, *, least_gap: float | None = None
    ) -> NDArray[np.float32] | None:
        """Return log w of queries begin … end − 1 of a batch and all its candidates; None where all are 0.

        Candidate j·b + i is document j of row i: first all positives, then all first negatives, and
        so on. −inf leaves a candidate out for a query: known positives of the query (or documents
        that equal one) but the row's own, absent documents, and those of other data sets.

        Args:
            rows: (b,) row numbers of the batch.
            begin: first row of the block.
            end: the row after its last.
            least_gap: of a curriculum: pairs whose gap is not above it are left out.

        Returns:
            (end − begin, (1 + k)·b)
        """
        documents = self.documents[rows].T.ravel()
        known = self._known[self.queries[rows[begin:end]]][:, documents].tocoo()  # absent: the last, empty column
        pair = known.data - 1
        weight = self.known_log_weight[pair]
        if least_gap is not None:
            weight = np.where(self.known_gap[pair] <= least_gap, -np.inf, weight)
        others, absent = (known.col != known.row + begin) & (weight != 0), documents == ABSENT
        if not (others.any() or absent.any() or self.sources is not None):
            return None
        block = np.zeros((end - begin, len(documents)), np.float32)
        block[:, absent] = -np.inf
        block[known.row[others], known.col[others]] = weight[others]
        if self.sources is not None:
            of_rows = self.sources[rows]
            block[of_rows[begin:end, None] != np.resize(of_rows, len(documents))] = -np.inf
        return block

    def own_log_weights(self) -> Floats:
        """Return (N, 1 + k) log w of each row's own documents; 0 at the positives, −inf where absent."""
        weights = self._own(self.known_log_weight, 0.0)
        weights[self.documents == ABSENT] = -np.inf
        weights[:, 0] = 0.0
        return weights

    def own_gaps(self) -> Floats:
        """Return (N, k) rating gap of each row's own negatives; NaN where it or the negative is absent."""
        return self._own(self.known_gap, np.nan)[:, 1:]

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
        own: texts that a table of negatives brought along; text i has the row after the
            collection's documents, + i.

    Columns anchor and query hold query rows; the others but label hold document rows, or lists of them.
    """

    collection: Collection
    own: pa.Array | pa.ChunkedArray | None

    def __call__(self, batch: dict[str, Any]) -> dict[str, Any]:
        """Return a batch of the data set with texts in the place of rows."""
        return {name: rows if name == "label" else self.texts(name, rows) for name, rows in batch.items()}

    def texts(self, column: str, rows: Sequence[Any] | Rows) -> list[Any]:
        """Return the texts of a column's rows; of lists of rows, lists of texts."""
        if len(rows) and isinstance(rows[0], list):
            joined = iter(self.texts(column, [row for listed in rows for row in listed]))
            return [list(islice(joined, len(listed))) for listed in rows]
        return self.collection.query_texts(rows) if column in ("anchor", "query") else self.document_texts(rows)

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
        columns: anchor, positive, then negative or negative_1 … negative_k.
        facts: what is known about the rows.
        rows: (N, 2 + k) query row, positive's and negatives' document rows; −1 where a list is short.
        counts: what was used and what was left out, and why.
        texts: the transform from its rows to their texts.
        table: of the negatives that it was made of; of pairs alone empty.
        elo_sd: standard deviation of the table's ratings, in whose units the facts have them.
    """

    columns: Sequence[str]
    facts: PairFacts
    rows: Rows
    counts: dict[str, int]
    texts: RowTexts
    table: RatedRows
    elo_sd: float = 1.0

    def __len__(self) -> int:
        return len(self.rows)

    @cached_property
    def dataset(self) -> Dataset:
        """The columns, whose texts are looked up when a batch is read, and label, the row's number.

        Rows are in the order of the judgements, then of the table.
        """
        columns = {name: pa.array(self.rows[:, i]) for i, name in enumerate(self.columns)}
        table = pa.table({**columns, "label": pa.array(np.arange(len(self)))})
        dataset: Dataset = require("datasets", "train").Dataset(table).with_transform(self.texts)
        return dataset

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
            InputError: no row is left.
        """
        kept = np.flatnonzero(~left_out)
        if not len(kept):
            raise InputError(f"nothing to train on: all {len(self)} rows are left out ({reason})")
        facts, rows = self.facts, self.rows[kept]
        of_rows = ("queries", "documents", "ratings", *(() if facts.sources is None else ("sources",)))
        left: dict[str, Any] = {name: getattr(facts, name)[kept] for name in of_rows}
        facts = replace(facts, **left)
        counts = {**self.counts, reason: int(left_out.sum()), "rows": len(kept)}
        return replace(self, facts=facts, rows=rows, counts=counts)

    @property
    def weighed(self) -> bool:
        """Whether a row's own document has a weight other than 1."""
        weights = self.facts.own_log_weights()
        return bool((np.isfinite(weights) & (weights != 0)).any())

    def ratings_within(self) -> Floats:
        """Return (N, 1 + k) `facts.ratings`; without an offset the ratings within the query, in that unit.

        The latter can be compared with others of the same query alone.
        """
        ratings, spread = _ratings(self.rows, self.table, self.table.elo)
        return np.where(np.isnan(self.facts.ratings), ratings * spread / self.elo_sd, self.facts.ratings)

    def teacher_scores(self) -> Floats:
        """Return (N, 1 + k) the teacher's scores of each row's documents; NaN where there is none.

        Positives have their scores in rejected rows, as `foils score-pairs` adds them.

        Raises:
            InputError: no row has one for its positive and for a negative.
        """
        scores = own_values(self.rows, self.table.query, self.table.document, self.table.teacher)
        scores[np.isnan(scores[:, 0]) | np.isnan(scores[:, 1:]).all(1)] = np.nan
        if not np.isfinite(scores).any():
            raise InputError(
                "no row has a number in a column teacher for its positive and for a negative; "
                "foils.score_pairs scores positives and negatives"
            )
        return scores


class TokenCollator:
    """Makes batches of ids that are kept, in a thread: the next batch while the model learns from one.

    It takes the place of the collator of sentence-transformers' trainer. Which rows are in a batch
    is decided when it always was; its texts are tokenised once in a training, however often they
    come.

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

    def fill(self, dataset: Dataset) -> None:
        """Have the ids of a data set that is read whole ready, if its texts are many (`KeptTokens.fill`)."""
        prompts, tasks = self.collator.prompts or {}, self.collator.router_mapping or {}
        columns: dict[KeptTokens, list[DistinctTexts]] = {}
        for name in dataset.column_names:
            kept = kept_tokens(self._model, prompt=prompts.get(name, ""), task=tasks.get(name))
            if kept is not None and name != "label":
                columns.setdefault(kept, []).append(DistinctTexts(dataset, name))
        for kept, texts in columns.items():
            kept.fill(texts)

    def __call__(self, features: list[dict[str, Any]]) -> PromisedBatch:
        """Return the batch of these rows, which is made meanwhile."""
        return PromisedBatch(self._pool.submit(self.collator, features))

    def preprocess(self, texts: list[str], prompt: str | None = None, task: str | None = None, **more: Any) -> Any:
        """Return the features of texts as the model's own `preprocess` does."""
        if more or not texts:
            return self._model.preprocess(texts, prompt=prompt, task=task, **more)
        return features_of(self._model, texts, prompt=prompt, task=task)


def features_of(model: Any, texts: Sequence[Text], *, prompt: str | None, task: str | None, pairs: bool = False) -> Any:
    """Return the features of texts, or of pairs of texts, of ids that are kept where the model allows."""
    kept = kept_tokens(model, prompt=prompt or "", task=task, pairs=pairs)
    if kept is None:
        return model.preprocess(texts, prompt=prompt, task=task)
    return kept(texts).batch(np.arange(len(texts)), pinned=model.device.type == "cuda")


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
        form: `triplets`, `lists` or `pairs`, as `foils.data.sources.training_rows` makes them; in short
            lists nothing is padded with other documents. None: triplets with a table, pairs
            without.
        per_query: negatives of a query at most, by rank; None: all (for lists: the longest list's length).
        max_positives: labelled positives of a query, the first so many.

    Raises:
        InputError: no table for triplets or lists, a number below 1, or no row is left.
        UnknownNameError: no such form or split.
    """
    form = form or ("pairs" if negatives is None else "triplets")
    table = RatedRows.read(NONE if negatives is None else negatives, collection)
    chosen = training_rows(
        collection, negatives, split=split, form=form, per_query=per_query, max_positives=max_positives
    )
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
    columns = ["anchor", "positive", *(pattern.format(i + 1) for i in range(rows.shape[1] - 2))]
    texts = RowTexts(collection, table.own)
    ratings, elo_sd = _ratings(rows, table, table.elo + table.offset)
    facts = _facts(collection, rows, table, texts, ratings)
    if np.isfinite(facts.ratings).any():
        counts["positives without a rating"] = len(np.unique(rows[np.isnan(facts.ratings[:, 0]), :2], axis=0))
    return TrainingSet(
        columns=columns,
        facts=facts,
        rows=rows,
        counts=counts,
        texts=texts,
        table=table,
        elo_sd=elo_sd,
    )


@dataclass(frozen=True)
class RatedRows:
    """A table of negatives by rows of the collection, its own texts after the collection's.

    Attributes:
        query, document: (m,) rows of the collection, or of its own texts.
        keep: (m,) whether a row is kept.
        weight, elo, offset, gap, teacher: (m,) columns of the table; where it lacks one, a weight
            is 1, an offset 0, another number NaN.
        offsets: whether queries have offsets.
        own: the table's own texts.
    """

    query: Rows
    document: Rows
    keep: NDArray[np.bool_]
    weight: Floats
    elo: Floats
    offset: Floats
    gap: Floats
    teacher: Floats
    offsets: bool
    own: pa.Array | pa.ChunkedArray | None

    @classmethod
    def read(cls, negatives: Negatives, collection: Collection) -> RatedRows:
        """Read a table.

        Raises:
            InputError: a kept row with a weight that is not above 0.
        """
        (query, texts), columns = negatives.texts_in(collection), negatives.table.column_names
        document = np.arange(0) if texts.rows is None else texts.rows
        numbers = {name: np.full(len(negatives), missing) for name, missing in MISSING.items()}
        for name in numbers.keys() & {*columns}:
            numbers[name] = np.asarray(negatives.table[name].to_numpy(), np.float64)
        wrong = negatives.keep & ~((numbers["weight"] > 0) & np.isfinite(numbers["weight"]))
        if wrong.any():
            raise InputError(
                f"{int(wrong.sum())} kept rows have a weight that is not above 0; a row of weight 0 is "
                "rejected (foils select does it)"
            )
        document = np.where(document < 0, len(collection.documents) - 1 - document, document)
        return cls(query, document, negatives.keep, **numbers, offsets="offset" in columns, own=texts.own)


def _facts(collection: Collection, rows: Rows, table: RatedRows, texts: RowTexts, ratings: Floats) -> PairFacts:
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


def _ratings(rows: Rows, table: RatedRows, elo: Floats) -> tuple[Floats, float]:
    """Ratings of each row's documents, each its own, standardised over all that the table rates; else NaN.

    The rating is `elo` of the table's rows, in which rated positives stand too: with the offsets of
    queries it is between queries, without within each.

    Returns:
        the ratings, and the standard deviation of the table's.
    """
    rated = np.isfinite(elo)
    if not rated.any():
        return np.full((len(rows), rows.shape[1] - 1), np.nan), 1.0
    query, document, elo = table.query[rated], table.document[rated], elo[rated]
    ratings, known = own_values(rows, query, document, elo), elo[PairIndex(query, document).distinct]
    spread = float(known.std() or 1.0)
    return (ratings - known.mean()) / spread, spread


def read_data_sets(
    collection: CollectionLike,
    source: SourceLike | None,
    method: MethodSettings,
    reading: CollectionSettings,
    **rows: Any,
) -> tuple[TrainingSet, list[Collection], dict[str, str]]:
    """Read the data sets of a training.

    Args:
        collection: the first; columns, a corpus and judgements to add are its own.
        source: its negatives; None: it has none.
        method: names the others.
        reading: how the first one is read.
        rows: settings of `training_set`.

    Returns:
        what is trained on (of several data sets, one set that knows which row is whose), their
            collections, and the digests of what was read, by name, for provenance.

    Raises:
        InputError: one that cannot be read, or without rows.
    """
    others = [each if isinstance(each, tuple) else (each, None) for each in method.also]
    opened = [(reading.open(collection), source), *((load_collection(each), table) for each, table in others)]
    named = dict(zip(distinct_names(each.name for each, _ in opened), opened, strict=True))
    collections = {name: each for name, (each, _) in named.items()}
    sources = {name: as_source(table, each) for name, (each, table) in named.items() if table is not None}
    tables = {name: each.negatives for name, each in sources.items()}
    if len(opened) == 1:
        whole, table = opened[0][0], next(iter(tables.values()), None)
        digests = {"collection": whole.digest, **{each.name: each.digest for each in sources.values()}}
        return training_set(whole, table, **rows), [whole], digests
    digests = {name: each.digest for name, each in collections.items()}
    digests |= {f"{name}: {each.name}": each.digest for name, each in sources.items()}
    data = training_set(joined_collections(collections), joined_negatives(tables) if tables else None, **rows)
    ends = np.cumsum([len(each.queries) for each in collections.values()])
    source_of = np.searchsorted(ends, data.rows[:, 0], "right").astype(np.int64)
    sizes = np.bincount(source_of, minlength=len(collections)).tolist()
    counts = {f"rows of {name}": size for name, size in zip(collections, sizes, strict=True)}
    empty = [what for what, size in counts.items() if not size]
    if empty:
        raise InputError(f"no {', no '.join(empty)}; leave out a data set that has none")
    data = replace(data, facts=replace(data.facts, sources=source_of), counts={**data.counts, **counts})
    return data, list(collections.values()), digests
