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

__all__ = [
    "ExactIndex",
    "FaissIndex",
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
    "rdime_mask",
    "sun",
]
