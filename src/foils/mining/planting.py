"""What a way of mining would do with positives that it does not know: one of each query's is held out and mined for.

A sample of queries is mined once more, the label of one positive of each taken away. To whatever
ranks, rejects and draws, the planted document is then one without a label among others. Where
relevant documents are labelled independently of what they look like, a planted document behind k −
1 labels stands for the unlabelled ones behind k − 1 labels, in every query and for every way of
mining: with weight k, the share of the planted that are kept estimates without bias the share of
the unlabelled relevant documents that are kept.

A table's provenance lists all planted documents under `planted`, as rows that the table would have:
rank −1 where it would not list one. Filtering and fusing a table does the same to these rows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from foils.data.collection import Collection, PairIndex, Positives, Rows
from foils.data.negatives import REQUIRED, Negatives, Recapture, negatives_table
from foils.data.tables import Provenance
from foils.mining.rules import PairScorer, Rule, TextPairs, reads_judgements, with_judgements_of
from foils.runtime import seeds
from foils.runtime.errors import InputError

PLANTED = 2_000  # queries, at most: their share has a standard error of 0.011 at most where each has as many positives
PLANTED_ROW = np.dtype([("query", "i8"), ("document", "i8"), ("rank", "i4"), ("score", "f8"), ("keep", "?")])
Planted = npt.NDArray[np.void]  # by query: rank −1, not kept and without a score where a table does not list it
SOURCE = "planted"  # of their rows, where tables are made anew


def planted_rows(
    queries: npt.ArrayLike,
    documents: npt.ArrayLike,
    ranks: npt.ArrayLike = -1,
    scores: npt.ArrayLike = np.nan,
    keep: npt.ArrayLike = False,
) -> Planted:
    """Return (n,) rows of PLANTED_ROW; without a rank those that a table does not list."""
    rows = np.zeros(np.shape(queries), PLANTED_ROW)
    for name, values in zip(PLANTED_ROW.names or (), (queries, documents, ranks, scores, keep), strict=True):
        rows[name] = values
    return rows


def drawn_positives(known: Positives, query_rows: Rows, *, least: int, most: int, seed: int) -> Planted:
    """Draw `most` of the queries that have at least `least` positives, and a positive of each; fewer: all of them.

    Which positive is drawn depends on the seed and on the query's place among those that are given
    alone, so that samples of the same seed have the same positives of the same queries.
    """
    rng = np.random.default_rng([seed, seeds.PLANTED])
    chance, order = rng.random(len(query_rows)), rng.permutation(len(query_rows))
    counts = known.counts_of(query_rows)
    chosen = np.sort(order[counts[order] >= max(least, 1)][:most])
    rows, counts = query_rows[chosen], counts[chosen]
    nth = np.minimum((chance[chosen] * counts).astype(np.int64), counts - 1)
    return planted_rows(rows, known.doc_rows[known.offsets[known.places(rows)] + nth])


def as_listed(planted: Planted, listed: Planted) -> Planted:
    """Return planted documents, (n,), as they stand among the rows of a table, (m,)."""
    places = PairIndex(listed["query"], listed["document"]).places(planted["query"], planted["document"])
    rows = planted_rows(planted["query"], planted["document"])
    rows[places >= 0] = listed[places[places >= 0]]
    return rows


def without_labels(collection: Collection, planted: Planted) -> Collection:
    """Return the collection without the labels of the planted documents, in any split."""
    index = PairIndex(planted["query"], planted["document"])

    def remaining(table: pa.Table) -> pa.Table:
        pairs = collection.query_rows(table["query_id"]), collection.document_rows(table["doc_id"])
        return table.filter(pa.array(~index.contain(*pairs)))

    return replace(collection, qrels={split: remaining(table) for split, table in collection.qrels.items()})


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
    if recapture is None:
        weights = collection.known_positives.counts_of(planted["query"])
        returned = weights * planted["keep"]
        recapture = Recapture.estimated(returned, weights, labelled=labelled, kept=kept, way="planted")
    if not len(planted):
        return {"recapture": recapture.to_json()}
    facts = {
        "query_id": collection.queries["query_id"].take(pa.array(planted["query"])).to_pylist(),
        "doc_id": collection.documents["doc_id"].take(pa.array(planted["document"])).to_pylist(),
        "rank": planted["rank"].tolist(),
        "score": [None if np.isnan(score) else score for score in planted["score"].tolist()],
        "keep": planted["keep"].tolist(),
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
    return rows if collection.known_positives.contain(rows["query"], rows["document"]).all() else None


def planted_by_fusion(
    sources: Mapping[str, Negatives],
    fused: Negatives,
    collection: Collection,
    fuse: Callable[[Mapping[str, Negatives]], Negatives],
) -> Provenance:
    """Return what the provenance of a fused table says: the lists with the planted are fused in the same way.

    Args:
        sources: name -> the tables.
        fused: what was made of them.
        collection: documents, queries, judgements.
        fuse: makes it.

    Returns:
        Nothing where one of the sources does not say what became of planted positives, or they have
        none in common.
    """
    each = {name: read_planted(negatives, collection) for name, negatives in sources.items()}
    known = {name: planted for name, planted in each.items() if planted is not None}
    if len(known) < len(sources):
        return {}
    common, *others = known.values()
    for planted in others:
        common = common[PairIndex(planted["query"], planted["document"]).contain(common["query"], common["document"])]
    if not len(common):
        return {}
    again = fuse(
        {
            name: _with_planted(sources[name], as_listed(common, planted_of_source), collection)
            for name, planted_of_source in known.items()
        }
    )
    listed = planted_rows(*again.rows_in(collection), again.table["rank"], again.table["score"], again.keep)
    labelled = float(next(iter(sources.values())).provenance["recapture"]["labelled"])
    return noted(as_listed(common, listed), collection, labelled, int(fused.keep.sum()))


def planted_by_filter(
    negatives: Negatives,
    marked: Negatives,
    collection: Collection,
    rules: Sequence[Rule],
    *,
    scorer: PairScorer | None = None,
) -> Provenance:
    """Return what the provenance of a filtered table says: the rules look at the planted as at candidates.

    Args:
        negatives: the table.
        marked: what filtering made of it.
        collection: documents, queries, judgements.
        rules: that it was filtered by.
        scorer: that the rules saw the scores of.

    Returns:
        Nothing where the table does not say what became of planted positives, or a rule compares
        with other positives of the query and none has any.
    """
    planted = read_planted(negatives, collection)
    if planted is None:
        return {}
    if any(map(reads_judgements, rules)):
        planted = planted[collection.known_positives.counts_of(planted["query"]) > 1]
    if not len(planted):
        return {}
    reduced, kept = without_labels(collection, planted), planted["keep"]
    kept_rows = planted[kept]
    pairs = TextPairs(reduced, kept_rows["query"], kept_rows["document"], kept_rows["score"])
    if scorer is not None:
        pairs = replace(pairs, scores=scorer.score(pairs))
    for rule in rules:
        kept_rows["keep"] &= ~with_judgements_of(rule, reduced).marks(pairs)
    planted[kept] = kept_rows
    return noted(planted, collection, float(negatives.provenance["recapture"]["labelled"]), int(marked.keep.sum()))


def _with_planted(negatives: Negatives, planted: Planted, collection: Collection) -> Negatives:
    """The lists of the planted queries, each with its planted document where it would be, the rest one rank later."""
    table = negatives.reject(np.zeros(len(negatives), bool), "").table
    table = table.select([name for name in (*REQUIRED.names, "text", "keep", "reason") if name in table.column_names])
    table = table.filter(pa.array(np.isin(collection.query_rows(table["query_id"]), planted["query"])))
    listed = planted[planted["rank"] >= 0]
    at = np.full(len(collection.queries), np.iinfo(np.int32).max, np.int64)
    at[listed["query"]] = listed["rank"]
    ranks = table["rank"].to_numpy()
    later = ranks + (ranks >= at[collection.query_rows(table["query_id"])])
    table = table.set_column(table.column_names.index("rank"), "rank", pa.array(later, pa.int32()))
    queries = collection.queries["query_id"].take(pa.array(listed["query"]))
    documents = collection.documents["doc_id"].take(pa.array(listed["document"]))
    of_planted = Negatives(negatives_table(queries, documents, SOURCE, listed["rank"], listed["score"]))
    of_planted = of_planted.reject(~listed["keep"], "rejected where it was planted")
    return Negatives(pa.concat_tables([table, of_planted.table], promote_options="default"))
