"""What a study says: what training gave, how far its order repeats, and how predictors' orders agree with it.

A cell's reliability says how far the order of its sources repeats from seeds to seeds:

    h = mean over splits of τ(means of one half of the seeds, means of the other)
    reliability of all seeds = 2h/(1 + h)                   (Spearman 1910, Brown 1910)

Two or three seeds may agree by chance: a cell is reliable from .8 on, with four seeds at least.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from foils.experiments.study import PREDICTORS, Cell, numbered, weights_of
from foils.experiments.tasks import BASELINES, FIRST_STAGE, UNTRAINED
from foils.pages import Figure, Section, render_page
from foils.runtime.errors import InputError
from foils.runtime.files import without_nan, write_text
from foils.runtime.options import spelled
from foils.runtime.results import Result, Table, counted, number, signed, with_ends
from foils.statistics.significance import kendall_tau, kendall_taus

Floats = npt.NDArray[np.float64]
RESAMPLES = 1_000
RELIABLE = 0.8
LEAST_SEEDS = 4  # before a cell is reliable
EVERY_SPLIT = 9  # seeds up to which every split into halves is looked at
SPLITS = 100
ROUNDING = 1e-9
LEAST_CEILING = 0.5
MOST_CHANCE = 0.05
PERMUTATIONS = 1_000
NOTHING = "Nothing can be told of what foresees the order of the sources:"


@dataclass(frozen=True)
class Outcome:
    """What training on one source gave in one cell.

    Attributes:
        source: or baseline.
        mean: over seeds and queries, with the interval `low`, `high` of a bootstrap over both.
        seeds: the mean of each seed.
        gain: mean difference from the untrained model (of rerankers, from the first stage), query
            by query, with the interval `gain_low`, `gain_high` of a bootstrap over seeds and
            queries; NaN for that itself, and where it was not measured.
        tests: the mean on each collection that is tested on, where they are several.
    """

    source: str
    mean: float
    low: float
    high: float
    seeds: tuple[float, ...]
    gain: float
    gain_low: float
    gain_high: float
    tests: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Lead:
    """By how much the best source of a cell is ahead of the next.

    Attributes:
        source: with the highest mean.
        against: with the next.
        mean: difference of the two, query by query and seed by seed, of the seeds that both have;
            with the interval `low`, `high` of a bootstrap over seeds and queries.
    """

    source: str
    against: str
    mean: float
    low: float
    high: float


def outcomes_of(cell: Cell, measure: str, rng: np.random.Generator) -> tuple[Outcome, ...]:
    """Return the results of a cell, best first, baselines among them."""
    before, sizes = start_of(cell), [*cell.tests.values()]
    untrained, outcomes = cell.outcomes.get(before, {}).get(measure), []
    for name in [*(each for each in BASELINES if each in cell.outcomes), *cell.sources]:
        values, gain = cell.outcomes[name][measure], (math.nan, math.nan, math.nan)
        if untrained is not None and name != before:
            gain = mean_and_interval(values - untrained.mean(axis=0), rng, sizes)
        parts = np.split(values, np.cumsum(sizes)[:-1], axis=1) if sizes else []
        tests = {test: float(part.mean()) for test, part in zip(cell.tests, parts, strict=True)}
        seeds = tuple(map(float, values @ weights_of(values, sizes)))
        outcomes.append(Outcome(name, *mean_and_interval(values, rng, sizes), seeds, *gain, tests))
    return tuple(sorted(outcomes, key=lambda each: -each.mean))


def start_of(cell: Cell) -> str:
    """Return what gains are measured from: the untrained model or, of rerankers, the first stage."""
    return FIRST_STAGE if cell.facts["settings"].get("reranker") else UNTRAINED


def lead_of(cell: Cell, outcomes: Sequence[Outcome], measure: str, rng: np.random.Generator) -> Lead:
    """Return the lead of the best source over the next, baselines left out."""
    best, second = [each.source for each in outcomes if each.source not in BASELINES][:2]
    a, b = cell.outcomes[best][measure], cell.outcomes[second][measure]
    common = min(len(a), len(b))
    return Lead(best, second, *mean_and_interval(a[:common] - b[:common], rng, [*cell.tests.values()]))


def mean_and_interval(
    values: Floats, rng: np.random.Generator, sizes: Sequence[int] = ()
) -> tuple[float, float, float]:
    """Return the mean of (seeds, queries) values and its 95 % percentile interval of a bootstrap over both.

    Args:
        values: per seed and query.
        rng: source of the draws.
        sizes: queries of each collection, where they are of several: they are drawn from each, and
            the mean is that of the collections' means.
    """
    seeds, queries = values.shape
    counts, weights = np.array(sizes or [queries]), weights_of(values, sizes)
    highest, first = np.repeat(counts, counts), np.repeat(np.cumsum(counts) - counts, counts)
    of_seeds, draws = rng.integers(seeds, size=(RESAMPLES, seeds)), np.empty(RESAMPLES)
    for rows in np.array_split(np.arange(RESAMPLES), 20):
        means = values[of_seeds[rows]].mean(axis=1)
        of_queries = first + rng.integers(highest, size=means.shape)
        draws[rows] = (np.take_along_axis(means, of_queries, axis=1) * weights).sum(axis=1)
    low, high = np.quantile(draws, [0.025, 0.975])
    return float((values.mean(axis=0) * weights).sum()), float(low), float(high)


@dataclass(frozen=True)
class Reliability:
    """How far the order of a cell's sources repeats.

    Attributes:
        seeds: that all sources have.
        half: mean Kendall's τ of the sources' means over one half of the seeds with those over the
            other; NaN with one seed, or where all means are equal.
        whole: the same for all seeds (Spearman–Brown); `half` itself where that is not above 0.
    """

    seeds: int
    half: float
    whole: float

    @property
    def verdict(self) -> str:
        """Reliable where that of all seeds, 4 or more, is ≥ .8; not reliable, or too few seeds to say."""
        word = "reliable" if self.whole >= RELIABLE - ROUNDING else "not reliable"
        return word if self.seeds >= LEAST_SEEDS else "too few seeds"


def reliability_of(results: Floats) -> Reliability:
    """Return how far the sources' order repeats, by all splits of the seeds; of more than nine, a hundred.

    Args:
        results: (sources, seeds) means over queries; three sources or more.
    """
    seeds = results.shape[1]
    if seeds < 2:
        return Reliability(seeds, math.nan, math.nan)
    if seeds <= EVERY_SPLIT:
        halves = [list(each) for each in combinations(range(seeds), seeds // 2)]
    else:
        rng = np.random.default_rng(14)
        halves = [rng.permutation(seeds)[: seeds // 2].tolist() for _ in range(SPLITS)]
    taus = []
    for each in halves:
        others = np.setdiff1d(np.arange(seeds), each)
        taus.append(kendall_tau(results[:, each].mean(axis=1), results[:, others].mean(axis=1)))
    half = math.nan if np.isnan(taus).all() else float(np.nanmean(taus))
    return Reliability(seeds, half, 2 * half / (1 + half) if half > 0 else half)


@dataclass(frozen=True)
class Standing:
    """A predictor over all cells.

    Attributes:
        predictor: its name.
        cells: cell → Kendall's τ.
        kendall: mean τ over the cells.
        regret: mean over cells of what is lost by training on the source it puts first: best less
            chosen mean measure.
    """

    predictor: str
    cells: dict[str, float]
    kendall: float
    regret: float

    @property
    def worst(self) -> float:
        """The lowest τ of a cell; where all values are alike it orders nothing, and has 0."""
        return float(np.nan_to_num([*self.cells.values()]).min())


@dataclass(frozen=True)
class StudyAnalysis(Result):
    """Everything a study says of one measure.

    Attributes:
        measure: that predictors are compared with.
        cells: in order, those with two sources or more. `outcomes`: cell → results, best first,
            baselines among them.
        leads: cell → by how much its best source is ahead of the next.
        leaderboard: predictors that every source has, by mean τ over the cells of three sources or more.
        reliability: cell of three sources or more → how far the order of its sources repeats from
            seeds to seeds.
        chance: how often the best of all predictors does as well on random orders of the sources;
            NaN without one.
    """

    measure: str
    cells: tuple[Cell, ...]
    outcomes: dict[str, tuple[Outcome, ...]]
    leads: dict[str, Lead]
    leaderboard: tuple[Standing, ...]
    reliability: dict[str, Reliability]
    chance: float
    all_predictors: bool = False

    @property
    def shows_predictors(self) -> bool:
        """Whether the table of predictors is shown: where they can be told apart, or it was asked for."""
        return bool(self.leaderboard) and (self.all_predictors or not self.doubts())

    @property
    def ceiling(self) -> float:
        """Mean over cells of τ of half of the seeds with the other half; NaN where no cell has one."""
        halves = [each.half for each in self.reliability.values() if not math.isnan(each.half)]
        return sum(halves) / len(halves) if halves else math.nan

    @property
    def headline(self) -> str:
        """What the study says in a few sentences, or that nothing can be told, and why."""
        if not self.leaderboard and self.reliability:
            return f"{NOTHING} no predictor is there for every source."
        if not self.leaderboard:
            return " ".join(f"{cell.name}: {self.lead_sentence(cell.name)}" for cell in self.cells)
        doubts = self.doubts()
        if doubts:
            table = "" if self.all_predictors else f" {spelled('all_predictors')} shows the table anyway."
            return f"{NOTHING} {'; '.join(doubts)}; more sources, seeds or queries would tell more.{table}"
        best = self.leaderboard[0]
        return (
            f"Half of the seeds order the sources like the other half with τ {self.ceiling:+.2f}. Their "
            f"order is best foreseen by {best.predictor} ({PREDICTORS[best.predictor]}): mean τ "
            f"{best.kendall:+.2f}, {best.worst:+.2f} in its worst cell; in {100 * self.chance:.2g} % of random "
            "orders of the sources one of the predictors does as well."
        )

    def doubts(self) -> list[str]:
        """Return why the order of the predictors says nothing; none where it does.

        Something can be told where half of the seeds order the sources like the other half (mean τ
        at least 0.5), and the leading predictor's mean τ is higher than the highest of all
        predictors in 95 % of the random orders of the sources.
        """
        reasons = []
        if math.isnan(self.ceiling):
            reasons.append("with one seed, or equal results, nobody knows how far the order would repeat")
        elif self.ceiling < LEAST_CEILING:
            reasons.append(f"half of the seeds order the sources like the other half with τ {self.ceiling:+.2f}")
        if not self.chance <= MOST_CHANCE:
            orders = f"{100 * self.chance:.3g} % of random orders of the sources"
            reasons.append(f"one of {len(self.leaderboard)} predictors does as well in {orders}")
        return reasons

    def lead_sentence(self, name: str) -> str:
        """Return by how much the best source of a cell is ahead of the next, or that this cannot be told."""
        lead = self.leads[name]
        interval = f"{with_ends(lead.mean, lead.low, lead.high)} of {self.measure}"
        if lead.low > 0:
            return f"{lead.source} trained better than {lead.against}, the next best, by {interval}."
        return f"Nothing can be told of {lead.source} against {lead.against}, the next best: {interval}."

    def tables(self) -> list[Table]:
        """Return each cell's results, and the predictors; the last has the headline below it."""
        tables = [self.outcome_table(cell) for cell in self.cells]
        tables += [self.predictor_table()] if self.shows_predictors else []
        last = tables.pop()
        return [*tables, replace(last, caption="\n".join(filter(None, [last.caption, self.headline])))]

    def outcome_table(self, cell: Cell) -> Table:
        """Return what training on each source gave in a cell, best first.

        Below it stand the settings, how far the best is ahead, and how far the order repeats.
        """
        rows: list[tuple[str, ...]] = []
        for each in self.outcomes[cell.name]:
            ends = f"{each.low:.4f}–{each.high:.4f}"
            gain = "" if math.isnan(each.gain) else with_ends(each.gain, each.gain_low, each.gain_high)
            sizes = [f"{size:,.0f}" for size in cell.sizes_of.get(each.source, ())] or ["", ""]
            tests = [number(value, 4) for value in each.tests.values()]
            rows.append((each.source, number(each.mean, 4), ends, gain, f"{len(each.seeds)}", *sizes, *tests))
        columns = ["trained on", self.measure, "95 % interval", f"gain over {start_of(cell)}", "seeds", "rows", "steps"]
        remarks = ["; ".join(f"{name} {value}" for name, value in cell.training.items())]
        remarks.append(self.lead_sentence(cell.name))
        if cell.name in self.reliability:
            order = self.reliability[cell.name]
            taus = f"τ {order.half:+.2f} of halves of the seeds, {order.whole:+.2f} of all"
            remarks.append(f"The order of the sources repeats with {taus}: {order.verdict}.")
        return Table(cell.name, [*columns, *cell.tests], rows, caption="\n".join(remarks))

    def predictor_table(self) -> Table:
        """Return the predictors, best first."""
        rows = []
        for each in self.leaderboard:
            taus = signed(each.kendall, digits=2), signed(each.worst, digits=2)
            rows.append((each.predictor, PREDICTORS[each.predictor], *taus, number(each.regret, 4)))
        columns = ["predictor", "what it is", "mean τ", "worst cell", "regret"]
        title = f"Which predictor orders the sources as {self.measure} does"
        return Table(title, columns, rows, words=frozenset({1}))

    def report(self, path: str | Path) -> None:
        """Write the report as one HTML page."""
        write_text(path, study_page(self))

    def to_json(self) -> dict[str, Any]:
        """Return plain values, null for what is not a number."""
        leaderboard = []
        for each in self.leaderboard:
            facts = {**vars(each), "title": PREDICTORS[each.predictor], "worst": each.worst}
            facts["cells"] = {name: {"kendall": tau} for name, tau in each.cells.items()}
            leaderboard.append(facts)
        value = {name: getattr(self, name) for name in ("measure", "headline", "chance")}
        value |= {"cells": [self._cell_json(cell) for cell in self.cells], "leaderboard": leaderboard}
        return dict(without_nan(value))

    def _cell_json(self, cell: Cell) -> dict[str, Any]:
        reliability = self.reliability.get(cell.name)
        sizes = {name: dict(zip(("rows", "steps"), both, strict=True)) for name, both in cell.sizes_of.items()}
        return {
            "name": cell.name,
            "collection": cell.facts["collection"]["name"],
            "model": cell.facts["model"]["name"],
            "settings": cell.facts["settings"],
            "ceiling": None if reliability is None else reliability.half,
            "reliability": None if reliability is None else {**vars(reliability), "verdict": reliability.verdict},
            "lead": vars(self.leads[cell.name]),
            "outcomes": [{**vars(each), **sizes.get(each.source, {})} for each in self.outcomes[cell.name]],
            "predictors": {name: dict(cell.predictors[name]) for name in cell.sources},
        }


