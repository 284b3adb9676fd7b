"""Asking judges, in both orders where order can matter, and keeping every answer on disk.

A judge keeps its answers by itself, as vectors, scores, or answers of a language model. Those of
others are kept here, block by block: a kill costs at most one block, and asking again asks only
what is not yet known. An answer that failed is not kept, so the next run tries it once more.

What speaks for a judge: labelled positives win, and both orders of a pair agree. One that knows
nothing is found out by a trial of about forty comparisons, before the others are paid for.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from foils.llm import AnswerStore, digest
from foils.rating.judges import Judge, ListJudge, ScoringJudge, questions_of
from foils.rating.pairs import Candidates, Floats, Judgements, Marks, Pairs, Rows, Showings, combined, texts_of
from foils.runtime import progress
from foils.runtime.errors import FailureError, InputError
from foils.runtime.options import spelled

log = logging.getLogger(__name__)

BLOCK = 2048  # pairs asked, and written, together


def ask(judge: Judge, candidates: Candidates, pairs: Pairs, *, store: AnswerStore | None = None) -> Judgements:
    """Return the judge's answers about all pairs, in both orders.

    A judge that is antisymmetric by construction is asked once, and the other order is one minus its answer.

    Args:
        judge: whom to ask.
        candidates: queries and documents.
        pairs: what to ask about.
        store: where answers are kept, by the judge's fingerprint, ids and texts; None, or a judge
            that keeps its own: not here.

    Raises:
        FailureError: an answer outside [0, 1], or not one for each pair.
    """
    if not np.array_equal(pairs.offsets, candidates.offsets):
        raise InputError("the pairs were made for other candidates; their offsets differ")
    block, keeps_answers = BLOCK, getattr(judge, "keeps_answers", False)
    if keeps_answers and not hasattr(judge, "questions"):
        block = len(pairs) + 1  # it cuts its work by itself
    forward, backward = np.full((2, len(pairs)), np.nan)
    block_of_pair = pairs.pair_offsets[pairs.query] // block  # those of a query are asked together
    with progress.task(f"asking {judge.name}", len(pairs), "pairs") as advance:
        for rows in np.split(np.arange(len(pairs)), np.unique(block_of_pair, return_index=True)[1])[1:]:
            part = pairs.at(rows)
            forward[rows] = _answers(judge, candidates, part, None if keeps_answers else store)
            backward[rows] = 1 - forward[rows]
            if not judge.antisymmetric:
                part = Pairs.unchecked(part.offsets, part.second, part.first)
                backward[rows] = _answers(judge, candidates, part, None if keeps_answers else store)
            advance(len(rows))
    return Judgements(forward, backward)


def _answers(judge: Judge, candidates: Candidates, pairs: Pairs, store: AnswerStore | None) -> Floats:
    """The answers about pairs, of which the store has some, and all afterwards."""
    if store is not None:
        texts = texts_of(candidates, pairs.first, pairs.second)
        queries = [candidates.query_ids[query] for query in pairs.query.tolist()]
        ids = (candidates.ids(ends).to_pylist() for ends in (pairs.first, pairs.second))
        columns = zip(queries, *ids, *texts, strict=True)
        keys = [digest(judge.fingerprint, *each) for each in columns]
        kept = store.get(keys)
        answers = np.array([kept[key]["answer"] if key in kept else np.nan for key in keys])
        unknown = np.isnan(answers)
        if unknown.any():
            answers[unknown] = _answers(judge, candidates, pairs.where(unknown), None)
            added = np.flatnonzero(unknown & np.isfinite(answers)).tolist()
            store.add({keys[at]: {"answer": float(answers[at])} for at in added})
        return answers
    answers = np.asarray(judge.judge(candidates, pairs), np.float64)
    if answers.shape != (len(pairs),) or ((answers < 0) | (answers > 1) | np.isinf(answers)).any():
        raise FailureError(
            f"the judge {judge.name} gave {answers.shape} answers, from {np.nanmin(answers, initial=1)} to "
            f"{np.nanmax(answers, initial=0)}, to {len(pairs)} questions; expected a probability for each"
        )
    return answers


def answers_between(judges: Sequence[Any], candidates: Candidates, first: Rows, second: Rows) -> Floats:
    """Return (m,) P(first ≻ second), both orders averaged where order can matter, then the judges.

    A judge that failed in one order is left out of that pair; NaN where all are. Each has a method `between`.
    """
    answers = []
    for judge in judges:
        forward = judge.between(candidates, first, second)
        backward = 1 - forward if judge.antisymmetric else judge.between(candidates, second, first)
        answers.append(Judgements(forward, backward))
    return combined(answers).preference


class JudgeSession:
    """Asks judges about pairs, and remembers the answers of each.

    Args:
        judges: whom to ask, at least one; several are asked one after the other, and their answers
            `combined`.
        candidates: queries and documents.
        store: where answers are kept of judges who do not keep them.

    Attributes:
        pairs: asked about so far, query by query, each once in whichever order.
        parts: of each judge, its answers about them.
    """

    def __init__(self, judges: Sequence[Judge], candidates: Candidates, store: AnswerStore) -> None:
        self.judges, self.candidates, self.store = judges, candidates, store
        nothing, none = np.zeros(0, np.int64), np.zeros(0)
        self.pairs = Pairs(candidates.offsets, nothing, nothing)
        self.parts = [Judgements(none, none) for _ in judges]

    def ask(self, pairs: Pairs) -> None:
        """Ask about those of the pairs that were not asked about before, each judge in turn."""
        old, new = self.pairs, pairs.where(~np.isin(pairs.codes, self.pairs.codes))
        answers = [ask(judge, self.candidates, new, store=self.store) for judge in self.judges]
        order = np.argsort(np.append(old.query, new.query), kind="stable")
        ends = np.append(old.first, new.first)[order], np.append(old.second, new.second)[order]
        self.pairs = Pairs(self.candidates.offsets, *ends)
        self.parts = [
            Judgements(np.append(one.forward, more.forward)[order], np.append(one.backward, more.backward)[order])
            for one, more in zip(self.parts, answers, strict=True)
        ]

    @property
    def answers(self) -> Judgements | Showings:
        """What is fitted: each showing of each judge where one of them orders lists, else `judgements`."""
        parts: list[Showings | Judgements] = [
            judge.showings(self.candidates, self.pairs) if isinstance(judge, ListJudge) else part
            for judge, part in zip(self.judges, self.parts, strict=True)
        ]
        parts = [part for part in parts if np.isfinite(part.preference).any()]
        listed = any(isinstance(part, Showings) for part in parts)
        return Showings.of_judges(parts) if listed else self.judgements

    @property
    def judgements(self) -> Judgements:
        """The answers of all judges together about `pairs`."""
        return combined(self.parts)


TRIAL = 40  # comparisons, each of another query where there are so many
LEAST = 20  # queries, or pairs, below which nothing is claimed
FLAT = 0.01  # around one half, where an answer says nothing
CLEARLY = 2.326  # standard errors: one in a hundred judges that know nothing passes
CLEARLY_IN_TRIAL = 1.282  # one in ten passes the trial, so that it stops few that know a little


@dataclass(frozen=True)
class Evidence:
    """What speaks for a judge.

    Attributes:
        positives_win: share of the comparisons with a labelled positive that it wins, the mean over
            queries; NaN: none.
        orders_agree: correlation of the answers of both orders (`Judgements.order_correlation`).
        queries: number of queries with such a comparison.
        doubt: why the judge is not clearly better than chance; empty where it is, or too few answers tell.
    """

    positives_win: float
    orders_agree: float
    queries: int
    doubt: str

    @property
    def better_than_chance(self) -> bool | None:
        """Whether labelled positives clearly win; None where fewer than 20 queries compare one."""
        if self.doubt:
            return False
        return True if self.queries >= LEAST else None

    @property
    def verdict(self) -> str:
        """`better_than_chance` in words."""
        if self.better_than_chance is None:
            return f"not tested: {self.queries} queries compare a labelled positive, {LEAST} are needed"
        return f"no: {self.doubt}" if self.doubt else "yes"


def evidence_of(pairs: Pairs, judgements: Judgements, relevant: Rows, *, clearly: float = CLEARLY) -> Evidence:
    """Return how often labelled positives win, how far both orders agree, and whether either is clearly above chance.

    A mean over at least 20 queries has to be above ½ by `clearly` standard errors, a correlation
    over at least 20 pairs above 0 likewise (r√m). Twenty answers and more that are all within .01
    of ½ say nothing of any document.

    Args:
        pairs: that were asked about.
        judgements: about them.
        relevant: (k,) candidates that are labelled positives.
        clearly: in standard errors, above 0; 2.326 is a level of .01.
    """
    known = np.isfinite(judgements.preference)
    pairs, w = pairs.where(known), judgements.preference[known]
    first, second = (np.isin(ends, relevant) for ends in (pairs.first, pairs.second))
    compared = first != second
    wins = (np.sign(np.where(first, w - 0.5, 0.5 - w)) + 1)[compared] / 2
    counts = np.bincount(pairs.query[compared], minlength=pairs.queries)
    sums = np.bincount(pairs.query[compared], wins, pairs.queries)
    shares = sums[counts > 0] / counts[counts > 0]
    share = float(shares.mean()) if len(shares) else float("nan")
    agree, doubt = judgements.order_correlation, ""
    if len(w) >= LEAST and np.abs(w - 0.5).max() < FLAT:
        doubt = f"all {len(w):,} answers are within {FLAT} of one half"
    elif len(shares) >= LEAST and share - clearly * shares.std(ddof=1) / len(shares) ** 0.5 <= 0.5:
        doubt = f"labelled positives win {share:.0%} of their comparisons over {len(shares):,} queries"
    elif len(w) >= LEAST and agree * len(w) ** 0.5 <= clearly:
        doubt = f"both orders of {len(w):,} pairs agree with a correlation of {agree:.2f}"
    return Evidence(share, agree, len(shares), doubt)


def trial_of(pairs: Pairs, relevant: Rows, *, whole_queries: bool) -> Marks:
    """Return (m,) which pairs are asked about first: 40, at first one of each query that compares a labelled positive.

    Args:
        pairs: that are to be asked about.
        relevant: (k,) candidates that are labelled positives.
        whole_queries: take all pairs of such queries, since the judge orders a query's documents at once.
    """
    compared = np.flatnonzero(np.isin(pairs.first, relevant) != np.isin(pairs.second, relevant))
    of_each = compared[np.unique(pairs.query[compared], return_index=True)[1]]
    others = np.unique(pairs.query, return_index=True)[1]
    if whole_queries:
        return np.isin(pairs.query, pairs.query[of_each if len(of_each) else others][:LEAST])
    parts = [*of_each[:TRIAL], *compared[:TRIAL], *others[:TRIAL], *range(min(TRIAL, len(pairs)))]
    return np.isin(np.arange(len(pairs)), [*dict.fromkeys(parts)][:TRIAL])


def ask_tried(asking: JudgeSession, pairs: Pairs, relevant: Rows, *, accepted: bool) -> Evidence:
    """Ask about the pairs.

    Each judge whose answers cost something is tried first, so that not all is paid for.

    Args:
        asking: the judges.
        pairs: to ask about.
        relevant: (k,) candidates that are labelled positives.
        accepted: whether judges may be no better than chance.

    Returns:
        What speaks for all judges together.

    Raises:
        FailureError: a judge is not clearly better than chance, and is not accepted all the same; or
            language models were asked and each question failed, since no table is to look rated.
    """
    for judge in () if accepted else asking.judges:
        if hasattr(judge, "questions") or not isinstance(judge, ScoringJudge):
            tried = JudgeSession([judge], asking.candidates, asking.store) if len(asking.judges) > 1 else asking
            tried.ask(pairs.where(trial_of(pairs, relevant, whole_queries=isinstance(judge, ListJudge))))
            trial = evidence_of(tried.pairs, tried.judgements, relevant, clearly=CLEARLY_IN_TRIAL)
            if trial.doubt:
                raise _refusal(judge, trial, f" after {len(tried.pairs)} of {len(pairs)} comparisons; these are kept")
    asking.ask(pairs)
    failures = sum((each.asked.failures for each in questions_of(asking.judges)), Counter[str]())
    if failures and np.isnan(asking.judgements.preference).all():
        raise FailureError(f"no question was answered ({', '.join(failures)}); the next run asks them again")
    for judge, answers in zip(asking.judges, asking.parts, strict=True):
        evidence = evidence_of(asking.pairs, answers, relevant)
        if evidence.doubt and not accepted:
            raise _refusal(judge, evidence)
        if evidence.doubt:
            log.warning("%s", _refusal(judge, evidence))
        elif len(asking.judges) > 1 or evidence.better_than_chance is None:
            known = f"labelled positives win {evidence.positives_win:.2f}, orders agree {evidence.orders_agree:.2f}"
            log.info("judge %s: better than chance: %s; %s", judge.name, evidence.verdict, known)
    return evidence_of(asking.pairs, asking.judgements, relevant)


def _refusal(judge: Judge, evidence: Evidence, when: str = "") -> FailureError:
    return FailureError(
        f"the judge {judge.name} is not clearly better than chance: {evidence.doubt}{when}; take another judge "
        f"or question; {spelled('accept_judge')} rates all the same"
    )
