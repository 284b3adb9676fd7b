"""Settings for DIME and Eclipse: a whole grid in one pass, chosen on other queries than it is reported on.

Three facts make the grid cheap. The order of dimensions under q ⊙ (α·s − β·m) depends on β/α alone,
so the 100 published pairs of weights are 63 orders. The retained shares are prefixes of one order,
so one running sum of q_i·d_i over the sorted dimensions passes through the scores of every share.
And a ranking counts only through the ranks of its relevant documents, which need comparisons, not a
sort.

Two numbers come out, and their names say which is which: *oracle*, the best setting on the very
queries it is reported on, as published; and *honest*, settings chosen by cross-validation, reported
on the queries held out, over many deals of the queries to the folds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import product
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow.compute as pc

from foils.data.run import grouped
from foils.encode import Vectors
from foils.encode.nearest import rank_rows, search_lists
from foils.runtime import progress
from foils.runtime.errors import InputError, check_names, require
from foils.searching.dimensions import (
    FEEDBACK_DEPTH,
    DimensionSettings,
    Floats,
    Rows,
    check_search_depths,
    dimension_order,
    kept_count,
    serves,
    sun,
)
from foils.searching.runs import Embedded
from foils.statistics import parse_measures

Integers = npt.NDArray[np.integer[Any]]
Ranks = npt.NDArray[np.int32]
Reading = Literal["few-irrelevant", "few-relevant"]
READINGS = ("few-irrelevant", "few-relevant")
TENTHS = tuple(tenth / 10 for tenth in range(1, 11))
MEASURES = ("nDCG@10", "AP")
FAMILIES = ("nDCG", "AP", "RR", "R")
CANDIDATES = 1_000  # what is ranked again, as the paper's k
UNREACHED = int(np.iinfo(np.int32).max)


@dataclass(frozen=True)
class Grid:
    """Settings to search.

    Attributes:
        method: `dime` or `eclipse`.
        depths: pairs (k⁺, k⁻), each at least 1; dime uses k⁺ alone.
        weights: pairs (α, β), α > 0 and β ≥ 0; dime uses none.
        shares: retained shares.
    """

    method: Literal["dime", "eclipse"]
    depths: tuple[tuple[int, int], ...]
    weights: tuple[tuple[float, float], ...] = ((1.0, 0.0),)
    shares: tuple[float, ...] = TENTHS

    @property
    def ratios(self) -> tuple[tuple[float, float], ...]:
        """The first pair of weights of each distinct β/α, in the order in which they come."""
        first: dict[float, tuple[float, float]] = {}
        for alpha, beta in self.weights:
            first.setdefault(round(beta / alpha, 12), (alpha, beta))
        return tuple(first.values())

    @property
    def settings(self) -> list[DimensionSettings]:
        """The settings that can differ, depths slowest, then ratios, then shares."""
        return [
            DimensionSettings(self.method, k_plus=plus, k_minus=minus, alpha=alpha, beta=beta, share=share)
            for (plus, minus), (alpha, beta), share in product(self.depths, self.ratios, self.shares)
        ]


def published_grid(reading: Reading = "few-relevant") -> Grid:
    """Return Eclipse's grid: α, β and share in 0.1..1 by 0.1; k⁺ in 2..6, k⁻ in 2..14.

    Args:
        reading: the paper's sentence can be read both ways, each of 65,000 settings.
            `few-relevant`: k⁺ in 2..6, as in the authors' notebook; `few-irrelevant`: k⁻ in 2..6.

    Raises:
        UnknownNameError: an unknown reading.

    Source: Eclipse, section 4 (hyperparameters).
    """
    check_names("reading of the published grid", [reading], READINGS)
    few, many = range(2, 7), range(2, 15)
    depths = product(few, many) if reading == "few-relevant" else product(many, few)
    return Grid("eclipse", tuple(depths), tuple(product(TENTHS, TENTHS)))


def dime_grid(k_plus: Sequence[int] = (1,)) -> Grid:
    """Return DIME's grid: the retained share in 0.1..1 by 0.1, at k⁺ = 1 as published, or at others."""
    return Grid("dime", tuple((plus, 1) for plus in k_plus))


@dataclass(frozen=True)
class Relevant:
    """The relevant documents of one query.

    Attributes:
        rows: (m,) their positions, m ≥ 1, each once.
        grades: (m,) integers of at least 1.
    """

    rows: npt.NDArray[np.int64]
    grades: npt.NDArray[np.int64]


