"""Uniting sources into records: each distinct triplet once, with the sources that have it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import reduce

import numpy as np

from foils.data.collection import Collection, Rows
from foils.data.negatives import EQUAL, Negatives
from foils.data.pair_index import Positives
from foils.data.texts import DocumentTexts, texts_of
from foils.runtime.errors import InputError
from foils.scoring.control import draw_control, pair_codes
from foils.scoring.pool import Pool
from foils.scoring.records import CONTROL, Records

REPEATED = "repeated text"
NOT_IN_SPLIT = "query without a positive in the split"
NO_NEGATIVE = "queries without a negative"

MAX_SOURCES = 62


def make_records(
    collection: Collection,
    sources: Mapping[str, Negatives],
    *,
    split: str,
    sample: int | None = None,
    shared: bool = False,
    control: bool = True,
    seed: int = 0,
    queries: Rows | None = None,
) -> Records:
    """Unite sources into records (ECI_sem, Problem Setup).

    A record is a query of the split, with its first labelled positive, for which some source has a negative. Left out
    of a source, and counted: rows that an earlier stage rejected, queries without a positive in the split, negatives
    whose text equals a labelled positive of the query (in any split), second negatives with the same text, and the
    queries of the split (of the sample) that are left without a negative.

    Args:
        collection: documents, queries, judgements.
        sources: name -> negatives.
        split: whose judgements give the positives.
        sample: number of records to draw, seeded: from the queries that every source has negatives for, and from those
            that some source has where these are not enough; None: all.
        shared: keep only the records for which every source has a negative.
        control: add a source of random negatives: for each record as many as the sources have on average, drawn
            from the distinct texts of the sources, so that no further text has to be embedded; fewer where the
            sources have no more texts.
        seed: of sample and control.
        queries: rows of the queries that alone are looked at; then a source may have no negative of theirs.

    Raises:
        InputError: no source, a reserved or empty name, sources without any negative, a sample below 1, or `shared`
            where no record is.
    """
    _check_given(sources, sample)
    positives = collection.positives(split)
    loaded = {name: _load(negatives, collection, positives.query_rows) for name, negatives in sources.items()}
    chosen = np.unique(np.concatenate([part.record for part in loaded.values()]))
    considered = len(positives)
    if queries is not None:
        chosen, considered = chosen[np.isin(positives.query_rows[chosen], queries)], len(queries)
    if sample is not None:
        considered = min(sample, len(chosen))
        chosen = _draw(chosen, [part.record for part in loaded.values()], considered, np.random.default_rng([seed, 1]))
    loaded = {name: part.among(chosen) for name, part in loaded.items()}
    looked_at, every = positives.query_rows[chosen], queries is None
    known_record, known_rows = _pairs_of(collection.known_positives, looked_at)
    pool = Pool(collection, [DocumentTexts(collection, known_rows), *(part.texts for part in loaded.values())])
    labelled = pair_codes(known_record, pool.index_of_rows(known_rows))
    triplets = {
        name: _distinct_negatives(part, pool.index_of(part.texts), labelled, considered)
        for name, part in loaded.items()
    }
    dropped = {name: {why: n for why, n in part.dropped.items() if n} for name, part in loaded.items()}
    _check_triplets(triplets if every else {}, dropped, split)
    if shared:
        triplets = _shared_alone(triplets)
    own_record, own_rows = _pairs_of(positives, looked_at)
    own = (own_record, pool.index_of_rows(own_rows))
    rng = np.random.default_rng([seed, 2]) if control else None
    return _united_records(collection, looked_at, own, triplets, labelled, pool.texts, dropped, rng)


def _united_records(
    collection: Collection,
    queries: Rows,
    positives: tuple[Rows, Rows],
    triplets: dict[str, tuple[Rows, Rows]],
    labelled: Rows,
    texts: DocumentTexts,
    dropped: Mapping[str, Mapping[str, int]],
    rng: np.random.Generator | None,
) -> Records:
    """Put records together, of those queries alone that have a triplet.

    Args:
        collection: that the sources were made from.
        queries: (q,) query rows, which records and positives are numbered by.
        positives: (p,) their places in `queries`, ascending, and (p,) pool indices.
        triplets: source -> (places in `queries`, pool indices of the negatives).
        labelled: codes of the pairs that no negative of the control may be.
        texts: the pool.
        dropped: as in `Records`.
        rng: draws the control; None: there is none.
    """
    kept = np.unique(np.concatenate([record for record, _ in triplets.values()]))
    own_record, own_texts = positives
    first = own_texts[np.searchsorted(own_record, kept)]
    corpus = np.unique(np.concatenate([first, *(document for _, document in triplets.values())]))
    if rng is not None:
        triplets = {**triplets, CONTROL: draw_control(list(triplets.values()), corpus, labelled, rng)}
    record, document, members = _united(list(triplets.values()))
    of_kept = np.isin(own_record, kept)
    used, numbers = np.unique(np.concatenate([corpus, own_texts[of_kept]]), return_inverse=True)
    renumbered = np.full(len(texts), -1, np.int64)
    renumbered[used] = np.arange(len(used))
    return Records(
        collection,
        queries[kept],
        renumbered[first],
        numbers[len(corpus) :],
        np.searchsorted(kept, own_record[of_kept]),
        np.searchsorted(kept, record),
        renumbered[document],
        members,
        texts.select(used),
        tuple(triplets),
        numbers[: len(corpus)],
        dropped,
    )


def _check_triplets(
    triplets: Mapping[str, tuple[Rows, Rows]], dropped: Mapping[str, Mapping[str, int]], split: str
) -> None:
    if empty := [
        f"{name} ({left_out(dropped[name]) or 'it is empty'})"
        for name, (record, _) in triplets.items()
        if not len(record)
    ]:
        raise InputError(
            f"no negative left for the split {split!r} in {'; '.join(empty)}; "
            "check that each source was made for this collection and split"
        )


@dataclass
class _Loaded:
    """The kept rows of one source: record, and the document's text."""

    record: Rows
    texts: DocumentTexts
    dropped: Counter[str]

    def among(self, chosen: Rows) -> _Loaded:
        """Return the rows of these records (ascending), which are numbered anew."""
        keep = np.isin(self.record, chosen)
        texts = self.texts.select(np.flatnonzero(keep))
        return _Loaded(np.searchsorted(chosen, self.record[keep]), texts, self.dropped)


