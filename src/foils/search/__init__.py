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

__all__ = [
    "DimensionSettings",
    "ExactIndex",
    "FaissIndex",
    "Found",
    "Index",
    "check_depths",
    "dime_importance",
    "dimension_order",
    "eclipse_importance",
    "keep_share",
    "kept_count",
    "masked",
    "moon",
    "moon_rows",
    "query_masks",
    "rank_again",
    "rdime_mask",
    "search_vectors",
    "sun",
]
