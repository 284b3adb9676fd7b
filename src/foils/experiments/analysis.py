"""What a study says: how each predictor's order of the sources agrees with what training gave, and how surely."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from foils.experiments.cells import Cell, with_own_names
from foils.experiments.outcomes import (
    RELIABLE,
    RESAMPLES,
    Floats,
    Lead,
    Outcome,
    Reliability,
    lead_of,
    outcomes_of,
    reliability_of,
    resampled,
    start_of,
)
from foils.experiments.predictors import PREDICTORS
from foils.experiments.tasks import BASELINES, UNTRAINED
from foils.runtime.errors import InputError
from foils.runtime.files import without_nan, write_text
from foils.runtime.results import Result, Table, number
from foils.statistics.agreement import kendall_tau, rank_stability, resampled_taus

LEAST_CEILING = 0.5
MOST_CHANCE = 0.05
PERMUTATIONS = 1_000
NOTHING = "Nothing can be told of what foresees the order of the sources:"


@dataclass(frozen=True)
class Standing:
    """A predictor over all cells that have it.

    Attributes:
        predictor: its name; `title`: what it is.
        cells: cell → Kendall's τ.
        within: cell → mean τ over its settings, which are single sources, hybrids of two, and so on.
        stability: cell → share of the pairs of sources of one setting that are in the measured order.
        kendall: mean τ over the cells, with the interval `low`, `high` of a bootstrap over sources and seeds.
        worst: lowest τ of a cell.
        regret: mean over cells of what is lost by training on the source it puts first: best less chosen mean measure.
        regret_share: the same as a share of best less worst, in [0, 1].
        missing: cells that lack it for some source.
    """

    predictor: str
    title: str
    cells: dict[str, float]
    within: dict[str, float]
    stability: dict[str, float]
    kendall: float
    low: float
    high: float
    worst: float
    regret: float
    regret_share: float
    missing: int


@dataclass(frozen=True)
class StudyAnalysis(Result):
    """Everything a study says of one measure.

    Attributes:
        measure: that predictors are compared with.
        cells: in order, those with two sources or more. `outcomes`: cell → results, best first, baselines among them.
        leads: cell → by how much its best source is ahead of the next.
        leaderboard: predictors, those that hold in every cell first, by mean τ over the cells of three sources or more
            that count; empty where there is none.
        reliability: cell of three sources or more → how far the order of its sources repeats from seeds to seeds.
        chance: how often the best of all predictors does as well on random orders of the sources; NaN without one.
        only_reliable: whether reliable cells alone count; else all that are not flat.
    """

    measure: str
    cells: tuple[Cell, ...]
    outcomes: dict[str, tuple[Outcome, ...]]
    leads: dict[str, Lead]
    leaderboard: tuple[Standing, ...]
    reliability: dict[str, Reliability]
    chance: float
    only_reliable: bool = False

    @property
    def left_out(self) -> list[str]:
        """Cells of three sources or more that do not count in the means."""
        return [name for name, each in self.reliability.items() if not _counts(each, self.only_reliable)]

    @property
    def ceiling(self) -> float:
        """Mean over cells of τ of half of the seeds with the other half; NaN where no cell has one."""
        return _mean([each.half for name, each in self.reliability.items() if name not in self.left_out])

    @property
    def headline(self) -> str:
        """What the study says in a few sentences, or that nothing can be told, and why."""
        left_out = ", ".join(f"{name}, {self.reliability[name].verdict}" for name in self.left_out)
        if not self.leaderboard and left_out:
            return f"{NOTHING} no cell counts ({left_out})."
        if not self.leaderboard:
            leads = " ".join(f"{cell.name}, two sources: {self.lead_sentence(cell.name)}" for cell in self.cells)
            return f"{leads} Of two sources no τ is made: their order is foreseen by chance in half of the cases."
        aside = f" Left out: {left_out}." if left_out else ""
        if why := self.doubts():
            return f"{NOTHING} {'; '.join(why)}; more sources, seeds or test queries would tell more.{aside}"
        whole = [each for each in self.leaderboard if not each.missing]
        best = whole[0]
        text = (
            f"Half of the seeds order the sources like the other half with τ {self.ceiling:+.2f}. Their order is best "
            f"foreseen by {best.predictor} ({best.title}): mean τ {best.kendall:+.2f} [{best.low:+.2f}, "
            f"{best.high:+.2f}], {best.worst:+.2f} in its worst cell."
        )
        if (published := next((each for each in whole if each.predictor == "eci_sem"), None)) is not None:
            text += f" ECI_sem: {published.kendall:+.2f} [{published.low:+.2f}, {published.high:+.2f}]."
        return text + aside

    def doubts(self) -> list[str]:
        """Return why the order of the predictors says nothing; none where it does.

        Something can be told where half of the seeds order the sources like the other half (mean τ at least 0.5), the
        leading predictor's interval lies above zero, and its mean τ is higher than the highest of all predictors in
        95 % of the random orders of the sources.
        """
        whole = [each for each in self.leaderboard if not each.missing]
        if not whole:
            return ["no predictor is there for every source of every cell"]
        best, reasons = whole[0], []
        if math.isnan(self.ceiling):
            reasons.append("with one seed, or equal results, nobody knows how far the order would repeat")
        elif self.ceiling < LEAST_CEILING:
            reasons.append(f"half of the seeds order the sources like the other half with τ {self.ceiling:+.2f} only")
        if not best.low > 0:
            interval = "none" if math.isnan(best.low) else f"[{best.low:+.2f}, {best.high:+.2f}]"
            reasons.append(
                f"the leading predictor has no interval above zero ({best.predictor}, mean τ {best.kendall:+.2f}, "
                f"interval {interval})"
            )
        if not self.chance <= MOST_CHANCE:
            reasons.append(
                f"one of {len(whole)} predictors does as well in {100 * self.chance:.0f} % of random orders of the "
                "sources"
            )
        return reasons

    @property
    def warnings(self) -> list[str]:
        """Cells where sources were not trained alike, or training moved the measure by less than its interval."""
        return [each for cell in self.cells for each in (_unlike(cell), self._still(cell)) if each]

    def _still(self, cell: Cell) -> str:
        """Say which trainings did not move the measure, where the untrained model was measured.

        A reranker is not asked: one that reaches its first stage has moved far.
        """
        sources = [each for each in self.outcomes[cell.name] if each.source not in BASELINES]
        still = [each for each in sources if not each.moved]
        if not still or UNTRAINED not in cell.outcomes:
            return ""
        shown = ", ".join(f"{each.source} {_with_ends(each.gain, each.gain_low, each.gain_high)}" for each in still[:3])
        used = cell.training.get("learning_rate")
        rate = f", now {used:g}" if isinstance(used, float) else ""
        return (
            f"{cell.name}: training on {len(still)} of {len(sources)} sources moved {self.measure} by less than its "
            f"interval ({shown}{', …' if len(still) > 3 else ''}); try another learning rate{rate}, or more epochs"
        )

    def lead_sentence(self, name: str) -> str:
        """Return by how much the best source of a cell is ahead of the next, or that this cannot be told."""
        lead = self.leads[name]
        interval = f"{_with_ends(lead.mean, lead.low, lead.high)} of {self.measure}"
        if lead.low > 0:
            return f"{lead.source} trained better than {lead.against}, the next best, by {interval}."
        return f"Nothing can be told of {lead.source} against {lead.against}, the next best: {interval}."

    def tables(self) -> list[Table]:
        """Return the results of each cell, and the predictors; the last has the headline and the warnings below it."""
        remarks = "\n".join([self.headline, *(f"Warning: {each}" for each in self.warnings)])
        tables = [self.outcome_table(cell) for cell in self.cells]
        tables += [self.reliability_table()] if self.reliability else []
        tables += [self.predictor_table()] if self.leaderboard else []
        return [*tables[:-1], replace(tables[-1], caption=remarks)]

    def outcome_table(self, cell: Cell) -> Table:
        """Return what training on each source gave in a cell, best first, and how far the best is ahead."""
        rows = [
            (
                each.source,
                number(each.mean, 4),
                f"{each.low:.4f}–{each.high:.4f}",
                "" if math.isnan(each.gain) else _with_ends(each.gain, each.gain_low, each.gain_high),
                f"{len(each.seeds)}",
                *(f"{size:,.0f}" for size in cell.sizes_of.get(each.source, ())),
                *([] if each.source in cell.sizes_of else ["", ""]),
                *(number(value, 4) for value in each.tests.values()),
            )
            for each in self.outcomes[cell.name]
        ]
        tests = list(cell.tests) if cell.sizes else []
        columns = ["trained on", self.measure, "95 % interval", f"gain over {start_of(cell)}", "seeds", "rows", "steps"]
        return Table(cell.name, [*columns, *tests], rows, caption=self.lead_sentence(cell.name))

    def reliability_table(self) -> Table:
        """Return how far the order of each cell's sources repeats, and how many seeds would be needed."""
        rows = [
            (
                name,
                f"{each.seeds}",
                _signed(each.half),
                _signed(each.whole),
                f"{each.needed:.0f}" if math.isfinite(each.needed) else "–",
                f"{max(1, math.ceil(each.at_best))}" if math.isfinite(each.at_best) else "–",
                each.verdict,
            )
            for name, each in self.reliability.items()
        ]
        columns = ["cell", "seeds", "τ of halves", "of all seeds", f"seeds for {RELIABLE:g}", "at best", "order"]
        why = "not reliable" if self.only_reliable else "flat"
        caption = f"Left out of the means, as {why}: {', '.join(self.left_out)}." if self.left_out else ""
        return Table("How far the order of the sources repeats", columns, rows, caption)

    def predictor_table(self) -> Table:
        """Return the predictors, best first."""
        hybrids = any(len(set(cell.parts)) > 1 for cell in self.cells)
        rows = [
            (
                each.predictor,
                _signed(each.kendall),
                "–" if math.isnan(each.low) else f"{each.low:+.2f} – {each.high:+.2f}",
                _signed(each.worst),
                *((_signed(_mean(each.within.values())), _signed(_mean(each.stability.values()))) if hybrids else ()),
                number(each.regret, 4),
                f"{100 * each.regret_share:.0f} %",
                f"{each.missing or ''}",
            )
            for each in self.leaderboard
        ]
        settings = ["within settings", "pairs in order"] if hybrids else []
        columns = ["predictor", "mean τ", "95 % interval", "worst cell", *settings, "regret", "of best − worst",
                   "cells without it"]  # fmt: skip
        title = f"Which predictor orders the sources as {self.measure} does"
        marked = frozenset(index for index, each in enumerate(self.leaderboard) if each.predictor == "eci_sem")
        return Table(title, columns, rows, "", marked)

    def report(self, path: str | Path) -> None:
        """Write the report as one HTML page."""
        from foils.experiments.pages import study_page

        write_text(path, study_page(self))

    def to_json(self) -> dict[str, Any]:
        """Return plain values, null for what is not a number."""
        value: dict[str, Any] = {
            "measure": self.measure,
            "headline": self.headline,
            "warnings": self.warnings,
            "chance": self.chance,
            "left_out": self.left_out,
            "cells": [self._cell_json(cell) for cell in self.cells],
            "leaderboard": [
                {
                    **{name: each for name, each in vars(standing).items() if name != "cells"},
                    "within": _mean(standing.within.values()),
                    "stability": _mean(standing.stability.values()),
                    "cells": {
                        name: {
                            "kendall": tau,
                            "within": standing.within[name],
                            "stability": standing.stability[name],
                        }
                        for name, tau in standing.cells.items()
                    },
                }
                for standing in self.leaderboard
            ],
        }
        return dict(without_nan(value))

    def _cell_json(self, cell: Cell) -> dict[str, Any]:
        reliability = self.reliability.get(cell.name)
        own = {name: dict(zip(("rows", "steps"), sizes, strict=True)) for name, sizes in cell.sizes_of.items()}
        return {
            "name": cell.name,
            "collection": cell.facts["collection"]["name"],
            "model": cell.facts["model"]["name"],
            "settings": cell.facts["settings"],
            "ceiling": None if reliability is None else reliability.half,
            "reliability": None
            if reliability is None
            else {**vars(reliability), "verdict": reliability.verdict, "counts": cell.name not in self.left_out},
            "lead": vars(self.leads[cell.name]),
            "outcomes": [{**vars(each), **own.get(each.source, {})} for each in self.outcomes[cell.name]],
            "predictors": {name: dict(cell.predictors[name]) for name in cell.sources},
        }