@dataclass(frozen=True)
class Judged:
    """Queries with a relevant document, and all retrieved for them: where settings and masks are measured.

    Attributes:
        queries: (n, d).
        documents: vectors of all documents.
        lists: n rankings of document positions by all dimensions, best first: the feedback, and
            what is ranked again.
        relevant: n sets of relevant documents.
        answers: (n, d) vectors of an answer text per query, where there are some; a row of NaN: no answer.
        k: how many documents of a new ranking count in a measure.
        candidates: how many of each list are ranked again.
        feedback_depth: length of the feedback; None: the whole list.
        measures: names that `measure_ranks` knows.
        rows: (n,) which of the split's queries these are.
    """

    queries: npt.NDArray[np.floating]
    documents: Vectors
    lists: Sequence[Rows]
    relevant: Sequence[Relevant]
    answers: npt.NDArray[np.floating] | None = None
    k: int = 1_000
    candidates: int = CANDIDATES
    feedback_depth: int | None = FEEDBACK_DEPTH
    measures: Sequence[str] = MEASURES
    rows: Rows | None = None

    @property
    def retrieved(self) -> list[Rows]:
        """What is ranked again of each list."""
        return [rows[: self.candidates] for rows in self.lists]

    @property
    def feedback(self) -> list[Rows]:
        """What dimensions are judged by, of each list."""
        return [rows[: self.feedback_depth] for rows in self.lists]


def judged_queries(
    embedded: Embedded, *, k: int = 1000, feedback_depth: int = FEEDBACK_DEPTH, measures: Sequence[str] = MEASURES
) -> Judged:
    """Retrieve exactly what is to be reranked and the feedback, for each query with a relevant document.

    Args:
        embedded: vectors of a split.
        k: documents of a ranking that count.
        feedback_depth: length of the feedback.
        measures: names that `measure_ranks` knows.

    Raises:
        InputError: a depth out of range.
    """
    check_search_depths(k, feedback_depth)
    reranked = max(k, CANDIDATES)
    collection = embedded.collection
    table = collection.judgements(embedded.split)
    table = table.filter(pc.greater(table["relevance"], 0))
    queries, documents = collection.query_rows(table["query_id"]), collection.document_rows(table["doc_id"])
    grades = table["relevance"].to_numpy().astype(np.int64)
    relevant = {int(queries[at[0]]): Relevant(documents[at], grades[at]) for at in grouped(queries)}
    rows = np.flatnonzero(np.isin(embedded.query_rows, queries))
    asked, depth = embedded.queries[rows], max(reranked, feedback_depth)
    lists, _ = search_lists(embedded.exact_index, asked, depth, without=embedded.identical[rows])
    return Judged(
        asked, embedded.documents, lists, [relevant[query] for query in embedded.query_rows[rows].tolist()],
        None if embedded.answers is None else embedded.answers[rows], k, reranked, feedback_depth, measures, rows,
    )  # fmt: skip


def query_values(judged: Judged, queries: npt.NDArray[np.floating]) -> dict[str, Floats]:
    """Measure the k best that queries, (n, d), rank among the retrieved; an unchanged one keeps its list."""
    rankings = judged.retrieved
    again = np.flatnonzero((queries != judged.queries).any(axis=1))
    reranked, _ = rank_rows(queries[again], judged.documents, [rankings[row] for row in again])
    for row, ranking in zip(again.tolist(), reranked, strict=True):
        rankings[row] = ranking
    values = {measure: np.empty(len(queries)) for measure in judged.measures}
    for row, (ranking, relevant) in enumerate(zip(rankings, judged.relevant, strict=True)):
        hit, where = np.nonzero(relevant.rows[:, None] == ranking[: judged.k])
        ranks = np.full(len(relevant.rows), UNREACHED, np.int64)
        ranks[hit] = where
        for measure, column in values.items():
            column[row] = measure_ranks(measure, ranks, relevant)
    return values


@dataclass(frozen=True)
class GridValues:
    """What each setting scores for each query; one that its feedback cannot serve keeps every dimension.

    Attributes:
        settings: c settings.
        values: measure → (n, c).
    """

    settings: list[DimensionSettings]
    values: dict[str, Floats]


@dataclass(frozen=True)
class Tuned:
    """A number and the settings behind it.

    Attributes:
        settings: of each fold of each deal (one for the oracle).
        per_query: measure → (n,) values with the setting of the query's fold, the mean over deals.
        spread: measure → standard deviation of the mean over deals (n − 1); 0 of one deal, and for
            the oracle.
    """

    settings: list[DimensionSettings]
    per_query: dict[str, Floats]
    spread: dict[str, float]


def oracle(values: GridValues, measure: str) -> Tuned:
    """Return the setting that is best on average over the queries reported on: optimistic, as published."""
    best = int(np.argmax(values.values[measure].mean(axis=0)))
    return _tuned(values, np.full((1, len(values.values[measure])), best), [best])


