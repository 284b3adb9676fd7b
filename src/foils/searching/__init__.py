"""Search with the dimensions of a query that are worth keeping."""

from foils.searching.answers import Answers, answer_prompt, ask_answers, read_answers
from foils.searching.bench import MEASURES, Bench, grid_values, mask_values, prepare
from foils.searching.dimensions import (
    check_depths,
    dime_importance,
    dimension_order,
    eclipse_importance,
    keep_share,
    kept_count,
    masked,
    moon,
    moon_rows,
    rdime_mask,
    sun,
)
from foils.searching.experiments import (
    by_moon,
    by_share,
    choose_settings,
    compare_filters,
    depth_values,
    honest_and_oracle,
)
from foils.searching.faiss_index import FaissIndex, as_index
from foils.searching.findings import Findings
from foils.searching.grids import Grid, dime_grid, published_grid
from foils.searching.index import ExactIndex, Index
from foils.searching.masks import query_masks
from foils.searching.passes import Ranked, check_search_depths, rank_lists, search_vectors
from foils.searching.pyterrier import pyterrier_transformer
from foils.searching.ranks import Relevant, measure_ranks
from foils.searching.runs import (
    Embedded,
    Searched,
    embed_collection,
    embed_texts,
    feedback_lists,
    relevant_of,
    search_collection,
)
from foils.searching.searcher import Hit, TextSearcher
from foils.searching.settings import FEEDBACK_DEPTH, DimensionSettings
from foils.searching.systems import System
from foils.searching.trials import run_experiments
from foils.searching.tune import (
    GridValues,
    Tuned,
    cross_validate,
    evaluate_grid,
    oracle,
)

__all__ = [
    "FEEDBACK_DEPTH",
    "MEASURES",
    "Answers",
    "Bench",
    "DimensionSettings",
    "Embedded",
    "ExactIndex",
    "FaissIndex",
    "Findings",
    "Grid",
    "GridValues",
    "Hit",
    "Index",
    "Ranked",
    "Relevant",
    "Searched",
    "System",
    "TextSearcher",
    "Tuned",
    "answer_prompt",
    "as_index",
    "ask_answers",
    "by_moon",
    "by_share",
    "check_depths",
    "check_search_depths",
    "choose_settings",
    "compare_filters",
    "cross_validate",
    "depth_values",
    "dime_grid",
    "dime_importance",
    "dimension_order",
    "eclipse_importance",
    "embed_collection",
    "embed_texts",
    "evaluate_grid",
    "feedback_lists",
    "grid_values",
    "honest_and_oracle",
    "keep_share",
    "kept_count",
    "mask_values",
    "masked",
    "measure_ranks",
    "moon",
    "moon_rows",
    "oracle",
    "prepare",
    "published_grid",
    "pyterrier_transformer",
    "query_masks",
    "rank_lists",
    "rdime_mask",
    "read_answers",
    "relevant_of",
    "run_experiments",
    "search_collection",
    "search_vectors",
    "sun",
]
