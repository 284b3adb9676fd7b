"""Candidates of queries, which of them are compared with each other, and what a judge says of them.

Pairs to ask about are sparse random graphs that are regular, simple and connected (ANMI 2.0,
section 6.3). A graph is drawn by the keys of its query's candidates alone (`candidate_keys`: a hash
of query, document and seed), as rings of consistent hashing are: another query changes nothing, and
another candidate takes its place in each cycle, where it breaks one pair. Answers cost money; those
that were given are asked for again by the same pairs.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from threadpoolctl import threadpool_limits

from foils.data.tables import take
from foils.runtime import memory
from foils.runtime.errors import InputError
from foils.runtime.options import spelled

Floats = npt.NDArray[np.float64]
Rows = npt.NDArray[np.int64]
Marks = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Pairs:
    """Pairs of candidates to compare, for many queries at once.

    The candidates of all queries are numbered through: those of query q are offsets[q] … offsets[q + 1] − 1.

    Attributes:
        offsets: (Q + 1,) int64, from 0, not decreasing.
        first: (m,) int64, a candidate.
        second: (m,) int64, another candidate of the same query. The pairs come query by query; a
            pair may repeat.

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
        rising = offsets.ndim == 1 and len(offsets) and offsets[0] == 0 and (np.diff(offsets) >= 0).all()
        if not rising or first.ndim != 1 or first.shape != second.shape:
            raise InputError("expected offsets from 0 that never fall, and as many first as second candidates")
        wrong = (np.minimum(first, second) < 0) | (np.maximum(first, second) >= offsets[-1]) | (first == second)
        wrong |= (self.query != np.searchsorted(offsets, second, "right") - 1) | (np.diff(self.query, prepend=0) < 0)
        if wrong.any():
            expected = f"two candidates of one query, of {offsets[-1]} in all, query by query"
            raise InputError(f"{int(wrong.sum())} of {len(first)} pairs are not {expected}")

    def __len__(self) -> int:
        return len(self.first)

    @classmethod
    def unchecked(cls, offsets: Rows, first: Rows, second: Rows) -> Pairs:
        """Wrap pairs taken from checked ones, whose `offsets` stay the same object.

        That costs nothing per query.
        """
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

    def where(self, chosen: npt.NDArray[np.bool_]) -> Pairs:
        """Return the pairs at which `chosen` (m,) is true; the candidates stay."""
        return self if chosen.all() else self.at(np.flatnonzero(chosen))

    def at(self, rows: Rows) -> Pairs:
        """Return the pairs at these positions, ascending; the candidates stay."""
        return Pairs.unchecked(self.offsets, self.first[rows], self.second[rows])

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

    def queries_of(self, rows: Rows) -> list[str]:
        """Return the text of each candidate row's query."""
        return [self.queries[query] for query in self.query_of(rows)]

    def ids(self, rows: npt.ArrayLike) -> pa.Array:
        """Return the document ids of these rows, as large strings."""
        return take(self.doc_ids, np.asarray(rows)).cast(pa.large_string())


def texts_of(candidates: Candidates, first: Rows, second: Rows) -> tuple[list[str], list[str], list[str]]:
    """Return the query's, first and second text of pairs of candidates; each text is looked up once."""
    rows, place = np.unique(np.concatenate([first, second]), return_inverse=True)
    texts = candidates.texts(rows)
    of_pairs = [texts[row] for row in place]
    return candidates.queries_of(first), of_pairs[: len(first)], of_pairs[len(first) :]


