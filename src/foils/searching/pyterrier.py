"""Search with each query's useful dimensions as a step of a PyTerrier pipeline."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np

from foils.runtime.errors import require
from foils.searching.passes import check_search_depths
from foils.searching.searcher import Hit, TextSearcher
from foils.searching.settings import FEEDBACK_DEPTH, DimensionSettings, SecondPass, chosen_method

DataFrame: TypeAlias = Any  # of pandas, which comes with PyTerrier


def pyterrier_transformer(
    searcher: TextSearcher,
    settings: DimensionSettings | None = None,
    *,
    k: int = 1_000,
    feedback_depth: int = FEEDBACK_DEPTH,
    rerank_depth: int | None = None,
    second_pass: SecondPass = "index",
    answers: str | None = None,
    seed: int = 0,
) -> Any:
    """Return a PyTerrier transformer, to stand alone or behind any retriever: `bm25 >> transformer`.

    - On queries (qid, query) it searches twice: the first pass gives the feedback.
    - On results (qid, query, docno, and rank or score, by which they are ordered) those are the feedback. With
      second_pass `index` all documents are ranked, with `retrieved` the given ones.

    It gives qid, query and the other columns of the query, docno, score and rank (from 0, as PyTerrier counts), best
    first; in ranking the given ones, the columns of the documents too. No Java is needed.

    Args:
        searcher: documents and encoder.
        settings: how dimensions are chosen; None: selective, or rdime with answers.
        k: documents returned by a search.
        feedback_depth: length of the feedback list; of given results, so many of the best.
        rerank_depth: with second_pass `retrieved`, documents of the first pass that are ranked again; given results
            are ranked whole.
        second_pass: `index` ranks all documents again, `retrieved` only those of the first pass or those given.
        answers: column with an answer text per query (such as `qanswer`), whose vector takes the place of the sun.
        seed: of the draws of a random moon.

    Raises:
        MissingExtraError: PyTerrier is not installed.
        UnknownNameError: an unknown second pass.
        InputError: a depth below 1; when it runs, documents that the searcher does not have. Missing columns are
            refused as PyTerrier does it.
    """
    pt = require("pyterrier", "pyterrier")
    check_search_depths(k, feedback_depth, rerank_depth, second_pass)
    chosen = settings or DimensionSettings(chosen_method(answered=answers is not None))

    def transform(frame: DataFrame) -> DataFrame:
        own = [] if answers is None else [answers]
        with pt.validate.any(frame) as checked:
            checked.query_frame(extra_columns=["query", *own], mode="search")
            checked.columns(includes=["qid", "query", "docno", *own], mode="results")
        rng = np.random.default_rng(seed)
        queries = frame.drop_duplicates("qid")
        feedback = _by_rank(frame, queries) if checked.mode == "results" else None
        texts = None if answers is None else queries[answers].tolist()
        common: dict[str, Any] = {"feedback_depth": feedback_depth, "answers": texts, "rng": rng}
        if feedback is not None and second_pass == "retrieved":
            hits = searcher.rank(queries["query"].tolist(), feedback, chosen, **common)
            return _joined(frame.drop(columns=["score", "rank"], errors="ignore"), hits, ["qid", "docno"])
        hits = searcher.search(
            queries["query"].tolist(),
            chosen,
            k=k,
            feedback=feedback,
            rerank_depth=rerank_depth,
            second_pass=second_pass,
            **common,
        )
        return _joined(queries[pt.model.query_columns(frame)], hits, ["qid"])

    return pt.apply.generic(transform, label=f"foils {chosen.method}")


def _by_rank(frame: DataFrame, queries: DataFrame) -> list[list[str]]:
    """Ids of each query's documents, best first."""
    order = next(((name, rising) for name, rising in (("rank", True), ("score", False)) if name in frame), None)
    if order:
        frame = frame.sort_values(order[0], ascending=order[1], kind="stable")
    lists = frame.groupby("qid")["docno"].agg(list).to_dict()
    return [lists[qid] for qid in queries["qid"]]


def _joined(columns: DataFrame, hits: list[list[Hit]], on: list[str]) -> DataFrame:
    """Results, query after query, with the columns that belong to their query, or to their query and document."""
    pandas = require("pandas", "pyterrier")
    rows = [
        (qid, hit.doc_id, hit.score, rank)
        for qid, of_query in zip(columns["qid"].unique(), hits, strict=True)
        for rank, hit in enumerate(of_query)
    ]
    results = pandas.DataFrame(rows, columns=["qid", "docno", "score", "rank"])
    results = results.astype({"qid": columns["qid"].dtype, "docno": object, "score": float, "rank": int})
    joined = results.merge(columns, on=on, how="left", validate="many_to_one")
    last = ["docno", "score", "rank"]
    return joined[[*(name for name in columns if name not in last), *last]]
