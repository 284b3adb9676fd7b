"""The program's verbs, and where their doors are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from foils.cli.program import Verb
from foils.runtime.errors import FailureError


def _fail_where_damaged(result: Any, given: Mapping[str, Any]) -> None:
    """End `foils cache verify` with status 1 where it found damage."""
    if damaged := getattr(result, "damaged", {}):
        raise FailureError(
            f"{len(damaged)} of the cache's files are damaged; remove them, and what they held is made again"
        )


DOORS: dict[str, Verb] = {
    "score": Verb(
        "foils.scoring.doors:score",
        example="foils score scifact/ bm25.parquet dense.parquet llm=negatives.jsonl --report page.html "
        "--json scores.json",
        reports=True,
    ),
    "cache": Verb(
        "foils.upkeep.doors:cache",
        example="foils cache prune --keep 20GiB",
        after=_fail_where_damaged,
        alone=True,
    ),
}