def analyse(
    cells: Sequence[Cell], *, measure: str | None = None, reliable: bool = False, seed: int = 0
) -> StudyAnalysis:
    """Compare every predictor with what training gave, cell by cell and over all cells.

    Args:
        cells: of `read_cells`; a cell with fewer than two finished sources is left out, and of two sources only their
            difference is told.
        measure: None: the first of each cell's settings.
        reliable: compare predictors in reliable cells alone; else in all that are not flat.
        seed: of the bootstraps.

    Raises:
        InputError: no cell has two sources that are scored and trained, or none has the measure.
    """
    usable = with_own_names([cell for cell in cells if len(cell.sources) > 1])
    if not usable:
        raise InputError("no cell of the study has two sources that are scored and trained; let it go on")
    measure = measure or str(usable[0].facts["settings"]["measures"][0])
    if lacking := [cell.name for cell in usable if any(measure not in cell.outcomes[each] for each in cell.sources)]:
        known = sorted({name for cell in usable for source in cell.sources for name in cell.outcomes[source]})
        raise InputError(f"{', '.join(lacking)} have no {measure}; measured were {', '.join(known)}")
    rng = np.random.default_rng(seed)
    outcomes = {cell.name: outcomes_of(cell, measure, rng) for cell in usable}
    leads = {cell.name: lead_of(cell, outcomes[cell.name], measure, rng) for cell in usable}
    several = [cell for cell in usable if len(cell.sources) > 2]
    reliability = {cell.name: reliability_of(cell.results(cell.sources, measure)) for cell in several}
    counted = [cell for cell in several if _counts(reliability[cell.name], reliable)]
    every = [_standing(name, counted, measure, rng) for name in PREDICTORS]
    standings = sorted((each for each in every if each is not None), key=lambda each: (each.missing > 0, -each.kendall))
    chance = _chance([each for each in standings if not each.missing], counted, measure, rng)
    return StudyAnalysis(
        measure, tuple(usable), outcomes, leads, tuple(standings), reliability, chance, only_reliable=reliable
    )


