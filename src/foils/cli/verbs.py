"""The program's verbs, and where their doors are."""

from __future__ import annotations

from foils.cli.program import Verb

DOORS: dict[str, Verb] = {
    "score": Verb(
        "foils.score.doors:score",
        example="foils score scifact/ bm25.parquet dense.parquet llm=negatives.jsonl --report page.html "
        "--json scores.json",
        reports=True,
    ),
}