@dataclass(frozen=True)
class Judgements:
    """Answers about pairs.

    Attributes:
        forward: (m,) P(first ≻ second), the first shown first; NaN where the judge failed.
        backward: (m,) P(second ≻ first), the second shown first; NaN where the judge failed.
    """

    forward: Floats
    backward: Floats

    def where(self, chosen: Marks) -> Judgements:
        """Return the answers about the pairs at which `chosen`, (m,), is true."""
        return Judgements(self.forward[chosen], self.backward[chosen])

    @property
    def preference(self) -> Floats:
        """(m,) P(first ≻ second), the mean of both orders; NaN unless both were answered (one alone is biased)."""
        return (self.forward + 1 - self.backward) / 2

    def observations(self) -> tuple[Floats, Floats]:
        """Return (2, m) P(first ≻ second) of each order, and 1 where the first was shown first, −1 where second."""
        x = np.repeat([[1.0], [-1.0]], len(self.forward), axis=1)
        return np.stack([self.forward, 1 - self.backward]), x

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

    @classmethod
    def of_judges(cls, parts: Sequence[Showings | Judgements]) -> Showings:
        """Return the showings of several judges, each counted once; a judge of pairs has one for each order.

        The places of a judge are divided by their mean distance, so that a bias of position is one
        of the judge.
        """
        answers = [part.observations() for part in parts]
        places = [ahead / np.abs(ahead[np.isfinite(wins)]).mean() for wins, ahead in answers if len(answers) > 1]
        wins = np.concatenate([wins for wins, _ in answers])
        return cls(wins, np.concatenate(places or [ahead for _, ahead in answers]))

    def where(self, chosen: Marks) -> Showings:
        """Return what they say about the pairs at which `chosen`, (m,), is true."""
        return Showings(self.wins[:, chosen], self.ahead[:, chosen])

    def observations(self) -> tuple[Floats, Floats]:
        """Return the answers, and the places by which the first stood before the second."""
        return self.wins, self.ahead

    def share(self, side: int) -> Floats:
        """Return (m,) the share of showings in which the first came out before the second; NaN without one.

        Args:
            side: 1 for the showings in which it stood before the second, −1 for those in which it
                stood behind.
        """
        shown = np.isfinite(self.wins) & (side * self.ahead > 0)
        with np.errstate(invalid="ignore"):
            return np.asarray(np.where(shown, self.wins, 0.0).sum(axis=0) / shown.sum(axis=0))

    @property
    def preference(self) -> Floats:
        """(m,) the share of showings in which the first came out before the second, both orders alike; else NaN."""
        return (self.share(1) + self.share(-1)) / 2


def combined(answers: Sequence[Judgements]) -> Judgements:
    """Return the mean of judges' judgements of the same pairs, p = (1/|P|) Σ_p (f_p + 1 − b_p)/2; of one, its own.

    f_p and b_p are judge p's answers in both orders. A judge that lacks one order of a pair is left
    out of that pair, with the order that it has: its position bias would stay in the mean. NaN
    where every judge is left out.

    Args:
        answers: of at least one judge, all about the same pairs.

    Source: ANMI 2.0 eq. 29, each R_p being the mean of both orders.
    """
    if len(answers) == 1:
        return answers[0]
    orders = np.stack([[one.forward, one.backward] for one in answers])
    whole = np.isfinite(orders).all(axis=1, keepdims=True)
    with np.errstate(invalid="ignore"):
        return Judgements(*np.where(whole, orders, 0.0).sum(axis=0) / whole.sum(axis=0))


Keys = npt.NDArray[np.uint64]
_ATTEMPTS = 40  # at cycles without a repeated edge, each by other keys


def candidate_keys(candidates: Candidates, seed: int) -> Keys:
    """Return (N,) a hash of query id, document id and seed for each candidate."""
    rows = np.arange(int(candidates.offsets[-1]))
    of_query = _hashed(candidates.query_ids, f"{seed} ")
    coded = candidates.ids(rows).dictionary_encode()
    of_document = _hashed(coded.dictionary.to_pylist())[coded.indices.to_numpy()]
    return mixed(of_query[candidates.query_of(rows)] ^ mixed(of_document))


def _hashed(ids: Iterable[str], prefix: str = "") -> Keys:
    digests = (hashlib.blake2b(f"{prefix}{key}".encode(), digest_size=8).digest() for key in ids)
    return np.array([int.from_bytes(each, "little") for each in digests], np.uint64)


def mixed(values: Keys) -> Keys:
    """Return other numbers, evenly spread: the finaliser of SplitMix64 (Steele, Lea and Flood 2014)."""
    values = values + np.uint64(0x9E3779B97F4A7C15)
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.asarray(values ^ (values >> np.uint64(31)))


