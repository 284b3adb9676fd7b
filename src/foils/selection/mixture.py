"""Thresholds from a mixture of normal distributions on the gaps (after ProGCL)."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from foils.runtime.errors import InputError
from foils.selection.rows import Floats, GapMixture, RatedRows, Selection, select

FIRST = "in the mixture's lowest component"
_MOST = 3
_FALSE = {1: ("danger",), 2: ("danger", "goldilocks"), 3: ("danger", "goldilocks", "easy")}  # with false negatives
_TRUE = ("goldilocks", "medium", "easy")  # without any
_WEIGHTS = {"danger": 0.0, "goldilocks": 1.0, "medium": 0.7, "easy": 0.3}  # Table 2's


def fit_gaps(gap: Floats, *, components: int = 3, rng: np.random.Generator) -> GapMixture:
    """Fit a mixture of normal distributions to gaps by expectation–maximisation (scikit-learn, five starts).

    Args:
        gap: (n,) finite, in Elo points.
        components: 1 to 3.
        rng: draws the starts.

    Raises:
        InputError: another number of components, or fewer distinct gaps than 2 for each component.
    """
    _check(gap, components)
    return _fitted(gap, components, int(rng.integers(2**31)))[0]


def likeliest_fit(gap: Floats, *, most: int = 3, rng: np.random.Generator) -> GapMixture:
    """Return the mixture of at most `most` components with the lowest BIC: no more than the gaps speak for.

    Raises:
        InputError: see `fit_gaps`.

    Source: Schwarz (1978), for the criterion −2 log L + p log n, of p = 3k − 1 parameters.
    """
    _check(gap, most)
    seed = int(rng.integers(2**31))
    return min((_fitted(gap, k, seed) for k in range(most, 0, -1)), key=lambda fit: fit[1])[0]


def mixture(
    rows: RatedRows, *, components: int = 3, danger: float = 100.0, rng: np.random.Generator | None = None
) -> Selection:
    """Select by a mixture of normals on all gaps: a lowest component of false negatives is danger, the rest is weighed.

    The number of components is the one, up to `components`, that the gaps speak for (BIC). A false negative is as good
    as the positive, so that the gaps of such a component lie about 0: the lowest of several is taken for one where its
    mean less its standard deviation is below `danger`, and a single one where its mean is. Then rows below the first
    threshold are rejected. Otherwise nothing says that there are false negatives, and none is rejected.

    Rows weigh Σ_k P(component k | gap)·v_k, so that a row between two components has a weight between theirs: v = 0,
    1, 0.3 for danger, goldilocks and easy; 1, 0.7, 0.3 for goldilocks, medium and easy where there is no danger (Table
    2's weights of those tiers). Above its mean the lowest component's probability counts; below it, it is taken as 1,
    since a wide higher component must not make very small gaps safe.

    Args:
        rows: the rows.
        components: 2 or 3, at most.
        danger: largest gap of a false negative, in Elo points: Table 2's first bound.
        rng: draws the starts; None: seed 0.

    Raises:
        InputError: see `fit_gaps`.

    Source: ANMI 2.0 section 1.4, method 4; ProGCL (Xia et al. 2022).
    """
    if components < 2:
        raise InputError(f"{components} components; expected 2 (false and true negatives) or 3 (with easy ones apart)")
    fitted = likeliest_fit(rows.gap[rows.rated], most=components, rng=rng or np.random.default_rng(0))
    count = len(fitted.mean)
    false = fitted.mean[0] - (fitted.sd[0] if count > 1 else 0.0) < danger
    tiers = _FALSE[count] if false else _TRUE[:count]
    gap = np.nan_to_num(rows.gap)
    density = fitted.density(gap)
    density[gap <= fitted.mean[0], 1:] = 0.0
    total = density.sum(axis=1, keepdims=True)
    posterior = np.divide(density, total, out=np.zeros_like(density), where=total > 0)
    nowhere = total[:, 0] == 0
    posterior[nowhere, np.where(gap[nowhere] > fitted.mean[0], count - 1, 0)] = 1.0
    weight = posterior @ np.array([_WEIGHTS[name] for name in tiers])
    at = (gap[:, None] >= fitted.thresholds).sum(axis=1)
    thresholds = dict(zip(tiers[1:], fitted.thresholds.tolist(), strict=True))
    selection = select(rows, {FIRST: (at == 0) & false}, weight, np.asarray(tiers, object)[at], thresholds)
    return replace(selection, mixture=fitted)


def _check(gap: Floats, components: int) -> None:
    if not 1 <= components <= _MOST:
        raise InputError(f"{components} components; expected 2 (false and true negatives) or 3 (with easy ones apart)")
    if len(np.unique(gap)) < 2 * components:
        raise InputError(
            f"{len(np.unique(gap))} distinct gaps are too few for a mixture of {components}; rate more negatives, or "
            "select by table"
        )


def _fitted(gap: Floats, components: int, seed: int) -> tuple[GapMixture, float]:
    """A mixture, and its BIC."""
    from sklearn.mixture import GaussianMixture

    data = gap.reshape(-1, 1)
    model = GaussianMixture(components, n_init=5, random_state=seed, reg_covar=1.0).fit(data)
    order = np.argsort(model.means_[:, 0], kind="stable")
    share, mean = model.weights_[order], model.means_[order, 0]
    sd = np.sqrt(model.covariances_[order, 0, 0])
    unfinished = GapMixture(share, mean, sd, np.zeros(0))
    thresholds = np.array([_crossing(unfinished, i) for i in range(components - 1)], np.float64)
    return GapMixture(share, mean, sd, thresholds), float(model.bic(data))


def _crossing(fitted: GapMixture, i: int) -> float:
    """Where component i + 1 first is at least as likely as i, between their means."""
    grid = np.linspace(fitted.mean[i], fitted.mean[i + 1], 2001)
    density = fitted.density(grid)
    above = density[:, i + 1] >= density[:, i]
    return float(grid[above.argmax()] if above.any() else grid[-1])
