"""What a way of mining would do with positives that it does not know: one of each query's is planted, and mined for.

A sample of queries is mined once more, the label of one positive of each taken away. To whatever ranks, rejects and
draws, the planted document is then one without a label among others. Where relevant documents are labelled
independently of what they look like, a planted document behind k − 1 labels stands for the unlabelled ones behind k − 1
labels, in every query and for every way of mining: with weight k, the share of the planted that are kept estimates
without bias the share of the unlabelled relevant documents that are kept.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from foils.data.collection import Collection, Rows
from foils.data.pair_index import Positives
from foils.data.recapture import Recapture
from foils.data.tables import Provenance
from foils.mining.pairs import Draw, Judged, Marks, Rule

if TYPE_CHECKING:
    from foils.mining.candidates import Retriever

Part = TypeVar("Part")
PLANTED = 2_000  # queries, at most: their share has a standard error of 0.011 at most where each has as many positives
LISTED = np.dtype([("query", "i8"), ("document", "i8"), ("rank", "i4"), ("score", "f8"), ("keep", "?")])
_STREAM = 29  # of random numbers, apart from those of other draws by the same seed


@dataclass(frozen=True)
class Way:
    """A way of mining: what ranks, what rejects, what draws."""

    retriever: Retriever
    rules: Sequence[Rule] = ()
    draw: Draw | None = None

    @property
    def is_a_window(self) -> bool:
        """Whether positives need only be counted: they are ranked as others are, and nothing rejects or draws."""
        return not (self.rules or self.draw is not None or isinstance(self.retriever, Judged))

    @property
    def compares(self) -> bool:
        """Whether a rule or the draw compares candidates with the query's positives, so that one must be left."""
        return any(getattr(part, "compares", False) for part in (*self.rules, self.draw))

    def with_judgements(self, collection: Collection) -> Way | None:
        """Return the way of mining with a collection's judgements; None where a part does not say how it reads them."""
        if not all(isinstance(part, Judged) for part in (*self.rules, self.draw) if part is not None):
            return None
        retriever, draw = judged_anew(self.retriever, collection), judged_anew(self.draw, collection)
        rules = [rule for each in self.rules if (rule := judged_anew(each, collection)) is not None]
        lost = retriever is None or len(rules) < len(self.rules) or (draw is None and self.draw is not None)
        return None if retriever is None or lost else Way(retriever, rules, draw)


def judged_anew(part: Part, collection: Collection) -> Part | None:
    """Return a part of a way of mining with a collection's judgements: itself, unless it is `Judged`."""
    return part.with_judgements(collection) if isinstance(part, Judged) else part


@dataclass(frozen=True)
class Planted:
    """One positive of each query of a sample.

    Attributes:
        query_rows: (n,) the queries, in the order in which they were given.
        doc_rows: (n,) the planted documents.
        weights: (n,) the queries' numbers of positives.
    """

    query_rows: Rows
    doc_rows: Rows
    weights: Rows

    @classmethod
    def drawn(cls, known: Positives, query_rows: Rows, sample: Sample) -> Planted:
        """Draw `most` of the queries that have at least `least` positives, and a positive of each; fewer: all of them.

        Which positive is drawn depends on the seed and on the query's place among those that are given alone, so that
        samples of the same seed have the same positives of the same queries.
        """
        rng = np.random.default_rng([sample.seed, _STREAM])
        chance, order = rng.random(len(query_rows)), rng.permutation(len(query_rows))
        counts = known.counts_of(query_rows)
        chosen = np.sort(order[counts[order] >= max(sample.least, 1)][: sample.most])
        rows, counts = query_rows[chosen], counts[chosen]
        nth = np.minimum((chance[chosen] * counts).astype(np.int64), counts - 1)
        return cls(rows, known.doc_rows[known.offsets[known.places(rows)] + nth], counts)

    @property
    def pairs(self) -> tuple[Rows, Rows]:
        """Query rows and document rows."""
        return self.query_rows, self.doc_rows

    def contain(self, query_rows: Rows, doc_rows: Rows) -> Marks:
        """Return which (query, document) pairs, (n,), are planted."""
        return np.isin((query_rows << 32) | doc_rows, (self.query_rows << 32) | self.doc_rows)

    def among(self, query_rows: Rows, doc_rows: Rows) -> Marks:
        """Return which of the planted, (n,), are among these pairs."""
        return np.isin((self.query_rows << 32) | self.doc_rows, (query_rows << 32) | doc_rows)

    def where(self, which: Marks) -> Planted:
        """Return those of them that are marked."""
        return Planted(self.query_rows[which], self.doc_rows[which], self.weights[which])

    def taken_from(self, collection: Collection) -> Collection:
        """Return the collection without the labels of the planted documents, in any split."""

        def remaining(table: pa.Table) -> pa.Table:
            pairs = collection.query_rows(table["query_id"]), collection.document_rows(table["doc_id"])
            return table.filter(pa.array(~self.contain(*pairs)))

        return replace(collection, qrels={split: remaining(table) for split, table in collection.qrels.items()})


