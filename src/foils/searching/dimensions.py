"""Which dimensions of a query's vector are worth keeping: DIME, Eclipse, RDIME, as functions of arrays.

Every estimator gives an importance u (…, d), higher is better, and every choice a mask (…, d) of the dimensions to
keep. All work on one query, (d,), or on many at once, (n, d). Zeroing the query's other dimensions gives the same
inner products as zeroing the documents' too, so an index needs no change.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from foils.runtime.errors import InputError

Floats = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]
Rows = npt.NDArray[np.int64]

TRUST_DEPTH = 5  # documents by which feedback is judged


def sun(feedback: npt.ArrayLike, k_plus: int) -> Floats:
    """Return the mean of the best k⁺ documents, s = (1/k⁺) Σ_{i=1..k⁺} d_i, in float64.

    Args:
        feedback: (…, k, d) vectors of the retrieved documents, best first.
        k_plus: how many, 0 < k⁺ ≤ k.

    Returns:
        (…, d).

    Raises:
        InputError: a list shorter than k⁺, or k⁺ < 1.

    Source: Eclipse, the sun for PRF (below eq. 4); with k⁺ = 1 the published DIME baseline (eq. 1).
    """
    vectors = _listed(feedback)
    check_depths(vectors.shape[-2], k_plus, 0)
    return _mean(vectors[..., :k_plus, :])


def moon(
    feedback: npt.ArrayLike, k_minus: int, *, pool: int | None = None, rng: np.random.Generator | None = None
) -> Floats:
    """Return the mean of the last k⁻ documents, m = (1/k⁻) Σ_{i=0..k⁻−1} d_{k−i}, or of k⁻ drawn from the last `pool`.

    Args:
        feedback: (…, k, d) vectors of the retrieved documents, best first.
        k_minus: how many, 0 < k⁻ < k.
        pool: draw the k⁻ at random, without replacement, from the last `pool` documents; None: take the last k⁻.
        rng: source of the draw; needed with `pool`. Each query has its own draw.

    Returns:
        (…, d), float64.

    Raises:
        InputError: k⁻ or the pool out of range, or a pool without a generator.

    Source: Eclipse eq. 3; the draw: its Table 3.
    """
    vectors = _listed(feedback)
    k = vectors.shape[-2]
    check_depths(k, 0, k_minus)
    rows = np.empty((*vectors.shape[:-2], k_minus), np.int64)
    for index in np.ndindex(rows.shape[:-1]):
        rows[index] = moon_rows(k, k_minus, pool=pool, rng=rng)
    return _mean(np.take_along_axis(vectors, rows[..., None], axis=-2))


def moon_rows(k: int, k_minus: int, *, pool: int | None = None, rng: np.random.Generator | None = None) -> Rows:
    """Return which of a list's k rows make the moon, ascending: the last k⁻, or k⁻ drawn from the last `pool`.

    Arguments and errors as `moon`.
    """
    check_depths(k, 0, k_minus)
    if pool is None:
        return np.arange(k - k_minus, k)
    if rng is None or not k_minus <= pool < k:
        raise InputError(
            f"a moon drawn at random needs a generator and k⁻ ≤ pool < k; found k⁻={k_minus}, pool={pool}, k={k}, "
            f"{'no' if rng is None else 'a'} generator"
        )
    return np.sort(rng.choice(pool, size=k_minus, replace=False)) + (k - pool)


def check_depths(k: int, k_plus: int, k_minus: int) -> None:
    """Refuse depths that a list of k documents cannot serve.

    Sun and moon together need 0 < k⁻ < k and 0 < k⁺ < k − k⁻; a depth of 0 stands for one that is not used.

    Raises:
        InputError: what was given and what would do.
    """
    if min(k_plus, k_minus) < 0 or k_plus == k_minus == 0:
        raise InputError(f"k⁺={k_plus}, k⁻={k_minus}; expected whole numbers of at least 1")
    fits = k_plus < k - k_minus if k_plus and k_minus else k_plus <= k if k_plus else k_minus < k
    if not fits:
        raise InputError(
            f"a list of {k} documents is too short for k⁺={k_plus}, k⁻={k_minus}: expected 0 < k⁻ < k and "
            "0 < k⁺ < k − k⁻; retrieve more, or take fewer"
        )


def dime_importance(query: npt.ArrayLike, relevant: npt.ArrayLike) -> Floats:
    """Return u = q ⊙ p.

    Args:
        query: (…, d).
        relevant: (…, d) the sun of the feedback (PRF), or the vector of an answer text (LLM).

    Returns:
        (…, d) float64.

    Raises:
        InputError: shapes that differ, or values that are not finite.

    Source: Eclipse eq. 1 (PRF) and eq. 2 (LLM); Faggioli et al. 2024.
    """
    q, p = _vectors(query=query, relevant=relevant)
    return q * p


def eclipse_importance(
    query: npt.ArrayLike, relevant: npt.ArrayLike, irrelevant: npt.ArrayLike, *, alpha: float, beta: float
) -> Floats:
    """Return u = q ⊙ (α·s − β·m). The order of dimensions depends on β/α alone.

    Args:
        query: (…, d).
        relevant: (…, d) the sun s: of the feedback, or the vector of an answer text.
        irrelevant: (…, d) the moon m.
        alpha: weight of the sun, above 0.
        beta: weight of the moon, 0 or above; 0 gives DIME's order.

    Returns:
        (…, d) float64.

    Raises:
        InputError: shapes that differ, values that are not finite, weights out of range.

    Source: Eclipse eq. 4 and 5.
    """
    if not (np.isfinite([alpha, beta]).all() and alpha > 0 and beta >= 0):
        raise InputError(f"expected α > 0 and β ≥ 0; found α={alpha}, β={beta}")
    q, s, m = _vectors(query=query, relevant=relevant, irrelevant=irrelevant)
    return q * (alpha * s - beta * m)


def dimension_order(importance: npt.ArrayLike) -> Rows:
    """Return the dimensions by falling importance, (…, d); equal ones by their index."""
    return np.argsort(-np.asarray(importance, np.float64), axis=-1, kind="stable")


def kept_count(dimension: int, share: float) -> int:
    """Return how many of d dimensions a retained share keeps: share·d rounded to the nearest, half up, at least 1.

    The rounding is ours; the paper does not say.

    Raises:
        InputError: a share outside (0, 1].
    """
    if not 0 < share <= 1:
        raise InputError(f"retained share {share}; expected above 0, at most 1")
    return max(1, int(np.floor(share * dimension + 0.5)))


def keep_share(importance: npt.ArrayLike, share: float) -> Mask:
    """Return the mask of the `kept_count` dimensions of largest importance; ties keep the lower index.

    Args:
        importance: (…, d) finite.
        share: retained share in (0, 1]; 1 keeps all.

    Raises:
        InputError: values that are not finite, or a share out of range.

    Source: Eclipse, section 2 (ranking and discarding dimensions).
    """
    (u,) = _vectors(importance=importance)
    mask = np.zeros(u.shape, bool)
    np.put_along_axis(mask, dimension_order(u)[..., : kept_count(u.shape[-1], share)], True, axis=-1)
    return mask


def rdime_mask(query: npt.ArrayLike, importance: npt.ArrayLike) -> Mask:
    """Return the mask of dimensions with u_i > σ², σ² = mean_j(q_j² − u_j): no share to choose.

    u_i estimates the squared signal of dimension i, σ² the noise; a dimension whose signal is below the noise adds
    more risk than it takes away. A query whose dimensions all fall below keeps its best one, so that it can rank.

    Args:
        query: (…, d).
        importance: (…, d), of `dime_importance`.

    Raises:
        InputError: shapes that differ, or values that are not finite.

    Source: RDIME (D'Erasmo et al. 2026, arXiv 2601.05649).
    """
    q, u = _vectors(query=query, importance=importance)
    mask: Mask = u > np.mean(q**2 - u, axis=-1, keepdims=True)
    mask |= ~mask.any(axis=-1, keepdims=True) & keep_share(u, 1 / u.shape[-1])
    return mask


def trusted(query: npt.ArrayLike, feedback: npt.ArrayLike, *, lead: float, agreement: float) -> bool:
    """Tell whether one query's best document is likely to show which dimensions matter.

    It is where that document stands out, cos(q, d_1) − cos(q, d_3) ≥ `lead`, and the best documents are about as like
    one another as they are like the query: mean_{i<j ≤ 5} cos(d_i, d_j) − mean_{i ≤ 5} cos(q, d_i) ≥ `agreement`. A
    document that stands out is probably relevant; documents that share more with the query than with one another
    answer it each in its own way, and what one of them shows of the query does not help to find others. Of fewer than
    five documents all count; fewer than three are not trusted.

    Args:
        query: (d,).
        feedback: (k, d) vectors of the retrieved documents, best first; the first five count.
        lead: difference of cosines.
        agreement: difference of mean cosines.

    Raises:
        InputError: shapes that do not fit, or values that are not finite.

    Source: ours; how rule and thresholds were chosen, and on which collections: docs/searching.md.
    """
    vectors = _listed(feedback).astype(np.float64)[:TRUST_DEPTH]
    q = np.asarray(query, np.float64)
    if q.shape != vectors.shape[-1:] or not np.isfinite(q).all():
        raise InputError(f"expected a finite query of shape {vectors.shape[-1:]}; found shape {q.shape}")
    if len(vectors) < 3:
        return False
    units = [_unit(vector) for vector in (q, *vectors)]
    cosines = np.asarray(units) @ np.asarray(units).T
    likeness = cosines[1:, 1:][np.triu_indices(len(vectors), 1)].mean() - cosines[0, 1:].mean()
    return bool(cosines[0, 1] - cosines[0, 3] >= lead and likeness >= agreement)


def masked(query: npt.NDArray[np.floating], mask: Mask) -> npt.NDArray[np.floating]:
    """Return the query with the other dimensions set to 0, in its own dtype; a full mask changes no bit."""
    return np.where(mask, query, query.dtype.type(0))


def _unit(vector: Floats) -> Floats:
    norm = float(np.linalg.norm(vector))
    return vector / norm if norm else vector


def _mean(vectors: npt.NDArray[np.floating]) -> Floats:
    return np.asarray(vectors.astype(np.float64).sum(axis=-2) / vectors.shape[-2])


def _listed(feedback: npt.ArrayLike) -> npt.NDArray[np.floating]:
    vectors = np.asarray(feedback)
    if vectors.ndim < 2 or not np.isfinite(vectors).all():
        raise InputError(f"expected finite feedback vectors of shape (…, k, d); found shape {vectors.shape}")
    return vectors


def _vectors(**named: npt.ArrayLike) -> tuple[Floats, ...]:
    arrays = {name: np.asarray(value, np.float64) for name, value in named.items()}
    shapes = {name: array.shape for name, array in arrays.items()}
    if len(set(shapes.values())) != 1 or not next(iter(shapes.values())):
        raise InputError(f"expected arrays of one shape (…, d); found {shapes}")
    if bad := [name for name, array in arrays.items() if not np.isfinite(array).all()]:
        raise InputError(f"values that are NaN or infinite in: {', '.join(bad)}")
    return tuple(arrays.values())
