"""Compiled inner loops of batch construction (numba; the extra `batch`). Import this module where it is used.

Each is an ordinary Python function, so that it reads as its own specification and can be run
without compiling: `kernel.py_func`. Those that admit rows take a `state` (`Conflicts.state`): which
rows are used, the known positives, and a stamp per document and per query: equal to the number of
the batch under construction, `stamp`, it says that the document (or the query) would conflict with
a row already in it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

from foils.runtime.errors import require

Kernel = TypeVar("Kernel", bound=Callable[..., Any])
compiled: Callable[[Kernel], Kernel] = require("numba", "batch").njit(cache=True, nogil=True)


@compiled
def worse(score_a: float, id_a: int, score_b: float, id_b: int) -> bool:
    """Say whether (score_a, id_a) ranks below (score_b, id_b): lower score, then higher id."""
    return score_a < score_b or (score_a == score_b and id_a > id_b)


@compiled
def merge_top(scores: Any, ids: Any, top_scores: Any, top_ids: Any) -> None:
    """Merge a block of scores (m, n) of documents `ids` (n,) into each row's heap of its k best (m, k).

    The heaps keep their worst entry at the root; empty entries have score −inf and the largest id.
    """
    k = top_scores.shape[1]
    for row in range(scores.shape[0]):
        heap_scores, heap_ids = top_scores[row], top_ids[row]
        floor = heap_scores[0]
        for j in range(scores.shape[1]):
            score = scores[row, j]
            if score < floor or not worse(heap_scores[0], heap_ids[0], score, ids[j]):
                continue
            node = 0
            while True:
                child = 2 * node + 1
                if child >= k:
                    break
                right = child + 1
                if right < k and worse(heap_scores[right], heap_ids[right], heap_scores[child], heap_ids[child]):
                    child = right
                if not worse(heap_scores[child], heap_ids[child], score, ids[j]):
                    break
                heap_scores[node], heap_ids[node] = heap_scores[child], heap_ids[child]
                node = child
            heap_scores[node], heap_ids[node] = score, ids[j]
            floor = heap_scores[0]


@compiled
def free(row: int, stamp: int, state: Any) -> bool:
    """Say whether `row` is unused and conflicts with no row of the batch numbered `stamp`."""
    used, known, document_stamp, query_stamp = state
    return not (used[row] or document_stamp[known[1][row]] == stamp or query_stamp[known[0][row]] == stamp)


@compiled
def join(row: int, stamp: int, state: Any, order: Any, place: int) -> None:
    """Put a free row at a place of the order; stamp documents and queries that may not join its batch now."""
    used, known, document_stamp, query_stamp = state
    query, document, relevant_start, relevant, asking_start, asking = known
    order[place], used[row] = row, True
    for p in range(relevant_start[query[row]], relevant_start[query[row] + 1]):
        document_stamp[relevant[p]] = stamp
    for p in range(asking_start[document[row]], asking_start[document[row] + 1]):
        query_stamp[asking[p]] = stamp


@compiled
def take(line: Any, groups: Any, group_stamp: Any, stamp: int, state: Any, batch: Any, size: int, until: int) -> int:
    """Fill `batch[size:until]` with the first unused rows of `line` without a conflict; return its size.

    With `groups` not empty, a row whose group is already stamped is passed over too.
    """
    for row in line:
        if size == until:
            break
        if not free(row, stamp, state):
            continue
        if groups.size:
            if group_stamp[groups[row]] == stamp:
                continue
            group_stamp[groups[row]] = stamp
        join(row, stamp, state, batch, size)
        size += 1
    return size


@compiled
def deal(line: Any, batch_size: int, state: Any, order: Any) -> None:
    """Cut `line` into batches, leaving a row that conflicts for the next batch; write the result to `order`.

    Where a batch cannot be filled without a conflict, it is filled in rounds, each without a
    conflict in itself: so the classes of rows that conflict with each other are dealt in turn.
    """
    nothing, none = np.empty(0, np.int64), np.empty(0, np.int32)
    head, placed, stamp = 0, 0, 0
    while placed < line.size:
        until = min(placed // batch_size * batch_size + batch_size, line.size)
        while state[0][line[head]]:
            head += 1
        stamp += 1
        placed = take(line[head:], nothing, none, stamp, state, order, placed, until)


@compiled
def relevant_to(row: int, other: int, known: Any) -> bool:
    """Say whether `other`'s document is a known positive of `row`'s query (a binary search)."""
    query, document, start, relevant = known[0], known[1], known[2], known[3]
    answers = relevant[start[query[row]] : start[query[row] + 1]]
    at = np.searchsorted(answers, document[other])
    return bool(at < answers.size and answers[at] == document[other])


@compiled
def fits(row: int, place: int, order: Any, batch_size: int, known: Any) -> bool:
    """Say whether `row` conflicts with nobody in the batch of `place`, the row now at `place` aside."""
    first = place // batch_size * batch_size
    for p in range(first, min(first + batch_size, order.size)):
        if p != place and (relevant_to(row, order[p], known) or relevant_to(order[p], row, known)):
            return False
    return True


@compiled
def repair(order: Any, batch_size: int, known: Any, tries: int, rng: Any) -> int:
    """Swap rows that conflict in their batch with random rows of others; return how many stay in conflict.

    A swap is made only where both rows then conflict with nobody, so the number of conflicts never
    grows. It stops where none of the first 64 rows in conflict finds a partner: then hardly any
    will.
    """
    left = 0
    swaps = 0
    for place in range(order.size):
        if fits(order[place], place, order, batch_size, known):
            continue
        if left == 64 and swaps == 0:
            return int(order.size)
        left += 1
        for _ in range(tries):
            other = int(rng.random() * order.size)
            if other // batch_size == place // batch_size:
                continue
            if fits(order[place], other, order, batch_size, known) and fits(
                order[other], place, order, batch_size, known
            ):
                order[place], order[other] = order[other], order[place]
                left -= 1
                swaps += 1
                break
    return left


@compiled
def walk(
    start: Any, neighbours: Any, batch_size: int, restart: float, patience: int, state: Any, order: Any, rng: Any
) -> None:
    """Fill `order` batch by batch with the rows that random walks with restart visit first.

    A walk begins at the first unused row of `start`; each step goes back there with probability
    `restart`, else to a uniform neighbour. An unused row that conflicts with nobody joins the
    batch. After `patience` steps without a new row the walk moves to the next unused row. Where a
    batch cannot be filled without a conflict, it is filled in rounds, each without a conflict in itself.
    """
    used = state[0]
    placed, stamp, pointer, n = 0, 0, 0, order.size
    while placed < n:
        stamp += 1
        until = min(placed // batch_size * batch_size + batch_size, n)
        while used[start[pointer]]:
            pointer += 1
        scan = pointer
        while placed < until and scan < n:
            home = start[scan]
            scan += 1
            if not free(home, stamp, state):
                continue
            here, idle = home, 0
            while placed < until and idle < patience:
                idle += 1
                if free(here, stamp, state):
                    join(here, stamp, state, order, placed)
                    placed += 1
                    idle = 0
                if neighbours.shape[1] == 0 or rng.random() < restart:
                    here = home
                else:
                    here = neighbours[here, int(rng.random() * neighbours.shape[1])]


FINITE = 700.0  # exp of less is a finite double


@compiled
def greedy(weights: Any, totals: Any, rows: Any, stamp: int, state: Any, batch: Any, size: int) -> int:
    """Add the candidates of highest gain to `batch` until full; return its size (Algorithm 2, lines 8–11).

    `hobit.greedy` is the specification; rows that conflict are left out. `weights` (s, n) are w /
    τ_h; `totals` (s,), log Σ exp(w / τ_h) over the batch, is updated; `rows` (n,) are the
    candidates' row numbers, ascending. Compares Π(1 + x_i) − 1 with x_i = exp(w / τ_h) / Σ, which
    orders as Δ (eq. 16) does, without a logarithm; accumulated as p + x (1 + p), which keeps small
    gains exact. For weights whose products stay finite: Σ_i max(0, w / τ_h − total) below 700
    (`FINITE`).
    """
    seeds, n = weights.shape
    ratios, products, alive = np.empty((seeds, n)), np.empty(n), np.ones(n, np.bool_)
    sums = np.ones(seeds)
    for i in range(seeds):
        for v in range(n):
            ratios[i, v] = math.exp(weights[i, v] - totals[i])
    stale, left = True, n
    while size < batch.size and left > 0:
        if stale:
            products[:] = 0.0
            for i in range(seeds):
                share = 1.0 / sums[i]
                for v in range(n):
                    products[v] += ratios[i, v] * share * (1.0 + products[v])
        best, highest = -1, -1.0
        for v in range(n):
            if alive[v] and products[v] > highest:
                best, highest = v, products[v]
        alive[best] = False
        left -= 1
        stale = free(rows[best], stamp, state)
        if stale:
            join(rows[best], stamp, state, batch, size)
            size += 1
            for i in range(seeds):
                sums[i] += ratios[i, best]
    for i in range(seeds):
        totals[i] += math.log(sums[i])
    return size
