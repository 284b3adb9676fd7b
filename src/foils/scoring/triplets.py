"""Records for scoring: the sources' negatives of each query as one set of distinct triplets.

A triplet (query, positive, negative) that several sources hold is kept once, with the set of its
sources as bits. So a hybrid is a union of bits, and every text is embedded, and every triplet
measured, once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from itertools import combinations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from foils.data.collection import Collection, DocumentTexts, PairIndex, Positives, Rows, TextNumbers, pair_codes
from foils.data.negatives import EQUAL, Negatives
from foils.data.run import ranks_within
from foils.runtime import seeds
from foils.runtime.errors import InputError
from foils.runtime.options import Option

CONTROL = "random control"
REPEATED = "repeated text"
NOT_IN_SPLIT = "query without a positive in the split"
NO_NEGATIVE = "queries without a negative"
MAX_SOURCES = 62  # with the control and random negatives the bits of a 64-bit number
NO_ROWS = np.zeros(0, np.int64)

Marks = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Target:
    """A source, or a hybrid of sources, to be scored.

    Attributes:
        name: the source's, or the parts' joined by +.
        bits: which bits of `Records.members` count as its negatives.
    """

    name: str
    bits: int

    def of(self, members: npt.NDArray[np.int64]) -> Marks:
        """Return which triplets are this target's."""
        return np.asarray((members & self.bits) != 0)


@dataclass(frozen=True)
class Records:
    """T records with m distinct triplets, sorted by record.

    Attributes:
        collection: that the sources were made from.
        queries: (T,) query rows.
        positives: (T,) pool index of each record's first labelled positive.
        all_positives: (p,) pool indices of all labelled positives, and `positive_record` (p,) their
            records, ascending.
        record: (m,) the record of each triplet, ascending.
        document: (m,) pool index of the negative.
        members: (m,) bit s is set where source s holds the triplet.
        texts: the pool of distinct texts.
        names: of the sources, by bit; the control, where there is one, is the last.
        dropped: source name -> reason -> number of negatives (of queries, where the reason says so) left out.
        corpus: (c,) pool indices of the distinct positives and negatives of the sources, the
            control's left out.
        sampled: (s,) records that published scores are of; the others are looked at by the decision alone.
    """

    collection: Collection
    queries: Rows
    positives: Rows
    all_positives: Rows
    positive_record: Rows
    record: Rows
    document: Rows
    members: npt.NDArray[np.int64]
    texts: DocumentTexts
    names: tuple[str, ...]
    corpus: Rows
    sampled: Rows
    dropped: Mapping[str, Mapping[str, int]] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.queries)

    def part(self, records: Rows, names: Sequence[str]) -> tuple[Records, Rows, Rows, Rows]:
        """Return what some sources have of some records, and the places of its records, triplets and texts.

        Args:
            records: (t,) places among the records.
            names: of the sources, the control's last, where it is among them.
        """
        members = np.zeros(len(self.record), np.int64)
        for bit, name in enumerate(names):
            members |= (self.members >> self.names.index(name) & 1) << bit
        triplets = np.flatnonzero((members != 0) & np.isin(self.record, records))
        kept = np.unique(self.record[triplets])
        positives = np.flatnonzero(np.isin(self.positive_record, kept))
        pool = [self.positives[kept], self.all_positives[positives], self.document[triplets]]
        texts, numbers = np.unique(np.concatenate(pool), return_inverse=True)
        first, every, document = np.split(numbers, np.cumsum([len(each) for each in pool[:2]]))
        of_sources = members[triplets] & ~(np.int64(1) << names.index(CONTROL) if CONTROL in names else np.int64(0))
        part = replace(
            self,
            queries=self.queries[kept],
            positives=first,
            all_positives=every,
            positive_record=np.searchsorted(kept, self.positive_record[positives]),
            record=np.searchsorted(kept, self.record[triplets]),
            document=document,
            members=members[triplets],
            texts=self.texts.select(texts),
            names=tuple(names),
            corpus=np.unique(np.concatenate([first, document[of_sources != 0]])),
            sampled=np.flatnonzero(np.isin(kept, self.sampled)),
        )
        return part, kept, triplets, texts

    @property
    def sources(self) -> tuple[str, ...]:
        """The sources' names, without the control's."""
        return tuple(name for name in self.names if name != CONTROL)

    def shared(self) -> Rows:
        """Return the records for which every source has a negative, ascending."""
        held = [np.unique(self.record[self.members >> bit & 1 == 1]) for bit in range(len(self.sources))]
        return np.asarray(reduce(np.intersect1d, held), np.int64)

    def targets(self, hybrids: int = 2) -> list[Target]:
        """Return the sources with a triplet, their unions of 2, …, `hybrids`, then the control, if any."""
        bits = {name: 1 << index for index, name in enumerate(self.names)}
        present = [name for name in self.sources if (self.members & bits[name]).any()]
        targets = [
            Target("+".join(chosen), sum(bits[name] for name in chosen))
            for size in range(1, max(1, hybrids) + 1)
            for chosen in combinations(present, size)
        ]
        return targets + ([Target(CONTROL, bits[CONTROL])] if CONTROL in bits else [])


