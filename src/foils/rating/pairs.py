"""Candidates of queries, which of them are compared with each other, and what a judge says of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from foils.data.tables import take
from foils.runtime.errors import InputError

Floats = npt.NDArray[np.float64]
Rows = npt.NDArray[np.int64]
Marks = npt.NDArray[np.bool_]
_AT_ONCE = 2**18  # pairs worked on together


@dataclass(frozen=True)
class Pairs:
    """Pairs of candidates to compare, for many queries at once.

    The candidates of all queries are numbered through: those of query q are offsets[q] … offsets[q + 1] − 1.

    Attributes:
        offsets: (Q + 1,) int64, from 0, not decreasing.
        first: (m,) int64, a candidate.
        second: (m,) int64, another candidate of the same query. The pairs come query by query; a pair may repeat.

    Raises:
        InputError: offsets that fall, a candidate that does not exist or is paired with itself, a pair across
            queries, or pairs that are not ordered by query.
    """

    offsets: Rows
    first: Rows
    second: Rows

    def __post_init__(self) -> None:
        for name in ("offsets", "first", "second"):
            object.__setattr__(self, name, np.asarray(getattr(self, name), np.int64))
        offsets, first, second = self.offsets, self.first, self.second
        if offsets.ndim != 1 or not len(offsets) or offsets[0] != 0 or (np.diff(offsets) < 0).any():
            raise InputError("offsets must be one row of numbers from 0 that never falls")
        if first.ndim != 1 or first.shape != second.shape:
            raise InputError(f"first {first.shape} and second {second.shape} must be two rows of the same length")
        outside = (np.minimum(first, second) < 0) | (np.maximum(first, second) >= offsets[-1])
        faults = {
            f"name a candidate outside 0 … {offsets[-1] - 1}": outside,
            "compare a candidate with itself": first == second,
            "compare candidates of different queries": self.query != np.searchsorted(offsets, second, "right") - 1,
            "are not ordered by query": np.diff(self.query, prepend=0) < 0,
        }
        complaints = [f"{int(wrong.sum())} pairs {what}" for what, wrong in faults.items() if wrong.any()]
        if complaints:
            raise InputError("; ".join(complaints))

    def __len__(self) -> int:
        return len(self.first)

    @classmethod
    def unchecked(cls, offsets: Rows, first: Rows, second: Rows) -> Pairs:
        """Wrap pairs taken from checked ones, whose `offsets` stay the same object: that costs nothing per query."""
        pairs = object.__new__(cls)
        for name, values in (("offsets", offsets), ("first", first), ("second", second)):
            object.__setattr__(pairs, name, values)
        return pairs

    @property
    def queries(self) -> int:
        """How many queries, Q."""
        return len(self.offsets) - 1

    @property
    def candidates(self) -> int:
        """How many candidates all queries have together, N."""
        return int(self.offsets[-1])

    @property
    def sizes(self) -> Rows:
        """(Q,) how many candidates each query has."""
        return np.diff(self.offsets)

    @cached_property
    def query(self) -> Rows:
        """(m,) the query of each pair."""
        return np.searchsorted(self.offsets, self.first, side="right") - 1

    @cached_property
    def pair_offsets(self) -> Rows:
        """(Q + 1,) where the pairs of each query begin and end."""
        return np.searchsorted(self.query, np.arange(self.queries + 1))

    @property
    def degrees(self) -> Rows:
        """(N,) in how many pairs each candidate takes part."""
        once, twice = (np.bincount(ends, minlength=self.candidates) for ends in (self.first, self.second))
        return np.asarray(once + twice)

    @property
    def codes(self) -> Rows:
        """(m,) a number for each pair of candidates, whichever is first."""
        return np.asarray(np.minimum(self.first, self.second) * self.candidates + np.maximum(self.first, self.second))

    @property
    def turned(self) -> Pairs:
        """The same pairs, the second of each first."""
        return Pairs.unchecked(self.offsets, self.second, self.first)

    def where(self, chosen: npt.NDArray[np.bool_]) -> Pairs:
        """Return the pairs at which `chosen` (m,) is true; the candidates stay."""
        return self if chosen.all() else self.at(np.flatnonzero(chosen))

    def at(self, rows: Rows) -> Pairs:
        """Return the pairs at these positions, ascending; the candidates stay."""
        return Pairs.unchecked(self.offsets, self.first[rows], self.second[rows])

    def joined(self, other: Pairs) -> tuple[Pairs, Rows]:
        """Return the pairs of both, over the same candidates, and the (m + m',) positions they had laid end to end."""
        order = np.argsort(np.concatenate([self.query, other.query]), kind="stable")
        first, second = np.concatenate([self.first, other.first]), np.concatenate([self.second, other.second])
        return Pairs(self.offsets, first[order], second[order]), order

    def blocks(self, most: int, *, each: int = 2) -> Iterator[Block]:
        """Cut the queries, by their number of candidates n ≥ 1, into blocks of B with B·n^each ≤ most, or B = 1."""
        sizes = self.sizes
        for n in np.unique(sizes[sizes > 0]).tolist():
            queries, count = np.flatnonzero(sizes == n), max(1, most // n**each)
            for start in range(0, len(queries), count):
                yield block_of(self, queries[start : start + count])


@dataclass(frozen=True)
class Block:
    """Some queries of `Pairs` that have equally many candidates, n.

    Attributes:
        queries: (B,) which queries.
        at: (B, n) their candidates in `Pairs`.
        pairs: (p,) which pairs.
        query: (p,) the row of each pair's query, 0 … B − 1.
        first: (p,) the column of its first candidate, 0 … n − 1.
        second: (p,) of its second.
    """

    queries: Rows
    at: Rows
    pairs: Rows
    query: Rows
    first: Rows
    second: Rows

    def lead(self, ratings: Floats) -> Floats:
        """Return (p,) e_first − e_second, by (B, n) ratings."""
        return np.asarray(ratings[self.query, self.first] - ratings[self.query, self.second])


def block_of(pairs: Pairs, queries: Rows) -> Block:
    """Return a block of these queries, all with the same number of candidates."""
    starts, begins = pairs.offsets[queries], pairs.pair_offsets
    counts = begins[queries + 1] - begins[queries]
    query = np.repeat(np.arange(len(queries)), counts)
    chosen = (begins[queries] - np.cumsum(counts) + counts)[query] + np.arange(len(query))
    at = starts[:, None] + np.arange(pairs.sizes[queries[0]])
    return Block(queries, at, chosen, query, pairs.first[chosen] - starts[query], pairs.second[chosen] - starts[query])


def parts_of(count: int) -> Iterator[slice]:
    """Yield slices of `count` pairs, whose numbers are worked on together: what they take does not grow with all."""
    return (slice(start, start + _AT_ONCE) for start in range(0, count, _AT_ONCE))


def parts_by_query(rows: Rows, query: Rows, block: int) -> Iterator[Rows]:
    """Cut rows, ordered by query, between queries, into parts of at least `block` where there are so many."""
    begin, query_of_row = 0, query[rows]
    while begin < len(rows):
        end = begin + block
        if end < len(rows):
            end = int(np.searchsorted(query_of_row, query_of_row[end - 1], side="right"))
        yield rows[begin:end]
        begin = end


@dataclass(frozen=True)
class Candidates:
    """Candidate documents of queries, numbered through as in `Pairs`.

    Attributes:
        query_ids: (Q,) ids.
        queries: (Q,) texts.
        offsets: (Q + 1,) the candidates of query q are offsets[q] … offsets[q + 1] − 1.
        doc_ids: (N,) ids.
        texts: from rows of candidates to their texts, so that a large set need not lie in memory at once.
    """

    query_ids: Sequence[str]
    queries: Sequence[str]
    offsets: Rows
    doc_ids: pa.ChunkedArray
    texts: Callable[[Rows], Sequence[str]]

    @classmethod
    def of_lists(
        cls, query_ids: Sequence[str], queries: Sequence[str], documents: Sequence[Sequence[tuple[str, str]]]
    ) -> Candidates:
        """Return candidates from (id, text) lists, one list for each query."""
        flat = [pair for listed in documents for pair in listed]
        offsets = np.cumsum([0, *map(len, documents)], dtype=np.int64)
        ids = pa.chunked_array([[key for key, _ in flat]], pa.large_string())
        return cls(query_ids, queries, offsets, ids, lambda rows: [flat[row][1] for row in rows])

    def query_of(self, rows: npt.ArrayLike) -> Rows:
        """Return the query of each candidate row."""
        return np.asarray(np.searchsorted(self.offsets, rows, side="right") - 1)

    def ids(self, rows: npt.ArrayLike) -> pa.Array:
        """Return the document ids of these rows, as large strings."""
        return take(self.doc_ids, np.asarray(rows)).cast(pa.large_string())

    def check(self, pairs: Pairs) -> None:
        """Raise an InputError where pairs are not over these candidates; pairs with these very offsets cost nothing."""
        if pairs.offsets is not self.offsets and not np.array_equal(pairs.offsets, self.offsets):
            raise InputError("the pairs were made for other candidates; their offsets differ")


def texts_of(candidates: Candidates, first: Rows, second: Rows) -> tuple[list[str], list[str], list[str]]:
    """Return the query's, first and second text of pairs of candidates; each text is looked up once."""
    rows, place = np.unique(np.concatenate([first, second]), return_inverse=True)
    texts = candidates.texts(rows)
    queries = [candidates.queries[row] for row in candidates.query_of(first)]
    return queries, [texts[row] for row in place[: len(first)]], [texts[row] for row in place[len(first) :]]


@dataclass(frozen=True)
class Judgements:
    """Answers about pairs.

    Attributes:
        forward: (m,) P(first ≻ second), the first shown first; NaN where the judge failed.
        backward: (m,) P(second ≻ first), the second shown first; NaN where the judge failed.
    """

    forward: Floats
    backward: Floats

    @property
    def preference(self) -> Floats:
        """(m,) P(first ≻ second), the mean of both orders; NaN unless both were answered (one alone is biased)."""
        return (self.forward + 1 - self.backward) / 2

    def observations(self) -> tuple[Floats, Floats]:
        """Return (2, m) P(first ≻ second) of each order, and 1 where the first was shown first, −1 where second."""
        x = np.repeat([[1.0], [-1.0]], len(self.forward), axis=1)
        return np.stack([self.forward, 1 - self.backward]), x

    @property
    def missing(self) -> int:
        """How many pairs have no judgement."""
        return int(np.isnan(self.preference).sum())

    @property
    def order_correlation(self) -> float:
        """Correlation of what both orders say of the pairs, each less the position bias; 0 where they say nothing."""
        known = np.isfinite(self.preference)
        one, other = self.forward[known] - 0.5, 0.5 - self.backward[known]
        bias = (one - other).mean() / 2 if len(one) else 0.0
        one, other = one - bias, other + bias
        total = float((one**2).sum() + (other**2).sum())
        return 2 * float((one * other).sum()) / total if total > 1e-12 else 0.0

    @property
    def position_bias(self) -> float:
        """Mean of P(shown first ≻ shown second) − 1/2 over both orders: 0 without bias, above where first wins."""
        both = (self.forward + self.backward) / 2 - 0.5
        return float(np.nanmean(both)) if np.isfinite(both).any() else float("nan")


@dataclass(frozen=True)
class Showings:
    """What each showing of a list says about pairs.

    Attributes:
        wins: (K, m) 1 where the pair's first came out before its second, else 0; NaN: no answer.
        ahead: (K, m) by how many places it was shown before the second, below 0 behind it.
    """

    wins: Floats
    ahead: Floats

    def where(self, chosen: Marks) -> Showings:
        """Return what they say about the pairs at which `chosen`, (m,), is true."""
        return Showings(self.wins[:, chosen], self.ahead[:, chosen])

    def observations(self) -> tuple[Floats, Floats]:
        """Return the answers, and the places by which the first stood before the second."""
        return self.wins, self.ahead

    @property
    def preference(self) -> Floats:
        """(m,) the share of showings in which the first came out before the second, both orders alike; else NaN."""
        known = np.isfinite(self.wins)
        shares = []
        for shown in (known & (self.ahead > 0), known & (self.ahead < 0)):
            counts = shown.sum(axis=0)
            sums = np.where(shown, self.wins, 0.0).sum(axis=0)
            shares.append(np.divide(sums, counts, out=np.full(len(counts), np.nan), where=counts > 0))
        return np.asarray((shares[0] + shares[1]) / 2)


def combined(answers: Sequence[Judgements]) -> Judgements:
    """Return the mean of judges' judgements of the same pairs, p = (1/|P|) Σ_p (f_p + 1 − b_p)/2; of one, its own.

    f_p and b_p are judge p's answers in both orders. A judge that lacks one order of a pair is left out of that pair,
    with the order that it has: its position bias would stay in the mean. NaN where every judge is left out.

    Args:
        answers: of at least one judge, all about the same pairs.

    Source: ANMI 2.0 eq. 29, each R_p being the mean of both orders.
    """
    if len(answers) == 1:
        return answers[0]
    forward = backward = count = np.zeros(())
    for one in answers:
        whole = np.isfinite(one.preference)
        forward = forward + np.where(whole, one.forward, 0.0)
        backward = backward + np.where(whole, one.backward, 0.0)
        count = count + whole
    with np.errstate(invalid="ignore"):
        return Judgements(forward / count, backward / count)


def agreements(judges: Sequence[Judgements]) -> Floats:
    """Return (J,) how often each judge prefers what the mean of the others prefers.

    Over pairs about which the judge and at least one other have an answer, neither ½. NaN without such a pair.
    """
    answers = np.stack([judge.preference for judge in judges])
    known = np.isfinite(answers)
    total, count = np.where(known, answers, 0.0).sum(axis=0), known.sum(axis=0)
    shares = []
    for own, has in zip(answers, known, strict=True):
        others = np.divide(total - np.where(has, own, 0.0), count - has, out=np.full(len(own), 0.5), where=count > has)
        decided = has & (own != 0.5) & (np.abs(others - 0.5) > 1e-12)
        shares.append(float(((own > 0.5) == (others > 0.5))[decided].mean()) if decided.any() else float("nan"))
    return np.array(shares)
