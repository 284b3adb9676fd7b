"""From answers to ratings and gaps: the prior that fits them, the bias of position, and errors that cover.

Answers about the pairs of a list come from the same few showings of it. They are not independent: their errors are
taken from the variance between the showings, so that more pairs of the same showings claim nothing more.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from foils.rating.estimators import LINKS, Ratings, covariance, lead_errors, order_biased
from foils.rating.pairs import Floats, Judgements, Pairs, Rows, Showings
from foils.rating.prior import WEAKEST, Spread, order_noise, refined, spread_of, spread_of_showings
from foils.statistics.elo_scale import ELO_PER_PROBIT

_TURNS = 3  # of fit and dispersion of showings
_AT_ONCE = 1_000_000  # cells of covariances


@dataclass(frozen=True)
class Fit:
    """Ratings, and what they were fitted to.

    Attributes:
        ratings: with standard errors that count the dispersion.
        spread: of the ratings, and the dispersion of the answers.
        pairs: that have answers in both orders.
        judgements: about them.
        showings: of lists, that the answers are shares of; None: each answer was given by itself.
    """

    ratings: Ratings
    spread: Spread
    pairs: Pairs
    judgements: Judgements
    showings: Showings | None = None

    def gaps(self, reference: Rows) -> Floats:
        """Return (N,) e_reference − e_d in Elo points; NaN where the two cannot be compared.

        Args:
            reference: (Q,) a candidate of each query.
        """
        return _gaps(self.ratings, np.repeat(reference, self.pairs.sizes))

    def gap_errors(self, reference: Rows, gap: Floats) -> Floats:
        """Return (N,) the errors of gaps, √((f·se)² + ((κ − 1)·gap)² + δ²).

        f and κ by `order_noise`, se that of the lead, and δ what the gap changes by when the bias of position does by
        its standard error.
        """
        ratings, spread = self.ratings, self.spread
        lead = ratings.rating[self.pairs.first] - ratings.rating[self.pairs.second]
        link, bias = ratings.link, ratings.order_bias
        factor, shrunken, moved = 1.0, 1.0, np.zeros(1)
        if self.showings is None:
            one = LINKS[ratings.model].probability
            difference = one(lead + bias) - one(lead - bias)
            fitted = link.probability(lead)
            factor, shrunken = order_noise(self.judgements, fitted, spread.dispersion, difference=difference)
        if bias:
            other = order_biased(
                self.pairs,
                self.showings or self.judgements,
                model=ratings.model,
                prior_sd=spread.prior_sd,
                standard_errors=False,
                bias=bias + ratings.order_bias_error * spread.dispersion**0.5,
            )
            moved = _gaps(other, np.repeat(reference, self.pairs.sizes)) - gap
        errors = lead_errors(self.pairs, ratings, reference, prior_sd=spread.prior_sd) * spread.dispersion**0.5
        squares = (shrunken * factor * errors) ** 2 + ((shrunken - 1) * gap) ** 2 + moved**2
        return np.asarray(np.sqrt(squares))


def _gaps(ratings: Ratings, of: Rows) -> Floats:
    together = ratings.component[of] == ratings.component
    return np.where(together, ratings.elo[of] - ratings.elo, np.nan)


def fit_ratings(
    pairs: Pairs,
    judgements: Judgements,
    *,
    model: str = "thurstone",
    prior_sd: float | None = None,
    spread: Spread | None = None,
    showings: Showings | None = None,
) -> Fit:
    """Fit ratings to answers, with one bias of position where both orders disagree (`order_biased`).

    Args:
        pairs: that were asked about.
        judgements: about them; pairs that lack an order are left out.
        model: `thurstone` or `bradley-terry`.
        prior_sd: of the ratings, in the model's unit; None: as it fits the answers (`spread_of`, `refined`).
        spread: as an earlier fit found it; None: it is found.
        showings: of lists, of which the answers are shares; None: each answer was given by itself.
    """
    known = np.isfinite(judgements.preference)
    if showings is not None:
        known &= np.isfinite(showings.preference)
    judged, answered = pairs.where(known), Judgements(judgements.forward[known], judgements.backward[known])
    parts = None if showings is None else showings.where(known)
    answers: Judgements | Showings = parts or answered

    def estimate(sd: float) -> Ratings:
        return order_biased(judged, answers, model=model, prior_sd=sd, standard_errors=False)

    if spread is None and parts is not None:
        spread = _spread_of_lists(judged, parts, prior_sd, model, estimate)
    elif spread is None and prior_sd is not None:
        spread = Spread(prior_sd)
    elif spread is None:
        bias = answered.position_bias if len(judged) else 0.0
        first = spread_of(judged, answered.preference, model=model, position_bias=bias)
        spread = refined(judged, answered.preference, first, model=model, estimate=estimate)
    ratings = order_biased(judged, answers, model=model, prior_sd=spread.prior_sd)
    scaled = replace(ratings, standard_error=spread.dispersion**0.5 * ratings.standard_error)
    return Fit(scaled, spread, judged, answered, parts)


def _spread_of_lists(
    pairs: Pairs, showings: Showings, prior_sd: float | None, model: str, estimate: Callable[[float], Ratings]
) -> Spread:
    """Spread by products of answers from different showings, dispersion by the variance between the showings."""
    unit = ELO_PER_PROBIT / LINKS[model].elo_per_unit
    sd = spread_of_showings(pairs, showings) * unit
    dispersion = 1.0
    for _ in range(_TURNS):
        used = sd / dispersion**0.5 if prior_sd is None else prior_sd
        between_showings = showing_dispersion(pairs, showings, estimate(used), prior_sd=used)
        dispersion = max(between_showings, (sd / unit / WEAKEST) ** 2)
    return Spread(sd if prior_sd is None else prior_sd * dispersion**0.5, dispersion)


def showing_dispersion(pairs: Pairs, showings: Showings, ratings: Ratings, *, prior_sd: float) -> float:
    """Return φ, the variance of gaps between showings over that of independent answers, one for each pair.

    With g_k the gradient of showing k's log-likelihood at the ratings and C their covariance, a gap c'e moves by
    c'C(g_k − ḡ) with a showing: its variance is Σ_k (c'C(g_k − ḡ))²/(K(K − 1)). Independent answers would give
    c'(C − C²/s²)c. φ is the sum of the first over that of the second, over the gaps of all candidates to the last
    one of their query.

    Source: the sandwich of Huber 1967 and White 1982 by clusters; one factor for all, since a query has few showings.
    """
    link, single, count = ratings.link, LINKS[ratings.model], len(showings.wins)
    distance = float(np.abs(showings.ahead[np.isfinite(showings.wins)]).mean())
    precision, between, within = 1 / prior_sd**2, 0.0, 0.0
    for block in pairs.blocks(_AT_ONCE):
        rating = np.nan_to_num(ratings.rating[block.at])
        shape, n = rating.shape, rating.shape[1]
        lower = covariance(block, rating, link, precision=precision)
        whole = np.tril(lower) + np.tril(lower, -1).transpose(0, 2, 1)
        whole = np.where(np.isfinite(whole), whole, 0.0)
        first, second = block.query * n + block.first, block.query * n + block.second
        moves = []
        for wins, ahead in zip(showings.wins[:, block.pairs], showings.ahead[:, block.pairs], strict=True):
            known = np.isfinite(wins)
            lead = block.lead(rating) + ratings.order_bias * np.where(known, ahead, 0.0) / distance
            slope = np.where(known, single.terms(lead, np.where(known, wins, 0.5)).slope, 0.0)
            size = shape[0] * n
            gradient = (np.bincount(first, slope, size) - np.bincount(second, slope, size)).reshape(shape)
            moved = np.einsum("bij,bj->bi", whole, gradient)
            moves.append(moved[:, -1:] - moved)
        moves_of = np.stack(moves)
        between += float(((moves_of - moves_of.mean(axis=0)) ** 2).sum()) / (count * (count - 1))
        sampling = whole - precision * np.einsum("bij,bjk->bik", whole, whole)
        variance = np.diagonal(sampling, axis1=1, axis2=2)
        within += float((variance + variance[:, -1:] - 2 * sampling[:, -1, :]).sum())
    return between / within if within > 0 else 1.0
