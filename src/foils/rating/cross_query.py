"""Comparisons between queries: an offset for each query, with which ratings of different queries can be compared.

The ratings of a query have mean 0 whatever its candidates are worth, so that a query without a relevant document looks
like one with many. A few of its candidates are compared with candidates of other queries, each as an answer to its own
query. With e the ratings within queries and b the offsets,

    P((q, i) ≻ (r, j)) = F(e_qi + b_q − e_rj − b_r),

and b is the maximum a posteriori of all queries together, e being known and b ~ N(0, s_b²).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from foils.rating.estimators import LINKS, Link, Ratings, maximum
from foils.rating.graph import Keys, mixed
from foils.rating.pairs import Candidates, Floats, Judgements, Pairs, Rows, block_of, combined
from foils.rating.prior import Spread, bounded, spread_of
from foils.runtime.errors import InputError
from foils.runtime.options import spelled
from foils.statistics.elo_scale import ELO_PER_PROBIT

_TURNS, _SETTLED = 20, 0.1  # of fit and dispersion, and the change of log φ at which they end


@dataclass(frozen=True)
class Offsets:
    """What comparisons between queries say.

    Attributes:
        offset: (Q,) b of each query in Elo points, mean 0 over those compared with each other; NaN for a query that no
            answer names.
        comparisons: asked for.
        missing: of them without an answer.
        unreached: queries with ratings that no answer names, which have no offset.
        spread: standard deviation s_b of offsets in Elo points, as the answers have it.
    """

    offset: Floats
    comparisons: int
    missing: int
    unreached: int
    spread: float


def pairs_between(offsets: Rows, keys: Keys, query_keys: Keys, rated: npt.NDArray[np.bool_], degree: int) -> Rows:
    """Return (m, 2) candidates of different queries to compare: degree/2 random Hamiltonian cycles over the queries.

    Cycle c goes through the queries in the order of hash(key, c). Each query meets the next one with the rated
    candidate of least hash(key, c), and the one before with that of another hash. So another query or candidate
    changes little of what is asked. Two queries may meet twice, then with other candidates.

    Args:
        offsets: (Q + 1,) of candidates, as in `Pairs`.
        keys: (N,) of candidates.
        query_keys: (Q,) of queries.
        rated: (N,) whether a candidate has a rating; queries without any take no part.
        degree: comparisons of each query, even.

    Raises:
        InputError: an odd degree, or one below 2.
    """
    if degree < 2 or degree % 2:
        raise InputError(f"{spelled('between', degree)}: expected an even number, at least 2")
    rows = np.flatnonzero(rated)
    queries = np.searchsorted(offsets, rows, side="right") - 1
    rated_queries, begins = np.unique(queries, return_index=True)
    if len(rated_queries) < 2:
        return np.zeros((0, 2), np.int64)

    def drawn(salt: int) -> Rows:
        """The candidate of each query with the least hash."""
        salted = mixed(keys[rows] ^ mixed(np.array([salt], np.uint64)))
        return rows[np.lexsort((salted, queries))[begins]]

    edges = []
    for cycle in range(degree // 2):
        order = np.argsort(mixed(query_keys[rated_queries] ^ mixed(np.array([cycle], np.uint64))), kind="stable")
        edges.append(np.stack([drawn(2 * cycle)[order], np.roll(drawn(2 * cycle + 1)[order], -1)], axis=1))
    return np.concatenate(edges)


def answers_between(judges: Sequence[Any], candidates: Candidates, first: Rows, second: Rows) -> Floats:
    """Return (m,) P(first ≻ second), both orders averaged where order can matter, then the judges.

    A judge that failed in one order is left out of that pair; NaN where all are. Each has a method `between`.
    """
    answers = []
    for judge in judges:
        forward = judge.between(candidates, first, second)
        backward = 1 - forward if judge.antisymmetric else judge.between(candidates, second, first)
        answers.append(Judgements(forward, backward))
    return combined(answers).preference


def fit_offsets(candidates: Candidates, pairs: Rows, preference: Floats, ratings: Ratings) -> Offsets:
    """Return the offsets of queries: argmax_b Σ w log F(L + b_q − b_r) + (1 − w) log F(−L − b_q + b_r) − φΣ b²/(2s_b²).

    L = e_qi − e_rj is known from the ratings. s_b comes from the answers as `spread_of` has it, whose moments hold
    with candidates drawn anew for each comparison: leads of two comparisons of one query then share b_q alone, and
    s_b = s√(1 + 2s_e²), s the spread that `spread_of` sees and s_e² the mean square of the ratings that were compared,
    in probits. The dispersion is that of the residuals, φ = Σ (w − p)²/Σ p(1 − p) · m/(m − Σ_q I_q/(I_q + φ/s_b²)),
    I_q the Fisher information about b_q, found by turns with the fit. Errors of the ratings pull offsets towards 0
    somewhat.

    Args:
        candidates: that were compared.
        pairs: (m, 2) of them, as `pairs_between` draws them.
        preference: (m,) w in [0, 1]; NaN: no answer.
        ratings: within queries.
    """
    link, queries = LINKS[ratings.model], len(candidates.query_ids)
    known = np.isfinite(preference)
    rated = np.unique(candidates.query_of(np.flatnonzero(np.isfinite(ratings.rating))))
    if not known.any():
        return Offsets(np.full(queries, np.nan), len(pairs), len(pairs), len(rated), float("nan"))
    compared, w = pairs[known], preference[known]
    rating, per_probit = ratings.rating[compared], ELO_PER_PROBIT / link.elo_per_unit
    over = Pairs(np.array([0, queries]), *candidates.query_of(compared).T)
    within = float((rating**2).mean()) / per_probit**2
    sd, lead = spread_of(over, w).sd * np.sqrt(1 + 2 * within), rating[:, 0] - rating[:, 1]
    belief = Spread(sd * per_probit)
    for _ in range(_TURNS):
        before, offset = belief.dispersion, fitted_offsets(over, w, link, lead, belief)
        whole = lead + offset[over.first] - offset[over.second]
        p, information = link.probability(whole), link.information(whole)
        of_query = np.bincount(np.append(over.first, over.second), np.append(information, information), queries)
        used = float((of_query / (of_query + 1 / belief.prior_sd**2)).sum())
        expected = float((p * (1 - p)).sum()) * max(1 - used / len(w), 0.0)
        dispersion = float(((w - p) ** 2).sum()) / expected if expected > 0 else before
        belief = Spread(belief.sd, bounded(dispersion, sd))
        if abs(np.log(belief.dispersion / before)) < _SETTLED:
            break
    return Offsets(
        offset=offset * link.elo_per_unit,
        comparisons=len(pairs),
        missing=int((~known).sum()),
        unreached=int(np.isnan(offset[rated]).sum()),
        spread=float(sd * ELO_PER_PROBIT),
    )


def fitted_offsets(over: Pairs, w: Floats, link: Link, lead: Floats, belief: Spread) -> Floats:
    """Return the offsets that a belief leads to, in the model's unit: (Q,), NaN where no answer names a query."""
    offset, _ = maximum(block_of(over, np.zeros(1, np.int64)), w, link, 1 / belief.prior_sd**2, lead)
    return np.where(over.degrees > 0, offset[0], np.nan)