def _counts(reliability: Reliability, only_reliable: bool) -> bool:
    """Whether predictors are compared in a cell: where it is not flat or, on request, where it is reliable."""
    return reliability.reliable if only_reliable else not reliability.flat


def _unlike(cell: Cell) -> str:
    """Say which sources of a cell had other rows or steps than the others; empty where all were trained alike."""
    sizes = {name: cell.sizes_of[name] for name in cell.sources if name in cell.sizes_of}
    if len(set(sizes.values())) < 2:
        return ""
    shown = ", ".join(f"{name} {rows:,.0f} rows and {steps:,.0f} steps" for name, (rows, steps) in sizes.items())
    return (
        f"{cell.name}: the sources were not trained on equally much ({shown}), so that more than their negatives "
        "differs; mine each for the same queries, as deep, or train for fewer negatives a query"
    )


def _standing(name: str, cells: Sequence[Cell], measure: str, rng: np.random.Generator) -> Standing | None:
    taus: dict[str, float] = {}
    pairs: list[tuple[Floats, Floats]] = []
    regrets, shares = [], []
    within, stability = dict[str, float](), dict[str, float]()
    for cell in cells:
        if not all(name in cell.predictors[source] for source in cell.sources):
            continue
        predicted = np.array([cell.predictors[source][name] for source in cell.sources])
        results = cell.results(cell.sources, measure)
        pairs.append((predicted, results))
        reached = results.mean(axis=1)
        taus[cell.name] = kendall_tau(predicted, reached)
        within[cell.name] = _within(predicted, reached, cell.parts)
        stability[cell.name] = rank_stability(predicted, reached, settings=cell.parts)
        regrets.append(float(reached.max() - reached[predicted == predicted.max()].mean()))
        shares.append(regrets[-1] / float(np.ptp(reached)) if np.ptp(reached) else 0.0)
    if not taus:
        return None
    known = np.nan_to_num([*taus.values()])  # all alike: it orders nothing
    means = resampled_means(pairs, rng)
    low, high = np.quantile(means, [0.025, 0.975]) if len(means) else (math.nan, math.nan)
    return Standing(
        name, PREDICTORS[name], taus, within, stability, float(known.mean()), float(low), float(high),
        float(known.min()), float(np.mean(regrets)), float(np.mean(shares)), len(cells) - len(taus),
    )  # fmt: skip