def make_records(
    collection: Collection,
    sources: Mapping[str, Negatives],
    *,
    split: str,
    sample: int | None = None,
    control: bool = True,
    seed: int = 0,
    beside: Mapping[str, Negatives] | None = None,
    queries: Rows | None = None,
) -> Records:
    """Unite sources into records (ECI_sem, Problem Setup).

    A record is a query of the split, with its first labelled positive, for which some source has a
    negative. Left out of a source, and counted: rows that an earlier stage rejected, queries
    without a positive in the split, negatives whose text equals a labelled positive of the query
    (in any split), second negatives with the same text, and the queries of the split (of the
    sample) that are left without a negative.

    Args:
        collection: documents, queries, judgements.
        sources: name -> negatives.
        split: whose judgements give the positives.
        sample: number of records to draw, seeded: from the queries that every source has negatives
            for, and from those that some source has where these are not enough; None: all.
        control: add a source of random negatives: for each record as many as the sources have on
            average, drawn from the distinct texts of the sources, so that no further text has to be
            embedded; fewer where the sources have no more texts.
        seed: of sample and control.
        beside: name -> negatives, of `queries` alone, that sample, control and idf take no notice of;
            there may be none.
        queries: rows of queries that are looked at in addition to the sample.

    Raises:
        InputError: no source, a reserved or empty name, sources without any negative, or a sample below 1.
    """
    tables = {**sources, **(beside or {})}
    _check_sources(sources if control else tables, max(len(sources), len(tables) - 1), sample)
    positives = collection.positives(split)  # until the last line a record's number is its query's place here
    loaded = [_Loaded.of(table, *table.texts_in(collection), positives) for table in tables.values()]

    # 1. Records: those that published scores are of, and those that are looked at besides.
    of_sources = [part.record for part in loaded[: len(sources)]]
    sampled, considered = np.unique(np.concatenate([NO_ROWS, *of_sources])), len(positives)
    if sample is not None:
        considered = min(sample, len(sampled))
        sampled = _sample(sampled, of_sources, considered, seed)
    looked_at = NO_ROWS if queries is None else np.flatnonzero(np.isin(positives.query_rows, queries))
    either = np.union1d(sampled, looked_at)
    scored = [part.of_records(either) for part in loaded[: len(sources)]]
    loaded = [*scored, *(part.of_records(looked_at) for part in loaded[len(sources) :])]
    row_record = np.concatenate([part.record for part in loaded])
    chosen = np.unique(row_record)

    # 2. Texts get numbers: labelled positives of any split, and negatives.
    rows = positives.query_rows[chosen]
    known_record, known_rows = collection.known_positives.pairs_of(rows)
    positive_record, positive_rows = positives.pairs_of(rows)
    labelled_texts = (DocumentTexts(collection, each) for each in (known_rows, positive_rows))
    texts, numbers = number_texts([*labelled_texts, *(part.texts for part in loaded)])
    known_texts, positive_texts, *of_loaded = numbers
    labelled, positive_record = PairIndex(chosen[known_record], known_texts), chosen[positive_record]
    first_positives = np.full(len(positives), -1, np.int64)
    first_positives[positive_record[::-1]] = positive_texts[::-1]  # of several the first is written last

    # 3. Distinct negatives that equal no labelled positive, with bit s where source s has them.
    row_document = np.concatenate(of_loaded)
    row_source = np.repeat(np.arange(len(loaded)), [len(part.record) for part in loaded])
    equal, counted = labelled.contain(row_record, row_document), np.isin(np.arange(len(positives)), sampled)
    record, document, members = _united(row_record[~equal], row_document[~equal], np.int64(1) << row_source[~equal])
    held = [record[(members >> bit & 1 == 1) & counted[record]] for bit in range(len(sources))]
    for bit, part in enumerate(scored):
        of_source = (row_source == bit) & counted[row_record]
        part.dropped[EQUAL] += int((of_source & equal).sum())
        part.dropped[REPEATED] += int((of_source & ~equal).sum()) - len(held[bit])
        part.dropped[NO_NEGATIVE] += considered - len(np.unique(held[bit]))
    dropped = {
        name: {why: n for why, n in part.dropped.items() if n} for name, part in zip(sources, scored, strict=True)
    }
    empty = [name for name, of_source in zip(sources, held, strict=True) if not len(of_source)]
    if empty:
        listed = "; ".join(f"{name} ({left_out(dropped[name]) or 'it is empty'})" for name in empty)
        raise InputError(
            f"no negative left for the split {split!r} in {listed}; "
            "check that each source was made for this collection and split"
        )
    sampled = np.unique(np.concatenate([NO_ROWS, *held]))

    # 4. The control.
    names = [*tables, *[CONTROL] * control]
    if control:
        of_sources = (members & (1 << len(sources)) - 1 != 0) & counted[record]
        corpus = np.unique(np.concatenate([first_positives[sampled], document[of_sources]]))
        wanted = max(1, round(float(np.mean([len(each) / len(np.unique(each)) for each in held]))))
        rng = np.random.default_rng([seed, seeds.CONTROL])
        drawn_record, drawn_document = _draw_control(sampled, wanted, corpus, labelled, rng)
        record, document = np.append(record, drawn_record), np.append(document, drawn_document)
        members = np.append(members, np.full(len(drawn_record), np.int64(1) << len(tables)))
        record, document, members = _united(record, document, members)
    every = Records(
        collection=collection,
        queries=positives.query_rows,
        positives=first_positives,
        all_positives=positive_texts,
        positive_record=positive_record,
        record=record,
        document=document,
        members=members,
        texts=texts,
        names=tuple(names),
        corpus=NO_ROWS,
        sampled=sampled,
        dropped=dropped,
    )
    return every.part(chosen, names)[0]


