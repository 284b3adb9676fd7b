"""Thresholds from a mixture of normal distributions on the gaps (after ProGCL)."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from foils.runtime.errors import InputError
from foils.selection.rows import Floats, GapMixture, RatedRows, Selection, select

FIRST = "in the mixture's lowest component"
_NAMES = {2: ("danger", "goldilocks"), 3: ("danger", "goldilocks", "easy")}
_WEIGHTS = {2: (0.0, 1.0), 3: (0.0, 1.0, 0.3)}


def fit_gaps(gap: Floats, *, components: int = 3, rng: np.random.Generator) -> GapMixture:
    """Fit a mixture of normal distributions to gaps by expectation–maximisation (scikit-learn, five starts).

    Args:
        gap: (n,) finite, in Elo points.
        components: 2 or 3.
        rng: draws the starts.

    Raises:
        InputError: components other than 2 or 3, or fewer distinct gaps than 2 for each component.
    """
    from sklearn.mixture import GaussianMixture

    if components not in _NAMES:
        raise InputError(f"{components} components; expected 2 (false and true negatives) or 3 (with easy ones apart)")
    if len(np.unique(gap)) < 2 * components:
        raise InputError(
            f"{len(np.unique(gap))} distinct gaps are too few for a mixture of {components}; rate more negatives, or "
            "select by table"
        )
    seed = int(rng.integers(2**31))
    model = GaussianMixture(components, n_init=5, random_state=seed, reg_covar=1.0).fit(gap.reshape(-1, 1))
    order = np.argsort(model.means_[:, 0], kind="stable")
    share, mean = model.weights_[order], model.means_[order, 0]
    sd = np.sqrt(model.covariances_[order, 0, 0])
    unfinished = GapMixture(share, mean, sd, np.zeros(0))
    return GapMixture(share, mean, sd, np.array([_crossing(unfinished, i) for i in range(components - 1)]))


def mixture(rows: RatedRows, *, components: int = 3, rng: np.random.Generator | None = None) -> Selection:
    """Select by a mixture of normals on all gaps: the lowest component is danger, the next goldilocks, a third easy.

    A row below the first threshold is rejected. Others weigh Σ_k P(component k | gap)·v_k, v = 0, 1, 0.3 (Table 2's
    weights of those tiers), so that a row between two components has a weight between theirs. Above its mean the
    lowest component's probability counts; below it, it is taken as 1, since a wide higher component must not make
    very small gaps safe.

    Args:
        rows: the rows.
        components: 2 or 3.
        rng: draws the starts; None: seed 0.

    Raises:
        InputError: see `fit_gaps`.

    Source: ANMI 2.0 section 1.4, method 4; ProGCL (Xia et al. 2022).
    """
    fitted = fit_gaps(rows.gap[rows.rated], components=components, rng=rng or np.random.default_rng(0))
    gap = np.nan_to_num(rows.gap)
    density = fitted.density(gap)
    density[gap <= fitted.mean[0], 1:] = 0.0
    total = density.sum(axis=1, keepdims=True)
    posterior = np.divide(density, total, out=np.zeros_like(density), where=total > 0)
    posterior[(total[:, 0] == 0) & (gap > fitted.mean[0]), -1] = 1.0
    weight = posterior @ np.array(_WEIGHTS[components])
    at = (gap[:, None] >= fitted.thresholds).sum(axis=1)
    names = np.asarray(_NAMES[components], object)
    thresholds = dict(zip(_NAMES[components][1:], fitted.thresholds.tolist(), strict=True))
    return replace(select(rows, {FIRST: at == 0}, weight, names[at], thresholds), mixture=fitted)


def _crossing(fitted: GapMixture, i: int) -> float:
    """Where component i + 1 first is at least as likely as i, between their means."""
    grid = np.linspace(fitted.mean[i], fitted.mean[i + 1], 2001)
    density = fitted.density(grid)
    above = density[:, i + 1] >= density[:, i]
    return float(grid[above.argmax()] if above.any() else grid[-1])
