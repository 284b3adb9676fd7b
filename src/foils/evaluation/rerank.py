"""A reranker over a first stage's run: the best documents of each query in a new order."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from foils.data import Collection, Run
from foils.data.run import without_identical
from foils.runtime import progress
from foils.runtime.errors import FailureError, InputError

PairScorer = Callable[[Sequence[tuple[str, str]]], npt.ArrayLike]


def first_documents(run: Run, collection: Collection, depth: int, *, split: str | None = None) -> Run:
    """Return the first `depth` documents of each query of a run, those with the query's own id left out before.

    Args:
        run: of the first stage.
        collection: that the run was made on.
        depth: how many documents of each query, at least 1.
        split: whose judged queries are kept; None: all queries of the run are.

    Raises:
        InputError: ids of the run that the collection does not have, or no query of the split in it.
        UnknownNameError: no such split.
    """
    table = without_identical(run, collection).table
    if split is not None:
        judged = collection.judgements(split)["query_id"].combine_chunks().unique()
        table = table.filter(pc.is_in(table["query_id"], value_set=judged.cast(table["query_id"].type)))
        if not len(table):
            raise InputError(
                f"no query of the split {split!r} of {collection.name} is in the run {run.name}; check the split "
                f"(there are {', '.join(collection.splits)}) and the query ids"
            )
    table = table.filter(pc.less(table["rank"], depth))
    for column, rows_of, what in (
        ("query_id", collection.query_rows, "queries"),
        ("doc_id", collection.document_rows, "documents"),
    ):
        unknown = np.flatnonzero(rows_of(table[column]) < 0)
        if len(unknown):
            examples = table[column].take(pa.array(unknown[:5])).to_pylist()
            raise InputError(
                f"{len(unknown)} rows of the run {run.name} name {what} that {collection.name} does not "
                f"have: {', '.join(examples)}…; use the collection the run was made on"
            )
    return Run(table, run.name)


def rerank_run(
    run: Run, collection: Collection, scorer: PairScorer, *, depth: int = 100, block: int = 256, name: str = "reranked"
) -> Run:
    """Score the first `depth` documents of each query again and sort them; the rest is left out.

    So is a document that has the query's own id (`Collection.identical`), before the first are counted.

    Args:
        run: of the first stage.
        collection: holds the texts.
        scorer: list of (query text, document text) → one score a pair, higher is better; as a sentence-transformers
            CrossEncoder's `predict`.
        depth: how many documents of each query, at least 1.
        block: pairs handed to the scorer at a time.
        name: of the new run.

    Returns:
        A run of at most `depth` documents a query; ties keep the first stage's order.

    Raises:
        InputError: a depth or block below 1, or ids of the run that the collection does not have.
        FailureError: the scorer gave another number of scores, or one that is not finite.
    """
    if min(depth, block) < 1:
        raise InputError(f"expected depth and block of at least 1; found {depth} and {block}")
    table = first_documents(run, collection, depth).table
    queries, documents = collection.query_rows(table["query_id"]), collection.document_rows(table["doc_id"])
    scores = np.empty(len(queries))
    with progress.task("reranking", total=len(scores), unit="pairs") as advance:
        for start in range(0, len(scores), block):
            part = slice(start, start + block)
            texts = zip(collection.query_texts(queries[part]), collection.document_texts(documents[part]), strict=True)
            of_block = np.asarray(scorer(list(texts)), np.float64)
            if of_block.shape != scores[part].shape or not np.isfinite(of_block).all():
                raise FailureError(
                    f"the reranker gave scores of shape {of_block.shape} for {len(scores[part])} pairs, "
                    f"{int((~np.isfinite(of_block)).sum())} of them not finite; expected one finite score a pair"
                )
            scores[part] = of_block
            advance(len(of_block))
    return Run.ranked(table["query_id"], table["doc_id"], scores, name=name)
