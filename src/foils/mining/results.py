"""What mining, generation, fusion and filtering return: tables of negatives, each with its counts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from foils.data.negatives import Negatives
from foils.llm import Usage
from foils.runtime.files import without_nan
from foils.runtime.results import Table, number


@dataclass(frozen=True, kw_only=True)
class Mined(Negatives):
    """Negatives of a ranking; rows that a rule rejected are in the table, with the reason.

    Attributes:
        source: name of what ranked.
        top: negatives per query that were wanted.
        queries: number of queries of the split.
        positives_left_out: labelled positives that the ranking held above its last negative.
        copies_left_out: copies of a query's positives beyond the 100 that the table shows.
        short: reason -> number of queries with fewer than `top` negatives.
    """

    source: str
    top: int
    queries: int
    positives_left_out: int
    short: dict[str, int]
    copies_left_out: int = 0

    def rows(self) -> list[tuple[str, str]]:
        """Return the counts as the program shows them."""
        kept = int(self.keep.sum())
        return [
            ("queries", f"{self.queries:,}"),
            ("negatives", f"{kept:,}"),
            ("per query", f"{kept / self.queries:.2f}"),
            ("labelled positives left out", f"{self.positives_left_out:,}"),
            *self.rejected_rows(),
            *([("further copies of positives left out", f"{self.copies_left_out:,}")] if self.copies_left_out else []),
            *((f"queries with fewer than {self.top}: {reason}", f"{count:,}") for reason, count in self.short.items()),
        ]

    def to_json(self) -> dict[str, Any]:
        """Return source, settings and counts."""
        return {
            "source": self.source,
            "settings": self.provenance.get("settings", {}),
            "queries": self.queries,
            "negatives": int(self.keep.sum()),
            "positives_left_out": self.positives_left_out,
            "rejected": self.rejected(),
            **({"copies_left_out": self.copies_left_out} if self.copies_left_out else {}),
            "short": self.short,
        }


@dataclass(frozen=True, kw_only=True)
class Generated(Negatives):
    """Negatives that a language model wrote: each row has a `text`, and the id `llm:DIGEST`.

    Near-duplicates of a positive are in the table, rejected.

    Attributes:
        top: negatives per query that were wanted.
        queries: asked for.
        answered: queries with at least one negative.
        short: queries with some negatives, but fewer than `top`.
        failed: reason -> number of queries without any.
        turned_away: reason -> number of texts that validation refused.
        usage: requests and tokens for these queries, in this run and before.
        price: per million prompt tokens and per million completion tokens; None: not known.
    """

    top: int
    queries: int
    answered: int
    short: int
    failed: dict[str, int]
    turned_away: dict[str, int]
    usage: Usage
    price: tuple[float, float] | None = None

    def rows(self) -> list[tuple[str, str]]:
        """Return the counts as the program shows them."""
        return [
            ("queries", f"{self.queries:,}"),
            ("queries with negatives", f"{self.answered:,}"),
            (f"queries with fewer than {self.top}", f"{self.short:,}"),
            ("negatives", f"{int(self.keep.sum()):,}"),
            *((f"failed: {reason}", f"{count:,}") for reason, count in self.failed.items()),
            *((f"turned away: {reason}", f"{count:,}") for reason, count in self.turned_away.items()),
            *self.rejected_rows(),
            *self.usage.rows(self.price),
        ]

    def to_json(self) -> dict[str, Any]:
        """Return settings, counts and what the requests used."""
        return {
            "source": "llm",
            "settings": self.provenance.get("settings", {}),
            "queries": self.queries,
            "answered": self.answered,
            "short": self.short,
            "failed": self.failed,
            "turned_away": self.turned_away,
            "rejected": self.rejected(),
            **self.usage.to_json(self.price),
        }


@dataclass(frozen=True, kw_only=True)
class ScoredPairs(Negatives):
    """A table with teachers' scores: `teacher`, and of several each one's in `teacher_1`, `teacher_2` and so on.

    Attributes:
        teachers: name, number of pairs that were scored, and the share of (positive, negative) of a query of which it
            prefers the positive, of each teacher and, of several, of the average.
    """

    teachers: tuple[tuple[str, int, float], ...]

    def tables(self) -> list[Table]:
        """Return what the teachers scored and prefer."""
        columns = ("teacher", "pairs scored", "prefers the positive")
        return [Table(self.title, columns, [(name, f"{n:,}", number(share)) for name, n, share in self.teachers])]

    def to_json(self) -> dict[str, Any]:
        """Return the settings, and what the teachers scored and prefer."""
        names = ("name", "pairs", "prefers_positive")
        teachers = without_nan([dict(zip(names, each, strict=True)) for each in self.teachers])
        return {"settings": self.provenance.get("settings", {}), "teachers": teachers}


@dataclass(frozen=True, kw_only=True)
class Fused(Negatives):
    """Several sources as one.

    Attributes:
        sources: name -> number of rows.
    """

    sources: dict[str, int]

    def tables(self) -> list[Table]:
        """Return the number of rows of each source, and of the union."""
        rows = [(name, f"{count:,}") for name, count in {**self.sources, "+".join(self.sources): len(self)}.items()]
        return [Table(self.title, ("source", "rows"), rows)]

    def to_json(self) -> dict[str, Any]:
        """Return the settings, and the number of rows of each source and of the union."""
        return {"settings": self.provenance["settings"], "sources": self.sources, "rows": len(self)}
