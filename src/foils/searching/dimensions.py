"""Queries by their feedback: dimensions worth keeping (DIME, Eclipse, RDIME), or a step to it (Rocchio).

Every estimator gives an importance u (…, d), higher is better, and every choice a mask (…, d) of
the dimensions to keep. All work on one query, (d,), or on many at once, (n, d). Zeroing the query's
other dimensions gives the same inner products as zeroing the documents' too, so an index needs no
change. `sharpened_queries` puts them together for many queries with their lists of feedback or
their answers.

`SharpenedSearch` does so over a search function of yours: of a vector database, index or service.
All that is asked of it is what any of them can do: from a query vector and a number k, the k
nearest documents with their vectors. What it calls a document (an id, a row, a hit with its
payload) comes back as it is, and what else it takes (a filter, a tenant, a partition) is passed
through, to both passes alike.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Annotated, Any, Generic, Literal, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from foils.encode import Vectors
from foils.runtime.errors import InputError
from foils.runtime.options import Option, Settings

Floats = npt.NDArray[np.float64]
Floats32 = npt.NDArray[np.float32]
Mask = npt.NDArray[np.bool_]
Rows = npt.NDArray[np.int64]
T = TypeVar("T")

Method = Literal["none", "dime", "eclipse", "rdime", "rocchio"]
METHODS = ("none", "dime", "eclipse", "rdime", "rocchio")
FEEDBACK_DEPTH = 1_000  # the paper's k
K_PLUS = {"eclipse": 2, "rocchio": 2}  # the least of Eclipse's grid; DIME and RDIME were published with 1
QUERIES = 1_024  # at once: bounds memory, and how often progress is told


def _of(*methods: str, **others: bool) -> dict[str, Any]:
    """What a setting of some methods needs of a search: one of these, and that nothing chooses settings."""
    return {"dimensions": methods, "tune": False, **others}


@dataclass(frozen=True, kw_only=True)
class ImportanceSettings(Settings):
    """How the dimensions of a query are weighed, and how many are kept.

    Attributes:
        k_plus: Number of best documents whose mean is the sun; by default 2 for rocchio and, as
            published, 2 for eclipse, 1 for the others. Answers take the sun's place.
        k_minus: Number of last documents whose mean is the moon (eclipse).
        alpha: Weight of the sun (eclipse).
        beta: Weight of the moon (eclipse).
        share: Share of the dimensions that is kept (dime, eclipse; rdime finds its own).
        weight: Length of the step towards the sun, as a share of the query's length (rocchio).
        scaled: Bring the sun to the query's length before rdime looks for noise. As published, it
            is not; then the share that is kept depends on how long the documents' vectors are.
    """

    heading = "Dimensions"

    k_plus: Annotated[int | None, Option(least=1, needs=_of(*METHODS[1:], answers=False))] = None
    k_minus: Annotated[int, Option(least=1, needs=_of("eclipse"))] = 5
    alpha: Annotated[float, Option(above=0, needs=_of("eclipse"))] = 1.0
    beta: Annotated[float, Option(least=0, needs=_of("eclipse"))] = 0.5
    share: Annotated[float, Option(above=0, most=1, needs=_of("dime", "eclipse"))] = 0.8
    weight: Annotated[float, Option(least=0, needs=_of("rocchio"))] = 0.2
    scaled: Annotated[bool, Option(needs=[_of("rdime"), {"dimensions": False, "answers": True}])] = True


@dataclass(frozen=True, kw_only=True)
class DimensionSettings(ImportanceSettings):
    """How to choose each query's dimensions: a method, and its settings; `k_plus` is known.

    Attributes:
        method: `none` (keep all), `dime`, `eclipse`, `rdime`, or `rocchio` (a step towards the sun).
    """

    method: Annotated[Method, Option(names=METHODS)] = field(default="eclipse", kw_only=False)
    k_plus: Annotated[int, Option(least=1)] = None  # type: ignore[assignment]  # the method's, from here on

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.k_plus is None:
            object.__setattr__(self, "k_plus", K_PLUS.get(self.method, 1))

    @property
    def keeps_all(self) -> bool:
        """Whether no query can change."""
        idle = self.weight == 0 if self.method == "rocchio" else self.method in ("dime", "eclipse") and self.share == 1
        return self.method == "none" or idle

    def to_json(self) -> dict[str, Any]:
        """Return the settings for JSON."""
        return {"method": self.method, **vars(self)}


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
    vectors = np.asarray(feedback)
    if vectors.ndim < 2 or not np.isfinite(vectors).all():
        raise InputError(f"expected finite feedback vectors of shape (…, k, d); found shape {vectors.shape}")
    check_depths(vectors.shape[-2], k_plus, 0)
    return _mean(vectors[..., :k_plus, :])


def moon(feedback: npt.ArrayLike, k_minus: int) -> Floats:
    """Return the mean of the last k⁻ documents, m = (1/k⁻) Σ_{i=0..k⁻−1} d_{k−i}, in float64.

    Args:
        feedback: (…, k, d) vectors of the retrieved documents, best first.
        k_minus: how many, 0 < k⁻ < k.

    Returns:
        (…, d).

    Raises:
        InputError: k⁻ out of range.

    Source: Eclipse eq. 3.
    """
    vectors = np.atleast_2d(feedback)
    check_depths(vectors.shape[-2], 0, k_minus)
    return sun(vectors[..., -k_minus:, :], k_minus)


def check_depths(k: int, k_plus: int, k_minus: int) -> None:
    """Refuse depths that a list of k documents cannot serve (`depths_fit`).

    Raises:
        InputError: what was given and what would do.
    """
    if not depths_fit(k, k_plus, k_minus):
        expected = "expected 0 < k⁻ < k and 0 < k⁺ < k − k⁻; retrieve more, or take fewer"
        raise InputError(f"a list of {k} documents does not serve k⁺={k_plus}, k⁻={k_minus}: {expected}")


def check_search_depths(k: int, feedback_depth: int) -> None:
    """Refuse depths below 1.

    Raises:
        InputError: a depth below 1.
    """
    Option(least=1).check("k", k)
    Option(least=1).check("feedback_depth", feedback_depth)


def depths_fit(k: int, k_plus: int, k_minus: int) -> bool:
    """Return whether 0 < k⁻ < k and 0 < k⁺ < k − k⁻; one of sun and moon may have depth 0: it is not used."""
    if min(k_plus, k_minus) < 0 or not (k_plus or k_minus):
        return False
    return k_plus < k - k_minus if k_plus and k_minus else k_plus <= k and k_minus < k


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
    """Return how many of d dimensions a retained share keeps: share·d rounded, half up, at least 1.

    The rounding is ours; the paper does not say.

    Raises:
        InputError: a share outside (0, 1].
    """
    Option(above=0, most=1).check("share", share)
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


def scaled_to(query: npt.ArrayLike, relevant: npt.ArrayLike) -> Floats:
    """Return the sun brought to the query's length, s·‖q‖/‖s‖; one of zeros stays.

    RDIME's rule compares q² with q ⊙ s, which is no comparison where documents are longer or
    shorter than queries, as those of models trained for inner products are: then what it keeps
    would depend on a factor that ranks nothing.

    Args:
        query: (…, d).
        relevant: (…, d).
    """
    q, s = _vectors(query=query, relevant=relevant)
    wanted, actual = (np.linalg.norm(each, axis=-1, keepdims=True) for each in (q, s))
    return np.asarray(s * np.divide(wanted, actual, out=np.ones_like(actual), where=actual > 0))


def rdime_mask(query: npt.ArrayLike, importance: npt.ArrayLike) -> Mask:
    """Return the mask of dimensions with u_i > σ², σ² = mean_j(q_j² − u_j): no share to choose.

    u_i estimates the squared signal of dimension i, σ² the noise; a dimension whose signal is below
    the noise adds more risk than it takes away. A query whose dimensions all fall below keeps its
    best one, so that it can rank.

    Args:
        query: (…, d).
        importance: (…, d), of `dime_importance`; of vectors that are not of the query's length,
            with `scaled_to`.

    Raises:
        InputError: shapes that differ, or values that are not finite.

    Source: RDIME (D'Erasmo et al. 2026, arXiv 2601.05649).
    """
    q, u = _vectors(query=query, importance=importance)
    mask: Mask = u > np.mean(q**2 - u, axis=-1, keepdims=True)
    mask |= ~mask.any(axis=-1, keepdims=True) & keep_share(u, 1 / u.shape[-1])
    return mask


def moved(query: npt.ArrayLike, relevant: npt.ArrayLike, *, weight: float) -> Floats:
    """Return q + b·s·‖q‖/‖s‖: the query moved towards the sun, whatever the length of the documents' vectors.

    Args:
        query: (…, d).
        relevant: (…, d) the sun of the feedback, or the vector of an answer text.
        weight: b, 0 or above; 0 changes nothing.

    Raises:
        InputError: shapes that differ, or values that are not finite.

    Source: Rocchio 1971, with α = 1 and γ = 0; vector pseudo-relevance feedback of dense retrieval
    (Li et al. 2022).
    """
    return np.asarray(np.asarray(query, np.float64) + weight * scaled_to(query, relevant))


class Sharpened(NamedTuple):
    """Queries by what their feedback shows.

    Attributes:
        queries: (n, d) in the dtype in which they were given; one that did not change is the same to the bit.
        masks: (n, d) which dimensions each keeps; all of a query that is moved.
        moved: (n,) whether feedback was added to it (rocchio).
        no_feedback: (n,) whether it stays as it was for want of feedback or of an answer.
    """

    queries: npt.NDArray[np.floating]
    masks: Mask
    moved: npt.NDArray[np.bool_]
    no_feedback: npt.NDArray[np.bool_]

    @property
    def changed(self) -> npt.NDArray[np.bool_]:
        """(n,) whether a query lost dimensions or was moved."""
        return np.asarray(self.moved | ~self.masks.all(axis=1))


def sharpened_queries(
    queries: npt.NDArray[np.floating],
    documents: Vectors,
    feedback: Sequence[Rows],
    settings: DimensionSettings,
    *,
    answers: npt.NDArray[np.floating] | None = None,
) -> Sharpened:
    """Return queries without the dimensions that their feedback does not support, or moved towards it.

    Args:
        queries: (n, d).
        documents: vectors of all documents.
        feedback: n lists of document positions, best first; they may differ in length.
        settings: method and depths. A list serves where 0 < k⁻ < k and 0 < k⁺ < k − k⁻ (dime: 0 <
            k⁺ ≤ k; with answers: 0 < k⁻ < k), k its length.
        answers: (n, d) vectors of an answer text per query, in place of the sun; a row of NaN: no answer.

    Raises:
        InputError: lengths that do not fit, or numbers that are no positions of documents.
    """
    n, d = queries.shape
    if len(feedback) != n or (answers is not None and answers.shape != queries.shape):
        answered = "" if answers is None else f" and answers {answers.shape}"
        raise InputError(f"{len(feedback)} lists{answered}; expected one for each of {n} queries, (n, {d})")
    known = np.concatenate([np.zeros(0, np.int64), *feedback])
    if len(known) and not 0 <= known.min() <= known.max() < len(documents):  # NumPy takes −1 for the last
        raise InputError(f"feedback {known.min()} to {known.max()}; no positions of {len(documents):,} documents")
    result = Sharpened(queries.copy(), np.ones((n, d), bool), np.zeros(n, bool), np.zeros(n, bool))
    if settings.keeps_all:
        return result
    result.no_feedback[:] = [not serves(len(rows), settings, answered=answers is not None) for rows in feedback]
    if answers is not None:
        result.no_feedback[:] |= np.isnan(answers).any(axis=1)
    ready = np.flatnonzero(~result.no_feedback)
    for start in range(0, len(ready), QUERIES):
        rows = ready[start : start + QUERIES]
        asked, lists = queries[rows], [feedback[row] for row in rows]
        best = [each[: settings.k_plus] for each in lists]
        suns = _mean(_gathered(documents, best)) if answers is None else np.asarray(answers[rows], np.float64)
        if settings.method == "rocchio":
            result.queries[rows], result.moved[rows] = moved(asked, suns, weight=settings.weight), True
            continue
        if settings.method == "rdime":
            mask = rdime_mask(asked, dime_importance(asked, scaled_to(asked, suns) if settings.scaled else suns))
        elif settings.method == "dime":
            mask = keep_share(dime_importance(asked, suns), settings.share)
        else:
            moons = _mean(_gathered(documents, [each[-settings.k_minus :] for each in lists]))
            importance = eclipse_importance(asked, suns, moons, alpha=settings.alpha, beta=settings.beta)
            mask = keep_share(importance, settings.share)
        result.masks[rows], result.queries[rows] = mask, np.where(mask, asked, asked.dtype.type(0))
    return result


def serves(k: int, settings: DimensionSettings, *, answered: bool = False) -> bool:
    """Whether a feedback list of k documents is long enough; with an answer as sun, for the moon alone."""
    k_plus = 0 if answered else settings.k_plus
    k_minus = settings.k_minus if settings.method == "eclipse" else 0
    return not (k_plus or k_minus) or depths_fit(k, k_plus, k_minus)


def feedback_needed(settings: DimensionSettings, depth: int, *, answered: bool = False) -> int:
    """Return how many of a feedback list's documents masks depend on; without a moon, its end plays no part.

    Args:
        settings: method and depths.
        depth: length of the list.
        answered: whether answers make the sun.
    """
    if settings.keeps_all or (answered and settings.method != "eclipse"):
        return 0
    if settings.method == "eclipse":
        return depth
    return min(depth, settings.k_plus)


class Match(NamedTuple, Generic[T]):
    """A document as the search function returned it, and its inner product with the query that found it."""

    document: T
    score: float


def sharpen(queries: npt.ArrayLike, feedback: Sequence[npt.ArrayLike], settings: DimensionSettings) -> Floats32:
    """Return queries without the dimensions that their feedback does not support, or moved towards it.

    Args:
        queries: (n, d).
        feedback: for each query, (k, d) vectors of what was retrieved for it, best first. Of rdime,
            dime and rocchio the first k⁺ count, of eclipse the first k⁺ and the last k⁻. For all
            but eclipse it may be the vector of an answer text, (1, d), with k⁺ 1.
        settings: what is done. A query whose feedback is too short for it stays as it is.

    Returns:
        (n, d) float32. Inner products with these are the scores of the second pass, in any index.

    Raises:
        InputError: shapes that do not fit, or values that are not finite.

    Source: Eclipse, sections 2 and 3.
    """
    rows = _rows(queries)
    vectors = [_rows(each, rows.shape[1]) for each in feedback]
    ends = np.cumsum([0, *map(len, vectors)]).tolist()
    lists = [np.arange(start, end) for start, end in pairwise(ends)]
    documents = Vectors.of(np.concatenate([rows[:0], *vectors]))
    return np.asarray(sharpened_queries(rows, documents, lists, settings).queries)


@dataclass(frozen=True)
class SharpenedSearch(Generic[T]):
    """A search function that uses each query's useful dimensions; call it as the one that it is made of.

    Attributes:
        search: yours: (query (d,), k, options) → (documents, their vectors (≤ k, d)), best first,
            by inner product, or by cosine or L2 distance over documents of one norm, which order
            documents alike.
        settings: what is done with a query, as DimensionSettings("rocchio"). rdime needs one
            document, rocchio two, eclipse the end of a list of `feedback_depth`.
        feedback_depth: length of the list from whose end eclipse takes its moon.
    """

    search: Callable[..., Any]
    settings: DimensionSettings
    feedback_depth: int = FEEDBACK_DEPTH

    def __call__(self, query: npt.ArrayLike, k: int = 10, **options: Any) -> list[Match[T]]:
        """Return the k best documents of a query, best first.

        Args:
            query: (d,).
            k: how many.
            options: passed on to the search function, each time.

        Raises:
            InputError: a depth below 1, shapes that do not fit, or a search function that returns
                something else than it should.
        """
        check_search_depths(k, self.feedback_depth)
        queries = _rows(np.asarray(query, np.float32)[None])
        depth = feedback_needed(self.settings, self.feedback_depth) or k  # of the first pass
        documents, vectors = _checked(self.search(queries[0], depth, **options), queries.shape[1])
        sharpened = sharpen(queries, [vectors[: self.feedback_depth]], self.settings)
        if depth < k or (sharpened != queries).any():
            documents, vectors = _checked(self.search(sharpened[0], k, **options), queries.shape[1])
        scores = (vectors @ sharpened[0]).tolist()
        return [Match(document, score) for document, score in zip(documents, scores, strict=True)][:k]


def _gathered(documents: Vectors, lists: Sequence[Rows]) -> npt.NDArray[np.floating]:
    """Vectors of lists of one length, (n, k, d)."""
    rows = np.stack(lists)
    return documents.take(rows.ravel()).reshape(*rows.shape, -1)


def _mean(vectors: npt.NDArray[np.floating]) -> Floats:
    return np.asarray(vectors.astype(np.float64).sum(axis=-2) / vectors.shape[-2])


def _vectors(**named: npt.ArrayLike) -> tuple[Floats, ...]:
    arrays = {name: np.asarray(value, np.float64) for name, value in named.items()}
    shapes = {name: array.shape for name, array in arrays.items()}
    if len(set(shapes.values())) != 1 or not next(iter(shapes.values())):
        raise InputError(f"expected arrays of one shape (…, d); found {shapes}")
    if bad := [name for name, array in arrays.items() if not np.isfinite(array).all()]:
        raise InputError(f"values that are NaN or infinite in: {', '.join(bad)}")
    return tuple(arrays.values())


def _checked(pair: Any, d: int) -> tuple[Sequence[Any], Floats32]:
    """Documents, best first, and their vectors, (k, d)."""
    try:
        documents, vectors = pair
        array = np.asarray(vectors, np.float32) if len(documents) else np.empty((0, d), np.float32)
        if array.shape != (len(documents), d):
            raise ValueError(f"{len(documents)} documents with vectors of shape {array.shape}")
    except (TypeError, ValueError) as error:
        expected = f"({d},) vectors, which most databases return only where they are asked to"
        raise InputError(f"no pair of documents and vectors ({error}); expected {expected}") from error
    return documents, array


def _rows(values: npt.ArrayLike, d: int | None = None) -> Floats32:
    rows = np.ascontiguousarray(values, np.float32)
    if rows.ndim != 2 or d not in (None, rows.shape[1]) or not np.isfinite(rows).all():
        raise InputError(f"expected finite vectors of shape (n, {d or 'd'}); found shape {rows.shape}")
    return rows
