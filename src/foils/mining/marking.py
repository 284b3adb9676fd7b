"""Which ranked documents may be negatives: labelled positives out, rules and look-alikes of positives marked."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from foils.data.collection import IDENTICAL, Collection, Rows
from foils.data.negatives import EQUAL
from foils.mining.look_alikes import NEAR, LookAlikes
from foils.mining.pairs import Marks, PairScorer, Rule, Scores, TextPairs
from foils.runtime.errors import InputError

BEFORE = "ranked before the window"
NOT_DRAWN = "not drawn"
SPARE = 8  # ranked beyond what is needed, so that look-alikes seldom need a second, deeper search
CANDIDATE = np.dtype([("query", "i8"), ("document", "i8"), ("score", "f8"), ("scale", "f8"), ("reason", "u1")])


class Marker:
    """Lays a search's result out as candidates, marked by the rules in their order; `look` then finds look-alikes."""

    def __init__(
        self,
        collection: Collection,
        looks: LookAlikes,
        rules: Sequence[Rule],
        scorer: PairScorer | None,
        leave_out_positives: bool = True,
    ) -> None:
        self.collection, self._looks, self.rules, self.scorer = collection, looks, rules, scorer
        self._leave_out = leave_out_positives
        self.reasons = (EQUAL, NEAR, IDENTICAL, *(rule.reason for rule in rules), BEFORE, NOT_DRAWN)
        if len(self.reasons) > np.iinfo(np.uint8).max:
            raise InputError(f"{len(rules)} rules; expected at most 250")
        self.before, self.not_drawn = len(self.reasons) - 1, len(self.reasons)
        self.passed_over = (self.before, self.not_drawn)
        self.rejects_much = bool(rules) and scorer is None  # so that one search of the whole window is cheapest
        self.most_positives = int(looks.known.counts.max(initial=0))

    def in_words(self, codes: npt.NDArray[np.uint8]) -> pa.Array:
        """Return the reasons in words, null for 0."""
        return pa.array([None, *self.reasons], pa.string()).take(pa.array(codes))

    def pairs(self, rows: npt.NDArray[np.void]) -> TextPairs:
        """Return candidates as rules and draws see them."""
        scores = rows["score"] if self.scorer is None else rows["scale"]
        return TextPairs(self.collection, rows["query"], rows["document"], scores)

    def judged(self, query_rows: Rows, rows: Rows, scores: Scores) -> tuple[npt.NDArray[np.void], Marks, Marks]:
        """Return (n, depth) candidates, which of them are unlabelled documents, and which labelled positives."""
        candidates = np.zeros(rows.shape, CANDIDATE)
        candidates["query"], candidates["document"], candidates["score"] = query_rows[:, None], rows, scores
        flat = candidates.reshape(-1)
        positive = self._leave_out & self._looks.known.contain(flat["query"], flat["document"])
        unlabelled = np.flatnonzero((flat["document"] >= 0) & ~positive)
        part = flat[unlabelled]
        if self.scorer is not None:
            part["scale"] = self.scorer.score(
                TextPairs(self.collection, part["query"], part["document"], part["score"])
            )
        part["reason"][self.collection.identical[part["query"]] == part["document"]] = 3
        for code, rule in enumerate(self.rules, 4):
            fresh = rule.marks(self.pairs(part)) & (part["reason"] == 0)
            part["reason"][fresh] = code
        flat[unlabelled] = part
        valid = np.zeros(len(flat), bool)
        valid[unlabelled] = True
        return candidates, valid.reshape(rows.shape), positive.reshape(rows.shape)

    def look(self, candidates: npt.NDArray[np.void], window: Marks, enough: int | None) -> None:
        """Mark look-alikes among the candidates of the window that no rule rejected.

        Looking is what takes long: it goes by rank, and ends where a query has `enough` (None: looks at all).
        Without a threshold nothing is a look-alike.
        """
        reasons, looked = candidates["reason"], np.zeros(candidates.shape, bool)
        while self._looks.threshold is not None:
            free = window & (reasons == 0) & ~looked
            if enough is not None:
                lacking = enough - (looked & (reasons == 0)).sum(axis=1)
                free &= np.cumsum(free, axis=1) <= np.where(lacking > 0, lacking + SPARE, 0)[:, None]
            if not free.any():
                return
            part = candidates[free]
            equal, near = self._looks.marks(part["query"], part["document"])
            reasons[free] = np.where(equal, 1, np.where(near, 2, 0))
            looked |= free
