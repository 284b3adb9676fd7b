"""Retrieval measures of rankings, per query: ir_measures does the counting, every judged query counts.

A query that a system did not answer counts with the measure's value for an empty list (0), so
leaving hard queries out never pays. Rankings are measured in their own order: scores, and how a
scorer breaks their ties, play no part.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from foils.runtime.errors import InputError, require

Floats = npt.NDArray[np.float64]
Qrels = Mapping[str, Mapping[str, int]]
Rankings = Mapping[str, Sequence[str]]

DEFAULT_MEASURES = ("nDCG@10", "R@100", "RR@10", "AP")
_EXAMPLES = "nDCG@10, R@100, RR@10, AP, P@5"


@dataclass(frozen=True)
class Measured:
    """What one system scores, query by query.

    Attributes:
        name: what to call the system.
        query_ids: (n,) the judged queries, in the order of the judgements.
        per_query: measure → (n,) values in [0, 1]; 0 where the system gave no answer.
        unanswered: the judged queries for which the system returned nothing.
    """

    name: str
    query_ids: tuple[str, ...]
    per_query: dict[str, Floats]
    unanswered: tuple[str, ...]

    @property
    def means(self) -> dict[str, float]:
        """Mean of each measure over all judged queries."""
        return {measure: float(np.mean(values)) for measure, values in self.per_query.items()}


def parsed_names(text: str) -> tuple[str, ...]:
    """Return the names of measures that stand in a text, separated by commas."""
    return tuple(name.strip() for name in text.split(",") if name.strip())


def parse_measures(names: Sequence[str]) -> list[Any]:
    """Return ir_measures' measure of each name.

    Raises:
        InputError: no name at all, or names that it does not know or has no means to compute; all are listed.
        MissingExtraError: ir-measures is not installed.
    """
    ir_measures = require("ir_measures", "evaluate")
    if not names:
        raise InputError(f"no measure; expected names as in {_EXAMPLES}")
    parsed, wrong = [], []
    for name in names:
        try:
            measure = ir_measures.parse_measure(name)
            ir_measures.evaluator([measure], {"query": {"document": 1}})
        except AssertionError:  # so it says that a parameter is missing or unknown
            wrong.append(f"{name!r} (a cut-off or another parameter is missing, or is not the measure's)")
        except (NameError, ValueError, TypeError, RuntimeError) as error:
            wrong.append(f"{name!r} ({str(error).strip()})")
        else:
            parsed.append(measure)
    if wrong:
        raise InputError(f"{'; '.join(wrong)}; expected ir_measures' names, as {_EXAMPLES} (capitals matter)")
    return parsed


def measure_rankings(
    rankings: Rankings, qrels: Qrels, measures: Sequence[str] = DEFAULT_MEASURES, *, name: str = "system"
) -> Measured:
    """Measure rankings against judgements.

    A grade below 0 counts as 0.

    nDCG is trec_eval's: gain = the grade, discount = 1/log2(rank + 1), divided by the best
    possible. R, RR, AP and P count documents of grade ≥ 1. Documents without a judgement are not
    relevant.

    Args:
        rankings: query id → document ids, best first, each document once. Queries that are not
            judged are ignored.
        qrels: query id → document id → grade (an integer; 0 and below: not relevant).
        measures: ir_measures' names, as `nDCG@10`; any cut-off.
        name: what to call the system.

    Raises:
        InputError: no judged query; a name that ir_measures does not know or cannot compute here; a
            document that is twice in one ranking. All bad names and rankings are listed at once.
        MissingExtraError: ir-measures is not installed.
    """
    if not qrels:
        raise InputError("no judged query; expected at least one query with judgements")
    parsed = parse_measures(measures)
    repeated = [q for q in qrels if q in rankings and len(set(rankings[q])) != len(rankings[q])]
    if repeated:
        listed = f"{len(repeated)} rankings name a document twice (queries {', '.join(repeated[:5])}…)"
        raise InputError(f"{listed}; keep the best rank of each")
    run = {
        query: {document: -float(rank) for rank, document in enumerate(rankings[query])}
        for query in qrels
        if query in rankings and len(rankings[query])
    }
    judged = {  # trec_eval's nDCG never ends where a grade is below 0
        query: {document: max(grade, 0) for document, grade in grades.items()} for query, grades in qrels.items()
    }
    place = {query: index for index, query in enumerate(qrels)}
    values = {str(measure): np.zeros(len(place)) for measure in parsed}
    for metric in require("ir_measures", "evaluate").iter_calc(parsed, judged, run):
        values[str(metric.measure)][place[metric.query_id]] = metric.value
    return Measured(name, tuple(place), values, tuple(query for query in place if query not in run))
