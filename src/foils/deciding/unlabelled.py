"""How likely an unlabelled pair is an answer, up to one constant: labelled pairs against unlabelled ones.

Labelled positives are taken for a sample of the relevant pairs that does not depend on what the
pairs look like (positive-unlabelled learning with labels selected completely at random, at the
level of a pair of query and document). With o unlabelled relevant pairs for each labelled one, and
n_L(x), n_U(x) the labelled and the unlabelled pairs at x,

    π(x) = min(1, o · n_L(x)/n_U(x)).

x is the similarity to the query, the rank among the query's unlabelled documents and the
resemblance to its labelled positives, by the frozen encoder. Source: Elkan & Noto 2008; Bekker &
Davis 2020, section 3.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from foils.data.collection import Collection, Rows
from foils.encode.vectors import Vectors
from foils.mining.retrievers import BM25Retriever
from foils.runtime import progress, seeds
from foils.scoring.gates import Float64s
from foils.scoring.measure import Measured

Floats = npt.NDArray[np.float32]
Half = tuple[Any, float]
"""A classifier of scikit-learn, or None, and the logarithm of what its odds are short of n_L/n_U by."""

NEAREST = 3  # labelled positives that resemblance is the mean over
COMPARED = 64  # labelled positives of a query that a document is compared with, at most
EXACT = 512  # ranks that are counted; deeper ones are estimated
DEEP = 24  # unlabelled documents of a query beyond these ranks that stand for the others
DRAWN = 4  # unlabelled documents of a query in each step of ranks
STEPS = np.array([0, 1, 2, 3, 4, 5, 7, 10, 14, 20, 28, 40, 56, 80, 112, 160, 224, 320, EXACT])
BLOCK = 256  # queries at once
DOCUMENTS = 8_192  # documents at once
FITTED = 60_000  # unlabelled pairs that a classifier sees, at most
TREES, LEAF = 60, 60  # of the classifier; pairs of a leaf, at least
SMOOTHING = 5.0  # pairs that each step of ranks is smoothed by
TAILS = np.linspace(0.02, 0.5, 25)  # shares of the labelled pairs whose region may bound o
RANKED = 400  # queries whose positives BM25 ranks, about
POOLED = 0.99  # share of the labelled positives among a retriever's first documents that pooling leaves
CLIFF = 0.03  # share in the second half of these, of which a natural order leaves half as many beyond
POOLS = (5, 10, 20, 50, 100)  # first documents that are judged together
NEAR, FAR, THIN = 10, 100, 0.125  # ranks; the share of positives beyond the first that are beyond the second
LEAST_POSITIVES = 20  # that pooling is told from
THE_ENCODER = "the encoder"
SINGLE = 1.05  # positives of a query, at most, where each has one, but for a few
SHORT = 40  # words of a document, at most, whose neighbours often answer as well
BITS = 11  # of a vector's component beside its sign, with which inner products are exact


@dataclass(frozen=True)
class Pairs:
    """n pairs of a query and a document.

    Attributes:
        record: (n,) the record of each pair's query.
        similarity: (n,) of query and document.
        rank: (n,) how many unlabelled documents of the collection are nearer the query, 0-based.
        resemblance: (n,) mean cosine of the document to the three nearest labelled positives of the
            query, itself left out, or a random one for a document that is no labelled positive; NaN
            where there are fewer than two.
        count: (n,) pairs of the collection that each stands for: 1, or more for those that were drawn.
    """

    record: Rows
    similarity: Float64s
    rank: Float64s
    resemblance: Float64s
    count: Float64s

    def __len__(self) -> int:
        return len(self.record)

    def select(self, rows: Rows) -> Pairs:
        """Return these pairs."""
        return Pairs(*(getattr(self, each.name)[rows] for each in fields(self)))

    def features(self) -> Float64s:
        """(n, 3) what the classifiers see."""
        return np.column_stack([self.similarity, np.log1p(self.rank), self.resemblance])


@dataclass(frozen=True)
class Survey:
    """Pairs of all records of a scoring.

    Attributes:
        labelled: labelled positives. `unlabelled`: drawn ones, which stand for all of the
            collection. `negatives`: the triplets, in their order.
        documents: of the collection.
    """

    labelled: Pairs
    unlabelled: Pairs
    negatives: Pairs
    documents: int


def rounded(vectors: npt.NDArray[np.floating]) -> Floats:
    """Return vectors whose inner products are exact in float32, so that no number of threads changes a bit.

    Components are rounded to 2⁻¹¹ of the power of two nearest the vector's length, so that an inner
    product is a whole number below 2²⁴ of their product. That moves the inner product of two unit
    vectors by about 2·10⁻⁴.

    Args:
        vectors: (n, d), finite.
    """
    lengths = np.sqrt(np.einsum("nd,nd->n", vectors, vectors, dtype=np.float64))
    units = np.exp2(np.ceil(np.log2(np.maximum(lengths, 1e-30)) - 0.5) - BITS).astype(np.float32)[:, None]
    return np.asarray(np.rint(vectors / units) * units, np.float32)


def survey_pairs(measured: Measured, documents: Vectors, rows: Rows, rng: np.random.Generator) -> Survey:
    """Look at the labelled, the unlabelled and the sources' pairs of all records.

    One pass of inner products of the queries with the documents; ranks beyond the first 512 are
    estimated from the documents that are drawn there.

    Args:
        measured: the triplets.
        documents: (M, d) vectors of documents of the collection: all of them, or a random draw.
        rows: (M,) their rows, ascending.
        rng: draws unlabelled documents, and the positive that is left out.
    """
    of, geometry = measured.records, measured.geometry
    scale = max(1.0, len(of.collection.documents) / max(1, len(rows)))
    known = of.collection.known_positives
    place, begins = known.places(of.queries), np.arange(len(of) + 1)
    first_positive, first_triplet = (np.searchsorted(each, begins) for each in (of.positive_record, of.record))
    parts: tuple[list[tuple[Any, ...]], ...] = ([], [], [])
    with progress.task("surveying pairs", total=len(of), unit="queries") as advance:
        for start in range(0, len(of), BLOCK):
            block = np.arange(start, min(start + BLOCK, len(of)))
            queries = rounded(geometry.queries.take(block))
            nearness = np.concatenate([queries @ rounded(part).T for _, part in documents.blocks(DOCUMENTS)], axis=1)
            for record, query, similarities in zip(block.tolist(), queries, nearness, strict=True):
                labelled = np.flatnonzero(np.isin(rows, known.of(int(place[record]))))
                similarities[labelled] = -np.inf
                drawn, ranks, counts, rank_of = _ladder(similarities, len(labelled), scale, rng)
                of_positives = of.all_positives[first_positive[record] : first_positive[record + 1]]
                of_negatives = of.document[first_triplet[record] : first_triplet[record + 1]]
                positives, negatives = (rounded(geometry.documents.take(each)) for each in (of_positives, of_negatives))
                others = np.concatenate([rounded(documents.take(drawn)), negatives])
                alike, of_others = _resemblances(positives, others, rng)
                near, far = positives @ query, negatives @ query
                for part, similarity, rank, resemblance, count in (
                    (parts[0], near, rank_of(near), alike, np.ones(len(near))),
                    (parts[1], similarities[drawn], ranks, of_others[: len(drawn)], counts),
                    (parts[2], far, rank_of(far), of_others[len(drawn) :], np.ones(len(far))),
                ):
                    numbers = np.full(len(rank), record)
                    part.append((numbers, similarity.astype(np.float64), rank, resemblance, count))
            advance(len(block))
    kinds = [Pairs(*map(np.concatenate, zip(*part, strict=True))) for part in parts]
    return Survey(kinds[0], kinds[1], kinds[2], len(of.collection.documents))


def _ladder(
    similarities: Floats, labelled: int, scale: float, rng: np.random.Generator
) -> tuple[Rows, Float64s, Float64s, Callable[[Floats], Float64s]]:
    """Draw unlabelled documents of one query down their ranks: the first are counted, deeper ones estimated.

    Args:
        similarities: (M,) of documents and the query; −∞: labelled.
        labelled: how many are −∞.
        scale: documents of the collection for each of these.
        rng: draws.

    Returns:
        (k,) places of those that are drawn, their ranks, how many unlabelled documents each stands
            for; and a function of similarities that returns ranks among the unlabelled documents.
    """
    exact = min(EXACT, len(similarities) - labelled)  # 0 where every document is labelled relevant
    first = np.argpartition(-similarities, exact - 1)[:exact] if 0 < exact < len(similarities) else np.arange(exact)
    first = first[np.argsort(-similarities[first], kind="stable")]
    places, counts = [np.zeros(0, np.int64)], [np.zeros(0)]
    for low, high in zip(STEPS, np.minimum(STEPS[1:], exact), strict=False):
        if low < high:
            chosen = min(DRAWN, int(high - low))
            places.append(low + np.sort(rng.permutation(int(high - low))[:chosen]))
            counts.append(np.full(chosen, (high - low) / chosen))
    place = np.concatenate(places)
    last = similarities[first].min(initial=np.inf)
    below = np.flatnonzero((similarities < last) & np.isfinite(similarities))
    far = np.sort(rng.choice(below, min(DEEP, len(below)), replace=False)) if len(below) else below
    far = far[np.argsort(-similarities[far], kind="stable")]
    each = len(below) / max(1, len(far))  # documents that one of the far ones stands for
    counts.append(np.full(len(far), each))
    deep = exact + (np.arange(len(far)) + 0.5) * float(len(below)) / max(1, len(far))
    top, deepest = similarities[first][::-1], similarities[far][::-1]

    def rank_of(similarity: Floats) -> Float64s:
        above = len(top) - np.searchsorted(top, similarity, side="right")
        deeper = len(deepest) - np.searchsorted(deepest, similarity, side="right")
        return np.asarray((above + deeper * each) * scale, np.float64)

    ranks = np.asarray(np.append(place, deep) * scale, np.float64)
    return np.append(first[place], far), ranks, np.concatenate(counts) * scale, rank_of


def _resemblances(positives: Floats, others: Floats, rng: np.random.Generator) -> tuple[Float64s, Float64s]:
    """Mean cosine to the nearest positives: of these, without themselves; of others, without a random one."""
    if len(positives) < 2:
        return np.full(len(positives), np.nan), np.full(len(others), np.nan)
    with_them = rng.permutation(len(positives))[: COMPARED + 1]
    compared = positives[with_them]
    nearest = min(NEAREST, len(with_them) - 1)
    among = positives @ compared.T
    among[np.arange(len(positives))[:, None] == with_them[None, :]] = -np.inf

    def mean_of_nearest(cosines: Floats) -> Float64s:
        return np.asarray(np.partition(cosines, -nearest, axis=1)[:, -nearest:].mean(axis=1, dtype=np.float64))

    return mean_of_nearest(among), mean_of_nearest(others @ compared[1:].T)


@dataclass(frozen=True)
class Relevance:
    """The ratio n_L(x)/n_U(x), from classifiers that saw the other half of the queries each.

    Attributes:
        halves: the classifiers for even and for odd records; None: too few pairs, so that ranks alone count.
        edges: (steps + 1,) of the steps of ranks.
        stands_for: (steps,) unlabelled pairs that one drawn in each step stands for.
        correction: (steps,) observed over expected labelled pairs, by step of ranks.
    """

    halves: tuple[Half, Half]
    edges: Float64s
    stands_for: Float64s
    correction: Float64s

    @classmethod
    def fit(cls, survey: Survey, *, seed: int = 0) -> Relevance:
        """Fit a monotone gradient boosting on each half of the queries, and correct it by steps of ranks.

        A document nearer the query, of a better rank, or more like a labelled positive is never
        less likely relevant. The correction makes the expected number of labelled pairs in each
        step of ranks the observed one, smoothed by five: so a plain window of the encoder's own
        ranks gets what counting gives.
        """
        labelled, unlabelled = survey.labelled, survey.unlabelled
        scale = max(1.0, float(unlabelled.count.min(initial=1.0)))
        edges = np.append(STEPS * scale, max(float(survey.documents), EXACT * scale + 1) + 1)
        step, steps = _step(edges, unlabelled), len(edges) - 1
        counts = np.bincount(step, unlabelled.count, steps)
        stands_for = np.where(counts > 0, counts / np.maximum(np.bincount(step, minlength=steps), 1), 1.0)
        plain = cls((_fitted(survey, 1, seed), _fitted(survey, 0, seed)), edges, stands_for, np.ones(steps))
        seen = np.bincount(_step(edges, labelled), minlength=steps)
        expected = np.bincount(step, unlabelled.count * plain.ratio(unlabelled), minlength=steps)
        return replace(plain, correction=(seen + SMOOTHING) / (expected + SMOOTHING))

    def ratio(self, pairs: Pairs) -> Float64s:
        """Return (n,) n_L/n_U of each pair: its probability of being relevant is o times that, up to 1."""
        ratios, step = np.empty(len(pairs)), _step(self.edges, pairs)
        for half, (classifier, short) in enumerate(self.halves):
            if len(of := np.flatnonzero(pairs.record % 2 == half)):
                logits = 0.0 if classifier is None else classifier.decision_function(pairs.select(of).features())
                # Threads sum the classifier's gradients in any order, which changes the last of 16 digits.
                ratios[of] = np.exp(np.round(np.clip(logits + short, -30, 30), 9))
        return ratios / self.stands_for[step] * self.correction[step]

    def bound(self, survey: Survey, confidence: float = 0.99) -> float:
        """Return the upper bound ō of o: nowhere may more unlabelled pairs be relevant than there are.

        For every region A of x, o·n_L(A) ≤ n_U(A). The regions are those whose ratio is above a
        threshold that 2–50 % of the labelled pairs exceed; n_U is taken at the upper and n_L at the
        lower end of its interval. An encoder that cannot tell positives from negatives gives a
        large bound, which says nothing.

        Source: Garg et al., NeurIPS 2021 (best bin estimation).
        """
        from scipy.stats import beta, gamma

        of_labelled, of_unlabelled = np.sort(self.ratio(survey.labelled)), self.ratio(survey.unlabelled)
        order = np.argsort(-of_unlabelled, kind="stable")
        total, squares = (np.cumsum(survey.unlabelled.count[order] ** power) for power in (1, 2))
        thresholds = np.quantile(of_labelled, 1 - TAILS)
        among = np.searchsorted(-of_unlabelled[order], -thresholds, side="right")
        bounds = []
        for threshold, inside in zip(thresholds, among, strict=True):
            n_l = len(of_labelled) - int(np.searchsorted(of_labelled, threshold))
            fewest = float(beta.ppf(1 - confidence, n_l, len(of_labelled) - n_l + 1)) * len(of_labelled)
            size = squares[inside - 1] / total[inside - 1] if inside else 1.0
            drawn = total[inside - 1] / size if inside else 0.0
            bounds.append(float(gamma.ppf(confidence, drawn + 1)) * size / max(fewest, 1e-9))
        return min(bounds)


def _step(edges: Float64s, pairs: Pairs) -> Rows:
    return np.clip(np.searchsorted(edges, pairs.rank, side="right") - 1, 0, len(edges) - 2)


def _fitted(survey: Survey, half: int, seed: int) -> Half:
    """A classifier of labelled against drawn unlabelled pairs, of one half of the records."""
    from sklearn.ensemble import HistGradientBoostingClassifier

    rng = np.random.default_rng([seed, seeds.RESEMBLING, half])
    columns, each = [], []
    for pairs in (survey.labelled, survey.unlabelled):
        rows = np.flatnonzero(pairs.record % 2 == half)
        rows = rows if len(rows) else np.arange(len(pairs))
        chosen = np.sort(rng.permutation(rows)[:FITTED])
        columns.append(pairs.select(chosen).features())
        each.append(len(rows) / max(1, len(chosen)))
    if min(len(part) for part in columns) < 2 * LEAF:
        return None, 0.0
    classifier = HistGradientBoostingClassifier(
        max_iter=TREES, max_leaf_nodes=15, min_samples_leaf=LEAF, monotonic_cst=[1, -1, 1],
        l2_regularization=1.0, early_stopping=False, random_state=seed,
    )  # fmt: skip
    seen = np.concatenate(columns)
    seen[:, np.isnan(seen).all(axis=0)] = 0.0  # no column may be empty: resemblance is known of nobody here
    fitted = classifier.fit(seen, np.repeat([1, 0], [len(part) for part in columns]))
    return fitted, float(np.log(each[0] / each[1]))


@dataclass(frozen=True)
class Pooling:
    """Why labels look as if they had been chosen among likely documents.

    Attributes:
        sign: in words; empty where nothing speaks for it.
        ends: whether it is that labels end with the first documents of a retriever.
        by, depth: that retriever, and how many documents of each query were judged; 0: nobody knows.
    """

    sign: str = ""
    ends: bool = False
    by: str = ""
    depth: int = 0

    def judged(self, measured: Measured, survey: Survey) -> npt.NDArray[np.bool_]:
        """Return (m,) which negatives were judged, among the first `depth`, and not found relevant."""
        of = measured.records
        if self.by == THE_ENCODER:  # documents that are labelled may be nearer, too
            known = of.collection.known_positives
            return np.asarray(survey.negatives.rank + known.counts_of(of.queries)[of.record] < self.depth)
        first, _ = BM25Retriever(of.collection).search(of.queries, self.depth)
        rows = np.asarray(of.texts.rows)[of.document]
        return np.asarray((first[of.record] == rows[:, None]).any(axis=1))


def signs_of_pooling(collection: Collection, queries: Rows, survey: Survey) -> Pooling:
    """Say why the labels look as if they had been chosen among likely documents.

    Labels end where the labelled positives reach evenly down to a rank of the encoder or of BM25,
    or where many are beyond its first ten and next to none of these beyond its first hundred. That
    share was chosen with a look at four collections: .22 and more of squad-sent, scifact, clinc150
    and banking77 as they are, .10 and less where a BM25 of another analyser had pooled the latter
    two; no benchmark repeats it. A weaker sign is one positive a query in a collection of short
    texts, where neighbours of an answer answer as well.

    Args:
        collection: documents, queries, judgements.
        queries: rows of the queries that are looked at; BM25 searches for 400 of them, at most.
        survey: the encoder's ranks of the labelled positives.
    """
    some = queries[:: max(1, len(queries) // RANKED)]
    query, labelled = collection.known_positives.pairs_of(some)
    if len(query) < LEAST_POSITIVES:
        return Pooling()
    first, _ = BM25Retriever(collection).search(some, max(POOLS))
    hit = first[query] == labelled[:, None]
    ranks = {"BM25": np.where(hit.any(axis=1), hit.argmax(axis=1), np.inf), THE_ENCODER: survey.labelled.rank}
    for depth in POOLS:
        for name, rank in ranks.items():
            last = float(((rank >= depth / 2) & (rank < depth)).mean())
            inside = float((rank < depth).mean())
            if len(collection.documents) > 10 * depth and inside >= POOLED and last >= CLIFF:
                sign = f"{100 * inside:.0f} % of the labelled positives are among the first {depth} of {name}"
                return Pooling(sign, True, name, depth)
    for name, rank in ranks.items():
        beyond, further = (int((rank >= depth).sum()) for depth in (NEAR, FAR))
        many = beyond >= max(LEAST_POSITIVES, 0.1 * len(rank))
        if len(collection.documents) > 10 * FAR and many and further <= THIN * beyond:
            sign = f"Of the labelled positives beyond the first {NEAR} of {name} only {100 * further / beyond:.0f} %"
            return Pooling(f"{sign} are beyond its first {FAR}", True)
    words = [len(text.split()) for text in collection.document_texts(labelled[:RANKED])]
    if len(query) <= SINGLE * len(some) and np.median(words) <= SHORT:
        return Pooling(f"Each query has one labelled positive, in texts of about {np.median(words):.0f} words")
    return Pooling()
