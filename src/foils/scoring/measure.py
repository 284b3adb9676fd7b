"""What is measured of triplets: similarities, gradient energies, and ECI_sem from their information.

Each pass reads vectors in blocks from where they lie (a mapped file, say), and does nothing that depends on
how large a block is, beyond rounding.

The information matrix is a sum that merges; from it come the log-determinant, its uncertainty and its
maximum. A jackknife over blocks of records takes the bias of a score away, and a bootstrap gives its
interval. log det is concave, so the score of few records lies below the score of many, by more the
smaller λ is: by several standard errors at λ = 0.001 and a hundred records. Intervals are of the
score that many records like these would have.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
from scipy.special import ndtri, stdtrit

from foils.data.collection import DocumentTexts, Rows
from foils.data.run import grouped
from foils.encode.encoder import Encoder
from foils.encode.vectors import Vectors, VectorStore, paired_products
from foils.runtime import memory, progress
from foils.runtime.errors import InputError
from foils.runtime.options import Option
from foils.runtime.parallel import spread_blocks, workers
from foils.scoring.gates import Float64s, Similarities
from foils.scoring.triplets import Records, Target

BLOCK = 2_048  # triplets at once: their vectors stay in the processor's cache
GATHERED = 512  # residuals made at once, likewise
SUMMED = 8_192  # residuals of one symmetric update: the more, the less it costs beside its products
CONFIDENCE = 0.95  # of the intervals
BLOCKS = 64  # of records, that are resampled
MOST_BIAS = 2.0  # standard errors of bias that the jackknife takes away well enough for the interval to cover

Stretch = tuple[int, int, Rows, npt.NDArray[np.bool_]]  # what `padded` yields


@dataclass(frozen=True)
class Geometry:
    """Vectors of records and triplets.

    Attributes:
        queries: (T, d) unit vectors u of the records' queries.
        documents: (P, d) unit vectors of the pooled texts.
        positive: (T,) pool index of each record's positive.
        record: (m,) the record of each triplet, ascending.
        document: (m,) pool index of each triplet's negative.
    """

    queries: Vectors
    documents: Vectors
    positive: Rows
    record: Rows
    document: Rows

    @property
    def dimension(self) -> int:
        """The dimension d."""
        return self.queries.dimension


@dataclass(frozen=True)
class Measured:
    """What was measured of the triplets, for reports, ablations and the decision.

    Attributes:
        records: the triplets.
        geometry: their vectors.
        similarities: per triplet (s_p spread to triplets), with the gates at the settings' temperature.
        s_p: (T,) similarity of query and positive. `best_positive`: (T,) of query and most similar positive.
        background: vectors of other documents of the collection that were asked for.
    """

    records: Records
    geometry: Geometry
    similarities: Similarities
    s_p: Float64s
    best_positive: Float64s
    background: Vectors

    def part(self, records: Rows, names: Sequence[str]) -> Measured:
        """Return what was measured of some records and sources (`Records.part`)."""
        part, kept, triplets, texts = self.records.part(records, names)
        queries, documents = self.geometry.queries.select(kept), self.geometry.documents.select(texts)
        geometry = Geometry(queries, documents, part.positives, part.record, part.document)
        names_of_arrays = ("s_p", "s_n", "s_pn", "coverage", "distance")
        arrays = {name: getattr(self.similarities, name)[triplets] for name in names_of_arrays}
        similarities = replace(self.similarities, **arrays)
        return Measured(part, geometry, similarities, self.s_p[kept], self.best_positive[kept], self.background)

    def with_coverage(self, coverage: Float64s) -> Measured:
        """Return it with the coverage C of each triplet, (m,) (`Lexicon.coverage`)."""
        return replace(self, similarities=replace(self.similarities, coverage=coverage))


def measure(
    records: Records,
    encoder: Encoder,
    store: VectorStore,
    temperature: float,
    *,
    background: Rows | None = None,
) -> Measured:
    """Embed what is not embedded yet, and measure every triplet once; the coverage is 0 until it is known.

    Args:
        records: the triplets.
        encoder: with the prompts and the maximum length of the training.
        store: of vectors.
        temperature: τ of the gates.
        background: rows of documents of the collection whose vectors are wanted, too.
    """
    queries = store.embed(encoder, records.collection.query_texts(records.queries), "query")
    pool, wanted = np.asarray(records.texts.rows), np.zeros(0, np.int64) if background is None else background
    place = np.full(len(records.collection.documents), -1)
    place[pool[pool >= 0]] = np.flatnonzero(pool >= 0)
    missing = wanted[place[wanted] < 0]
    place[missing] = len(pool) + np.arange(len(missing))
    texts = DocumentTexts(records.collection, np.concatenate([pool, missing]), records.texts.own)
    vectors = store.embed(encoder, texts, "document")  # each text is asked for once
    documents = vectors.select(np.arange(len(pool)))
    geometry = Geometry(queries, documents, records.positives, records.record, records.document)
    s_p, s_n, s_pn, distance = triplet_similarities(geometry)
    every = paired_products(queries, records.positive_record, documents, records.all_positives)
    best = np.full(len(records), -np.inf)
    np.maximum.at(best, records.positive_record, every)
    coverage, of_positives = np.zeros(len(s_n)), s_p[records.record]
    similarities = Similarities(of_positives, s_n, s_pn, coverage, distance, temperature)
    return Measured(
        records=records,
        geometry=geometry,
        similarities=similarities,
        s_p=s_p,
        best_positive=best,
        background=vectors.select(place[wanted]),
    )


def triplet_similarities(geometry: Geometry, *, block: int = BLOCK) -> tuple[Float64s, Float64s, Float64s, Float64s]:
    """Return s_p (T,), and s_n, s_pn and ‖v⁺ − v⁻‖² (m,)."""
    records, count = np.arange(len(geometry.positive)), len(geometry.record)
    s_p = paired_products(geometry.queries, records, geometry.documents, geometry.positive)
    s_n, s_pn, distance = np.empty(count), np.empty(count), np.empty(count)

    def measured(stretch: Stretch) -> tuple[Rows, Float64s, Float64s, Float64s]:
        first, last, triplets, where = stretch
        here = slice(first, last)
        negatives = geometry.documents.take(geometry.document[triplets]).reshape(*where.shape, -1)
        positives = geometry.documents.take(geometry.positive[here])
        # The same routine as for s_p: where positive and negative have one vector, their
        # similarities are equal.
        to_query = np.einsum("bkd,bd->bk", negatives, geometry.queries.take(here))[where]
        to_positive = np.einsum("bkd,bd->bk", negatives, positives)[where]
        negatives -= positives[:, None]
        apart = np.einsum("bkd,bkd->bk", negatives, negatives)[where]
        return triplets[where.ravel()], to_query, to_positive, apart

    with progress.task("measuring triplets", total=count, unit="triplets") as advance:
        for rows, *measures in spread_blocks(measured, padded(geometry.record, len(s_p), block=block)):
            s_n[rows], s_pn[rows], distance[rows] = measures
            advance(len(rows))
    return s_p, s_n, s_pn, distance


def gradient_energies(
    geometry: Geometry, s_p: Float64s, s_n: Float64s, members: Sequence[npt.NDArray[np.bool_]], temperature: float
) -> Float64s:
    """Return (T, targets) ‖g_t‖² of each record and target, NaN where the target has no negative for it.

    g_t = (1/τ)(Σ_j P_j d_j − d_+), P the softmax at τ over the positive and its negatives (ECI_sem
    Table 3; that it is per record over the whole list follows from the published figures).

    Args:
        geometry: the vectors.
        s_p: (T,) similarity of query and positive.
        s_n: (m,) of query and negative.
        members: for each target, (m,) which triplets are its negatives.
        temperature: τ.
    """
    records, targets = len(s_p), len(members)
    energies = np.full((records, targets), np.nan)
    every = np.stack(members, axis=1) if targets else np.zeros((len(s_n), 0), bool)

    def energies_of(stretch: Stretch) -> tuple[int, int, Float64s]:
        first, last, triplets, where = stretch
        negatives = geometry.documents.take(geometry.document[triplets])
        positives = geometry.documents.take(geometry.positive[first:last])
        member = (every[triplets] & where.reshape(-1)[:, None]).reshape(*where.shape, targets)
        logits = np.where(member, s_n[triplets].reshape(where.shape)[:, :, None] / temperature, -np.inf)
        positive = s_p[first:last, None] / temperature
        top = np.maximum(logits.max(axis=1, initial=-np.inf), positive)
        # Of negatives, and of the positive.
        shares, share = np.exp(logits - top[:, None, :]), np.exp(positive - top)
        total = shares.sum(axis=1) + share
        probability = (shares / total[:, None, :]).transpose(0, 2, 1).astype(negatives.dtype)
        mixed = np.matmul(probability, negatives.reshape(*where.shape, -1))
        mixed += (share / total - 1)[:, :, None].astype(negatives.dtype) * positives[:, None, :]
        energy = np.einsum("btd,btd->bt", mixed, mixed) / temperature**2
        return first, last, np.where(member.any(axis=1), energy, np.nan)

    with progress.task("gradient energies", total=records, unit="records") as advance:
        for first, last, block_energies in spread_blocks(energies_of, padded(geometry.record, records)):
            energies[first:last] = block_energies
            advance(last - first)
    return energies


def padded(record: Rows, records: int, *, block: int = BLOCK) -> Iterator[Stretch]:
    """Lay the triplets of records out as rectangles of at most about `block` entries.

    Args:
        record: (m,) the record of each triplet, ascending.
        records: how many there are.
        block: a record with more triplets has a rectangle of its own.

    Yields:
        First and last + 1 of a stretch of B records; the triplets (B·K,) of its rectangle; which of
            them are real
        (B, K), the others repeating one that is.
    """
    offsets = np.searchsorted(record, np.arange(records + 1))
    counts = np.diff(offsets)
    first = 0
    while first < records:
        last = first + 1
        width = max(1, int(counts[first]))
        while last < records and max(width, int(counts[last])) * (last + 1 - first) <= block:
            width = max(width, int(counts[last]))
            last += 1
        column = np.arange(width)
        where = column < counts[first:last, None]
        triplets = np.where(where, offsets[first:last, None] + column, offsets[first:last, None])
        yield first, last, np.minimum(triplets, max(0, len(record) - 1)).reshape(-1), where
        first = last


def information_matrix(geometry: Geometry, weights: Float64s, rows: Rows, *, block: int = SUMMED) -> Float64s:
    """Return (d, d) Σ w·r·rᵀ over triplets at `rows`, with r = (v⁺ − v⁻)/‖v⁺ − v⁻‖, 0 where they coincide.

    The sum of ECI_sem eq. 10, before it is divided by N. Products are made in the vectors' precision by one
    symmetric rank-k update a block (d² operations a triplet) and added up in float64.

    Args:
        geometry: the vectors.
        weights: (m,) non-negative weight of every triplet of the geometry.
        rows: (k,) which triplets to sum over.
        block: triplets of one update.
    """
    total = np.zeros((geometry.dimension, geometry.dimension))
    kind = np.float64 if geometry.documents.array.dtype == np.float64 else np.float32
    scaled = np.empty((min(block, len(rows)), geometry.dimension), kind)
    for start in range(0, len(rows), block):
        count = min(block, len(rows) - start)
        for first in range(0, count, GATHERED):
            part = rows[start + first : start + min(first + GATHERED, count)]
            residuals = geometry.documents.take(geometry.positive[geometry.record[part]])
            residuals -= geometry.documents.take(geometry.document[part])
            squared = np.einsum("nd,nd->n", residuals, residuals)
            scale = np.sqrt(np.divide(weights[part], squared, out=np.zeros(len(part)), where=squared > 0))
            np.multiply(residuals, scale.astype(kind)[:, None], out=scaled[first : first + len(part)])
        total += scaled[:count].T @ scaled[:count]  # the same array twice: a symmetric update
    return total


def log_det(information: Float64s, regularization: float = 1.0) -> float:
    """Return log det(Id + I/λ) (ECI_sem eq. 11 with λ = 1; eq. 26–27 have λ).

    Args:
        information: I, (d, d), positive semidefinite up to rounding.
        regularization: λ, above 0; the smaller, the more diversity of directions counts beside their weight.

    Raises:
        InputError: λ not above 0, or so small that the rounding of I outweighs it.
    """
    Option(above=0).check("lambda", regularization)
    with np.errstate(over="ignore", invalid="ignore"):
        scaled: Float64s = np.eye(len(information), dtype=np.float64) + information / regularization
    try:
        factor = np.asarray(np.linalg.cholesky(scaled), np.float64)
    except np.linalg.LinAlgError:
        factor = np.full(scaled.shape, np.nan)
    if not np.isfinite(factor).all():
        raise InputError(f"lambda {regularization} is below the precision of the vectors; take a larger one")
    return float(2 * np.log(np.diagonal(factor)).sum())


def information_sums(
    geometry: Geometry, weights: Float64s, members: Rows, targets: Sequence[Target]
) -> dict[str, Float64s]:
    """Return name -> (d, d) Σ w·r·rᵀ over a target's triplets; a triplet of several is multiplied once.

    Divided by N, the number of these triplets, it is the information I (ECI_sem eq. 10).

    Memory is one matrix a target, beside those that `together` lets be worked on.

    Args:
        geometry: the vectors.
        weights: (m,) w of each triplet.
        members: (m,) which sources hold it, as bits.
        targets: sources and hybrids.
    """
    size = max(SUMMED, -(-len(members) // 64))
    slices = [np.arange(start, min(start + size, len(members))) for start in range(0, len(members), size)]
    sums: dict[str, Float64s] = {}
    for part in together(targets, geometry.dimension):
        total = np.zeros((len(part), geometry.dimension, geometry.dimension))
        for sums_of_block in block_sums(geometry, weights, members, slices, part):
            total += sums_of_block
        sums |= {target.name: matrix for target, matrix in zip(part, total, strict=True)}
    return sums


def together(targets: Sequence[Target], dimension: int) -> Iterator[list[Target]]:
    """Yield targets in groups whose sums fit the memory budget, with those of the blocks in work."""
    size = memory.rows_at_once(8.0 * dimension**2 * (3 * workers() + 2), most=max(1, len(targets)))
    for start in range(0, len(targets), size):
        yield list(targets[start : start + size])


def block_sums(
    geometry: Geometry, weights: Float64s, members: Rows, blocks: Iterable[Rows], targets: Sequence[Target]
) -> Iterator[Float64s]:
    """Yield for each block of triplets each target's Σ w·r·rᵀ, (targets, d, d).

    The triplets of a block with the same members form an *atom*, which is multiplied once; a target
    is a sum of atoms.
    """

    def summed(rows: Rows) -> tuple[int, Float64s]:
        sums = np.zeros((len(targets), geometry.dimension, geometry.dimension))
        held = members[rows]
        for atom in np.unique(held):
            if holders := [index for index, target in enumerate(targets) if target.bits & int(atom)]:
                sums[holders] += information_matrix(geometry, weights, rows[held == atom])
        return len(rows), sums

    with progress.task("summing information", total=len(members), unit="triplets") as advance:
        for count, sums in spread_blocks(summed, blocks):
            yield sums
            advance(count)


def interval(replicates: Float64s) -> tuple[float, float]:
    """Return the percentile interval of the replicates that are finite; NaN where there is none."""
    finite = replicates[np.isfinite(replicates)]
    tail = (1 - CONFIDENCE) / 2
    low, high = np.quantile(finite, [tail, 1 - tail]) if len(finite) else (np.nan, np.nan)
    return float(low), float(high)


def assign_blocks(records: int, rng: np.random.Generator, *, blocks: int = BLOCKS) -> Rows:
    """Deal records at random into at most `blocks` blocks of equal size (± 1), (records,)."""
    return rng.permutation(np.arange(records) % max(1, min(blocks, records)))


def leave_out(
    geometry: Geometry,
    weights: Float64s,
    members: npt.NDArray[np.int64],
    sums: Mapping[str, Float64s],
    targets: Sequence[Target],
    block_of_record: Rows,
    *,
    regularization: float = 1.0,
) -> dict[str, Float64s]:
    """Return name -> (B,) the target's score without each block of records: a second pass over the triplets.

    θ₋ᵦ = log det(Id + (S − Sᵦ)/((N − Nᵦ)·λ)), exactly; no block's sums are kept. NaN where the
    block has none of the target's triplets, or all of them.

    Args:
        geometry: the vectors.
        weights: (m,) w of each triplet.
        members: (m,) which sources hold it, as bits.
        sums: of the targets, over all triplets (`information_sums`).
        targets: sources and hybrids.
        block_of_record: (T,) the block of each record, 0-based.
        regularization: λ.
    """
    numbers = block_of_record[geometry.record]
    blocks = grouped(numbers)
    counts = {target.name: int(np.count_nonzero(target.of(members))) for target in targets}
    without = {target.name: np.full(int(block_of_record.max(initial=0)) + 1, np.nan) for target in targets}
    for part in together(targets, geometry.dimension):
        for rows, of_block in zip(blocks, block_sums(geometry, weights, members, blocks, part), strict=True):
            for target, block_sum in zip(part, of_block, strict=True):
                count = int(np.count_nonzero(target.of(members[rows])))
                rest = counts[target.name] - count
                if count and rest:
                    left = (sums[target.name] - block_sum) / rest
                    without[target.name][numbers[rows[0]]] = log_det(left, regularization)
    return without


def bootstrap(
    scores: Mapping[str, float], left_out: Mapping[str, Float64s], rng: np.random.Generator, *, replicates: int = 1000
) -> dict[str, Float64s]:
    """Return name -> (replicates,) ECI_sem without its bias, blocks of records resampled alike for all targets.

    With B blocks that hold a target's negatives, θ its score and θ₋ᵦ the score without block b, the
    pseudo-values pᵦ = Bθ − (B − 1)θ₋ᵦ average to the score without its bias of order 1/B, and
    spread as B independent scores do. A replicate is the mean of the drawn pᵦ; its spread about the
    mean is widened as Student's t asks with B − 1 degrees.

    Args:
        scores: target name -> θ.
        left_out: target name -> (blocks,) θ₋ᵦ, NaN where the block holds none.
        rng: what draws.
        replicates: how many; 0: none.

    Source: Quenouille 1956, Tukey 1958 (jackknife and pseudo-values).
    """
    blocks = len(next(iter(left_out.values()), ()))
    drawn = rng.multinomial(blocks, np.full(blocks, 1 / max(1, blocks)), size=replicates).astype(np.float64)
    return {name: resampled(scores[name], without, drawn) for name, without in left_out.items()}


def widening(blocks: int) -> float:
    """Return the factor for deviations of B resampled blocks: √(B/(B − 1))·t/z, 1 for a single block.

    They fall short by √((B − 1)/B), and their normal tails, z at 97.5 %, by those of Student's t
    with B − 1 degrees of freedom.
    """
    if blocks < 2:
        return 1.0
    return float(np.sqrt(blocks / (blocks - 1)) * stdtrit(blocks - 1, 0.975) / ndtri(0.975))


def resampled(score: float, left_out: Float64s, drawn: Float64s) -> Float64s:
    """Return a target's replicates (replicates,); NaN where no interval would cover as often as it says.

    That is so with fewer than two blocks, and where the bias that the jackknife takes away is above
    `MOST_BIAS` standard errors: with a small λ and few records.

    Args:
        score: θ.
        left_out: (B,) θ₋ᵦ, NaN where the block has none of the target's triplets.
        drawn: (replicates, B) how often each block was drawn.
    """
    held = np.isfinite(left_out)
    count = int(held.sum())
    if count < 2:
        return np.full(len(drawn), np.nan)
    pseudo = count * score - (count - 1) * left_out[held]
    corrected, error = float(pseudo.mean()), float(pseudo.std(ddof=1) / np.sqrt(count))
    if not abs(score - corrected) <= MOST_BIAS * error:
        return np.full(len(drawn), np.nan)
    deviations = (pseudo - corrected) * widening(count) / count
    return np.maximum(corrected + (drawn[:, held] - 1) @ deviations, 0.0)
