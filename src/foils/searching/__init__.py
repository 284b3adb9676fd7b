"""Search with the dimensions of a query that are worth keeping."""

from foils.encode.nearest import ExactIndex, FaissIndex
from foils.searching.choosing import (
    Grid,
    Judged,
    cross_validate,
    dime_grid,
    evaluate_grid,
    judged_queries,
    oracle,
    published_grid,
    query_values,
)
from foils.searching.dimensions import (
    DimensionSettings,
    dime_importance,
    eclipse_importance,
    keep_share,
    moon_rows,
    moved,
    rdime_mask,
    sharpened_queries,
    sun,
)
from foils.searching.runs import embed_collection, search_collection, search_vectors
from foils.searching.sharpened import SharpenedSearch, sharpen

__all__ = [
    "DimensionSettings",
    "ExactIndex",
    "FaissIndex",
    "Grid",
    "Judged",
    "SharpenedSearch",
    "cross_validate",
    "dime_grid",
    "dime_importance",
    "eclipse_importance",
    "embed_collection",
    "evaluate_grid",
    "judged_queries",
    "keep_share",
    "moon_rows",
    "moved",
    "oracle",
    "published_grid",
    "query_values",
    "rdime_mask",
    "search_collection",
    "search_vectors",
    "sharpen",
    "sharpened_queries",
    "sun",
]
