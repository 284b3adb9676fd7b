"""Approximate nearest rows: documents in cells of a spherical k-means, of which each query looks into a few."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from foils.batching.batches import Matrix, Rows
from foils.batching.nearest import nearest
from foils.runtime import memory
from foils.runtime.errors import require

BLOCK = 8192  # documents per matrix product, at most
ROUNDS = 5
"""Rounds of k-means, on a sample of 64 documents per cell."""


@dataclass(frozen=True)
class Cells:
    """Documents by the nearest of ~√N centres.

    Attributes:
        centres: (C, d) float32 unit vectors.
        cell_of: (N,) int32, the cell of each document.
    """

    centres: NDArray[np.float32]
    cell_of: NDArray[np.int32]

    @classmethod
    def build(cls, documents: Matrix, *, rng: np.random.Generator, block: int | None = None) -> Cells:
        """Cluster the documents by inner product: a sample for the centres, then everybody.

        Args:
            documents: (N, d) unit vectors.
            rng: draws the sample and the first centres.
            block: documents per matrix product; None: as many as the memory budget allows, 8192 at most.
        """
        n = documents.shape[0]
        count = max(1, round(n**0.5))
        block = block or memory.rows_at_once(4 * (documents.shape[1] + count), most=BLOCK)
        sample = np.sort(rng.choice(n, size=min(n, 64 * count), replace=False))
        centres = documents[rng.choice(sample, size=count, replace=False)].astype(np.float32)
        for _ in range(ROUNDS):
            sums = np.zeros(centres.shape)
            for start in range(0, sample.size, block):
                part = documents[sample[start : start + block]].astype(np.float32)
                np.add.at(sums, (part @ centres.T).argmax(axis=1), part)
            norms = np.linalg.norm(sums, axis=1, keepdims=True)
            centres = np.where(norms > 0, sums / np.where(norms > 0, norms, 1), centres).astype(np.float32)
        cell_of = np.empty(n, np.int32)
        for start in range(0, n, block):
            part = documents[start : start + block].astype(np.float32)
            cell_of[start : start + block] = (part @ centres.T).argmax(axis=1)
        return cls(centres, cell_of)

    def nearest(self, queries: NDArray[np.floating], documents: Matrix, among: Rows, *, k: int) -> Rows:
        """Return (m, min(k, len(among))) rows of `documents[among]`, about the nearest to each query, best first.

        A query looks into the sixteenth of the cells whose centres are nearest (at least 16). A query that finds
        fewer than k there is searched exactly, and so is everybody once few documents are left.
        """
        require("numba", "batch")
        from foils.batching import kernels

        count = self.centres.shape[0]
        probes = max(16, count // 16)
        if probes >= count or among.size <= 64 * k:
            return nearest(queries, documents, among, k=k)[0]
        left = np.ascontiguousarray(queries, np.float32)
        looked = np.argpartition(-(left @ self.centres.T), probes, axis=1)[:, :probes]
        asking = np.argsort(looked.ravel(), kind="stable") // probes
        begin_asking = np.searchsorted(np.sort(looked.ravel()), np.arange(count + 1))
        members = among[np.argsort(self.cell_of[among], kind="stable")]
        begins = np.searchsorted(self.cell_of[members], np.arange(count + 1))
        scores = np.full((len(left), k), -np.inf, np.float32)
        rows = np.full((len(left), k), np.iinfo(np.int64).max, np.int64)
        for cell in range(count):
            who, ids = asking[begin_asking[cell] : begin_asking[cell + 1]], members[begins[cell] : begins[cell + 1]]
            if who.size and ids.size:
                right = documents[ids].astype(np.float32, copy=False)
                kernels.merge_top_of(who, left[who] @ right.T, ids, scores, rows)
        short = np.flatnonzero(np.isneginf(scores).any(axis=1))
        best = np.take_along_axis(rows, np.lexsort((rows, -scores), axis=1), axis=1)
        if short.size:
            best[short] = nearest(queries[short], documents, among, k=k)[0]
        return best