def _check_sources(names: Sequence[str] | Mapping[str, Negatives], count: int, sample: int | None) -> None:
    Option(least=1).check("sample", sample)
    if not names:
        raise InputError("no source; give at least one source of negatives")
    if count > MAX_SOURCES:
        raise InputError(f"{count} sources; at most {MAX_SOURCES} can be scored together")
    bad = [name for name in names if not name or name == CONTROL or "+" in name]
    if bad:
        raise InputError(f"source names {bad}; give names, not {CONTROL!r}, without +, which joins hybrids")


def _united(record: Rows, document: Rows, members: Rows) -> tuple[Rows, Rows, Rows]:
    """Return each (record, document) once, ascending, with the bits of all its rows."""
    codes, at, inverse = np.unique(pair_codes(record, document), return_index=True, return_inverse=True)
    united = np.zeros(len(codes), np.int64)
    np.bitwise_or.at(united, inverse, members)
    return record[at], document[at], united


def _sample(records: Rows, of_sources: Sequence[Rows], count: int, seed: int) -> Rows:
    """Draw so many records, ascending: those that every source has a negative for before the others."""
    rng = np.random.default_rng([seed, seeds.RECORDS])
    common = reduce(np.intersect1d, of_sources, records)
    drawn = rng.choice(common, min(count, len(common)), replace=False)
    others = rng.choice(np.setdiff1d(records, common), count - len(drawn), replace=False)
    return np.sort(np.concatenate([drawn, others]))


def left_out(dropped: Mapping[str, int]) -> str:
    """Return in words what was left out of a source: negatives by reason, and queries; or nothing."""
    return ", ".join(f"{why}: {count:,}" for why, count in dropped.items())


