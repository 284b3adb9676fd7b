"""Compiled greedy maximisation of HOBIT's objective (numba; the extra `batch`). Import this module where it is used.

`objective.greedy` is the specification; both loops here pick what it picks, leaving out rows that conflict.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from foils.batching.kernels import compiled, free, join, worse

FINITE = 700.0  # exp of less is a finite double


@compiled
def added(weight: float, total: float) -> float:
    """Return log(exp(weight) + exp(total)) − total, from logarithms: safe whatever τ_h."""
    x = weight - total
    return x + math.log1p(math.exp(-x)) if x > 0 else math.log1p(math.exp(x))


@compiled
def gain_of(weights: Any, column: int, totals: Any) -> float:
    """Return Δ / τ_h (eq. 16) of a candidate.

    `weights` (s, n) are w / τ_h; `totals` (s,) are log Σ exp(w / τ_h) over the batch so far.
    """
    gain = 0.0
    for i in range(totals.size):
        gain += added(weights[i, column], totals[i])
    return gain


@compiled
def sink(gains: Any, heap: Any, node: int, length: int) -> None:
    """Restore the heap below `node`: highest gain at the root, then lowest position."""
    item = heap[node]
    while True:
        child = 2 * node + 1
        if child >= length:
            break
        if child + 1 < length and worse(gains[heap[child]], heap[child], gains[heap[child + 1]], heap[child + 1]):
            child += 1
        if not worse(gains[item], item, gains[heap[child]], heap[child]):
            break
        heap[node] = heap[child]
        node = child
    heap[node] = item


@compiled
def lazy_greedy(weights: Any, totals: Any, rows: Any, stamp: int, state: Any, batch: Any, size: int) -> int:
    """Add the candidates of highest gain to `batch` until it is full; return its size (Algorithm 2, lines 8–11).

    Gains only shrink as the batch grows, so an old gain is an upper bound: the candidate on top of the heap is
    re-evaluated, and taken if it stays on top. This picks what evaluating everybody each time picks.

    `weights` (s, n) are w / τ_h; `totals` (s,), log Σ exp(w / τ_h) over the batch, is updated; `rows` (n,) are the
    candidates' row numbers, ascending; `stamp` and `state` are those of `foils.batching.kernels`.
    """
    length = rows.size
    gains, heap, fresh = np.empty(length), np.arange(length), np.full(length, size)
    for v in range(length):
        gains[v] = gain_of(weights, v, totals)
    for node in range(length // 2 - 1, -1, -1):
        sink(gains, heap, node, length)
    while size < batch.size and length > 0:
        v = heap[0]
        spent = not free(rows[v], stamp, state)
        if not spent and fresh[v] != size:
            gains[v] = gain_of(weights, v, totals)
            fresh[v] = size
        else:
            if not spent:
                join(rows[v], stamp, state, batch, size)
                size += 1
                for i in range(totals.size):
                    totals[i] += added(weights[i, v], totals[i])
            length -= 1
            heap[0] = heap[length]
        if length > 0:
            sink(gains, heap, 0, length)
    return size


@compiled
def dense_greedy(weights: Any, totals: Any, rows: Any, stamp: int, state: Any, batch: Any, size: int) -> int:
    """Do what `lazy_greedy` does by evaluating everybody each time, in vector instructions: for thousands of rows.

    Compares Π(1 + x_i) − 1 with x_i = exp(w / τ_h) / Σ, which orders as Δ does, without a logarithm; accumulated as
    p + x (1 + p), which keeps small gains exact. For weights whose products stay finite: Σ_i max(0, w / τ_h − total)
    below 700 (`FINITE`).
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