def _within(predicted: Floats, reached: Floats, parts: Sequence[int]) -> float:
    """Mean τ over the settings (single sources, hybrids of two, …) of two sources or more; NaN where none has a τ."""
    own = [np.array(parts) == each for each in dict.fromkeys(parts)]
    return _mean([kendall_tau(predicted[chosen], reached[chosen]) for chosen in own if chosen.sum() > 1])


def resampled_means(pairs: Sequence[tuple[Floats, Floats]], rng: np.random.Generator) -> Floats:
    """Return the mean Kendall's τ over cells of each bootstrap draw of sources and seeds where every cell has one."""
    sizes = [size for _, results in pairs for size in results.shape]
    drawn = iter(resampled(sizes, RESAMPLES, rng))
    taus = [resampled_taus(*pair, next(drawn), next(drawn)) for pair in pairs]
    means: Floats = np.mean([each[np.isfinite(taus).all(axis=0)] for each in taus], axis=0)
    return means


def _chance(whole: Sequence[Standing], cells: Sequence[Cell], measure: str, rng: np.random.Generator) -> float:
    """The chance of the best of the predictors that every cell has; NaN without one."""
    if not whole:
        return math.nan
    pairs = [
        (
            np.array([[cell.predictors[source][each.predictor] for source in cell.sources] for each in whole]),
            cell.results(cell.sources, measure).mean(axis=1),
        )
        for cell in cells
    ]
    return chance_of_best(pairs, whole[0].kendall, rng)