def cross_validate(
    values: GridValues, measure: str, *, rng: np.random.Generator, folds: int = 5, deals: int = 20
) -> Tuned:
    """Choose on the other folds, report on each fold: no query has a say in its own setting.

    Queries are dealt to the folds at random, as evenly as they go; the best mean wins, the first
    setting where equal. What one deal gives depends on the deal, so there are several: `per_query`
    is their mean, `spread` how far the mean of one lies from another's.

    Args:
        values: of `evaluate_grid`.
        measure: to choose by.
        rng: source of the deals.
        folds: how many, 2 ≤ folds ≤ n.
        deals: how many times the queries are dealt, at least 1.

    Raises:
        InputError: a number of folds or of deals out of range.
    """
    scores = values.values[measure]
    n = len(scores)
    if not 2 <= folds <= n or deals < 1:
        raise InputError(f"{folds} folds, {deals} deals; expected 2 to {n} folds of {n} queries, 1 deal")
    total, chosen, columns = scores.sum(axis=0), np.empty((deals, n), np.int64), []
    for deal in range(deals):
        fold = np.empty(n, np.int64)
        fold[rng.permutation(n)] = np.arange(n) % folds
        for index in range(folds):
            held_out = fold == index
            columns.append(int(np.argmax(total - scores[held_out].sum(axis=0))))
            chosen[deal, held_out] = columns[-1]
    return _tuned(values, chosen, columns)


def _tuned(values: GridValues, chosen: Rows, columns: Sequence[int]) -> Tuned:
    """What the settings in the columns (deals, n) score."""
    at = np.arange(chosen.shape[1]), chosen
    by_deal = {name: part[at] for name, part in values.values.items()}
    deals = {name: part.mean(axis=1) for name, part in by_deal.items()}
    spread = {name: float(each.std(ddof=1)) if len(each) > 1 else 0.0 for name, each in deals.items()}
    per_query = {name: part.mean(axis=0) for name, part in by_deal.items()}
    return Tuned([values.settings[column] for column in columns], per_query, spread)


def evaluate_grid(judged: Judged, grid: Grid) -> GridValues:
    """Measure every setting of a grid, ranking the retrieved documents again for each.

    Args:
        judged: the queries, what was retrieved for them, and by what is measured; where there are
            vectors of answers, they are the suns.
        grid: the settings.

    Returns:
        Values equal to those of ranking one setting at a time, up to rounding of the scores.
    """
    n, answers, settings = len(judged.queries), judged.answers, grid.settings
    values = {measure: np.empty((n, len(settings))) for measure in judged.measures}
    with progress.task("evaluating the grid", total=n, unit="queries") as advance:
        for row, (candidates, feedback) in enumerate(zip(judged.retrieved, judged.feedback, strict=True)):
            answer = None if answers is None else np.asarray(answers[row], np.float64)
            query, relevant = judged.queries[row], judged.relevant[row]
            orders, unserved = _orders(query, judged.documents, feedback, grid, answer=answer)
            ranks = _query_ranks(query, judged.documents, candidates, relevant, grid, orders, unserved)
            ranks[ranks >= min(judged.k, len(candidates))] = UNREACHED
            for measure, table in values.items():
                table[row] = measure_ranks(measure, ranks, relevant)
            advance(1)
    return GridValues(settings, values)


def _orders(
    query: npt.NDArray[np.floating], documents: Vectors, feedback: Rows, grid: Grid, *, answer: Floats | None
) -> tuple[Rows, npt.NDArray[np.bool_]]:
    """Dimensions by falling importance, (depths, ratios, d), and depths feedback cannot serve, (depths,)."""
    q, eclipse = query.astype(np.float64), grid.method == "eclipse"
    moons: dict[int, Floats] = {}
    importance = np.zeros((len(grid.depths), len(grid.ratios), len(q)))
    unserved = np.ones(len(grid.depths), bool)
    alpha, beta = np.array(grid.ratios).T[..., None]
    silent = answer is not None and bool(np.isnan(answer).any())
    for index, (plus, minus) in enumerate(grid.depths):
        probe = DimensionSettings(grid.method, k_plus=plus, k_minus=minus)
        if silent or not serves(len(feedback), probe, answered=answer is not None):
            continue
        unserved[index] = False
        relevant = sun(documents.take(feedback[:plus]), plus) if answer is None else answer
        if eclipse and minus not in moons:
            moons[minus] = sun(documents.take(feedback[-minus:]), minus)
        importance[index] = q * (alpha * relevant - beta * moons[minus]) if eclipse else q * relevant
    return dimension_order(importance), unserved