def analyse(cells: Sequence[Cell], *, measure: str | None = None, seed: int = 0) -> StudyAnalysis:
    """Compare every predictor with what training gave, cell by cell and over all cells.

    Args:
        cells: of `read_cells`; a cell with fewer than two finished sources is left out, and of two
            sources only their difference is told.
        measure: None: the first of each cell's settings.
        seed: of the bootstraps.

    Raises:
        InputError: no cell has two sources that are scored and trained, or none has the measure.
    """
    usable = numbered([cell for cell in cells if len(cell.sources) > 1])
    if not usable:
        raise InputError("no cell of the study has two sources that are scored and trained; let it go on")
    measure = measure or str(usable[0].facts["settings"]["measures"][0])
    if lacking := [cell.name for cell in usable if any(measure not in cell.outcomes[each] for each in cell.sources)]:
        known = sorted({name for cell in usable for source in cell.sources for name in cell.outcomes[source]})
        raise InputError(f"{', '.join(lacking)} have no {measure}; measured were {', '.join(known)}")
    rng = np.random.default_rng(seed)
    outcomes = {cell.name: outcomes_of(cell, measure, rng) for cell in usable}
    leads = {cell.name: lead_of(cell, outcomes[cell.name], measure, rng) for cell in usable}
    ordered = [cell for cell in usable if len(cell.sources) > 2]
    results = {cell.name: cell.results(cell.sources, measure) for cell in ordered}
    values = [cell.predictors[source] for cell in ordered for source in cell.sources]
    names = [name for name in PREDICTORS if values and all(name in each for each in values)]
    predicted = {
        cell.name: np.array([[cell.predictors[source][name] for source in cell.sources] for name in names])
        for cell in ordered
    }
    standings, chance = list[Standing](), math.nan
    for at, name in enumerate(names):
        regrets, taus = [], dict[str, float]()
        for cell, of in results.items():
            measured, foreseen = of.mean(axis=1), predicted[cell][at]
            taus[cell] = kendall_tau(foreseen, measured)
            regrets.append(float(measured.max() - measured[foreseen == foreseen.max()].mean()))
        mean = float(np.nan_to_num([*taus.values()]).mean())
        standings.append(Standing(name, taus, mean, float(np.mean(regrets))))
    standings.sort(key=lambda each: -each.kendall)
    if standings:
        pairs = [(predicted[cell], of.mean(axis=1)) for cell, of in results.items()]
        chance = chance_of_best(pairs, standings[0].kendall, rng)
    reliability = {cell: reliability_of(of) for cell, of in results.items()}
    return StudyAnalysis(measure, tuple(usable), outcomes, leads, tuple(standings), reliability, chance)


