"""What a reranker that starts from nothing learns from each source: a probe that is not fooled by hidden positives.

A cross-encoder that starts from a masked language model learns first what simple likeness tells. The probe is a linear
head h(q, d) = w·x(q, d) on three things that can be known of a pair before training: the coverage C of the query's
tokens by the document (ECI_sem eq. 7), the encoder's similarity s, and the logarithm of the document's length. For each
source it is fitted on the lists (positive, negatives) of half of the queries,

    min_w mean over lists of log(1 + Σ_j exp(w·(x_j − x_p))) + λ/2 ‖w‖²,

and orders the first fifty documents by the encoder of the other half of the queries. Its measure is nDCG@10 in which a
labelled positive counts 1 and an unlabelled document π = min(1, o·n_L/n_U): putting a hidden positive first is no
mistake. A source is worth the measure after it, less that after random negatives. Where all of a source's lists are
told apart at once, as random ones are, λ decides how far w goes, as few steps do in a training.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from foils.data.collection import Rows
from foils.data.texts import DocumentTexts
from foils.encode.vectors import Texts, Vectors
from foils.scoring.gates import Float64s
from foils.scoring.pair_features import First, first_documents
from foils.scoring.prepared import Measured
from foils.scoring.relevance import Relevance

PROBED = 600  # queries, at most
DEPTH = 50
CUTOFF = 10
RIDGE = 0.1  # λ, large, since a first training is short
UNLABELLED = 24  # values of o between 0 and ō at which the measure is known


@dataclass(frozen=True)
class ProbeWorth:
    """What a source is worth to a reranker that starts from nothing, for numbers of unlabelled relevant documents.

    Attributes:
        grid: (n,) o, ascending from 0.
        sums: (blocks, n) sum over the block's records of the measure at each o, less that after random negatives.
        counts: (blocks,) records that were ordered.
        strength: mean of that difference where no unlabelled document is relevant.
        learnability: share of the source's negatives that the probe puts below the positive.
    """

    grid: Float64s
    sums: Float64s
    counts: Float64s
    strength: float
    learnability: float

    def benefit(self, unlabelled: npt.ArrayLike, shares: npt.ArrayLike, weights: Float64s | None = None) -> Float64s:
        """Return (D,) the benefit at each o, the blocks of each weighted by a row of `weights` (D, blocks)."""
        unlabelled = np.asarray(unlabelled, np.float64)
        weights = np.ones((len(unlabelled), len(self.counts))) if weights is None else weights
        at = np.interp(unlabelled, self.grid, np.arange(len(self.grid)))
        index = np.minimum(at.astype(np.int64), len(self.grid) - 2)
        part = (at - index)[:, None]
        sums = self.sums.T[index] * (1 - part) + self.sums.T[index + 1] * part
        return np.asarray((weights * sums).sum(axis=1) / np.maximum(weights @ self.counts, 1e-300))


@dataclass(frozen=True)
class Probe:
    """What probing looks at.

    Attributes:
        features: (m, 3) standardised x of the scoring's triplets, NaN where their record is not probed.
        positives: (T, 3) of the records' positives.
        candidates: (n, 3) of the first documents of the probed records, whose order is `first`.
        first: these documents.
        ratio: (n,) their n_L/n_U, 0 where they are labelled.
    """

    features: Float64s
    positives: Float64s
    candidates: Float64s
    first: First
    ratio: Float64s

    @classmethod
    def of(
        cls,
        measured: Measured,
        documents: Vectors,
        rows: Rows,
        records: Rows,
        relevance: Relevance,
        rng: np.random.Generator,
    ) -> Probe:
        """Look at the triplets of some records, 600 at most, and at the first documents by the encoder.

        Args:
            measured: the scoring.
            documents: (M, d) vectors of documents of the collection.
            rows: (M,) their rows, ascending.
            records: those that may be probed, ascending.
            relevance: how likely an unlabelled pair is relevant.
            rng: draws the records.
        """
        of, lexicon = measured.records, measured.lexicon
        probed = np.sort(rng.permutation(records)[:PROBED])
        first = first_documents(measured, documents, rows, probed, DEPTH, rng)
        idf = lexicon.idf_over(of.corpus)
        shown, place = np.unique(first.row, return_inverse=True)
        texts = DocumentTexts(of.collection, shown)
        whole = np.maximum(lexicon.queries.matrix @ idf, 1e-12)
        shared = lexicon.queries.shared_weight(first.pairs.record, lexicon.sets(texts), place, idf)
        candidates = np.column_stack(
            [shared / whole[first.pairs.record], first.pairs.similarity, _lengths(texts)[place]]
        )
        own = np.flatnonzero(np.isin(of.record, probed))
        pool = np.unique(np.concatenate([of.document[own], of.positives[probed]]))
        length = np.full(len(of.texts), np.nan)
        length[pool] = _lengths(of.texts.select(pool))
        features = np.full((len(of.record), 3), np.nan)
        features[own] = np.column_stack(
            [measured.similarities.coverage[own], measured.similarities.s_n[own], length[of.document[own]]]
        )
        covered = lexicon.queries.shared_weight(np.arange(len(of)), lexicon.texts, of.positives, idf) / whole
        positives = np.column_stack([covered, measured.s_p, length[of.positives]])
        centre, spread = candidates.mean(axis=0), np.maximum(candidates.std(axis=0), 1e-6)
        ratio = np.where(first.labelled, 0.0, relevance.ratio(first.pairs))
        features, positives, candidates = ((each - centre) / spread for each in (features, positives, candidates))
        return cls(features, positives, candidates, first, ratio)

    def worths(
        self, measured: Measured, triplets: Mapping[str, Rows], reference: str, most: float, block_of: Rows
    ) -> list[ProbeWorth]:
        """Return what each source is worth.

        Args:
            measured: the scoring.
            triplets: source → its triplets, ascending; those of records that are not probed are left out.
            reference: the source of random negatives, which is worth 0.
            most: ō.
            block_of: (T,) the block of each record.
        """
        grid: Float64s = np.linspace(0.0, most, UNLABELLED, dtype=np.float64)
        orders = {name: self._order(measured, own) for name, own in triplets.items()}
        gains = {name: self._measure(order, grid) for name, (order, _) in orders.items()}
        blocks = int(block_of.max(initial=0)) + 1
        block = block_of[self.first.pairs.record[self.first.edges[:-1]]]
        counts = np.bincount(block, minlength=blocks).astype(np.float64)
        worths = []
        for name, (_, learnability) in orders.items():
            more = gains[name] - gains[reference]
            sums = [np.bincount(block, each, blocks).astype(np.float64) for each in more.T]
            worths.append(ProbeWorth(grid, np.column_stack(sums), counts, float(more[:, 0].mean()), learnability))
        return worths

    def _order(self, measured: Measured, triplets: Rows) -> tuple[Float64s, float]:
        """The score of each candidate by the head that saw the other half of the queries, and its learnability."""
        record = measured.records.record[triplets]
        known = np.isfinite(self.features[triplets, 0])
        triplets, record = triplets[known], record[known]
        score, right = np.zeros(len(self.candidates)), 0.0
        for half in (0, 1):
            fitted, kept = triplets[record % 2 != half], record[record % 2 != half]
            if not len(fitted):
                continue
            margins = self.features[fitted] - self.positives[kept]
            head = fit_head(margins, kept)
            here = self.first.pairs.record % 2 == half
            score[here] = self.candidates[here] @ head
            right += float((margins @ head < 0).sum() + 0.5 * (margins @ head == 0).sum())
        return score, right / max(1, len(triplets))

    def _measure(self, score: Float64s, grid: Float64s) -> Float64s:
        """(records, n) nDCG@10 of the candidates in the order of their scores, at each o."""
        edges, discounts = self.first.edges, 1 / np.log2(np.arange(CUTOFF) + 2)
        ideal = np.r_[0.0, np.cumsum(discounts)]
        measures = np.zeros((len(edges) - 1, len(grid)))
        for at, (start, end) in enumerate(pairwise(edges)):
            order = start + np.argsort(-score[start:end], kind="stable")[:CUTOFF]
            gain = np.minimum(1.0, self.ratio[start:end, None] * grid) + self.first.labelled[start:end, None]
            gained = discounts[: len(order)] @ gain[order - start]
            best = np.interp(np.clip(gain.sum(axis=0), 1.0, CUTOFF), np.arange(CUTOFF + 1), ideal)
            measures[at] = gained / best
        return measures


def fit_head(margins: Float64s, record: Rows) -> Float64s:
    """Return w, (f,), that makes the positives of lists the likeliest, by Newton's method.

    Args:
        margins: (k, f) x_j − x_p of each negative.
        record: (k,) the list of each, ascending.
    """
    start = np.flatnonzero(np.r_[True, record[1:] != record[:-1]])
    counts = np.diff(np.r_[start, len(record)])
    lists, head = len(start), np.zeros(margins.shape[1])
    ridge = RIDGE * np.eye(margins.shape[1])

    def loss(candidate: Float64s) -> tuple[float, Float64s]:
        logits = margins @ candidate
        top = np.maximum(np.maximum.reduceat(logits, start), 0.0)
        mass = np.exp(logits - np.repeat(top, counts))
        total = np.add.reduceat(mass, start) + np.exp(-top)
        value = float((top + np.log(total)).mean() + RIDGE / 2 * candidate @ candidate)
        return value, mass / np.repeat(total, counts)

    value, share = loss(head)
    for _ in range(50):
        pulled = np.add.reduceat(share[:, None] * margins, start)
        gradient = pulled.sum(axis=0) / lists + RIDGE * head
        curvature = (margins.T @ (share[:, None] * margins) - pulled.T @ pulled) / lists + ridge
        step, size = np.linalg.solve(curvature, gradient), 1.0
        for _ in range(30):
            tried, tried_share = loss(head - size * step)
            if tried <= value:
                break
            size /= 2
        else:
            break
        done, head, value, share = value - tried < 1e-10, head - size * step, tried, tried_share
        if done:
            break
    return head


def _lengths(texts: Texts) -> Float64s:
    """(n,) logarithm of the number of characters."""
    return np.log1p(np.array([len(text) for text in texts[:]], np.float64))
