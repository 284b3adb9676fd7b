"""The queries that Eclipse changes most against DIME, with the documents that either ranks first."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from foils.searching.bench import Bench, ranking_values
from foils.searching.dimensions import Rows, masked
from foils.searching.masks import query_masks
from foils.searching.passes import rank_lists
from foils.searching.settings import DimensionSettings
from foils.searching.tune import GridValues, oracle

MEASURE = "AP"
FILTERS = ("DIME", "Eclipse")
SHOWN = 60  # letters of a text


@dataclass(frozen=True)
class Ranked:
    """The first documents that one filter ranks for a query.

    Attributes:
        name: of the filter, as `PRF Eclipse`.
        value: AP of the whole ranking.
        documents: (id, beginning of the text, grade) best first; grade 0: not relevant, or not judged.
    """

    name: str
    value: float
    documents: tuple[tuple[str, str, int], ...]


@dataclass(frozen=True)
class Example:
    """A query as DIME and as Eclipse rank it.

    Attributes:
        query_id: of the query.
        query: its text.
        rankings: of DIME and of Eclipse.
    """

    query_id: str
    query: str
    rankings: tuple[Ranked, Ranked]

    @property
    def gain(self) -> float:
        """AP of Eclipse less that of DIME."""
        return self.rankings[1].value - self.rankings[0].value


def find_examples(
    bench: Bench,
    values: Mapping[str, GridValues],
    *,
    rng: np.random.Generator,
    sun: str = "PRF",
    count: int = 3,
    depth: int = 5,
) -> list[Example]:
    """Return the queries that gain most by Eclipse against DIME, then those that lose most, each at its best setting.

    The settings are the oracle's by AP, as published. A query that neither gains nor loses is no example.

    Args:
        bench: of `prepare`, AP among its measures.
        values: of `sun_values`, with DIME and Eclipse.
        rng: source of the draws, where the grid has random moons: they are drawn again.
        sun: what the suns are made of: `PRF`, or `LLM`.
        count: how many that gain, and as many that lose.
        depth: how many documents of each ranking.

    Source: Eclipse, Figure 1.
    """
    tuned = {name: oracle(values[f"{sun} {name}"], MEASURE) for name in FILTERS}
    gain = tuned["Eclipse"].per_query[MEASURE] - tuned["DIME"].per_query[MEASURE]
    order = np.argsort(-gain, kind="stable")
    chosen = [row for row in order[:count] if gain[row] > 0]
    chosen += [row for row in order[::-1][:count] if gain[row] < 0]
    rows = np.array(chosen, np.int64)
    rankings = {name: _rankings(bench, of.settings[0], sun, rows, rng) for name, of in tuned.items()}
    collection, embedded = bench.embedded.collection, bench.embedded
    texts = collection.query_texts(embedded.query_rows[rows])
    query_ids = embedded.query_ids

    def ranked(name: str, at: int) -> Ranked:
        whole, relevant = rankings[name][at], bench.relevant[rows[at]]
        grades = dict(zip(relevant.rows.tolist(), relevant.grades.tolist(), strict=True))
        ids = collection.documents["doc_id"].take(pa.array(whole[:depth])).to_pylist()
        shown = [text[:SHOWN] for text in collection.document_texts(whole[:depth])]
        documents = zip(ids, shown, (grades.get(row, 0) for row in whole[:depth].tolist()), strict=True)
        return Ranked(f"{sun} {name}", ranking_values(bench, int(rows[at]), whole)[MEASURE], tuple(documents))

    return [
        Example(query_ids[row], texts[at], (ranked("DIME", at), ranked("Eclipse", at)))
        for at, row in enumerate(rows.tolist())
    ]


def _rankings(bench: Bench, settings: DimensionSettings, sun: str, rows: Rows, rng: np.random.Generator) -> list[Rows]:
    """What was retrieved for these queries, ranked again with one setting."""
    vectors, answers = bench.embedded, bench.suns[sun]
    queries = vectors.queries[rows]
    feedback = [bench.lists[row][: bench.feedback_depth] for row in rows]
    suns = None if answers is None else answers[rows]
    masks, _ = query_masks(queries, vectors.documents, feedback, settings, answers=suns, rng=rng)
    return rank_lists(masked(queries, masks), vectors.documents, [bench.retrieved[row] for row in rows])[0]
