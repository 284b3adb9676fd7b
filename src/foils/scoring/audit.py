"""Suspected false negatives: a ranked list, with reasons, to be read before anyone trains on them.

How suspicion is measured is ours. A relevant document that nobody labelled looks like the labelled ones: it is near
the query, and near what is known to answer it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass

import numpy as np
import numpy.typing as npt

from foils.data.collection import Rows
from foils.data.negatives import Negatives
from foils.data.tokens import Vocabulary
from foils.scoring.compose import triplets_of_rows
from foils.scoring.gates import Float64s
from foils.scoring.measure import pair_similarities
from foils.scoring.prepared import Measured
from foils.scoring.results import Scores

NEAREST = 3  # labelled positives that a suspect is compared with
TOP_RANKS = 3  # a document this high in several sources is suspected for it
NEAR = 0.8  # Jaccard similarity of token sets, below the 0.9 at which mining rejects


@dataclass(frozen=True)
class Suspect:
    """A negative that may be relevant.

    Attributes:
        query_id, query, doc_id, text: what to read; `doc_id` is empty for a text that a source brought along.
        positive: text of the first labelled positive.
        suspicion: what the list is ordered by (see `suspicion`).
        reasons: why, in words. `sources`: that hold it.
        to_query, to_positives: cosine to the query; mean cosine to its nearest labelled positives.
    """

    query_id: str
    query: str
    doc_id: str
    text: str
    positive: str
    suspicion: float
    reasons: tuple[str, ...]
    sources: tuple[str, ...]
    to_query: float
    to_positives: float

    def to_json(self) -> dict[str, object]:
        """Return the fields."""
        return asdict(self)


def suspicion(s_n: Float64s, to_positives: Float64s, positives: Rows) -> Float64s:
    """Return how much each negative looks like a positive, (m,): its mean cosine to all that is known to be relevant.

    That is the query itself and its nearest labelled positives: (s_n + c·to_positives)/(1 + c), c = min(positives, 3).

    Args:
        s_n: (m,) cosine of query and negative.
        to_positives: (m,) mean cosine of the negative to the query's nearest labelled positives (`NEAREST` at most).
        positives: (m,) how many labelled positives the query has.
    """
    count = np.minimum(positives, NEAREST)
    amount: Float64s = (s_n + count * to_positives) / (1 + count)
    return amount


def nearness_to_positives(measured: Measured, *, nearest: int = NEAREST) -> Float64s:
    """Return the mean cosine of each negative to the `nearest` labelled positives of its query, (m,)."""
    records = measured.records
    counts = np.bincount(records.positive_record, minlength=len(records))
    starts = np.concatenate([[0], np.cumsum(counts)])
    order = np.argsort(records.positive_record, kind="stable")
    found = np.empty(len(records.record))
    step = max(1, 2_000_000 // max(1, int(counts.max(initial=1))))
    for first in range(0, len(records.record), step):
        part = slice(first, first + step)
        here = records.record[part]
        triplet = np.repeat(np.arange(len(here)), counts[here])
        place = np.arange(len(triplet)) - np.repeat(np.cumsum(counts[here]) - counts[here], counts[here])
        positives = records.all_positives[order[starts[here[triplet]] + place]]
        documents = measured.geometry.documents
        cosines = pair_similarities(documents, records.document[part][triplet], documents, positives)
        ranked = np.lexsort((-cosines, triplet))
        taken = ranked[place < nearest]
        sums = np.bincount(triplet[taken], weights=cosines[taken], minlength=len(here))
        found[part] = sums / np.minimum(counts[here], nearest)
    return found


def audit(scores: Scores, sources: Mapping[str, Negatives], *, top: int = 100) -> list[Suspect]:
    """List the negatives that look most like positives, most suspected first.

    Args:
        scores: of the sources.
        sources: that were scored: name -> negatives; their ranks are read.
        top: length of the list.
    """
    measured = scores.measured
    records, similarities = measured.records, measured.similarities
    near = nearness_to_positives(measured)
    positives = np.bincount(records.positive_record, minlength=len(records))
    amount = suspicion(similarities.s_n, near, positives[records.record])
    control_only = records.members == (1 << (len(records.names) - 1) if scores.control else 0)
    amount = np.where(control_only, -np.inf, amount)
    chosen = np.argsort(-amount, kind="stable")[:top]
    chosen = chosen[np.isfinite(amount[chosen])]
    high = _high_ranks(sources, measured)
    alike = _jaccard_to_first(measured, chosen)
    ids = _document_ids(measured, chosen)
    queries = records.collection.query_texts(records.queries[records.record[chosen]])
    query_ids = records.collection.queries["query_id"]
    found = []
    for place, triplet in enumerate(chosen.tolist()):
        record = int(records.record[triplet])
        reasons = _reasons(measured, triplet, near[triplet], alike[place], high[triplet])
        holders = [name for bit, name in enumerate(records.names) if records.members[triplet] >> bit & 1]
        found.append(
            Suspect(
                query_id=query_ids[int(records.queries[record])].as_py(),
                query=queries[place],
                doc_id=ids[place],
                text=records.texts[int(records.document[triplet])],
                positive=records.texts[int(records.positives[record])],
                suspicion=float(amount[triplet]),
                reasons=reasons,
                sources=tuple(name for name in holders if name in sources),
                to_query=float(similarities.s_n[triplet]),
                to_positives=float(near[triplet]),
            )
        )
    return found


def _reasons(measured: Measured, triplet: int, near: float, alike: float, high: int) -> tuple[str, ...]:
    gates, similarities = measured.gates, measured.similarities
    said = []
    if similarities.s_n[triplet] > similarities.s_p[triplet]:
        said.append(f"nearer the query than its positive (ρ {gates.rho[triplet]:.2f})")
    if near > similarities.s_n[triplet] and near > similarities.s_p[triplet]:
        said.append("nearer the labelled positives than the query is")
    if alike >= NEAR:
        said.append(f"near-duplicate of the positive (Jaccard {alike:.2f})")
    if high > 1:
        said.append(f"among the first {TOP_RANKS} in {high} sources")
    if gates.eta[triplet] <= 0.25 and gates.rho[triplet] >= 0.5:
        said.append(f"nearer the query than the positive (η {gates.eta[triplet]:.2f})")
    return tuple(said) or ("similar to the query and to its positives",)


def _high_ranks(sources: Mapping[str, Negatives], measured: Measured) -> npt.NDArray[np.int64]:
    """In how many sources each triplet is among the first ranks."""
    high = np.zeros(len(measured.records.record), np.int64)
    for negatives in sources.values():
        triplet = triplets_of_rows(negatives, measured.records)
        ranks = np.asarray(negatives.table["rank"])
        high[np.unique(triplet[(triplet >= 0) & (ranks < TOP_RANKS)])] += 1
    return high


def _jaccard_to_first(measured: Measured, triplets: Rows) -> Float64s:
    records = measured.records
    vocabulary = Vocabulary()
    ours = vocabulary.sets([records.texts[int(row)] for row in records.document[triplets]])
    theirs = vocabulary.sets([records.texts[int(row)] for row in records.positives[records.record[triplets]]])
    rows = np.arange(len(triplets))
    return ours.jaccard(rows, theirs, rows)


def _document_ids(measured: Measured, triplets: Rows) -> list[str]:
    texts = measured.records.texts.select(measured.records.document[triplets])
    ids = texts.collection.documents["doc_id"]
    return [ids[row].as_py() if row >= 0 else "" for row in np.asarray(texts.rows).tolist()]
