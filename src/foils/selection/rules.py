"""Rules that select negatives by their ratings, and curricula (ANMI 2.0, sections 1.4, 7.2 and 8)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from scipy.ndimage import gaussian_filter1d

from foils.data.run import ranks_within
from foils.runtime.errors import InputError
from foils.runtime.options import Option
from foils.statistics.elo_scale import information as information

Floats = npt.NDArray[np.float64]
Rows = npt.NDArray[np.int64]
Marks = npt.NDArray[np.bool_]
Words = npt.NDArray[np.object_]

UNRATED = "unrated"
#: Names of the tiers of ANMI 2.0, from the smallest Elo gap to the largest.
TIERS = ("danger", "soft", "goldilocks", "medium", "easy")
#: Elo gaps at which one tier ends and the next begins.
BOUNDS = (100.0, 200.0, 400.0, 600.0)
#: Training weight of each tier.
WEIGHTS = (0.0, 0.5, 1.0, 0.7, 0.3)


@dataclass(frozen=True)
class RatedRows:
    """Rated negatives.

    Attributes:
        query: (n,) int, the query of each row; equal numbers are one query.
        gap: (n,) e_positive − e_d in Elo points; NaN: unrated, which every rule rejects.
        elo: (n,) e_d in Elo points.
        preference: (n,) P(positive ≻ d), asked directly; NaN where it was not asked or has no answer.

    Raises:
        InputError: preferences outside [0, 1].
    """

    query: Rows
    gap: Floats
    elo: Floats
    preference: Floats

    def __post_init__(self) -> None:
        if ((self.preference < 0) | (self.preference > 1)).any():
            raise InputError("preferences outside [0, 1]; they are probabilities, NaN where there is none")

    def __len__(self) -> int:
        return len(self.gap)

    @property
    def rated(self) -> Marks:
        """(n,) which rows have a gap."""
        return np.isfinite(self.gap)


@dataclass(frozen=True)
class GapMixture:
    """Normal components of gaps, by rising mean: (k,) `share`, `mean`, `sd`, and `thresholds` between them.

    A threshold is where the component above becomes the likelier one, between the two means.
    """

    share: Floats
    mean: Floats
    sd: Floats
    thresholds: Floats

    def density(self, gap: Floats) -> Floats:
        """Return (n, k) share · N(gap; mean, sd)."""
        z = (np.asarray(gap, np.float64)[:, None] - self.mean) / self.sd
        return np.asarray(self.share * np.exp(-0.5 * z * z) / (np.sqrt(2 * np.pi) * self.sd))


@dataclass(frozen=True)
class Selection:
    """What a rule says of each row.

    Attributes:
        keep: (n,) whether to train on it.
        reason: (n,) why not; None where it is kept.
        weight: (n,) in [0, 1], 0 where it is not kept.
        tier: (n,) how hard it is.
        thresholds: name -> Elo points, where the rule found or used any.
    """

    keep: Marks
    reason: Words
    weight: Floats
    tier: Words
    thresholds: Mapping[str, float] = field(default_factory=dict)


def select(
    rows: RatedRows,
    rejections: Mapping[str, Marks],
    weight: npt.ArrayLike,
    thresholds: Mapping[str, float],
    *,
    at: Rows | None = None,
    tiers: Sequence[str] = TIERS,
) -> Selection:
    """Put a selection together.

    Args:
        rows: the rows.
        rejections: reason -> (n,) marks; the first that marks a row is its reason. Unrated rows
            come before all.
        weight: (n,) or one number; set to 0 where rejected.
        thresholds: of the rule.
        at: (n,) which of the tiers each row is in; None: that of Table 2. Unrated rows are in none.
        tiers: their names.
    """
    reason, keep = np.full(len(rows), None, object), np.ones(len(rows), bool)
    for why, marks in {UNRATED: ~rows.rated, **rejections}.items():
        reason[marks & keep] = why
        keep &= ~marks
    weights = np.where(keep, np.broadcast_to(np.asarray(weight, np.float64), len(rows)), 0.0)
    tier = np.asarray(tiers, object)[tier_of(rows.gap) if at is None else at]
    return Selection(keep, reason, weights, np.where(rows.rated, tier, UNRATED).astype(object), thresholds)


def rated_columns(table: pa.Table, *names: str) -> dict[str, Floats]:
    """Return columns of a rated table, (n,) each; NaN where it has none of this name.

    Raises:
        InputError: the table is not rated.
    """
    if missing := [name for name in ("elo", "elo_se", "gap") if name not in table.column_names]:
        raise InputError(f"the table has no {', '.join(missing)}; rate it first: foils rate")
    unknown = np.full(len(table), np.nan)
    return {
        name: np.asarray(table[name].to_numpy(), np.float64) if name in table.column_names else unknown
        for name in names
    }


BORDERLINE = (80.0, 150.0)  # gaps that the judge decides on, where it was asked directly

DANGER = "danger zone"
NOT_BETTER = "positive not clearly better"
NOT_ASKED = "judge not asked, or without an answer"
RELATIVE = "too close to the positive's rating"


def table(
    rows: RatedRows,
    *,
    bounds: Sequence[float] = BOUNDS,
    weights: Sequence[float] = WEIGHTS,
) -> Selection:
    """Select by the tiers of Table 2.

    Gap < 100: danger, rejected; 100–200 soft, weight 0.5; 200–400 goldilocks 1; 400–600 medium 0.7;
    > 600 easy 0.3. A gap on a bound belongs to the tier above it, except 600, which is still
    medium, as the table has it. Where the judge was asked directly (a `preference` is there) and
    the gap is borderline, 80–150, its answer p = P(positive ≻ d) decides instead: p < 0.65
    rejected; 0.65–0.75 weight 0.3; > 0.75 weight 1. A borderline row without an answer stays with
    the table.

    Args:
        rows: the rows.
        bounds: four rising gaps between the five tiers, in Elo points.
        weights: of the five tiers, in [0, 1]; 0 rejects.

    Raises:
        InputError: bounds that do not rise, not one weight for each tier, or weights outside [0, 1].

    Source: ANMI 2.0 Table 2, section 7.2 stages 3 and 4, eq. 35.
    """
    if len(bounds) != 4 or any(a >= b for a, b in pairwise(bounds)):
        raise InputError(f"bounds {tuple(bounds)}; expected four rising gaps, as in {BOUNDS}")
    if len(weights) != 5 or not all(0 <= weight <= 1 for weight in weights):
        raise InputError(f"weights {tuple(weights)}; expected 5 numbers in [0, 1], one for each tier")
    at = tier_of(rows.gap, bounds)
    weight = np.asarray(weights, np.float64)[at]
    p = rows.preference
    decided = np.isfinite(p) & (rows.gap >= BORDERLINE[0]) & (rows.gap <= BORDERLINE[1])
    weight = np.where(decided, np.where(p < 0.65, 0.0, np.where(p > 0.75, 1.0, 0.3)), weight)
    rejected = {NOT_BETTER: decided & (p < 0.65), DANGER: (at == 0) & (weight == 0), "weight 0": weight == 0}
    return select(rows, rejected, weight, dict(zip(TIERS[1:], map(float, bounds), strict=True)), at=at)


def percentile(rows: RatedRows, *, percentiles: tuple[float, float, float] = (10.0, 25.0, 75.0)) -> Selection:
    """Select by percentiles of the gaps themselves.

    Below the 10th danger, rejected; to the 25th soft; to the 75th goldilocks; above it medium. The
    paper names the percentiles [10th, 25th, 75th] and leaves the weights open; these are Table 2's
    for the same names. A gap on a bound belongs above it.

    Args:
        rows: the rows.
        percentiles: three rising numbers in [0, 100].

    Raises:
        InputError: percentiles that do not rise within [0, 100].

    Source: ANMI 2.0 section 1.4.
    """
    if not 0 <= percentiles[0] < percentiles[1] < percentiles[2] <= 100:
        raise InputError(f"percentiles {percentiles}; expected three rising numbers from 0 to 100")
    bounds = np.percentile(rows.gap[rows.rated], percentiles) if rows.rated.any() else np.full(3, np.nan)
    at = (rows.gap[:, None] >= bounds).sum(axis=1)
    names = dict(zip(TIERS[1:4], bounds.tolist(), strict=True)) if rows.rated.any() else {}
    return select(rows, {DANGER: at == 0}, np.asarray(WEIGHTS)[at], names, at=at)


def relative(rows: RatedRows, *, margin: float = 0.05) -> Selection:
    """Keep rows with gap > margin · e_positive, of weight 1 (after NV-Retriever's share of the positive).

    It needs the Elo scale's customary mean of 1500: on a centred scale a positive below the mean
    would have a negative margin. At 1800, 0.05 is a gap of 90.

    Args:
        rows: the rows.
        margin: share of the positive's rating, at least 0; more keeps less.

    Raises:
        InputError: a negative margin, or a positive that is rated below 0 on the Elo scale.
    """
    Option(least=0).check("margin", margin)
    positive = rows.elo + rows.gap
    if (positive < 0).any():
        raise InputError("a positive is rated below 0; this rule needs ratings on the Elo scale, around 1500")
    return select(rows, {RELATIVE: rows.gap <= margin * positive}, 1.0, {})


def denoise(rows: RatedRows, *, confidence: float = 0.75) -> Selection:
    """Keep rows of which the judge, asked directly, says P(positive ≻ d) ≥ confidence (after RocketQA).

    Rows about which it was not asked, or did not answer, are rejected: rate with every row validated.

    Args:
        rows: the rows, with preferences.
        confidence: in [0, 1]; more keeps less.

    Raises:
        InputError: a confidence outside [0, 1], or no row has a preference.
    """
    Option(least=0, most=1).check("confidence", confidence)
    if len(rows) and not np.isfinite(rows.preference).any():
        raise InputError("no row has the judge's own preference; rate with --validate all")
    rejections = {NOT_ASKED: np.isnan(rows.preference), NOT_BETTER: rows.preference < confidence}
    return select(rows, rejections, 1.0, {})


def tier_of(gap: Floats, bounds: Sequence[float] = BOUNDS) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Return (n,) which of five tiers a gap is in; NaN is in the last, and its row is rejected as unrated."""
    edges = np.asarray(bounds, np.float64)
    below_last = (gap[:, None] >= edges[:-1]).sum(axis=1)
    return np.asarray(below_last + (gap > edges[-1]), np.int64)


FIRST = "in the mixture's lowest component"
# With false negatives.
_FALSE = {1: ("danger",), 2: ("danger", "goldilocks"), 3: ("danger", "goldilocks", "easy")}
_TRUE = ("goldilocks", "medium", "easy")  # without any
_WEIGHTS = {"danger": 0.0, "goldilocks": 1.0, "medium": 0.7, "easy": 0.3}  # Table 2's


def fit_gaps(gap: Floats, *, most: int = 3, rng: np.random.Generator) -> GapMixture:
    """Fit the mixture of at most `most` normals that the gaps speak for, the one with the lowest BIC.

    By expectation–maximisation (scikit-learn, five starts).

    Args:
        gap: (n,) finite, in Elo points.
        most: components, 1 to 3.
        rng: draws the starts.

    Raises:
        InputError: fewer distinct gaps than 2 for each component.

    Source: Schwarz (1978), for the criterion −2 log L + p log n, of p = 3k − 1 parameters.
    """
    if (distinct := len(np.unique(gap))) < 2 * most:
        raise InputError(
            f"{distinct} distinct gaps: too few for a mixture of {most}; rate more rows, or select by table"
        )
    seed = int(rng.integers(2**31))
    return min((_fitted(gap, k, seed) for k in range(most, 0, -1)), key=lambda fit: fit[1])[0]


def mixture(rows: RatedRows, *, components: int = 3, rng: np.random.Generator | None = None) -> Selection:
    """Select by a mixture of normals on all gaps: a lowest component near 0 is danger, the rest is weighed.

    The number of components is the one, up to `components`, that the gaps speak for (BIC). A false
    negative is as good as the positive, so that the gaps of such a component lie about 0: the
    lowest of several is taken for one where its mean less its standard deviation is below 100
    (Table 2's first bound), and a single one where its mean is. Then rows below the first threshold
    are rejected. Otherwise nothing says that there are false negatives, and none is rejected.

    Rows weigh Σ_k P(component k | gap)·v_k, so that a row between two components has a weight
    between theirs: v = 0, 1, 0.3 for danger, goldilocks and easy; 1, 0.7, 0.3 for goldilocks,
    medium and easy where there is no danger (Table 2's weights of those tiers). Above its mean the
    lowest component's probability counts; below it, it is taken as 1, since a wide higher component
    must not make very small gaps safe.

    Args:
        rows: the rows.
        components: 2 or 3, at most.
        rng: draws the starts; None: seed 0.

    Raises:
        InputError: another number of components, or too few gaps (`fit_gaps`).

    Source: ANMI 2.0 section 1.4, method 4; ProGCL (Xia et al. 2022).
    """
    Option(least=2, most=3).check("components", components)
    fitted = fit_gaps(rows.gap[rows.rated], most=components, rng=rng or np.random.default_rng(0))
    count = len(fitted.mean)
    false = fitted.mean[0] - (fitted.sd[0] if count > 1 else 0.0) < BOUNDS[0]
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
    return select(rows, {FIRST: (at == 0) & false}, weight, thresholds, at=at, tiers=tiers)


def _fitted(gap: Floats, components: int, seed: int) -> tuple[GapMixture, float]:
    """A mixture, and its BIC."""
    from sklearn.mixture import GaussianMixture

    data = gap.reshape(-1, 1)
    model = GaussianMixture(components, n_init=5, random_state=seed, reg_covar=1.0).fit(data)
    order = np.argsort(model.means_[:, 0], kind="stable")
    share, mean = model.weights_[order], model.means_[order, 0]
    sd = np.sqrt(model.covariances_[order, 0, 0])
    fitted = GapMixture(share, mean, sd, np.zeros(components - 1))
    # Where component i + 1 first is at least as likely as i, between their means.
    for i in range(components - 1):
        grid = np.linspace(mean[i], mean[i + 1], 2001)
        density = fitted.density(grid)
        above = density[:, i + 1] >= density[:, i]
        fitted.thresholds[i] = grid[above.argmax()] if above.any() else grid[-1]
    return fitted, float(model.bic(data))


NOT_DRAWN = "not drawn"


def simans(
    rows: RatedRows,
    *,
    sharpness: float = 5e-5,
    target: float = 300.0,
    rate: float | None = None,
    per_query: int = 8,
    rng: np.random.Generator | None = None,
) -> Selection:
    """Draw `per_query` negatives a query without replacement, p(d) ∝ exp(−a (e_d − e_+ + b)²); weight 1.

    Drawn from rows outside the danger zone (the paper samples within the constraints of Elo);
    queries with fewer of them keep all. The draw takes the largest log p(d) + Gumbel noise.

    Args:
        rows: the rows.
        sharpness: a, per squared Elo point, at least 0; more keeps closer to the target; 0 draws
            uniformly. 5e-5 is a bell with a standard deviation of 100 points.
        target: b, the gap that is likeliest, in Elo points.
        rate: ρ, the share of false negatives; the target is then section 8.3's `adapted_gap`, 200·(1 + 2ρ).
        per_query: how many, at least 1.
        rng: draws; None: seed 0.

    Raises:
        InputError: a negative sharpness, or fewer than 1 per query.

    Source: SimANS (Zhou et al. 2022) on ratings, ANMI 2.0 section 1.4, method 5.
    """
    Option(least=0).check("sharpness", sharpness)
    Option(least=1).check("per_query", per_query)
    target = target if rate is None else adapted_gap(rate)
    noise = (rng or np.random.default_rng(0)).gumbel(size=len(rows))
    keys = -sharpness * (target - rows.gap) ** 2 + noise
    keys = np.where(rows.gap >= BOUNDS[0], keys, -np.inf)
    order = np.lexsort((-keys, rows.query))
    drawn = np.zeros(len(rows), bool)
    drawn[order] = ranks_within(rows.query[order]) < per_query
    return select(rows, {DANGER: rows.gap < BOUNDS[0], NOT_DRAWN: ~drawn}, 1.0, {"target": target})


RISK = "more risk than information"
LITTLE = "tells too little"
_BIN = 2.0
_FLOOR = 0.1  # weights below it are rejected


def optimal_gap(risk: Callable[[Floats], Floats], *, damage: float, longest: float = 1200.0) -> float:
    """Return Δ* = argmax_{Δ ≥ 0} I(Δ) − λ P(false negative | Δ), λ = damage, to an Elo point (Theorem 12)."""
    grid = np.arange(0.0, longest + 1.0)
    return float(grid[np.argmax(information(grid) - damage * risk(grid))])


def two_group_risk(gap: Floats, *, rate: float, spread: float) -> Callable[[Floats], Floats]:
    """Return P(false negative | Δ) = min(1, ρ N(Δ; 0, spread²)/f(Δ)), made not to rise with Δ.

    A false negative is as good as the positive, so its true gap is 0 and its measured one scatters
    around it; f is the density of all gaps given (normal kernel, Silverman's width). It is the
    local false discovery rate of the two-group model. At gaps below 0 it is at least the risk at 0.

    Args:
        gap: (n,) finite gaps of the whole table, in Elo points.
        rate: ρ, the share of false negatives, in (0, 1); ANMI 2.0's Table 1 has values by miner.
        spread: standard deviation of a false negative's measured gap, in Elo points, above 0.

    Raises:
        InputError: a rate or spread out of range, or fewer than two gaps.

    Source: Efron (2008), Microarrays, empirical Bayes and the two-groups model.
    """
    if not (0 < rate < 1 and spread > 0):
        raise InputError(f"rate {rate}, spread {spread}; expected a rate in (0, 1) and a spread above 0")
    if len(gap) < 2:
        raise InputError(f"{len(gap)} rated rows are too few to estimate how gaps are distributed")
    width = max(_BIN, 1.06 * float(gap.std()) * len(gap) ** -0.2)
    low, high = min(0.0, float(gap.min())) - 4 * width, max(0.0, float(gap.max())) + 4 * width
    edges = np.arange(low, high + _BIN, _BIN)
    counts = np.histogram(gap, edges)[0] / (len(gap) * _BIN)
    density = gaussian_filter1d(counts, width / _BIN, mode="constant")
    grid = (edges[:-1] + edges[1:]) / 2
    bell = np.exp(-0.5 * (grid / spread) ** 2) / (np.sqrt(2 * np.pi) * spread)
    raw = np.minimum(1.0, rate * bell / np.maximum(density, 1e-300))
    raw = np.where(grid < 0, raw[np.searchsorted(grid, 0.0)], raw)
    falling = np.minimum.accumulate(raw)
    return lambda gaps: np.asarray(np.interp(gaps, grid, falling))


def optimal(rows: RatedRows, *, rate: float = 0.15, spread: float = 120.0, damage: float = 2.0) -> Selection:
    """Weigh rows by benefit I(Δ) − λ P(false negative | Δ), over the largest; reject where it is < 0.1.

    The paper gives neither λ nor the form of the risk. With the two-group risk and λ = 2 the
    optimum for rates of 0.10–0.15 falls into the [150, 300] that Theorem 12 states, for gaps
    distributed as is usual.

    Args:
        rows: the rows.
        rate: ρ, the share of false negatives among them.
        spread: standard deviation of a false negative's measured gap, in Elo points.
        damage: λ, at least 0; more moves the optimum away from the positive.

    Raises:
        InputError: settings out of range, or fewer than two rated rows.

    Source: ANMI 2.0 Theorem 12.
    """
    Option(least=0).check("damage", damage)
    risk = two_group_risk(rows.gap[rows.rated], rate=rate, spread=spread)
    best = optimal_gap(risk, damage=damage)
    peak = float((information(np.array([best])) - damage * risk(np.array([best])))[0])
    gap = np.nan_to_num(rows.gap)
    benefit = information(gap) - damage * risk(gap)
    weight = np.clip(benefit / max(peak, 1e-12), 0.0, 1.0)
    rejections = {RISK: (gap < best) & (weight < _FLOOR), LITTLE: weight < _FLOOR}
    return select(rows, rejections, weight, {"optimal": best})


def adapted_gap(rate: float, *, relative_sd: float = 1.0, domain: float = 1.0) -> float:
    """Return the gap to aim at, 200·(1 + 2ρ)·relative_sd·domain, in Elo points.

    Args:
        rate: ρ, share of false negatives, in [0, 1].
        relative_sd: standard deviation of the ratings over the usual one (the paper's σ_ELO, which
            must have no unit).
        domain: tolerance of risk, in [0.8, 1.2].

    Raises:
        InputError: a number out of its range.

    Source: ANMI 2.0 section 8.3, "principled adaptation".
    """
    Option(least=0, most=1).check("rate", rate)
    Option(above=0).check("relative_sd", relative_sd)
    Option(least=0.8, most=1.2).check("domain", domain)
    return 200 * (1 + 2 * rate) * relative_sd * domain


SCHEDULE = ((1, 300.0, 0.5), (3, 200.0, 0.6), (5, 150.0, 0.7), (7, 100.0, 0.8))
"""Table 3: from this epoch on, gaps above this, with this α of the hybrid loss."""

_HISTORY = 1000


def stage_of(epoch: int) -> tuple[float, float]:
    """Return (least gap, α) of an epoch, counted from 1 (Table 3)."""
    Option(least=1).check("epoch", epoch)
    _, gap, alpha = [stage for stage in SCHEDULE if stage[0] <= epoch][-1]
    return gap, alpha


def tier_max(epoch: int) -> float:
    """Return min(3, 1 + epoch/2), the hardest tier of an epoch (from 1), of tiers counted from the easiest.

    Source: ANMI 2.0 Algorithm 3, line 3.
    """
    stage_of(epoch)
    return min(3.0, 1 + epoch / 2)


def least_gap(epoch: int) -> float:
    """Return the gap that a negative must exceed in an epoch, counted from 1 (Table 3)."""
    return stage_of(epoch)[0]


#: The rules of selection by name.
RULES: dict[str, Callable[..., Selection]] = {
    rule.__name__: rule for rule in (table, percentile, mixture, relative, simans, denoise, optimal)
}


@dataclass(frozen=True)
class LearningProgress:
    """A bandit over tiers that draws those the learner just learns most from (Exp3.S; Graves et al. 2017).

    The reward is the drop of the loss on a batch by training on it, divided by its time; it is
    scaled to [−1, 1] by the 20th and 80th percentile of the last thousand. π_i = (1 − ε)
    softmax(w)_i + ε/N, and after drawing tier a with reward r, t counted from 2: r̃_i = η r [i =
    a]/π_i,
    w_i ← log((1 − 1/t) e^{w_i + r̃_i} + (1/t)/(N − 1) Σ_{j≠i} e^{w_j + r̃_j}).

    Attributes:
        tiers: N, at least 2.
        rate: η; more follows faster.
        exploration: ε in [0, 1]; more draws more evenly.
        log_weights: (N,) w; empty at the start: zeros.
        history: the last raw rewards.
        steps: updates so far, t − 2.

    Raises:
        InputError: a setting out of range.
    """

    tiers: int = len(TIERS) - 1
    rate: float = 0.1
    exploration: float = 0.05
    log_weights: tuple[float, ...] = ()
    history: tuple[float, ...] = ()
    steps: int = 0

    def __post_init__(self) -> None:
        Option(least=2).check("tiers", self.tiers)
        Option(above=0).check("rate", self.rate)
        Option(least=0, most=1).check("exploration", self.exploration)
        if not self.log_weights:
            object.__setattr__(self, "log_weights", (0.0,) * self.tiers)

    @property
    def probabilities(self) -> Floats:
        """(N,) π, from which the next tier is drawn."""
        weights = np.exp(np.array(self.log_weights) - max(self.log_weights))
        return np.asarray((1 - self.exploration) * weights / weights.sum() + self.exploration / self.tiers)

    def updated(self, tier: int, loss_before: float, loss_after: float, *, duration: float = 1.0) -> LearningProgress:
        """Return the bandit after training on a batch of `tier`; NaN losses or a duration of 0 are refused.

        Args:
            tier: 0 … N − 1, that was drawn.
            loss_before: on the batch, before the step.
            loss_after: on the same batch, after it.
            duration: of the step, above 0; what harder batches cost more.

        Raises:
            InputError: no such tier, losses that are not finite, or a duration not above 0.
        """
        gained = loss_before - loss_after
        if not (0 <= tier < self.tiers and np.isfinite(gained) and duration > 0):
            raise InputError(
                f"tier {tier}, progress {gained} in {duration}; expected 0–{self.tiers - 1}, finite, above 0"
            )
        history = (*self.history, gained / duration)[-_HISTORY:]
        low, high = np.percentile(history, [20, 80])
        reward = 0.0
        if high > low:
            reward = float(np.clip(2 * (gained / duration - low) / (high - low) - 1, -1.0, 1.0))
        moved = np.array(self.log_weights)
        moved[tier] += self.rate * reward / self.probabilities[tier]
        t = self.steps + 2
        weights = np.exp(moved - moved.max())
        others = (weights.sum() - weights) / (self.tiers - 1)
        shared = np.log((1 - 1 / t) * weights + others / t) + moved.max()
        return replace(self, log_weights=tuple(shared.tolist()), history=history, steps=self.steps + 1)
