"""What a way of mining would do with positives that it does not know: one of each query's is held out and mined for.

A sample of queries is mined once more, the label of one positive of each taken away. To whatever ranks, rejects and
draws, the planted document is then one without a label among others. Where relevant documents are labelled
independently of what they look like, a planted document behind k − 1 labels stands for the unlabelled ones behind k − 1
labels, in every query and for every way of mining: with weight k, the share of the planted that are kept estimates
without bias the share of the unlabelled relevant documents that are kept.

A table's provenance lists all planted documents under `planted`, as rows that the table would have: rank −1 where it
would not list one. Filtering and fusing a table does the same to these rows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from foils.data.collection import Collection, PairIndex, Positives, Rows
from foils.data.negatives import REQUIRED, Negatives, Recapture, negatives_table
from foils.data.tables import Provenance
from foils.mining.pairs import Marks, PairScorer, Rule, reads_judgements, with_judgements_of
from foils.mining.rules import filter_negatives
from foils.runtime.errors import InputError

PLANTED = 2_000  # queries, at most: their share has a standard error of 0.011 at most where each has as many positives
PLANTED_ROW = np.dtype([("query", "i8"), ("document", "i8"), ("rank", "i4"), ("score", "f8"), ("keep", "?")])
SOURCE = "planted"  # of their rows, where tables are made anew
_STREAM = 29  # of random numbers, apart from those of other draws by the same seed


@dataclass(frozen=True)
class Planted:
    """One positive of each query of a sample, and what became of it.

    Attributes:
        rows: (n,) of PLANTED_ROW, by query: rank −1, not kept and without a score where the table does not list it.
        weights: (n,) the queries' numbers of positives.
    """

    rows: npt.NDArray[np.void]
    weights: Rows

    def contain(self, query_rows: Rows, doc_rows: Rows) -> Marks:
        """Return which (query, document) pairs, (n,), are planted."""
        return PairIndex(self.rows["query"], self.rows["document"]).contain(query_rows, doc_rows)

    def where(self, which: Marks) -> Planted:
        """Return those of them that are marked."""
        return Planted(self.rows[which], self.weights[which])

    def among(self, listed: npt.NDArray[np.void]) -> Planted:
        """Return them as they stand among rows of a table, an array of PLANTED_ROW."""
        index = PairIndex(listed["query"], listed["document"])
        places = index.places(self.rows["query"], self.rows["document"])
        rows = planted_rows(self.rows["query"], self.rows["document"])
        rows[places >= 0] = listed[places[places >= 0]]
        return Planted(rows, self.weights)


def planted_rows(
    queries: npt.ArrayLike,
    documents: npt.ArrayLike,
    ranks: npt.ArrayLike = -1,
    scores: npt.ArrayLike = np.nan,
    keep: npt.ArrayLike = False,
) -> npt.NDArray[np.void]:
    """Return (n,) rows of PLANTED_ROW; without a rank those that a table does not list."""
    rows = np.zeros(np.shape(queries), PLANTED_ROW)
    for name, values in zip(PLANTED_ROW.names or (), (queries, documents, ranks, scores, keep), strict=True):
        rows[name] = values
    return rows


def drawn_positives(known: Positives, query_rows: Rows, *, least: int, most: int, seed: int) -> Planted:
    """Draw `most` of the queries that have at least `least` positives, and a positive of each; fewer: all of them.

    Which positive is drawn depends on the seed and on the query's place among those that are given alone, so that
    samples of the same seed have the same positives of the same queries.
    """
    rng = np.random.default_rng([seed, _STREAM])
    chance, order = rng.random(len(query_rows)), rng.permutation(len(query_rows))
    counts = known.counts_of(query_rows)
    chosen = np.sort(order[counts[order] >= max(least, 1)][:most])
    rows, counts = query_rows[chosen], counts[chosen]
    nth = np.minimum((chance[chosen] * counts).astype(np.int64), counts - 1)
    return Planted(planted_rows(rows, known.doc_rows[known.offsets[known.places(rows)] + nth]), counts)


def without_labels(collection: Collection, planted: Planted) -> Collection:
    """Return the collection without the labels of the planted documents, in any split."""

    def remaining(table: pa.Table) -> pa.Table:
        pairs = collection.query_rows(table["query_id"]), collection.document_rows(table["doc_id"])
        return table.filter(pa.array(~planted.contain(*pairs)))

    return replace(collection, qrels={split: remaining(table) for split, table in collection.qrels.items()})


def counted(known: Positives, query_rows: Rows, listed: npt.NDArray[np.void], kept: int) -> Recapture:
    """Return the estimate from every labelled positive, where those in a plain window of ranks are `listed`."""
    labels = known.counts_of(query_rows)
    returned = np.bincount(listed["query"], minlength=int(query_rows.max()) + 1)[query_rows]
    of = labels > 0
    return Recapture.estimated(returned[of], labels[of], labelled=int(labels.sum()), kept=kept, way="counted")


def noted(
    planted: Planted, collection: Collection, labelled: float, kept: int, recapture: Recapture | None = None
) -> Provenance:
    """Return what provenance says of planted positives, and the estimate: that of theirs where none is given.

    Args:
        planted: all of them, as they stand in the table; at least one where no estimate is given.
        collection: documents and queries.
        labelled: positives of all queries.
        kept: negatives of the table.
        recapture: counted otherwise.
    """
    rows, weights = planted.rows, planted.weights
    if recapture is None:
        recapture = Recapture.estimated(weights * rows["keep"], weights, labelled=labelled, kept=kept, way="planted")
    if not len(rows):
        return {"recapture": recapture.to_json()}
    facts = {
        "query_id": collection.queries["query_id"].take(pa.array(rows["query"])).to_pylist(),
        "doc_id": collection.documents["doc_id"].take(pa.array(rows["document"])).to_pylist(),
        "rank": rows["rank"].tolist(),
        "score": [None if np.isnan(score) else score for score in rows["score"].tolist()],
        "keep": rows["keep"].tolist(),
    }
    return {"recapture": recapture.to_json(), "planted": facts}


def read_planted(negatives: Negatives, collection: Collection) -> Planted | None:
    """Read from a table's provenance what became of the positives that were planted.

    None where it does not say, where rows were rejected since, or where the collection is another one.

    Raises:
        InputError: what it says cannot be read.
    """
    facts = negatives.provenance.get("planted")
    if facts is None or Recapture.of_table(negatives) is None:
        return None
    try:
        queries, documents = collection.query_rows(facts["query_id"]), collection.document_rows(facts["doc_id"])
        scores = [np.nan if score is None else score for score in facts["score"]]
        columns = (queries.tolist(), documents.tolist(), facts["rank"], scores, facts["keep"])
        rows = np.array([*zip(*columns, strict=True)], PLANTED_ROW)
    except (KeyError, TypeError, ValueError, OverflowError, pa.ArrowException) as error:
        raise InputError(f"what a table says of planted positives cannot be read ({error}); mine it again") from error
    known = collection.known_positives
    labelled = known.contain(rows["query"], rows["document"]).all()
    return Planted(rows, known.counts_of(rows["query"])) if labelled else None


def planted_again(
    sources: Mapping[str, Negatives],
    made: Negatives,
    collection: Collection,
    work: Callable[[Mapping[str, Negatives], Collection], Negatives],
    *,
    compares: bool = False,
) -> Provenance:
    """Return what the provenance of a table says that was made of others: the same is done to lists with the planted.

    Args:
        sources: name -> the tables.
        made: what was made of them.
        collection: documents, queries, judgements.
        work: makes it, of the lists of planted queries and the collection without the planted labels.
        compares: whether it compares candidates with the query's positives, so that one must be left.

    Returns:
        Nothing where one of the sources does not say what became of planted positives, or they have none in common.
    """
    each = {name: read_planted(negatives, collection) for name, negatives in sources.items()}
    known = {name: planted for name, planted in each.items() if planted is not None}
    if len(known) < len(sources):
        return {}
    common = next(iter(known.values()))
    for planted in known.values():
        common = common.where(planted.contain(common.rows["query"], common.rows["document"]))
    common = common.where(common.weights >= (2 if compares else 1))
    if not len(common.rows):
        return {}
    lists = {name: _with_planted(sources[name], common.among(of.rows), collection) for name, of in known.items()}
    again = work(lists, without_labels(collection, common))
    listed = planted_rows(*again.rows_in(collection), again.table["rank"], again.table["score"], again.keep)
    labelled = float(next(iter(sources.values())).provenance["recapture"]["labelled"])
    return noted(common.among(listed), collection, labelled, int(made.keep.sum()))


def planted_by_filter(
    negatives: Negatives,
    marked: Negatives,
    collection: Collection,
    rules: Sequence[Rule],
    *,
    scorer: PairScorer | None = None,
) -> Provenance:
    """Return what the provenance of a filtered table says (`planted_again`).

    Args:
        negatives: the table.
        marked: what filtering made of it.
        collection: documents, queries, judgements.
        rules: that it was filtered by.
        scorer: that the rules saw the scores of.
    """

    def filtered(lists: Mapping[str, Negatives], reduced: Collection) -> Negatives:
        judged = [rule for each in rules if (rule := with_judgements_of(each, reduced)) is not None]
        (listed,) = (each.table for each in lists.values())  # a rule looks at one row at a time: the others may go
        own = Negatives(listed.filter(pc.equal(listed["source"], SOURCE)))
        return filter_negatives(own, reduced, judged, scorer=scorer)

    compares = any(map(reads_judgements, rules))
    return planted_again({"": negatives}, marked, collection, filtered, compares=compares)


def _with_planted(negatives: Negatives, planted: Planted, collection: Collection) -> Negatives:
    """The lists of the planted queries, each with its planted document where it would be, the rest one rank later."""
    table = negatives.reject(np.zeros(len(negatives), bool), "").table
    table = table.select([name for name in (*REQUIRED.names, "text", "keep", "reason") if name in table.column_names])
    table = table.filter(pa.array(np.isin(collection.query_rows(table["query_id"]), planted.rows["query"])))
    listed = planted.rows[planted.rows["rank"] >= 0]
    at = np.full(len(collection.queries), np.iinfo(np.int32).max, np.int64)
    at[listed["query"]] = listed["rank"]
    ranks = table["rank"].to_numpy()
    later = ranks + (ranks >= at[collection.query_rows(table["query_id"])])
    table = table.set_column(table.column_names.index("rank"), "rank", pa.array(later, pa.int32()))
    queries = collection.queries["query_id"].take(pa.array(listed["query"]))
    documents = collection.documents["doc_id"].take(pa.array(listed["document"]))
    own = Negatives(negatives_table(queries, documents, SOURCE, listed["rank"], listed["score"]))
    own = own.reject(~listed["keep"], "rejected where it was planted")
    return Negatives(pa.concat_tables([table, own.table], promote_options="default"))
