"""The rows of a relabelled table: their pairs, and what was found of each."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from foils.data.negatives import Negatives
from foils.labelling.relabelling import POSITIVE, UNSURE

NOT_SURE = "may be relevant"
RELEVANT = "relabelled positive"


def pairs_of_rows(negatives: Negatives, rows: np.ndarray[tuple[int], np.dtype[np.int64]]) -> pa.Table:
    """Return the pairs of some rows; a text is null where the document is in the collection."""
    table = negatives.table.take(pa.array(rows))
    text = table["text"] if "text" in table.column_names else pa.nulls(len(table), pa.large_string())
    return pa.table({"query_id": table["query_id"], "doc_id": table["doc_id"], "text": text})


def marked(
    negatives: Negatives,
    rows: np.ndarray[tuple[int], np.dtype[np.int64]],
    probability: np.ndarray[tuple[int], np.dtype[np.float64]],
    verdict: np.ndarray[tuple[int], np.dtype[np.str_]],
    unsure: bool,
) -> Negatives:
    """The table with what was found; rows without evidence have neither, and stay as they are."""
    relevance, said = np.full(len(negatives), np.nan), np.full(len(negatives), None, object)
    relevance[rows], said[rows] = probability, verdict
    table = negatives.with_columns({"relevance": pa.array(relevance), "verdict": pa.array(said, pa.string())})
    table = table.reject(said == POSITIVE, RELEVANT)
    return table.reject((said == UNSURE) & unsure, NOT_SURE)
