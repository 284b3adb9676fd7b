"""What is believed of each pair before any label: the probability that it is relevant after all."""

from __future__ import annotations

import logging
from collections.abc import Mapping

import numpy as np
import pyarrow as pa

from foils.data.collection import Collection
from foils.data.negatives import Negatives, negatives_table
from foils.deciding import decide
from foils.encode.encoder import Encoder
from foils.encode.vectors import VectorStore
from foils.labelling.drawing import Universe
from foils.scoring.triplets import triplets_of_rows
from foils.statistics.survey import Floats

log = logging.getLogger(__name__)


def belief_before_labels(
    universe: Universe,
    collection: Collection,
    sources: Mapping[str, Negatives],
    encoder: Encoder,
    store: VectorStore,
    *,
    split: str = "train",
    seed: int = 0,
) -> Floats | None:
    """Return (N,) π of each pair of the universe, as the decision believes it without labels; None where it cannot.

    At most 2,000 queries are scored; a pair of another query has the mean π of those. Labels play no part, so that
    the draw stays the same while pairs are judged.

    Args:
        universe: the pairs.
        collection: with judgements in the split.
        sources: name -> negatives, those of the universe.
        encoder: that measures the pairs' similarities.
        store: of vectors; texts that it lacks are embedded, of the collection at most 100,000.
        split: of the judgements that count as labelled.
        seed: of the sample and of the belief.

    Raises:
        InputError: no negative of a query that the split judges.
    """
    if len(collection.positives(split)) < 2:
        log.warning("one query of the split %s has positives, from which nothing can be believed", split)
        return None
    ground = decide(collection, sources, encoder, store, split=split, seed=seed).ground
    records, by_triplet = ground.measured.records, ground.expected
    belief = np.full(len(universe), np.nan)
    scored = np.flatnonzero(np.isin(collection.query_rows(universe.table["query_id"]), records.queries))
    pairs, zeros = universe.table.take(pa.array(scored)), np.zeros(len(scored), np.int64)
    table = negatives_table(pairs["query_id"], pairs["doc_id"], "pairs", zeros, zeros)
    triplet = triplets_of_rows(Negatives(table.append_column("text", pairs["text"])), records)
    belief[scored[triplet >= 0]] = by_triplet[triplet[triplet >= 0]]
    return np.asarray(np.where(np.isnan(belief), np.nanmean(belief), belief))
