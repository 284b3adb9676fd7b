"""Search with the dimensions of a query that are worth keeping."""

from foils.searching.answers import Answers, ask_answers
from foils.searching.bench import MEASURES
from foils.searching.dimensions import dime_importance, eclipse_importance, keep_share, moon, rdime_mask, sun, trusted
from foils.searching.experiments import choose_settings
from foils.searching.faiss_index import FaissIndex, as_index
from foils.searching.findings import Findings
from foils.searching.grids import Grid, dime_grid, published_grid
from foils.searching.index import ExactIndex, Index
from foils.searching.masks import query_masks
from foils.searching.own import Retrieved, own_run
from foils.searching.passes import Ranked, search_vectors
from foils.searching.pyterrier import pyterrier_transformer
from foils.searching.ranks import Relevant, measure_ranks
from foils.searching.runs import Embedded, Searched, embed_collection, search_collection
from foils.searching.searcher import Hit, TextSearcher
from foils.searching.settings import FEEDBACK_DEPTH, DimensionSettings
from foils.searching.sharpened import AsyncSharpenedSearch, Match, SharpenedSearch, sharpen
from foils.searching.tune import GridValues, Tuned, cross_validate, evaluate_grid, oracle

__all__ = [
    "FEEDBACK_DEPTH",
    "MEASURES",
    "Answers",
    "AsyncSharpenedSearch",
    "DimensionSettings",
    "Embedded",
    "ExactIndex",
    "FaissIndex",
    "Findings",
    "Grid",
    "GridValues",
    "Hit",
    "Index",
    "Match",
    "Ranked",
    "Relevant",
    "Retrieved",
    "Searched",
    "SharpenedSearch",
    "TextSearcher",
    "Tuned",
    "as_index",
    "ask_answers",
    "choose_settings",
    "cross_validate",
    "dime_grid",
    "dime_importance",
    "eclipse_importance",
    "embed_collection",
    "evaluate_grid",
    "keep_share",
    "measure_ranks",
    "moon",
    "oracle",
    "own_run",
    "published_grid",
    "pyterrier_transformer",
    "query_masks",
    "rdime_mask",
    "search_collection",
    "search_vectors",
    "sharpen",
    "sun",
    "trusted",
]
