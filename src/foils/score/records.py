"""Records for scoring: the sources' negatives of each query as one set of distinct triplets.

A triplet (query, positive, negative) that several sources hold is kept once, with the set of its sources as bits. So a
hybrid is a union of bits, and every text is embedded, and every triplet measured, once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import overload

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from foils.data.collection import Collection, Rows
from foils.data.negatives import Negatives
from foils.data.run import ranks_within
from foils.encode.vectors import text_keys
from foils.errors import InputError

CONTROL = "random control"
EQUAL = "equal to a positive"
REPEATED = "repeated text"
NOT_IN_SPLIT = "query without a positive in the split"

Marks = npt.NDArray[np.bool_]
MAX_SOURCES = 62


@dataclass(frozen=True)
class PooledTexts:
    """The distinct texts of a scoring: documents of the collection by row, then texts that the sources bring along."""

    collection: Collection
    rows: Rows
    own: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.rows) + len(self.own)

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[str]: ...
    def __getitem__(self, index: int | slice) -> str | Sequence[str]:
        if isinstance(index, slice):
            start, stop, _ = index.indices(len(self))
            stored = self.collection.document_texts(self.rows[start:stop])
            return stored + list(self.own[max(0, start - len(self.rows)) : max(0, stop - len(self.rows))])
        return self[index : index + 1][0] if index >= 0 else self[len(self) + index]


@dataclass(frozen=True)
class Target:
    """A source, or a hybrid of sources, to be scored.

    Attributes:
        name: the source's, or the parts' joined by +.
        bits: which bits of `Records.members` count as its negatives.
        parts: number of sources united.
    """

    name: str
    bits: int
    parts: int = 1

    def of(self, members: npt.NDArray[np.int64]) -> Marks:
        """Return which triplets are this target's."""
        marks: Marks = (members & self.bits) != 0
        return marks


@dataclass(frozen=True)
class Records:
    """T records with m distinct triplets, sorted by record.

    Attributes:
        collection: that the sources were made from.
        queries: (T,) query rows.
        positives: (T,) pool index of each record's first labelled positive.
        all_positives: (p,) pool indices of all labelled positives, and `positive_record` (p,) their records.
        record: (m,) the record of each triplet, ascending.
        document: (m,) pool index of the negative.
        members: (m,) bit s is set where source s holds the triplet.
        texts: the pool of distinct texts.
        names: of the sources, by bit; the control, where there is one, is the last.
        dropped: source name -> reason -> number of negatives left out.
        corpus: (c,) pool indices of the distinct positives and negatives of the sources, the control's left out.
    """

    collection: Collection
    queries: Rows
    positives: Rows
    all_positives: Rows
    positive_record: Rows
    record: Rows
    document: Rows
    members: npt.NDArray[np.int64]
    texts: PooledTexts
    names: tuple[str, ...]
    corpus: Rows
    dropped: Mapping[str, Mapping[str, int]] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.queries)

    @property
    def sources(self) -> tuple[str, ...]:
        """The sources' names, without the control's."""
        return tuple(name for name in self.names if name != CONTROL)

    def targets(self, hybrids: int = 2) -> list[Target]:
        """Return the sources, then their unions of 2, …, `hybrids`, then the control where there is one."""
        bits = {name: 1 << index for index, name in enumerate(self.names)}
        found = [
            Target("+".join(chosen), sum(bits[name] for name in chosen), size)
            for size in range(1, max(1, hybrids) + 1)
            for chosen in combinations(self.sources, size)
        ]
        return found + ([Target(CONTROL, bits[CONTROL])] if CONTROL in bits else [])


