"""Spending comparisons where they tell most: rounds of pairs chosen by information and uncertainty.

ANMI 2.0 leaves this to future work (section 10.4, point 28). The first pairs are a sparse random graph; each round
then takes, one after the other, the pairs with the largest H(F(Δ)) · Var(e_i − e_j): the bits that an answer at this
lead holds (eq. 46) times how uncertain the lead still is.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from foils.rating.estimators import ESTIMATORS, LINKS, Link, Ratings, covariance
from foils.rating.pairs import Block, Floats, Pairs, Rows
from foils.runtime import memory
from foils.statistics.elo_scale import information

_CELLS = 500_000
_CELL = 120  # bytes that a cell of the choice takes: covariance, leads, bits, worth


def ask_adaptively(
    start: Pairs,
    ask: Callable[[Pairs], Floats],
    *,
    goal: npt.ArrayLike,
    rounds: int = 2,
    model: str = "thurstone",
    choice_sd: float = 1.0,
) -> tuple[Pairs, Floats]:
    """Return pairs and preferences: those asked first, and more that are chosen where they tell most.

    Args:
        start: pairs asked first, as of a random graph.
        ask: from pairs to preferences (m,), NaN where there is no answer.
        goal: (Q,) how many pairs each query gets in all.
        rounds: between which those after the start are divided; with more of them each choice knows more.
        model: thurstone or bradley-terry.
        choice_sd: prior_sd of the ratings by which pairs are chosen. It should be about the spread of true ratings:
            after a few answers a weak prior leaves some candidates far out with huge errors, and the pairs would go to
            them.

    """
    pairs, preference, goals = start, ask(start), np.asarray(goal, np.int64)
    for done in range(rounds):
        ratings = ESTIMATORS[model](pairs, preference, prior_sd=choice_sd, standard_errors=False)
        count = np.diff(pairs.pair_offsets)
        budget = -(-(goals - count) // (rounds - done))
        more = informative_pairs(pairs, ratings, budget=budget, prior_sd=choice_sd)
        preference = np.concatenate([preference, ask(more)])
        pairs, order = pairs.joined(more)
        preference = preference[order]
    return pairs, preference


def informative_pairs(pairs: Pairs, ratings: Ratings, *, budget: npt.ArrayLike, prior_sd: float = 10.0) -> Pairs:
    """Return for each query the pairs to ask about next, none of which was asked before.

    One pair after the other, that with the largest H(F(Δ_ij))·v_ij, v_ij = C_ii + C_jj − 2C_ij, is taken and the
    covariance updated as if it had been answered: C ← C − C u uᵀ C·c/(1 + c v_ij), u = 1_i − 1_j, c the Fisher
    information at Δ_ij. Ties go to the earlier pair of candidates.

    Args:
        pairs: asked so far.
        ratings: from them, of any model.
        budget: (Q,) or one number: how many pairs each query gets; fewer where all pairs are taken.
        prior_sd: as in the estimation.

    Source: ANMI 2.0 eq. 46 and section 10.4; the update is Sherman and Morrison's.
    """
    link = LINKS[ratings.model]
    wanted = np.broadcast_to(np.asarray(budget, np.int64), (pairs.queries,))
    query, first, second = [], [], []
    for block in pairs.blocks(memory.rows_at_once(_CELL, most=_CELLS)):
        for at, one, other in _choose(block, ratings.rating[block.at], link, 1 / prior_sd**2, wanted[block.queries]):
            query.append(block.queries[at])
            first.append(block.at[at, one])
            second.append(block.at[at, other])
    if not query:
        return Pairs(pairs.offsets, np.zeros(0, np.int64), np.zeros(0, np.int64))
    order = np.argsort(np.concatenate(query), kind="stable")
    return Pairs(pairs.offsets, np.concatenate(first)[order], np.concatenate(second)[order])


def _choose(block: Block, rating: Floats, link: Link, precision: float, wanted: Rows) -> list[tuple[Rows, Rows, Rows]]:
    """Return what each step chose: (queries of the block, first, second places in them)."""
    count, n = block.at.shape
    if n < 2:
        return []
    spread, level = covariance(block, rating, link, precision=precision), np.nan_to_num(rating)
    lead = level[:, :, None] - level[:, None, :]
    bits, fisher = information(link.elo_per_unit * lead), link.information(lead)
    bits = np.where(np.triu(np.ones((n, n), bool), 1), bits, -np.inf)
    bits[block.query, np.minimum(block.first, block.second), np.maximum(block.first, block.second)] = -np.inf
    chosen = []
    for step in range(int(wanted.max(initial=0))):
        diagonal = np.diagonal(spread, axis1=1, axis2=2)
        variance = np.maximum(diagonal[:, :, None] + diagonal[:, None, :] - 2 * spread, 1e-300)
        worth = np.where(bits > -np.inf, bits * variance, -np.inf).reshape(count, n * n)
        best = worth.argmax(axis=1)
        at = np.flatnonzero((wanted > step) & (worth[np.arange(count), best] > -np.inf))
        one, other = best[at] // n, best[at] % n
        chosen.append((at, one, other))
        bits[at, one, other] = -np.inf
        column = spread[at, :, one] - spread[at, :, other]
        c = fisher[at, one, other]
        shrink = c / (1 + c * variance[at, one, other])
        spread[at] -= shrink[:, None, None] * column[:, :, None] * column[:, None, :]
    return chosen