@dataclass(frozen=True)
class Sample:
    """How positives to plant are drawn, so that they can be drawn again."""

    split: str
    least: int
    most: int
    seed: int


@dataclass(frozen=True)
class Replay:
    """Planted positives, and what became of them in a table of negatives.

    Attributes:
        planted: all of them: those that each of the samples has.
        samples: by which they were drawn.
        listed: those that the table would have as rows, an array of LISTED.
    """

    planted: Planted
    samples: tuple[Sample, ...]
    listed: npt.NDArray[np.void]

    def recapture(self, labelled: float, kept: int) -> Recapture:
        """Return the estimate of what would be returned of all labelled positives, beside `kept` negatives."""
        kept_rows = self.listed[self.listed["keep"]]
        returned = self.planted.weights * self.planted.among(kept_rows["query"], kept_rows["document"])
        return Recapture.estimated(returned, self.planted.weights, labelled=labelled, kept=kept, way="planted")

    def to_json(self, collection: Collection) -> Provenance:
        """Return the samples, and the listed rows by ids."""
        listed = self.listed
        return {
            "samples": [asdict(sample) for sample in self.samples],
            "query_id": collection.queries["query_id"].take(pa.array(listed["query"])).to_pylist(),
            "doc_id": collection.documents["doc_id"].take(pa.array(listed["document"])).to_pylist(),
            "rank": listed["rank"].tolist(),
            "score": [None if np.isnan(score) else score for score in listed["score"].tolist()],
            "keep": listed["keep"].tolist(),
        }


def recaptured(
    collection: Collection,
    way: Way,
    listed: npt.NDArray[np.void],
    mine: Callable[[Collection, Way, Planted], npt.NDArray[np.void]],
    *,
    split: str,
    kept: int,
    most: int,
    seed: int,
) -> Provenance:
    """Return what a table's provenance says of the labelled positives that its way of mining would return.

    Args:
        collection: documents, queries, all judgements.
        way: of mining.
        listed: the labelled positives that a window of ranks holds, an array of LISTED.
        mine: which planted documents a way of mining lists, an array of LISTED, of a collection without their labels.
        split: whose queries were mined for.
        kept: negatives in all.
        most: queries to plant in.
        seed: of their choice.

    Returns:
        `recapture`, counted for a plain window, else planted, and `planted`, what became of the planted positives,
        for what is done with the table later. The first is missing where it would be planted and a part of the way of
        mining does not say how it reads judgements, or positives are compared with and no query has two; both are where
        no query has a positive.
    """
    known, query_rows = collection.known_positives, collection.queries_of(split)
    sample = Sample(split, 2 if way.compares else 1, most, seed)
    planted = Planted.drawn(known, query_rows, sample)
    labels = known.counts_of(query_rows)
    labelled = int(labels.sum())
    if not labelled:
        return {}
    if way.is_a_window:
        returned = np.bincount(listed["query"], minlength=len(collection.queries))[query_rows]
        of = labels > 0
        recapture = Recapture.estimated(returned[of], labels[of], labelled=labelled, kept=kept, way="counted")
        replay = Replay(planted, (sample,), listed[planted.contain(listed["query"], listed["document"])])
        rest = {"planted": replay.to_json(collection)} if most else {}
        return {"recapture": recapture.to_json(), **rest}
    without = planted.taken_from(collection)
    other = way.with_judgements(without) if len(planted.query_rows) else None
    if other is None:
        return {}
    replay = Replay(planted, (sample,), mine(without, other, planted))
    return {"recapture": replay.recapture(labelled, kept).to_json(), "planted": replay.to_json(collection)}