def _load(negatives: Negatives, collection: Collection, of_split: Rows) -> _Loaded:
    dropped = Counter(negatives.rejected())
    query_rows, texts = texts_of(negatives, collection)
    record = _places(query_rows, of_split)
    keep = negatives.keep & (record >= 0)
    dropped[NOT_IN_SPLIT] = int((negatives.keep & (record < 0)).sum())
    return _Loaded(record[keep], texts.select(np.flatnonzero(keep)), dropped)


def _distinct_negatives(part: _Loaded, document: Rows, labelled: Rows, considered: int) -> tuple[Rows, Rows]:
    """Records and texts of a source's distinct negatives, by record; what is left out is counted in `part.dropped`."""
    equal = np.isin(pair_codes(part.record, document), labelled)
    part.dropped[EQUAL] += int(equal.sum())
    record, document = part.record[~equal], document[~equal]
    _, first = np.unique(pair_codes(record, document), return_index=True)
    part.dropped[REPEATED] += len(record) - len(first)
    part.dropped[NO_NEGATIVE] += considered - len(np.unique(record))
    return record[first], document[first]


def _draw(chosen: Rows, records: list[Rows], count: int, rng: np.random.Generator) -> Rows:
    """Draw `count` of the chosen records (ascending), those in every list before the others; in order."""
    common = reduce(np.intersect1d, records, chosen)
    drawn = rng.choice(common, min(count, len(common)), replace=False)
    others = rng.choice(np.setdiff1d(chosen, common), count - len(drawn), replace=False)
    return np.sort(np.concatenate([drawn, others]))


def _shared_alone(triplets: dict[str, tuple[Rows, Rows]]) -> dict[str, tuple[Rows, Rows]]:
    """The triplets of the records that every source has a negative for."""
    common = reduce(np.intersect1d, [record for record, _ in triplets.values()])
    if not len(common):
        raise InputError(
            f"no query has a negative of every source ({', '.join(triplets)}); score all records, or other sources"
        )
    keep = {name: np.isin(record, common) for name, (record, _) in triplets.items()}
    return {name: (record[keep[name]], document[keep[name]]) for name, (record, document) in triplets.items()}


def _places(values: Rows, among: Rows) -> Rows:
    """Return where each value is in `among` (distinct, any order), −1 where it is not."""
    order = np.argsort(among)
    at = np.minimum(np.searchsorted(among[order], values), len(among) - 1)
    places: Rows = np.where(among[order][at] == values, order[at], -1)
    return places


def _pairs_of(positives: Positives, queries: Rows) -> tuple[Rows, Rows]:
    """Return (record, document row) of the queries' positives, by record, each query's in the order of judgement."""
    query_rows, doc_rows = positives.pairs()
    record = _places(query_rows, queries) if len(queries) else np.full(len(query_rows), -1)
    order = np.argsort(record, kind="stable")
    order = order[record[order] >= 0]
    return record[order], doc_rows[order]


def _united(sources: list[tuple[Rows, Rows]]) -> tuple[Rows, Rows, Rows]:
    """Merge triplets of all sources: one row per distinct (record, document), with bit s where source s has it."""
    record, document = (np.concatenate(column) for column in zip(*sources, strict=True))
    bit = np.repeat(1 << np.arange(len(sources)), [len(of) for of, _ in sources])
    codes, first, inverse = np.unique(pair_codes(record, document), return_index=True, return_inverse=True)
    members = np.zeros(len(codes), np.int64)
    np.bitwise_or.at(members, inverse, bit)
    return record[first], document[first], members


def _check_given(sources: Mapping[str, Negatives], sample: int | None) -> None:
    if sample is not None and sample < 1:
        raise InputError(f"sample {sample}; expected at least 1 record")
    if not sources:
        raise InputError("no source; give at least one source of negatives")
    if len(sources) > MAX_SOURCES:
        raise InputError(f"{len(sources)} sources; at most {MAX_SOURCES} can be scored together")
    bad = [name for name in sources if not name or name == CONTROL or "+" in name]
    if bad:
        raise InputError(f"source names {bad}; a name is not empty, not {CONTROL!r}, and has no +, which joins hybrids")


def left_out(dropped: Mapping[str, int]) -> str:
    """Return what was left out of a source, in words: negatives by reason, and queries; empty: nothing was."""

    def said(why: str, count: int) -> str:
        if why == NO_NEGATIVE:
            return f"{count:,} {why}"
        return f"{count:,} negative{'' if count == 1 else 's'} ({why})"

    return ", ".join(said(why, count) for why, count in dropped.items() if count)