def chance_of_best(pairs: Sequence[tuple[Floats, Floats]], best: float, rng: np.random.Generator) -> float:
    """Return how often the best of all predictors agrees as well with results of sources in random order.

    The maximum over predictors of the mean over cells of Kendall's τ-b, with the sources' results
    permuted within each cell (max-T permutation test, Westfall and Young 1993): p = (1 + #{max ≥
    best})/(1 + permutations). It takes into account that the leader was chosen among many, and that
    three sources have six orders.

    Args:
        pairs: of each cell (predictors, sources) values and (sources,) results.
        best: mean τ of the leading predictor.
        rng: source of the permutations.

    Returns:
        A share in (0, 1].
    """
    totals = np.zeros((len(pairs[0][0]), PERMUTATIONS))
    for predictors, results in pairs:
        mixed = results[np.argsort(rng.random((PERMUTATIONS, len(results))), axis=1)]
        totals += [np.nan_to_num(kendall_taus(np.tile(each, (PERMUTATIONS, 1)), mixed)) for each in predictors]
    reached = int((totals.max(axis=0) / len(pairs) >= best - ROUNDING).sum())
    return (1 + reached) / (1 + PERMUTATIONS)


STUDY_READING = (
    "Intervals come from bootstraps over seeds and test queries. τ is Kendall's rank correlation of a predictor's "
    "order of the sources with that of the measured means; a higher predictor is taken to mean better. No predictor "
    "can be expected above the τ of one half of the seeds with the other half. "
    "Regret is what is lost by training on the source that the predictor puts first.",
    "A cell is reliable where the τ of halves, made that of all seeds, is at least 0.8 with 4 seeds or more.",
)


def study_page(analysis: StudyAnalysis) -> str:
    """Return the report of a study as HTML."""
    sections, cells = list[Section](), analysis.cells
    if analysis.shows_predictors:
        sections.append(Section("Predictors", [replace(analysis.predictor_table(), title="")]))
    for cell in cells:
        results = {each.source: (each.mean, each.low, each.high) for each in analysis.outcomes[cell.name][::-1]}
        caption = f"{analysis.measure} after training on each source."
        figure = Figure({analysis.measure: results}, analysis.measure, caption)
        table = replace(analysis.outcome_table(cell), title="")
        sections.append(Section(cell.name, [figure, table], folded=analysis.shows_predictors))
    return render_page(
        "Did the score predict the training?",
        subtitle=f"{counted(len(cells), 'cells')} · {analysis.measure} on the test queries",
        verdict=analysis.headline,
        sections=[*sections, Section("How to read this", (), STUDY_READING, folded=True)],
        footer=" · ".join(
            f"{cell.facts['collection']['name']}: collection {cell.facts['collection']['digest'][:12]}, "
            f"weights {str(cell.facts['model']['fingerprint'])[:12]}"
            for cell in cells
        ),
    )
