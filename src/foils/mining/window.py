"""The window of ranks that negatives are taken from."""

from __future__ import annotations

from dataclasses import dataclass

from foils.mining.pairs import Draw
from foils.runtime.errors import InputError


@dataclass(frozen=True)
class Window:
    """How many negatives, from which ranks, and how they are chosen there (see `mine_negatives`).

    Attributes:
        top: negatives per query.
        first: rank.
        end: rank after the last; None: no end.
        fill: whether the next in rank takes the place of a rejected document.
        draw: distribution by which `top` of the window are taken; None: its first are.
        seed: of the draws.
        rank_rejected: whether rejected documents count in the ranks.
        depth: documents of a ranking that are looked at, labelled ones included; None: as many as it takes.
    """

    top: int
    first: int
    end: int | None
    fill: bool
    draw: Draw | None
    seed: int
    rank_rejected: bool
    depth: int | None

    def __post_init__(self) -> None:
        if self.top < 1:
            raise InputError(f"top {self.top}; expected at least 1 negative per query")
        if self.first < 0 or (self.end is not None and self.end <= self.first):
            raise InputError(f"ranks {self.first}–{self.end}; expected a first rank of at least 0, and an end above it")
        if self.depth is not None and self.depth < 1:
            raise InputError(f"depth {self.depth}; expected at least 1 document of a ranking")
        if self.draw is not None and self.end is None:
            raise InputError("a draw needs a window of ranks with an end")
        if not self.fill and self.draw is None:
            end = self.first + self.top
            object.__setattr__(self, "end", end if self.end is None else min(self.end, end))

    def most(self, documents: int, positives: int) -> int:
        """Return how deep a search may have to go, of so many documents, where a query has so many positives."""
        if self.depth is not None:
            return min(documents, self.depth)
        return min(documents, self.end + positives) if self.end is not None and self.rank_rejected else documents

    def first_depth(self, positives: int, *, whole: bool, spare: int) -> int:
        """Return how deep to search at first; `whole`: so much is rejected that the whole window is cheapest."""
        if self.end is not None and (whole or self.draw is not None):
            return self.end + positives
        return self.first + self.top + spare

    def why_over(self, documents: int) -> str:
        """Why a list may be short though neither its window is full nor the ranking ends."""
        if self.depth is None or self.depth >= documents:
            return "the collection has no further document"
        return f"too few left of the first {self.depth} documents"

    @property
    def why_short(self) -> str:
        """Why a list may be short though its window is full."""
        return f"too few left of ranks {self.first}–{self.end}" + ("" if self.fill else ", not filled")