def make_records(
    collection: Collection,
    sources: Mapping[str, Negatives],
    *,
    split: str,
    sample: int | None = None,
    control: bool = True,
    seed: int = 0,
) -> Records:
    """Unite sources into records (ECI_sem, Problem Setup).

    A record is a query of the split with its first labelled positive. Left out of a source, and counted: rows that
    an earlier stage rejected, queries without a positive in the split, negatives whose text equals one of the query's
    labelled positives, and second negatives with the same text.

    Args:
        collection: documents, queries, judgements.
        sources: name -> negatives.
        split: whose judgements give the positives.
        sample: number of records to draw, seeded; None: all.
        control: add a source of random negatives: for each record as many as the sources have on average, drawn
            from the distinct texts of the sources, so that no further text has to be embedded.
        seed: of sample and control.

    Raises:
        InputError: no source, a reserved or empty name, a source without any negative, or a sample below 1.
    """
    _check_names(sources)
    if sample is not None and sample < 1:
        raise InputError(f"sample {sample}; expected at least 1 record")
    positives = collection.positives(split)
    chosen = np.arange(len(positives))
    if sample is not None and sample < len(positives):
        chosen = np.sort(np.random.default_rng([seed, 1]).choice(len(positives), sample, replace=False))
    queries = positives.query_rows[chosen]
    of_record = [positives.of(int(index)) for index in chosen]
    positive_record = np.repeat(np.arange(len(queries)), [len(rows) for rows in of_record])

    loaded = {name: _load(negatives, collection, positives.query_rows, queries) for name, negatives in sources.items()}
    pool = _Pool(
        collection,
        [np.concatenate(of_record), *(part.documents for part in loaded.values())],
        [part.own for part in loaded.values()],
    )
    all_positives = pool.index_of_rows(np.concatenate(of_record))
    labelled = _codes(positive_record, all_positives)

    records, documents, bits = [], [], []
    for bit, (name, part) in enumerate(loaded.items()):
        record, document = part.record, pool.index_of(part)
        equal = np.isin(_codes(record, document), labelled)
        part.dropped[EQUAL] = int(equal.sum())
        record, document = record[~equal], document[~equal]
        _, first = np.unique(_codes(record, document), return_index=True)
        part.dropped[REPEATED] = len(record) - len(first)
        if not len(first):
            raise InputError(
                f"the source {name} has no negative left for the split {split!r} ({_listed(part.dropped)}); "
                "check that it was made for this collection and split"
            )
        records.append(record[first])
        documents.append(document[first])
        bits.append(np.full(len(first), 1 << bit, np.int64))
    corpus = np.unique(np.concatenate([all_positives[np.unique(positive_record, return_index=True)[1]], *documents]))
    names = [*loaded]
    if control:
        drawn = _draw_control(records, corpus, labelled, len(queries), np.random.default_rng([seed, 2]))
        records.append(drawn[0])
        documents.append(drawn[1])
        bits.append(np.full(len(drawn[0]), 1 << len(names), np.int64))
        names.append(CONTROL)
    record, document, members = _united(records, documents, bits)
    kept, record = np.unique(record, return_inverse=True)
    at = np.searchsorted(kept, positive_record)
    of_kept = (at < len(kept)) & (kept[np.minimum(at, len(kept) - 1)] == positive_record)
    return Records(
        collection,
        queries[kept],
        all_positives[np.searchsorted(positive_record, kept)],
        all_positives[of_kept],
        at[of_kept],
        record,
        document,
        members,
        pool.texts,
        tuple(names),
        corpus,
        {name: {why: count for why, count in part.dropped.items() if count} for name, part in loaded.items()},
    )


@dataclass
class _Loaded:
    """The kept rows of one source in the sample: record, and document row or −1 with its own text."""

    record: Rows
    documents: Rows
    own: list[str]
    dropped: Counter[str]


def _load(negatives: Negatives, collection: Collection, of_split: Rows, queries: Rows) -> _Loaded:
    dropped = Counter(negatives.rejected())
    query_rows, doc_rows = negatives.rows_in(collection)
    keep = negatives.keep
    known = np.isin(query_rows, of_split)
    dropped[NOT_IN_SPLIT] = int((keep & ~known).sum())
    keep &= np.isin(query_rows, queries)
    order = np.argsort(queries)
    record = order[np.minimum(np.searchsorted(queries[order], query_rows[keep]), len(order) - 1)]
    own: list[str] = []
    if "text" in negatives.table.column_names:
        own = negatives.table["text"].filter(pa.array(keep & (doc_rows < 0))).to_pylist()
    return _Loaded(record, doc_rows[keep], own, dropped)


