"""Asking a judge, in both orders where order can matter, and keeping every answer.

Answers are written block by block as immutable Parquet parts, each whole: a kill costs at most one block, and asking
again asks only what is not yet known. A judgement that failed is not written, so the next run tries it once more.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from foils.rating.candidates import Candidates
from foils.rating.judgements import Judgements, combined
from foils.rating.judges import EnsembleJudge, Judge, members, prepared, settle
from foils.rating.pairs import Floats, Pairs, Rows, parts_by_query
from foils.rating.records import JudgementRecord, RecordedJudge
from foils.runtime import progress
from foils.runtime.errors import FailureError, InputError
from foils.runtime.parallel import map_shards

RecordsLike = JudgementRecord | Sequence[JudgementRecord | None] | None


def ask(
    judge: Judge, candidates: Candidates, pairs: Pairs, *, record: RecordsLike = None, block: int = 2048
) -> Judgements:
    """Return the judge's answers about all pairs, in both orders.

    A judge that is antisymmetric by construction is asked once, and the other order is one minus its answer. The
    judges of an ensemble are asked one after the other, and their answers `combined`.

    Args:
        judge: whom to ask.
        candidates: queries and documents.
        pairs: what to ask about.
        record: where answers are kept; what it knows is not asked again. For an ensemble: one for each of its judges.
        block: pairs asked, and written, together (whole queries, so somewhat more): what a kill can cost.

    Raises:
        FailureError: an answer outside [0, 1], or not one for each pair.
        InputError: an ensemble with another number of records than judges.
    """
    return together(judge, ask_each(judge, candidates, pairs, record=record, block=block))


def together(judge: Judge, parts: Sequence[Judgements]) -> Judgements:
    """Return what the judges of an ensemble say together of the same pairs; what a single one says as it is."""
    if not isinstance(judge, EnsembleJudge):
        return parts[0]
    return combined(parts, judge.weights_of(np.stack([part.preference for part in parts])))


def _ask_one(
    judge: Judge, candidates: Candidates, pairs: Pairs, record: JudgementRecord | None, block: int
) -> Judgements:
    if isinstance(judge, RecordedJudge):
        return judge.find(candidates, pairs)
    none = np.full(len(pairs), np.nan)
    known = record.find(candidates, pairs) if record is not None else Judgements(none, none.copy())
    return _ask_open(judge, candidates, pairs, known, record, block)


def ask_each(
    judge: Judge, candidates: Candidates, pairs: Pairs, *, record: RecordsLike = None, block: int = 2048
) -> list[Judgements]:
    """Return what each judge of an ensemble says of all pairs, one after the other; of a single judge, its answers."""
    candidates.check(pairs)
    judges, own = members(judge), _record_of_each(judge, record)
    answers = [_ask_one(one, candidates, pairs, kept, block) for one, kept in zip(judges, own, strict=True)]
    settle(judge)
    return answers


def questions_of(judge: Judge) -> int:
    """Return how many questions a judge is asked about a pair: one of each order that can matter, recorded 0."""
    if isinstance(judge, EnsembleJudge):
        return sum(map(questions_of, judge.judges))
    return 0 if isinstance(judge, RecordedJudge) else 1 if judge.antisymmetric else 2


def _ask_open(
    judge: Judge, candidates: Candidates, pairs: Pairs, known: Judgements, record: JudgementRecord | None, block: int
) -> Judgements:
    """Ask about the pairs that have no judgement, write the answers into `known`, and return it."""
    unknown = np.isnan(known.preference)
    open_rows = np.flatnonzero(unknown)
    ready = prepared(judge, candidates, pairs.where(unknown)) if len(open_rows) else None
    asker = ready or judge
    over = Pairs(candidates.offsets, pairs.first, pairs.second)  # these very offsets: no part of them is compared again

    def answered(rows: Rows) -> tuple[Rows, Judgements]:
        part = over.at(rows)
        straight = _answers(asker, candidates, part)
        if asker.antisymmetric:
            return rows, Judgements(straight, 1 - straight)
        return rows, Judgements(straight, _answers(asker, candidates, part.turned))

    parts = parts_by_query(open_rows, pairs.query, block)
    with progress.task(f"asking {judge.name}", len(pairs), "pairs") as advance:
        advance(len(pairs) - len(open_rows))
        for rows, judgements in map_shards(answered, parts, model=True) if ready else map(answered, parts):
            known.forward[rows], known.backward[rows] = judgements.forward, judgements.backward
            if record is not None:
                record.add(candidates, over.at(rows), judgements)
            advance(len(rows))
    return known


def _record_of_each(judge: Judge, record: RecordsLike) -> Sequence[JudgementRecord | None]:
    if not isinstance(judge, EnsembleJudge):
        if isinstance(record, Sequence):
            raise InputError(f"{len(record)} records for the one judge {judge.name}; give a single one")
        return [record]
    if record is None:
        return [None] * len(judge.judges)
    if not isinstance(record, Sequence) or len(record) != len(judge.judges):
        raise InputError(
            f"the answers of an ensemble are kept judge by judge; give a record (or None) for each of its "
            f"{len(judge.judges)} judges"
        )
    return record


def _answers(judge: Judge, candidates: Candidates, pairs: Pairs) -> Floats:
    answers = np.asarray(judge.judge(candidates, pairs), np.float64)
    if answers.shape != (len(pairs),):
        raise FailureError(
            f"the judge {judge.name} gave {answers.shape} answers to {len(pairs)} questions; expected one each"
        )
    if (wrong := (answers < 0) | (answers > 1) | np.isinf(answers)).any():
        raise FailureError(
            f"the judge {judge.name} gave {int(wrong.sum())} answers outside [0, 1] (first: {answers[wrong][0]!r}); an "
            "answer is a probability, NaN where it failed"
        )
    return answers
