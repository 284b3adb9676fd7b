"""What a study lets one say: the headline, or why nothing can be told, and warnings about its trainings."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from foils.studies.cells import BASELINES, UNTRAINED

if TYPE_CHECKING:
    from foils.studies.results import StudyAnalysis

Floats = npt.NDArray[np.float64]
LEAST_CEILING = 0.5
MOST_CHANCE = 0.05
PERMUTATIONS = 1_000


def headline(analysis: StudyAnalysis) -> str:
    """Return what the study says in a few sentences; where nothing can be told, that, and why."""
    if not analysis.leaderboard and analysis.left_out:
        return f"Nothing can be told of what foresees the order of the sources: no cell counts ({left_out(analysis)})."
    if not analysis.leaderboard:
        leads = " ".join(f"{cell.name}, two sources: {lead_sentence(analysis, cell.name)}" for cell in analysis.cells)
        return f"{leads} Of two sources no τ is made: their order is foreseen by chance in half of the cases."
    aside = f" Left out: {left_out(analysis)}." if analysis.left_out else ""
    if why := doubts(analysis):
        return f"Nothing can be told of what foresees the order of the sources: {'; '.join(why)}.{aside}"
    whole = [each for each in analysis.leaderboard if not each.missing]
    best, ceiling = whole[0], mean_ceiling(analysis)
    text = (
        f"Half of the seeds order the sources like the other half with τ {ceiling:+.2f}. Their order is best foreseen "
        f"by {best.predictor} ({best.title}): mean τ {best.kendall:+.2f} [{best.low:+.2f}, {best.high:+.2f}], "
        f"{best.worst:+.2f} in its worst cell."
    )
    if (published := next((each for each in whole if each.predictor == "eci_sem"), None)) is not None:
        text += f" ECI_sem: {published.kendall:+.2f} [{published.low:+.2f}, {published.high:+.2f}]."
    return text + aside


def left_out(analysis: StudyAnalysis) -> str:
    """Return the cells that do not count in the means, and why."""
    return ", ".join(f"{name}, {analysis.reliability[name].verdict}" for name in analysis.left_out)


def doubts(analysis: StudyAnalysis) -> list[str]:
    """Return why the order of the predictors says nothing; none where it does.

    Something can be told where half of the seeds order the sources like the other half (mean τ at least 0.5), the
    leading predictor's interval lies above zero, and its mean τ is higher than the highest of all predictors in 95 %
    of the random orders of the sources.
    """
    whole = [each for each in analysis.leaderboard if not each.missing]
    if not whole:
        return ["no predictor is there for every source of every cell"]
    best, ceiling, reasons = whole[0], mean_ceiling(analysis), []
    if math.isnan(ceiling):
        reasons.append("with one seed, or equal results, nobody knows how far the order would repeat")
    elif ceiling < LEAST_CEILING:
        reasons.append(f"half of the seeds order the sources like the other half with τ {ceiling:+.2f} only")
    if not best.low > 0:
        interval = "none" if math.isnan(best.low) else f"[{best.low:+.2f}, {best.high:+.2f}]"
        reasons.append(
            f"the leading predictor has no interval above zero ({best.predictor}, mean τ {best.kendall:+.2f}, interval "
            f"{interval})"
        )
    if not analysis.chance <= MOST_CHANCE:
        reasons.append(
            f"one of {len(whole)} predictors does as well in {100 * analysis.chance:.0f} % of random orders of the "
            "sources"
        )
    if reasons:
        reasons[-1] += "; more sources, seeds or test queries would tell more"
    return reasons


def warnings_of(analysis: StudyAnalysis) -> list[str]:
    """Return a sentence for each cell where training on a source did not move the measure (`Outcome.moved`).

    It is asked where the untrained model was measured: a reranker that reaches its first stage has moved far.
    """
    warnings = []
    for cell in (each for each in analysis.cells if UNTRAINED in each.outcomes):
        sources = [each for each in analysis.outcomes[cell.name] if each.source not in BASELINES]
        still = [each for each in sources if not each.moved]
        if still:
            shown = ", ".join(
                f"{each.source} {each.gain:+.4f} [{each.gain_low:+.4f}, {each.gain_high:+.4f}]" for each in still[:3]
            )
            used = cell.training.get("learning_rate")
            rate = f", now {used:g}" if isinstance(used, float) else ""
            warnings.append(
                f"{cell.name}: training on {len(still)} of {len(sources)} sources moved {analysis.measure} by less "
                f"than its interval ({shown}{', …' if len(still) > 3 else ''}); try another learning rate{rate}, or "
                "more epochs"
            )
    return warnings


def mean_ceiling(analysis: StudyAnalysis) -> float:
    """Return the mean over cells of τ of half of the seeds with the other half; NaN where no cell has one."""
    counted = (each for name, each in analysis.reliability.items() if name not in analysis.left_out)
    known = [each.half for each in counted if not math.isnan(each.half)]
    return float(np.mean(known)) if known else math.nan


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


def lead_sentence(analysis: StudyAnalysis, name: str) -> str:
    """Return by how much the best source of a cell is ahead of the next, or that this cannot be told."""
    lead = analysis.leads[name]
    interval = f"{lead.mean:+.4f} [{lead.low:+.4f}, {lead.high:+.4f}] of {analysis.measure}"
    if lead.low > 0:
        return f"{lead.source} trained better than {lead.against}, the next best, by {interval}."
    return f"Nothing can be told of {lead.source} against {lead.against}, the next best: {interval}."