@dataclass
class _Loaded:
    """The kept rows of one source: record, and the document's text."""

    record: Rows
    texts: DocumentTexts
    dropped: Counter[str]

    @classmethod
    def of(cls, negatives: Negatives, query_rows: Rows, texts: DocumentTexts, positives: Positives) -> _Loaded:
        """Return the kept rows of queries that have a positive."""
        record = positives.places(query_rows)
        keep = negatives.keep & (record >= 0)
        dropped = Counter(negatives.rejected())
        dropped[NOT_IN_SPLIT] = int((negatives.keep & (record < 0)).sum())
        return cls(record[keep], texts.select(np.flatnonzero(keep)), dropped)

    def of_records(self, chosen: Rows) -> _Loaded:
        """Return the rows of these records."""
        keep = np.flatnonzero(np.isin(self.record, chosen))
        return _Loaded(self.record[keep], self.texts.select(keep), self.dropped)


def number_texts(parts: Sequence[DocumentTexts]) -> tuple[DocumentTexts, list[Rows]]:
    """Return the distinct texts of parts, and for each part the places (n,) of its texts among these.

    First come documents of the collection, by row, then texts that are no documents of it, sorted.
    """
    rows = np.concatenate([np.asarray(part.rows) for part in parts])
    brought = [
        text for part in parts for text in part.select(np.flatnonzero(np.asarray(part.rows) < 0)).take(slice(None))
    ]
    own, number = np.unique(np.array(brought, object), return_inverse=True)
    documents = np.unique(rows[rows >= 0])
    every = np.concatenate([documents, -1 - np.arange(len(own))])
    texts = DocumentTexts(parts[0].collection, every, pa.array(own, pa.large_string()))
    distinct = TextNumbers(np.arange(len(every)), texts.take).numbers
    places = np.searchsorted(documents, rows)
    places[rows < 0] = len(documents) + number
    ends = np.cumsum([len(part) for part in parts])[:-1]
    return texts.select(np.unique(distinct, return_index=True)[1]), np.split(distinct[places], ends)


def _draw_control(
    have: Rows, wanted: int, corpus: Rows, labelled: PairIndex, rng: np.random.Generator
) -> tuple[Rows, Rows]:
    """Draw `wanted` texts of the corpus for each record, none of them a positive."""
    record = np.repeat(have, 2 * wanted + 8)
    document = corpus[rng.integers(len(corpus), size=len(record))]
    kept = first_distinct(record, document, labelled.contain(record, document), wanted)
    record, document = record[kept], document[kept]
    short = have[np.bincount(np.searchsorted(have, record), minlength=len(have)) < wanted]
    full = ~np.isin(record, short)
    records, documents = [record[full]], [document[full]]
    for each in short:  # a small corpus: draw from all that it has
        free = corpus[~labelled.contain(np.full(len(corpus), each), corpus)]
        documents.append(rng.permutation(free)[:wanted])
        records.append(np.full(len(documents[-1]), each))
    return np.concatenate(records), np.concatenate(documents)


def first_distinct(query: Rows, document: Rows, excluded: Marks, most: int) -> Rows:
    """Return the places of each query's first `most` distinct documents that are not excluded, ascending.

    Args:
        query: (n,) the query of each drawn document; equal ones are neighbours.
        document: (n,) the document.
        excluded: (n,) which draws do not count, as they are positives.
        most: documents of a query.
    """
    free = np.flatnonzero(~excluded)
    _, first = np.unique(pair_codes(query[free], document[free]), return_index=True)
    places = free[np.sort(first)]
    return np.asarray(places[ranks_within(query[places]) < most])


def triplets_of_rows(negatives: Negatives, records: Records) -> Rows:
    """Return each table row's triplet of the records with its query and text, −1 where there is none."""
    queries, texts = negatives.texts_in(records.collection)
    _, (pool, documents) = number_texts([records.texts, texts])
    record = PairIndex(records.queries, 0).places(queries, 0)
    place = PairIndex(records.record, pool[records.document]).places(record, documents)
    return np.where((record >= 0) & negatives.keep, place, -1)
