"""What speaks for a judge: labelled positives win, and both orders of a pair agree. The first few answers tell already.

A judge that knows nothing is found out by a trial of about forty comparisons, before the others are paid for.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from foils.rating.pairs import Judgements, Marks, Pairs, Rows

TRIAL = 40  # comparisons, each of another query where there are so many
LEAST = 20  # queries, or pairs, below which nothing is claimed
FLAT = 0.01  # around one half, where an answer says nothing
CLEARLY = 2.326  # standard errors: one in a hundred judges that know nothing passes
CLEARLY_IN_TRIAL = 1.282  # one in ten passes the trial, so that it stops few that know a little


@dataclass(frozen=True)
class Evidence:
    """What speaks for a judge.

    Attributes:
        positives_win: share of the comparisons with a labelled positive that it wins, the mean over queries; NaN: none.
        orders_agree: correlation of the answers of both orders (`Judgements.order_correlation`).
        queries: number of queries with such a comparison.
        doubt: why the judge is not clearly better than chance; empty where it is, or too few answers tell.
    """

    positives_win: float
    orders_agree: float
    queries: int
    doubt: str

    @property
    def better_than_chance(self) -> bool | None:
        """Whether labelled positives clearly win; None where fewer than 20 queries compare one."""
        if self.doubt:
            return False
        return True if self.queries >= LEAST else None

    @property
    def verdict(self) -> str:
        """`better_than_chance` in words."""
        if self.better_than_chance is None:
            return f"not tested: {self.queries} queries compare a labelled positive, {LEAST} are needed"
        return f"no: {self.doubt}" if self.doubt else "yes"


def evidence_of(pairs: Pairs, judgements: Judgements, relevant: Rows, *, clearly: float = CLEARLY) -> Evidence:
    """Return how often labelled positives win, how far both orders agree, and whether either is clearly above chance.

    A mean over at least 20 queries has to be above ½ by `clearly` standard errors, a correlation over at least 20 pairs
    above 0 likewise (r√m). Twenty answers and more that are all within .01 of ½ say nothing of any document.

    Args:
        pairs: that were asked about.
        judgements: about them.
        relevant: (k,) candidates that are labelled positives.
        clearly: in standard errors, above 0; 2.326 is a level of .01.
    """
    known = np.isfinite(judgements.preference)
    pairs, w = pairs.where(known), judgements.preference[known]
    first, second = (np.isin(ends, relevant) for ends in (pairs.first, pairs.second))
    compared = first != second
    wins = (np.sign(np.where(first, w - 0.5, 0.5 - w)) + 1)[compared] / 2
    counts = np.bincount(pairs.query[compared], minlength=pairs.queries)
    sums = np.bincount(pairs.query[compared], wins, pairs.queries)
    shares = sums[counts > 0] / counts[counts > 0]
    share = float(shares.mean()) if len(shares) else float("nan")
    agree, doubt = judgements.order_correlation, ""
    if len(w) >= LEAST and np.abs(w - 0.5).max() < FLAT:
        doubt = f"all {len(w):,} answers are within {FLAT} of one half"
    elif len(shares) >= LEAST and share - clearly * shares.std(ddof=1) / len(shares) ** 0.5 <= 0.5:
        doubt = f"labelled positives win {share:.0%} of their comparisons over {len(shares):,} queries"
    elif len(w) >= LEAST and agree * len(w) ** 0.5 <= clearly:
        doubt = f"both orders of {len(w):,} pairs agree with a correlation of {agree:.2f}"
    return Evidence(share, agree, len(shares), doubt)


def trial_of(pairs: Pairs, relevant: Rows, *, whole_queries: bool) -> Marks:
    """Return (m,) which pairs are asked about first: 40, at first one of each query that compares a labelled positive.

    Args:
        pairs: that are to be asked about.
        relevant: (k,) candidates that are labelled positives.
        whole_queries: take all pairs of such queries, since the judge orders a query's documents at once.
    """
    compared = np.flatnonzero(np.isin(pairs.first, relevant) != np.isin(pairs.second, relevant))
    of_each = compared[np.unique(pairs.query[compared], return_index=True)[1]]
    others = np.unique(pairs.query, return_index=True)[1]
    if whole_queries:
        return np.isin(pairs.query, pairs.query[of_each if len(of_each) else others][:LEAST])
    parts = [*of_each[:TRIAL], *compared[:TRIAL], *others[:TRIAL], *range(min(TRIAL, len(pairs)))]
    chosen = np.zeros(len(pairs), bool)
    chosen[[*dict.fromkeys(parts)][:TRIAL]] = True
    return chosen
