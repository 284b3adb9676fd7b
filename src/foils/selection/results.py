"""What a selection returns: the table with `keep, reason, weight, tier`, and what was selected by what."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from foils.data.formats import NegativesResult, rejected_rows
from foils.runtime.errors import InputError
from foils.runtime.files import write_text
from foils.runtime.results import Table, number
from foils.selection.rows import Selection

if TYPE_CHECKING:
    from foils.deciding import Decision


@dataclass(frozen=True, kw_only=True)
class Selected(NegativesResult):
    """A table with `keep, reason, weight, tier`, by a rule on ratings.

    Attributes:
        by: the rule.
        settings: of the rule, those that were given.
        seed: of rules that draw, and of the page's examples.
        selection: what the rule says of the rows that it was shown.
        known: names of the settings that the rule has.
    """

    by: str
    settings: Mapping[str, Any]
    known: Sequence[str]
    seed: int
    selection: Selection

    def tiers(self) -> dict[str, dict[str, Any]]:
        """Return for each tier, by name, how many rows it has, how many are kept, and the sum of their weights."""
        tier = self.selection.tier
        return {
            name: {
                "rows": int((tier == name).sum()),
                "kept": int(self.selection.keep[tier == name].sum()),
                "weight": float(self.selection.weight[tier == name].sum()),
            }
            for name in dict.fromkeys(tier.tolist())
        }

    def tables(self) -> list[Table]:
        """Return rows, kept rows and weights by tier, with the rejected rows by reason."""
        rows = [
            (tier, f"{of['rows']:,}", f"{of['kept']:,}", number(of["weight"], 1))
            for tier, of in sorted(self.tiers().items())
        ]
        notes = [*filter(None, [self.nothing_kept()])]
        notes += [f"{why}: {count:,}" for why, count in self.rejected().items()]
        if thresholds := self.selection.thresholds:
            notes.append("thresholds: " + ", ".join(f"{name} {value:.0f}" for name, value in thresholds.items()))
        return [Table(self.title, ("tier", "rows", "kept", "weight"), rows, "\n".join(notes))]

    def looser(self) -> str:
        """Name the rule's settings, or say that the rule has rejected nothing."""
        if not len(self.selection.keep):
            return "An earlier stage rejected all of them: begin with the table that it was given."
        return f"Give the rule {self.by} other settings ({', '.join(self.known)}), or take another rule."

    def to_json(self) -> dict[str, Any]:
        """Return the settings, and rows, kept rows and weights by tier."""
        return {
            "by": self.by,
            "settings": dict(self.settings),
            "seed": self.seed,
            "kept": int(self.keep.sum()),
            "tiers": self.tiers(),
            "rejected": self.rejected(),
            "thresholds": dict(self.selection.thresholds),
        }

    def report(self, path: str | Path) -> None:
        """Write a page: gaps, thresholds, signal and risk, and texts to read.

        Raises:
            InputError: the collection is not known.
        """
        from foils.selection.figures import Benefit
        from foils.selection.page import gap_report

        if self.collection is None:
            raise InputError("the texts of this table are not known; name the collection that was rated")
        shown = {name: float(self.settings[name]) for name in ("rate", "spread", "damage") if name in self.settings}
        benefit = Benefit(**shown) if self.by == "optimal" else None
        page = gap_report(
            self.collection,
            self,
            split=self.split,
            selection=self.selection,
            benefit=benefit,
            seed=self.seed,
            warning=self.nothing_kept(),
        )
        write_text(path, page)


@dataclass(frozen=True, kw_only=True)
class Composed(NegativesResult):
    """The rows of several sources, with those that are not chosen rejected.

    Attributes:
        settings: that it was composed with.
        queries: that have candidates.
    """

    settings: Mapping[str, Any]
    queries: int

    def rows(self) -> list[tuple[str, str]]:
        """Return how many queries and candidates there were, and how many are chosen."""
        counts = {"queries": self.queries, "candidates": len(self), "chosen": int(self.keep.sum())}
        return [*((name, f"{count:,}") for name, count in counts.items()), *rejected_rows(self)]

    def to_json(self) -> dict[str, Any]:
        """Return the settings and the counts."""
        return {
            "settings": dict(self.settings),
            "queries": self.queries,
            "candidates": len(self),
            "kept": int(self.keep.sum()),
            "rejected": self.rejected(),
        }


@dataclass(frozen=True, kw_only=True)
class ByBenefit(Composed):
    """The rows of one source or several; kept are those whose lists have the largest expected benefit.

    Attributes:
        benefit: expected, mean over the queries that have a kept negative.
        decision: between the sources as they are.
    """

    benefit: float
    decision: Decision

    def rows(self) -> list[tuple[str, str]]:
        """Return the counts, and what the chosen negatives and each source are worth."""
        of_sources = {name: worth.benefit for name, worth in self.decision.worths.items()}
        worths = {"expected benefit": self.benefit, **{f"that of {name}": v for name, v in of_sources.items()}}
        return [*super().rows(), *((name, number(value)) for name, value in worths.items())]

    def to_json(self) -> dict[str, Any]:
        """Return the settings, the counts and the benefits."""
        of_sources = {name: worth.benefit for name, worth in self.decision.worths.items()}
        known = {"benefit": self.benefit, "of_sources": of_sources, "decision": self.decision.to_json()}
        return {**super().to_json(), **known}

    def tables(self) -> list[Table]:
        """Return the counts, and the decision between the sources as they are."""
        return [*super().tables(), self.decision.table()]

    def report(self, path: str | Path) -> None:
        """Write the page of the decision between the sources as they are."""
        from foils.deciding.page import decision_page

        write_text(path, decision_page(self.decision))
