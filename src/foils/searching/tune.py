"""Settings for DIME and Eclipse: a whole grid in one pass, chosen on other queries than it is reported on.

Three facts make the grid cheap. The order of dimensions under q ⊙ (α·s − β·m) depends on β/α alone, so the 100
published pairs of weights are 63 orders. The retained shares are prefixes of one order, so one running sum of q_i·d_i
over the sorted dimensions passes through the scores of every share. And a ranking counts only through the ranks of
its relevant documents, which need comparisons, not a sort.

Two numbers come out, and their names say which is which: *oracle*, the best setting on the very queries it is
reported on, as published; and *honest*, settings chosen by cross-validation, reported on the queries held out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from foils.encode import Vectors
from foils.runtime import progress
from foils.runtime.errors import InputError
from foils.searching.dimensions import Floats, Mask, Rows, dimension_order, kept_count, moon_rows, sun
from foils.searching.grid_ranks import grid_ranks
from foils.searching.grids import Grid
from foils.searching.masks import checked_positions, serves
from foils.searching.ranks import UNREACHED, Relevant, measure_ranks
from foils.searching.settings import DimensionSettings


@dataclass(frozen=True)
class GridValues:
    """What each setting scores for each query.

    Attributes:
        settings: c settings.
        values: measure → (n, c).
        short: (n, c) where a query's list was too short for a setting, or had no answer: it kept every dimension, which
            the setting would not have done.
        whole: (n, c) where a query kept every dimension, for that reason or because the setting's share keeps all.
        size: how many settings the grid named.
    """

    settings: list[DimensionSettings]
    values: dict[str, Floats]
    short: Mask
    whole: Mask
    size: int

    def only(self, columns: Rows) -> GridValues:
        """Return what some of the settings score, (n, len(columns))."""
        values = {measure: of[:, columns] for measure, of in self.values.items()}
        settings = [self.settings[column] for column in columns]
        return GridValues(settings, values, self.short[:, columns], self.whole[:, columns], len(columns))


@dataclass(frozen=True)
class Tuned:
    """A number and the settings behind it.

    Attributes:
        kind: `oracle` or `honest`.
        measure: by which the settings were chosen.
        settings: of each fold (one for the oracle).
        fold: (n,) which fold each query is reported in (all 0 for the oracle).
        per_query: measure → (n,) values with the setting of the query's fold.
        short: (n,) queries that kept every dimension with that setting, for want of feedback or of an answer.
        whole: (n,) queries that kept every dimension with that setting, for whatever reason.
    """

    kind: Literal["oracle", "honest"]
    measure: str
    settings: list[DimensionSettings]
    fold: Rows
    per_query: dict[str, Floats]
    short: Mask
    whole: Mask


def evaluate_grid(
    queries: npt.NDArray[np.floating],
    documents: Vectors,
    lists: Sequence[Rows],
    relevant: Sequence[Relevant],
    grid: Grid,
    *,
    measures: Sequence[str] = ("nDCG@10", "AP"),
    k: int | None = None,
    feedback_depth: int | None = None,
    feedback: Sequence[Rows] | None = None,
    answers: npt.NDArray[np.floating] | None = None,
    rng: np.random.Generator | None = None,
) -> GridValues:
    """Measure every setting of a grid, ranking the retrieved documents again for each.

    Args:
        queries: (n, d).
        documents: vectors of all documents.
        lists: n lists of retrieved positions, best first: what is ranked again.
        relevant: n sets of relevant documents; those outside the list stay unreached.
        grid: the settings.
        measures: names that `measure_ranks` knows.
        k: how many documents of each new ranking count; None: all that are ranked.
        feedback_depth: length of the feedback; None: the whole list.
        feedback: n lists of another system to take sun and moon from; None: `lists`.
        answers: (n, d) vectors of an answer text per query, in place of the sun; a row of NaN: no answer. Settings
            that differ in k⁺ alone are then one, and computed once.
        rng: source of the draws of random moons; one draw for each query and k⁻.

    Returns:
        Values equal to those of ranking one setting at a time, up to rounding of the scores.

    Raises:
        InputError: lengths that do not fit, numbers that are no positions of documents, or a random moon without a
            generator.
    """
    n, fed = len(queries), lists if feedback is None else feedback
    _check_lengths(n, lists, relevant, fed)
    if grid.method == "eclipse" and grid.moon_pool is not None and rng is None:
        raise InputError("a moon drawn at random needs a generator; give rng")
    size, grid = grid.size, grid if answers is None else grid.answered
    lists, fed = checked_positions(lists, len(documents)), checked_positions(fed, len(documents))
    settings = grid.settings
    values = {measure: np.empty((n, len(settings))) for measure in measures}
    short, whole = np.zeros((n, len(settings)), bool), np.zeros((n, len(settings)), bool)
    keeps_all = np.array([setting.keeps_all for setting in settings])
    keeps_each = np.array([kept_count(queries.shape[1], setting.share) == queries.shape[1] for setting in settings])
    with progress.task("evaluating the grid", total=n, unit="queries") as advance:
        for row, query in enumerate(queries):
            answer = None if answers is None else np.asarray(answers[row], np.float64)
            ranks, unserved = _query_ranks(
                query, documents, lists[row], fed[row][:feedback_depth], relevant[row], grid, answer=answer, rng=rng
            )
            unserved = np.repeat(unserved, len(grid.ratios) * len(grid.shares))
            short[row], whole[row] = unserved & ~keeps_all, unserved | keeps_each
            depth = len(lists[row]) if k is None else min(k, len(lists[row]))
            ranks[ranks >= depth] = UNREACHED
            for measure in measures:
                values[measure][row] = measure_ranks(measure, ranks, relevant[row], retrieved=depth)
            advance(1)
    return GridValues(settings, values, short, whole, size)


def _check_lengths(queries: int, *given: Sequence[object]) -> None:
    if counts := [len(each) for each in given if len(each) != queries]:
        raise InputError(
            f"expected lists, relevant documents and feedback for each of {queries} queries; found {counts[0]}"
        )


def oracle(grid_values: GridValues, measure: str) -> Tuned:
    """Return the setting that is best on average over the queries it is reported on: optimistic, as published."""
    best = int(np.argmax(grid_values.values[measure].mean(axis=0)))
    return _tuned("oracle", grid_values, measure, [best], np.zeros(len(grid_values.short), np.int64))


def cross_validate(grid_values: GridValues, measure: str, *, rng: np.random.Generator, folds: int = 5) -> Tuned:
    """Choose on the other folds, report on each fold: no query has a say in its own setting.

    Queries are dealt to the folds at random, as evenly as they go; the best mean wins, the first setting where equal.

    Args:
        grid_values: of `evaluate_grid`.
        measure: to choose by.
        rng: source of the deal.
        folds: how many, 2 ≤ folds ≤ n.

    Raises:
        InputError: a number of folds out of range.
    """
    values = grid_values.values[measure]
    n = len(values)
    if not 2 <= folds <= n:
        raise InputError(f"{folds} folds of {n} queries; expected at least 2, at most one a query")
    fold = np.empty(n, np.int64)
    fold[rng.permutation(n)] = np.arange(n) % folds
    total = values.sum(axis=0)
    chosen = []
    for index in range(folds):
        held_out = fold == index
        others = (total - values[held_out].sum(axis=0)) / (n - held_out.sum())
        chosen.append(int(np.argmax(others)))
    return _tuned("honest", grid_values, measure, chosen, fold)


def _tuned(
    kind: Literal["oracle", "honest"], grid_values: GridValues, measure: str, chosen: Sequence[int], fold: Rows
) -> Tuned:
    """What the settings in the columns `chosen`, one a fold, score for the queries of their folds."""
    at = np.arange(len(fold)), np.asarray(chosen)[fold]
    per_query = {name: of[at] for name, of in grid_values.values.items()}
    settings = [grid_values.settings[column] for column in chosen]
    return Tuned(kind, measure, settings, fold, per_query, grid_values.short[at], grid_values.whole[at])


def _query_ranks(
    query: npt.NDArray[np.floating],
    documents: Vectors,
    candidates: Rows,
    feedback: Rows,
    relevant: Relevant,
    grid: Grid,
    *,
    answer: Floats | None,
    rng: np.random.Generator | None,
) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.bool_]]:
    """Ranks of the relevant documents, (settings, m), and which depths (len(depths),) the feedback cannot serve."""
    d, shares = len(query), grid.shares
    probes = [
        DimensionSettings(grid.method, k_plus=plus, k_minus=minus, moon_pool=grid.moon_pool)
        for plus, minus in grid.depths
    ]
    silent = answer is not None and bool(np.isnan(answer).any())
    unserved = np.array([silent or not serves(len(feedback), probe, answered=answer is not None) for probe in probes])
    orders = _orders(query, documents, feedback, grid, ~unserved, answer=answer, rng=rng)
    cuts = np.array(sorted({kept_count(d, share) for share in shares} | {d}))
    ordered = np.sort(candidates)
    reached = np.isin(relevant.rows, ordered)
    columns = np.searchsorted(ordered, relevant.rows[reached])
    products = documents.take(ordered).astype(np.float32) * query.astype(np.float32)
    every_rank = grid_ranks(products, orders.reshape(-1, d), cuts, columns)
    every_rank = every_rank.reshape(len(grid.depths), len(grid.ratios), len(cuts), len(columns))
    every_rank[unserved] = every_rank[unserved][:, :, -1:]
    at = np.searchsorted(cuts, [kept_count(d, share) for share in shares])
    ranks = np.full((len(grid.depths) * len(grid.ratios) * len(shares), len(reached)), UNREACHED, np.int32)
    ranks[:, reached] = every_rank[:, :, at].reshape(len(ranks), len(columns))
    return ranks, unserved


def _orders(
    query: npt.NDArray[np.floating],
    documents: Vectors,
    feedback: Rows,
    grid: Grid,
    served: npt.NDArray[np.bool_],
    *,
    answer: Floats | None,
    rng: np.random.Generator | None,
) -> Rows:
    """Dimensions by falling importance for each pair of depths and each ratio: (depths, ratios, d)."""
    q = query.astype(np.float64)
    suns: dict[int, Floats] = {}
    moons: dict[int, Floats] = {}
    importance = np.zeros((len(grid.depths), len(grid.ratios), len(q)))
    alpha, beta = np.array(grid.ratios).T[..., None]
    for index in np.flatnonzero(served):
        plus, minus = grid.depths[index]
        if answer is None and plus not in suns:
            suns[plus] = sun(documents.take(feedback[:plus]), plus)
        if grid.method == "eclipse" and minus not in moons:
            rows = moon_rows(len(feedback), minus, pool=grid.moon_pool, rng=rng)
            moons[minus] = sun(documents.take(feedback[rows]), minus)
        relevant = suns[plus] if answer is None else answer
        if grid.method == "eclipse":
            importance[index] = q * (alpha * relevant - beta * moons[minus])
        else:
            importance[index] = q * relevant
    return dimension_order(importance)
