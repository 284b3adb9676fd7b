"""A split's queries with what was retrieved for them: where settings and masks are measured, ranking again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from foils.data.collection import Rows
from foils.searching.dimensions import Floats, Mask, masked
from foils.searching.grids import Grid
from foils.searching.index import ExactIndex, search_lists
from foils.searching.passes import check_search_depths, rank_lists
from foils.searching.ranks import UNREACHED, Relevant, measure_ranks
from foils.searching.runs import Embedded, relevant_of
from foils.searching.settings import FEEDBACK_DEPTH
from foils.searching.tune import GridValues, evaluate_grid

MEASURES = ("nDCG@10", "AP")


@dataclass(frozen=True)
class Bench:
    """A split's queries that have a relevant document, with everything retrieved for them.

    Attributes:
        embedded: the vectors, of these queries alone.
        lists: n rankings of document positions by all dimensions, best first, as deep as the deepest feedback.
        relevant: n sets of relevant documents.
        k: how many documents of a new ranking count in a measure.
        rerank_depth: how many of each list are ranked again.
        feedback_depth: length of the feedback; None: as deep as the lists.
        measures: names that `measure_ranks` knows.
    """

    embedded: Embedded
    lists: list[Rows]
    relevant: list[Relevant]
    k: int
    rerank_depth: int
    feedback_depth: int | None = FEEDBACK_DEPTH
    measures: Sequence[str] = MEASURES

    @property
    def retrieved(self) -> list[Rows]:
        """What is ranked again of each list."""
        return [rows[: self.rerank_depth] for rows in self.lists]

    @property
    def suns(self) -> dict[str, npt.NDArray[np.floating] | None]:
        """What the sun can be: `PRF`, of the feedback (None); `LLM`, (n, d) vectors of answers, where there are any."""
        answers = self.embedded.answers
        return {"PRF": None} if answers is None else {"PRF": None, "LLM": answers}


def prepare(
    embedded: Embedded,
    *,
    k: int = 1000,
    feedback_depth: int = FEEDBACK_DEPTH,
    rerank_depth: int | None = None,
    longest: int = 0,
    measures: Sequence[str] = MEASURES,
) -> Bench:
    """Retrieve, by exact search, what is to be ranked again and the feedback, for each query with a relevant document.

    Args:
        embedded: vectors of a split.
        k: documents of a ranking that count.
        feedback_depth: length of the feedback.
        rerank_depth: documents to rank again, at least k; None: 1000, or k where that is more.
        longest: length that the lists have at least, for longer feedback.
        measures: names that `measure_ranks` knows.

    Raises:
        InputError: a depth out of range.
    """
    reranked = check_search_depths(k, feedback_depth, rerank_depth, "retrieved")
    having, relevant = relevant_of(embedded)
    answers = None if embedded.answers is None else embedded.answers[having]
    kept = replace(embedded, query_rows=embedded.query_rows[having], queries=embedded.queries[having], answers=answers)
    depth = max(reranked, feedback_depth, longest)
    lists, _ = search_lists(ExactIndex(kept.documents), kept.queries, depth, without=kept.identical)
    return Bench(kept, lists, relevant, k, reranked, feedback_depth, measures)


def grid_values(
    bench: Bench,
    grid: Grid,
    *,
    answers: npt.NDArray[np.floating] | None = None,
    rng: np.random.Generator | None = None,
) -> GridValues:
    """Evaluate a grid over a bench, as `evaluate_grid`."""
    return evaluate_grid(
        bench.embedded.queries,
        bench.embedded.documents,
        bench.retrieved,
        bench.relevant,
        grid,
        measures=bench.measures,
        k=bench.k,
        feedback_depth=bench.feedback_depth,
        feedback=bench.lists,
        answers=answers,
        rng=rng,
    )


def mask_values(bench: Bench, masks: Mask) -> dict[str, Floats]:
    """Measure the k best of what masks (n, d) rank among the retrieved documents; a full mask changes no list."""
    values = {measure: np.empty(len(masks)) for measure in bench.measures}
    rankings = bench.retrieved
    again = np.flatnonzero(~masks.all(axis=1))
    sharpened = masked(bench.embedded.queries[again], masks[again])
    reranked, _ = rank_lists(sharpened, bench.embedded.documents, [rankings[row] for row in again])
    for row, ranking in zip(again.tolist(), reranked, strict=True):
        rankings[row] = ranking
    for row, ranking in enumerate(rankings):
        for measure, value in ranking_values(bench, row, ranking).items():
            values[measure][row] = value
    return values


def ranking_values(bench: Bench, row: int, ranking: Rows) -> dict[str, float]:
    """Measure the k best of one query's ranking."""
    relevant, ranking = bench.relevant[row], ranking[: bench.k]
    hit, where = np.nonzero(relevant.rows[:, None] == ranking)
    ranks = np.full(len(relevant.rows), UNREACHED, np.int64)
    ranks[hit] = where
    return {
        measure: float(measure_ranks(measure, ranks, relevant, retrieved=len(ranking))) for measure in bench.measures
    }