def ringed(keys: Keys) -> Rows:
    """Return (count, n(n − 1)/2, 2) all edges, by (count, n) keys of vertices.

    The vertices lie in a ring by their keys: first come the edges of neighbours, then of the next
    but one, and so on.
    """
    n = keys.shape[1]
    steps = [np.arange(n if 2 * step < n else n // 2) for step in range(1, n // 2 + 1)]
    ends = [(at, (at + step) % n) for step, at in enumerate(steps, 1)]
    first, second = (np.concatenate([each[end] for each in ends] or [np.zeros(0, np.int64)]) for end in (0, 1))
    order = np.argsort(mixed(keys), axis=1, kind="stable")
    return np.stack([order[:, first], order[:, second]], axis=-1)


def cycles(keys: Keys, degree: int) -> Rows:
    """Return (count, n·degree/2, 2) edges of edge-disjoint Hamiltonian cycles, by (count, n) keys of vertices.

    Where no attempt finds such cycles, the edges are those of the nearest neighbours in a ring (`ringed`).
    """
    count, n = keys.shape
    edges, pending = np.empty((count, degree * n // 2, 2), np.int64), np.arange(count)
    for attempt in range(_ATTEMPTS):
        drawn, done = _drawn(keys[pending], degree, attempt)
        ends = np.stack([drawn, np.roll(drawn, -1, axis=2)], axis=-1)
        edges[pending[done]] = ends[done].reshape(-1, degree * n // 2, 2)
        pending = pending[~done]
        if not len(pending):
            return edges
    edges[pending] = ringed(keys[pending])[:, : degree * n // 2]
    return edges


def _drawn(keys: Keys, degree: int, attempt: int) -> tuple[Rows, npt.NDArray[np.bool_]]:
    """Cycles (count, degree/2, n) by an attempt's hashes of the keys, and (count,) which repeat no edge."""
    count, n = keys.shape
    used, done = np.zeros((count, n, n), bool), np.ones(count, bool)
    cycles = np.empty((count, degree // 2, n), np.int64)
    for c in range(degree // 2):
        salt = mixed(np.array([attempt * degree + c + 1], np.uint64))
        cycle = np.argsort(mixed(keys ^ salt), axis=1, kind="stable")
        done &= _repair(cycle, used)
        rows, following = np.arange(count)[:, None], np.roll(cycle, -1, axis=1)
        used[rows, cycle, following] = used[rows, following, cycle] = True
        cycles[:, c] = cycle
    return cycles, done


def _repair(cycle: Rows, used: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
    """Reverse parts of each row of `cycle`, in place, until no edge is used; tell which rows got there.

    A used edge (a, b) and the edge (x, y) give way to (a, x) and (b, y), which are not used: each
    step lessens them.
    """
    rows, n, done = np.arange(len(cycle)), cycle.shape[1], np.ones(len(cycle), bool)
    place = np.arange(n)
    while len(rows):
        repeated = used[rows[:, None], cycle[rows], np.roll(cycle[rows], -1, axis=1)]
        rows, repeated = rows[repeated.any(axis=1)], repeated[repeated.any(axis=1)]
        at = (repeated.argmax(axis=1)[:, None] + place) % n
        turned = np.take_along_axis(cycle[rows], at, 1)  # begins with a, b
        free = (
            ~used[rows[:, None], turned[:, :1], turned[:, 2:-1]] & ~used[rows[:, None], turned[:, 1:2], turned[:, 3:]]
        )
        mended = free.any(axis=1)
        done[rows[~mended]] = False
        rows, at, turned = rows[mended], at[mended], turned[mended]
        last = free[mended].argmax(axis=1)[:, None] + 2  # the place of x
        inside = (place >= 1) & (place <= last)
        cycle[rows[:, None], at] = np.take_along_axis(turned, np.where(inside, last + 1 - place, place), 1)
    return done


_DRAWN = 2**22  # cells of the adjacencies of graphs drawn together
_CELLS = 2**20  # cells of the adjacencies looked at together
_CELL = 24  # bytes a cell takes: Laplacian and its copies


def all_pairs(sizes: npt.ArrayLike) -> Pairs:
    """Return every pair of each query's candidates; `sizes` is (Q,) how many each has."""
    offsets = np.cumsum([0, *np.asarray(sizes, np.int64)])
    ends = [start + np.stack(np.triu_indices(end - start, 1)) for start, end in pairwise(offsets)]
    return Pairs(offsets, *np.concatenate([np.zeros((2, 0), np.int64), *ends], axis=1))


def regular_pairs(sizes: npt.ArrayLike, *, degree: int = 6, keys: Keys | np.random.Generator) -> Pairs:
    """Return for each query the union of degree/2 random Hamiltonian cycles over its candidates.

    Cycle c goes through a query's candidates in the order of hash(key, c). The union of independent
    cycles (eq. 32, Algorithm 2) can repeat an edge, which then leaves a candidate with fewer
    neighbours. Here a cycle that meets an edge (a, b) of an earlier one has the part from b to the
    next place x with no edge (a, x) or (b, y) reversed, y being the one after x, until none is
    repeated: the graph is simple, connected and exactly `degree`-regular, degree·n/2 pairs. Such a
    place is always there for n ≥ 2·degree. Where n is smaller and none is found, other keys are
    tried, and at last each candidate is compared with its nearest neighbours in a ring, by their
    keys. Where n ≤ degree + 1, all pairs are compared.

    Another candidate takes its place in each cycle: all pairs are kept but one a cycle, and those
    that repairs change.

    Args:
        sizes: (Q,) int, how many candidates each query has; 0 and 1 give no pair.
        degree: k, even, at least 2: comparisons per candidate.
        keys: (N,) of all candidates, as `candidate_keys` makes them; or what draws them.

    Returns:
        The pairs of all queries, of each query cycle by cycle; the order inside a pair is random.

    Raises:
        InputError: an odd degree, one below 2, a negative size, or not one key for each candidate.

    Source: ANMI 2.0 eq. 32 and Algorithm 2.
    """
    if degree < 2 or degree % 2:
        raise InputError(f"degree {degree}: cycles give an even degree of at least 2; take {degree + degree % 2}")
    numbers = np.asarray(sizes, np.int64)
    counts, offsets = numbers * np.clip(numbers - 1, 0, degree) // 2, np.cumsum([0, *numbers])
    if isinstance(keys, np.random.Generator):
        keys = keys.integers(2**64, size=int(numbers.sum()), dtype=np.uint64)
    if keys.shape != (int(numbers.sum()),):
        raise InputError(f"keys have shape {keys.shape}; expected one for each of {int(numbers.sum())} candidates")
    begins, (first, second) = np.cumsum(counts) - counts, np.empty((2, counts.sum()), np.int64)
    for n in np.unique(numbers).tolist():
        queries = np.flatnonzero(numbers == n)
        for chosen in np.array_split(queries, -(-len(queries) * n * n // _DRAWN) or 1):
            of_queries = keys[offsets[chosen, None] + np.arange(n)]
            edges = ringed(of_queries) if n <= degree + 1 else cycles(of_queries, degree)
            at = begins[chosen, None] + np.arange(edges.shape[1])
            first[at], second[at] = (edges[..., end] + offsets[chosen, None] for end in (0, 1))
    return Pairs(offsets, first, second)


def pairs_between(candidates: Candidates, rated: Marks, *, degree: int, seed: int) -> Rows:
    """Return (m, 2) candidates of different queries to compare: degree/2 random Hamiltonian cycles over the queries.

    Cycle c goes through the queries in the order of hash(key, c). Each query meets the next one
    with the rated candidate of least hash(key, c), and the one before with that of another hash. So
    another query or candidate changes little of what is asked. Two queries may meet twice, then
    with other candidates.

    Args:
        candidates: of all queries.
        rated: (N,) whether a candidate has a rating; queries without any take no part.
        degree: comparisons of each query, even.
        seed: of the hashes.

    Raises:
        InputError: an odd degree, or one below 2.
    """
    if degree < 2 or degree % 2:
        raise InputError(f"{spelled('between', degree)}: expected an even number, at least 2")
    rows = np.flatnonzero(rated)
    keys, query_keys = candidate_keys(candidates, seed)[rows], mixed(_hashed(candidates.query_ids, f"{seed} "))
    queries = candidates.query_of(rows)
    rated_queries, begins = np.unique(queries, return_index=True)
    if len(rated_queries) < 2:
        return np.zeros((0, 2), np.int64)

    def drawn(salt: int) -> Rows:
        """The candidate of each query with the least hash."""
        salted = mixed(keys ^ mixed(np.array([salt], np.uint64)))
        return rows[np.lexsort((salted, queries))[begins]]

    edges = []
    for cycle in range(degree // 2):
        order = np.argsort(mixed(query_keys[rated_queries] ^ mixed(np.array([cycle], np.uint64))), kind="stable")
        edges.append(np.stack([drawn(2 * cycle)[order], np.roll(drawn(2 * cycle + 1)[order], -1)], axis=1))
    return np.concatenate(edges)


def algebraic_connectivity(pairs: Pairs) -> Floats:
    """Return (Q,) the second smallest eigenvalue of each query's graph Laplacian D − A, repeated pairs counted once.

    It is 0 where the graph is not connected; larger means that errors spread less (Var ≤ 1/λ₂, eq.
    A.6); a random k-regular graph has about k − 2√(k − 1) (Friedman). NaN for queries with fewer
    than two candidates.
    """
    result = np.full(pairs.queries, np.nan)
    for block in pairs.blocks(memory.rows_at_once(_CELL, most=_CELLS)):
        count, n = block.at.shape
        if n < 2:
            continue
        laplacian, places = np.zeros((count, n, n)), np.arange(n)
        laplacian[block.query, block.first, block.second] = laplacian[block.query, block.second, block.first] = -1.0
        laplacian[:, places, places] = -laplacian.sum(axis=2)
        with threadpool_limits(1, user_api="blas"):
            result[block.queries] = np.maximum(np.linalg.eigvalsh(laplacian)[:, 1], 0.0)
    return result
