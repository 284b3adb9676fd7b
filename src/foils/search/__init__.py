"""Search with the dimensions of a query that are worth keeping."""

from foils.search.dimensions import (
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
from foils.search.index import ExactIndex, FaissIndex, Index
from foils.search.passes import DimensionSettings, Found, query_masks, rank_again, search_vectors
from foils.search.ranks import Relevant, measure_ranks
from foils.search.tune import (
    Grid,
    GridValues,
    Tuned,
    cross_validate,
    dime_grid,
    evaluate_grid,
    oracle,
    published_grid,
)

__all__ = [
    "DimensionSettings",
    "ExactIndex",
    "FaissIndex",
    "Found",
    "Grid",
    "GridValues",
    "Index",
    "Relevant",
    "Tuned",
    "check_depths",
    "cross_validate",
    "dime_grid",
    "dime_importance",
    "dimension_order",
    "eclipse_importance",
    "evaluate_grid",
    "keep_share",
    "kept_count",
    "masked",
    "measure_ranks",
    "moon",
    "moon_rows",
    "oracle",
    "published_grid",
    "query_masks",
    "rank_again",
    "rdime_mask",
    "search_vectors",
    "sun",
]