class _Pool:
    """Numbers distinct texts: those of the collection's rows that occur, then the sources' own."""

    def __init__(self, collection: Collection, row_lists: list[Rows], own_lists: list[list[str]]) -> None:
        self._rows = np.unique(np.concatenate([rows[rows >= 0] for rows in row_lists]))
        own = list(dict.fromkeys(text for listed in own_lists for text in listed))
        keys = [
            text_keys(collection.document_texts(self._rows[at : at + 50_000]), "")
            for at in range(0, len(self._rows), 50_000)
        ]
        every = np.concatenate([*keys, text_keys(own, "")])
        _, first, inverse = np.unique(every, axis=0, return_index=True, return_inverse=True)
        order = np.argsort(np.argsort(first))  # number distinct texts as they first come
        number = order[inverse.ravel()]
        kept = np.sort(first)
        self.texts = PooledTexts(
            collection,
            self._rows[kept[kept < len(self._rows)]],
            tuple(own[index - len(self._rows)] for index in kept[kept >= len(self._rows)]),
        )
        self._of_row = number[: len(self._rows)]
        self._of_own = dict(zip(own, number[len(self._rows) :].tolist(), strict=True))

    def index_of_rows(self, rows: Rows) -> Rows:
        return self._of_row[np.searchsorted(self._rows, rows)]

    def index_of(self, part: _Loaded) -> Rows:
        out = np.empty(len(part.documents), np.int64)
        stored = part.documents >= 0
        out[stored] = self.index_of_rows(part.documents[stored])
        out[~stored] = [self._of_own[text] for text in part.own]
        return out


def _draw_control(
    records: list[Rows], corpus: Rows, labelled: Rows, count: int, rng: np.random.Generator
) -> tuple[Rows, Rows]:
    """Draw for each record as many texts of the corpus as the sources have on average, none of them a positive."""
    wanted = max(1, round(float(np.mean([len(record) / len(np.unique(record)) for record in records]))))
    have = np.unique(np.concatenate(records))
    record = np.repeat(have, 2 * wanted + 8)
    document = corpus[rng.integers(len(corpus), size=len(record))]
    fresh = ~np.isin(_codes(record, document), labelled)
    _, first = np.unique(_codes(record, document), return_index=True)
    distinct = np.zeros(len(record), bool)
    distinct[first] = True
    record, document = record[fresh & distinct], document[fresh & distinct]
    enough = ranks_within(record) < wanted
    return record[enough], document[enough]


def _united(records: list[Rows], documents: list[Rows], bits: list[Rows]) -> tuple[Rows, Rows, Rows]:
    """Merge triplets of all sources: one row per distinct (record, document), bits added."""
    record, document, bit = np.concatenate(records), np.concatenate(documents), np.concatenate(bits)
    codes, first, inverse = np.unique(_codes(record, document), return_index=True, return_inverse=True)
    members = np.zeros(len(codes), np.int64)
    np.bitwise_or.at(members, inverse, bit)
    return record[first], document[first], members


def _codes(record: Rows, document: Rows) -> Rows:
    return (record << 32) | document


def _check_names(sources: Mapping[str, Negatives]) -> None:
    if not sources:
        raise InputError("no source; give at least one source of negatives")
    if len(sources) > MAX_SOURCES:
        raise InputError(f"{len(sources)} sources; at most {MAX_SOURCES} can be scored together")
    bad = [name for name in sources if not name or name == CONTROL or "+" in name]
    if bad:
        raise InputError(f"source names {bad}; a name is not empty, not {CONTROL!r}, and has no +, which joins hybrids")


def _listed(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {why}" for why, count in counts.items() if count) or "it is empty"