def chance_of_best(pairs: Sequence[tuple[Floats, Floats]], best: float, rng: np.random.Generator) -> float:
    """Return how often the best of all predictors agrees as well with results whose sources are in random order.

    The maximum over predictors of the mean over cells of Kendall's τ-b, with the sources' results permuted within each
    cell (max-T permutation test, Westfall and Young 1993): p = (1 + #{max ≥ best})/(1 + permutations). It takes into
    account that the leader was chosen among many, and that three sources have six orders.

    Args:
        pairs: of each cell (predictors, sources) values and (sources,) results.
        best: mean τ of the leading predictor.
        rng: source of the permutations.

    Returns:
        A share in (0, 1].
    """
    totals = np.zeros((PERMUTATIONS, len(pairs[0][0])))
    for predictors, results in pairs:
        mixed = results[np.argsort(rng.random((PERMUTATIONS, len(results))), axis=1)]
        x, y = (np.sign(each[:, :, None] - each[:, None, :]).reshape(len(each), -1) for each in (predictors, mixed))
        norms = np.sqrt(np.outer((y != 0).sum(axis=1), (x != 0).sum(axis=1)))
        totals += np.divide(y @ x.T, norms, out=np.zeros_like(norms), where=norms > 0)
    reached = int((totals.max(axis=1) / len(pairs) >= best - 1e-9).sum())
    return (1 + reached) / (1 + PERMUTATIONS)


def _mean(values: Any) -> float:
    """The mean of those that are numbers; NaN where none is."""
    known = [value for value in values if not math.isnan(value)]
    return sum(known) / len(known) if known else math.nan


def _signed(value: float) -> str:
    return "–" if math.isnan(value) else f"{value:+.2f}"


def _with_ends(value: float, low: float, high: float) -> str:
    return f"{value:+.4f} [{low:+.4f}, {high:+.4f}]"
