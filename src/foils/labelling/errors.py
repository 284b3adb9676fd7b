"""How often programs that judge are right, and what that makes of the shares that they give."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from foils.data.collection import Collection, Rows
from foils.data.labels import CHECKS, Labels
from foils.labelling.drawing import Universe
from foils.labelling.judging import AgainstPositive, PairJudge
from foils.labelling.sheet import Shown
from foils.statistics.survey import Share, corrected_share

Counts = tuple[int, int]  # how many, of how many


@dataclass(frozen=True)
class JudgeErrors:
    """How often a judge was right.

    Attributes:
        sensitivity: how many of how many relevant pairs it called relevant.
        specificity: how many of how many others it did not.
        basis: which pairs these are, in words.
        bounds: whether the others were easier to judge than negatives are, so that a share that is corrected by them is
            an upper bound.
    """

    sensitivity: Counts
    specificity: Counts
    basis: str
    bounds: bool = False

    def corrected(self, share: Share, *, seed: int) -> Share | None:
        """Return a share with these errors taken into account; None where they are not known.

        Where they are `bounds` its interval begins at 0, and it has no value of its own.
        """
        if not (self.sensitivity[1] and self.specificity[1]):
            return None
        corrected = corrected_share(share, self.sensitivity, self.specificity, seed=seed)
        return replace(corrected, share=np.nan, low=0.0) if self.bounds else corrected

    @property
    def known(self) -> bool:
        """Whether there was a pair of each kind."""
        return self.sensitivity[1] > 0 and self.specificity[1] > 0

    def to_json(self) -> dict[str, Any]:
        """Return the counts, and what they rest on."""
        return {"sensitivity": self.sensitivity, "specificity": self.specificity, "basis": self.basis}


def errors_by_people(labels: Labels, universe: Universe, judge: str) -> JudgeErrors:
    """Return how often a judge was right on the pairs that people judged, too."""
    people, (answers, _) = labels.match(universe.table)[0], labels.match(universe.table, judge=judge)
    relevant, other = people == 1, people == 0
    both = np.isfinite(answers)
    return JudgeErrors(
        (int((answers == 1)[relevant].sum()), int((relevant & both).sum())),
        (int((answers == 0)[other].sum()), int((other & both).sum())),
        "pairs that people judged, too",
    )


def errors_on_known(labels: Labels, judge: str) -> JudgeErrors:
    """Return how often a judge was right on labelled positives, and on documents drawn at random (`checks_of`)."""
    sensitivity, specificity = labels.checks(judge)
    return JudgeErrors(sensitivity, specificity, "labelled positives and documents drawn at random", bounds=True)


def checks_of(
    judge: PairJudge, collection: Collection, query_rows: Rows, *, pairs: int, seed: int
) -> tuple[pa.Table, list[Shown]]:
    """Return pairs whose truth is known, as rows of a file of labels, and their texts.

    A labelled positive is shown beside another one of its query; a judge who compares with the positive judges those
    of queries with two or more. Documents drawn at random are taken as not relevant. Both are easier to judge than
    the negatives that were mined.

    Args:
        judge: whom to ask.
        collection: texts and judgements.
        query_rows: queries to take, those without a labelled positive are left out.
        pairs: how many of each kind, at most.
        seed: of the draws.
    """
    known, rng = collection.known_positives, np.random.default_rng(seed)
    inside = np.flatnonzero(np.isin(known.query_rows, query_rows))
    inside = rng.permutation(inside)
    compares = isinstance(judge, AgainstPositive)
    of_positives = [each for each in inside.tolist() if len(known.of(each)) > compares][:pairs]
    positives = [(known.query_rows[each], known.of(each)[0], known.of(each)[-1]) for each in of_positives]
    documents = rng.integers(len(collection.documents), size=min(pairs, len(inside)))
    drawn = zip(inside[:pairs].tolist(), documents.tolist(), strict=True)
    random = [(known.query_rows[each], known.of(each)[0], row) for each, row in drawn if row not in known.of(each)]
    rows = np.array([*positives, *random], np.int64).reshape(-1, 3)
    ids = {
        "query_id": collection.queries["query_id"].take(pa.array(rows[:, 0])),
        "doc_id": collection.documents["doc_id"].take(pa.array(rows[:, 2])),
        "sources": pa.array([CHECKS[0]] * len(positives) + [CHECKS[1]] * len(random), pa.string()),
    }
    return pa.table(ids), _shown(collection, rows)


def _shown(collection: Collection, rows: Rows) -> list[Shown]:
    queries, positives, documents = rows.T
    texts = (
        collection.query_texts(queries),
        collection.document_texts(positives),
        collection.document_texts(documents),
    )
    return [Shown(*each) for each in zip(*texts, strict=True)]