def _query_ranks(
    query: npt.NDArray[np.floating], documents: Vectors, candidates: Rows, relevant: Relevant, grid: Grid, orders: Rows,
    unserved: npt.NDArray[np.bool_],
) -> Ranks:  # fmt: skip
    """Ranks of the relevant documents among the candidates for each setting, (settings, m)."""
    d, counts = len(query), [kept_count(len(query), share) for share in grid.shares]
    cuts = np.array(sorted({*counts, d}))
    ordered = np.sort(candidates)
    reached = np.isin(relevant.rows, ordered)
    columns = np.searchsorted(ordered, relevant.rows[reached])
    products = documents.take(ordered).astype(np.float32) * query.astype(np.float32)
    every_rank = grid_ranks(products, orders.reshape(-1, d), cuts, columns)
    every_rank = every_rank.reshape(*orders.shape[:2], len(cuts), len(columns))
    every_rank[unserved] = every_rank[unserved][:, :, -1:]
    settings = orders.shape[0] * orders.shape[1] * len(counts)
    ranks = np.full((settings, len(reached)), UNREACHED, np.int32)
    ranks[:, reached] = every_rank[:, :, np.searchsorted(cuts, counts)].reshape(settings, len(columns))
    return ranks


def measure_ranks(name: str, ranks: Integers, relevant: Relevant) -> Floats:
    """Measure rankings of one query, given where its relevant documents stand: thousands at once.

    nDCG@c = Σ_{rank<c} grade/log2(rank + 2), over the same sum for the best order; AP@c = (1/m)
    Σ_{rank<c} (how many relevant up to there)/(rank + 1); RR@c = 1/(1 + least rank) where that is
    below c; R@c counts ranks below c, over m. Without @c: all ranks. Values are trec_eval's, as
    ir_measures gives them.

    Args:
        name: one of these measures, as ir_measures writes it.
        ranks: (…, m) 0-based rank of each relevant document, UNREACHED where it was not retrieved.
        relevant: the m relevant documents.

    Returns:
        (…) values.

    Raises:
        InputError: another measure.
        MissingExtraError: ir-measures is not installed.
    """
    family, cutoff = _measure(name)
    seen, count = ranks < cutoff, ranks.shape[-1]
    if family == "nDCG":
        best = np.sort(relevant.grades)[::-1][:cutoff]
        ideal = (best / np.log2(np.arange(len(best)) + 2.0)).sum()
        return np.asarray(np.where(seen, relevant.grades / np.log2(ranks + 2.0), 0.0).sum(axis=-1) / ideal)
    if family == "AP":
        ordered = np.sort(ranks, axis=-1)
        precision = np.where(ordered < cutoff, np.arange(1, count + 1) / (ordered + 1.0), 0.0)
        return np.asarray(precision.sum(axis=-1) / count)
    if family == "RR":
        return np.asarray(np.where(seen, 1.0 / (ranks + 1.0), 0.0).max(axis=-1))
    return np.asarray(seen.sum(axis=-1) / count)


@cache
def _measure(name: str) -> tuple[str, int]:
    """The family of a measure, and its cut-off."""
    (measure,) = parse_measures([name])
    params = dict(measure.params)
    cutoff = params.pop("cutoff", UNREACHED)
    if measure.NAME not in FAMILIES or params:
        raise InputError(f"{name}: settings are chosen by {', '.join(FAMILIES)}, with a cut-off alone")
    return measure.NAME, cutoff


def grid_ranks(products: npt.NDArray[np.float32], orders: Integers, cuts: Integers, columns: Integers) -> Ranks:
    """Return how many documents stand before each chosen one, when only a prefix of the dimensions counts.

    score(o, c, j) = Σ_{i < c} products[j, orders[o, i]]; rank = #{j' : score(j') > score(j)} + #{j'
    < j : equal}.

    Args:
        products: (k, d) q_i·d_ji of each document j and dimension i, documents by position.
        orders: (o, d) each row the dimensions in some order.
        cuts: (c,) how many dimensions count, ascending, in 1..d.
        columns: (m,) the documents whose ranks are wanted, as rows of `products`.

    Returns:
        (o, c, m) 0-based ranks.

    Raises:
        MissingExtraError: numba is not installed.
    """
    return np.asarray(_compiled()(np.ascontiguousarray(products.T), orders, cuts, columns))


@cache
def _compiled() -> Callable[..., Any]:
    numba = require("numba", "fast")
    prange = numba.prange

    def ranks(products, orders, cuts, columns):  # type: ignore[no-untyped-def]  # compiled, on arrays
        k = products.shape[1]
        out = np.empty((len(orders), len(cuts), len(columns)), np.int32)
        for o in prange(len(orders)):
            scores = np.zeros(k, np.float32)
            done = 0
            for c in range(len(cuts)):
                while done < cuts[c]:
                    added = products[orders[o, done]]
                    for j in range(k):
                        scores[j] += added[j]
                    done += 1
                for m in range(len(columns)):
                    score = scores[columns[m]]
                    before = 0
                    for j in range(k):
                        before += scores[j] > score
                    for j in range(columns[m]):
                        before += scores[j] == score
                    out[o, c, m] = before
        return out

    compiled: Callable[..., Any] = numba.njit(parallel=True)(ranks)
    return compiled
