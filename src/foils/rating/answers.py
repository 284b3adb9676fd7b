"""What was asked so far, and what the judges said."""

from __future__ import annotations

import numpy as np

from foils.rating.asking import RecordsLike, ask_each, questions_of
from foils.rating.candidates import Candidates
from foils.rating.judgements import Judgements, combined
from foils.rating.judges import EnsembleJudge, Judge, members
from foils.rating.pairs import Floats, Pairs, Rows
from foils.runtime.errors import InputError
from foils.runtime.options import spelled


class Asking:
    """Asks a judge about pairs, and remembers every answer, of several judges each one's.

    Args:
        judge: whom to ask.
        candidates: queries and documents.
        record: where answers are kept; for an ensemble, one for each of its judges.
        block: pairs asked, and written, together.
    """

    def __init__(self, judge: Judge, candidates: Candidates, record: RecordsLike, block: int) -> None:
        self._judge, self.candidates, self._record, self._block = judge, candidates, record, block
        self._answers: list[tuple[Pairs, list[Judgements]]] = []

    def __call__(self, pairs: Pairs) -> Floats:
        """Return P(first ≻ second), (m,), of all judges together."""
        parts = ask_each(self._judge, self.candidates, pairs, record=self._record, block=self._block)
        self._answers.append((pairs, parts))
        return self._together(parts).preference

    def answered(self) -> tuple[Pairs, Floats]:
        """Return all pairs that have an answer, and the answers."""
        every, judgements = self.everything()
        known = np.isfinite(judgements.preference)
        return every.where(known), judgements.preference[known]

    def known(self, pairs: Pairs) -> Floats:
        """Return P(first ≻ second) of pairs that were answered before, in whichever order; else NaN."""
        every, heard = self.answered()
        sides = (every.first, every.second), (every.second, every.first)
        codes = np.concatenate([one * every.candidates + other for one, other in sides])
        answers, order = np.append(heard, 1 - heard), np.argsort(codes, kind="stable")
        wanted = pairs.first * every.candidates + pairs.second
        at = order[np.minimum(np.searchsorted(codes[order], wanted), len(codes) - 1)] if len(codes) else None
        return np.full(len(pairs), np.nan) if at is None else np.where(codes[at] == wanted, answers[at], np.nan)

    def affordable(self, budget: int) -> int:
        """Return how many pairs can be asked about with this many questions.

        Raises:
            InputError: not one; or judgements are recorded, and nothing is asked.
        """
        each = questions_of(self._judge)
        if not each or budget < each:
            why = f"a pair takes {each} questions" if each else "the judgements are recorded, and nothing is asked"
            raise InputError(f"{spelled('budget', budget)}: {why}; {'give more' if each else 'leave it out'}")
        return budget // each

    def everything(self) -> tuple[Pairs, Judgements]:
        """Return all pairs that were asked about and their answers, query by query."""
        parts = [part for _, part in self.judges()]
        if len(self._answers) == 1:  # in this order already
            return self._answers[0][0], self._together(parts)
        first, second, order = self._in_order()
        return Pairs(self.candidates.offsets, first[order], second[order]), self._together(parts)

    def weights(self) -> Floats:
        """Return (J,) how much each judge counts, by all that was answered so far."""
        if not isinstance(self._judge, EnsembleJudge):
            return np.ones(1)
        each = zip(*(parts for _, parts in self._answers), strict=True)
        return self._judge.weights_of(np.stack([np.concatenate([part.preference for part in own]) for own in each]))

    def judges(self) -> list[tuple[str, Judgements]]:
        """Return each judge's name and its answers about all pairs, in the order of `everything`."""
        names = [each.name for each in members(self._judge)]
        if len(self._answers) == 1:
            return list(zip(names, self._answers[0][1], strict=True))
        order = self._in_order()[2]
        return [
            (
                name,
                Judgements(
                    np.concatenate([parts[number].forward for _, parts in self._answers])[order],
                    np.concatenate([parts[number].backward for _, parts in self._answers])[order],
                ),
            )
            for number, name in enumerate(names)
        ]

    def _together(self, parts: list[Judgements]) -> Judgements:
        return parts[0] if len(parts) == 1 else combined(parts, self.weights())

    def _in_order(self) -> tuple[Rows, Rows, Rows]:
        """Both ends of all pairs as they were asked, and their order query by query."""
        first, second = (
            np.concatenate([getattr(pairs, name) for pairs, _ in self._answers]) for name in ("first", "second")
        )
        return first, second, np.argsort(np.searchsorted(self.candidates.offsets, first, side="right"), kind="stable")
