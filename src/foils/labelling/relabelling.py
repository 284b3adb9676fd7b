"""Relabelling: a cascade of judges, each asked where those before it leave most open, within a budget.

The first step costs nothing: the belief of the decision about each row, and its evidence (`evidence_of`). What a judge
answers teaches how the evidence is to be read, for all rows (`foils.statistics.noisy_labels`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from scipy.special import expit

from foils.data.collection import Collection, Rows
from foils.data.labels import CHECKS, LABELS, Labels, pair_keys
from foils.labelling.errors import checks_of
from foils.labelling.evidence import Evidence
from foils.labelling.judging import PairJudge
from foils.labelling.shares import CHANCE, LEAST, SURE, UNKNOWN, believed_errors, share_by_answers
from foils.labelling.sheet import Shown, shown_of
from foils.statistics.noisy_labels import Answers, Crowd, evidence_of, learn, logits_of, threshold
from foils.statistics.survey import draw, importance, permanent_numbers

log = logging.getLogger(__name__)
Floats = npt.NDArray[np.float64]
Marks = npt.NDArray[np.bool_]

ROUNDS = 4  # draws that a judge's budget is divided into
MOST_ERROR = 0.1  # standard error of a share that says something
LEAST_POWER = 0.4  # se + sp − 1 of a judge, from which on it is heeded
STEPS = 41  # thresholds that are tried
PEOPLE = "people"
POSITIVE, NEGATIVE, UNSURE = "positive", "negative", "unsure"


@dataclass(frozen=True)
class JudgeUse:
    """What a judge was asked, and how often it is right.

    Attributes:
        name: of the judge.
        asked: rows that it was asked about in this run.
        answered: of these.
        sensitivity: probability that it calls a relevant document relevant.
        specificity: probability that it does not call another one so.
        open_before: expected number of rows that a best guess got wrong before it was asked; open_after: afterwards.
        confirmed: whether a better judge, or people, judged enough of the same rows to show how often it errs.
        heeded: whether its answers were learned from (`Cascade.heeded`).
    """

    name: str
    asked: int
    answered: int
    sensitivity: float
    specificity: float
    open_before: float
    open_after: float
    confirmed: bool = False
    heeded: bool = False


@dataclass
class Cascade:
    """The rows of a table, their evidence, and the answers so far.

    Attributes:
        collection: texts and judgements.
        pairs: query_id, doc_id and text of the rows that have evidence.
        evidence: of these rows.
        seed: of the draws.
        answers: judge -> what it answered.
        checked: judge -> its answers to pairs whose truth is known, as rows of a file of labels.
    """

    collection: Collection
    pairs: pa.Table
    evidence: Evidence
    seed: int = 0
    answers: dict[str, Answers] = field(default_factory=dict)
    checked: dict[str, list[dict[str, Any]]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._probability: dict[str, Floats] = {}  # judge -> of each row, to be drawn in any of the draws so far
        self._confirmed: set[str] = set()  # judges whose errors are known by people, or by better judges
        self._known: dict[str, tuple[float, float]] = {}  # judge -> how often it is right where the truth is known
        self._numbers = permanent_numbers(pair_keys(self.pairs).to_pylist(), seed=self.seed)
        self.crowd: Crowd = learn(self.evidence.features, self.evidence.belief, [])

    def take(self, labels: Labels) -> None:
        """Take over answers that are there already, before anybody is asked: people's are taken for the truth."""
        for name in (*labels.programs(), None):
            given, probability = labels.match(self.pairs, judge=name)
            rows = np.flatnonzero(np.isfinite(given))
            if len(rows):
                key = name or PEOPLE
                self.answers[key], self._probability[key] = Answers(rows, given[rows]), probability
                self._known[key] = (SURE, SURE) if name is None else believed_errors(*labels.checks(name))
        self._learn()

    def ask(self, judge: PairJudge, questions: int, *, checks: int) -> JudgeUse:
        """Ask a judge about rows, first about those that are most open, in a few draws; learn from each.

        Row j keeps its number u_j from draw to draw, so that it is drawn in one of them where u_j < max_r size_rj·T_r:
        the probability that its answer counts with, whichever draw it came from (`foils.statistics.survey.draw`).

        Args:
            judge: whom to ask.
            questions: how many rows.
            checks: labelled positives, and random documents, that it judges first.

        Raises:
            InputError, FailureError: what the judge raises; nothing is taken from a draw that failed.
        """
        before = self.open
        if checks or judge.name not in self._known:
            self._known[judge.name] = self._check(judge, checks)
        kept = self.answers.get(judge.name)
        known = np.zeros(len(self.pairs), bool)
        if kept is not None:
            known[kept.rows] = True
        tried, asked, every = known.copy(), 0, np.arange(len(self.pairs))
        for part in range(ROUNDS):
            count = (questions - asked) // (ROUNDS - part)
            if not count or tried.all():
                continue
            size = importance([every], len(every), belief=self._without(judge.name))
            drawn = draw(np.where(tried, 0.0, size), self._numbers, count)
            rows = np.sort(drawn.rows)
            tried[rows] = True
            before_it = self._probability.get(judge.name, np.full(len(every), np.nan))
            so_far = np.fmax(before_it, np.minimum(1.0, size * drawn.threshold))
            self._probability[judge.name] = np.where(known, before_it, so_far)
            asked += len(rows)
            self._add(judge.name, rows, judge.judge(self.shown(rows)))
            self._learn()
        answered = len(self.answers[judge.name].rows) if judge.name in self.answers else 0
        se, sp = self.errors.get(judge.name, (np.nan, np.nan))
        return JudgeUse(
            judge.name, asked, answered - (0 if kept is None else len(kept.rows)), se, sp, before, self.open
        )

    def _without(self, name: str) -> Floats:
        """(k,) the probability of each row being relevant, a judge's own answer about it left out."""
        p, judged = self.probability, self.answers.get(name)
        if judged is None or not self.heeded(name):
            return p
        p = p.copy()
        p[judged.rows] = expit(logits_of(p[judged.rows]) - evidence_of([judged], judged.rows))
        return p

    def shown(self, rows: Rows) -> list[Shown]:
        """Return the texts of rows."""
        return shown_of(self.collection, self.pairs.take(pa.array(rows)).to_pylist())

    @property
    def probability(self) -> Floats:
        """(k,) of each row being relevant, its answers taken into account."""
        return self.crowd.posterior

    @property
    def open(self) -> float:
        """Expected number of rows that a best guess gets wrong."""
        return float(np.minimum(self.probability, 1 - self.probability).sum())

    @property
    def errors(self) -> dict[str, tuple[float, float]]:
        """Judge -> sensitivity and specificity."""
        return {name: (judged.sensitivity, judged.specificity) for name, judged in self.answers.items()}

    def seen(self, use: JudgeUse) -> JudgeUse:
        """Return a judge's use as the answers of later judges show its errors."""
        se, sp = self.errors.get(use.name, (np.nan, np.nan))
        heeded = use.name in self.answers and self.heeded(use.name)
        return replace(use, sensitivity=se, specificity=sp, confirmed=use.name in self._confirmed, heeded=heeded)

    def labels(self) -> Labels:
        """Return every answer as labels, with those to pairs whose truth is known."""
        rows: dict[tuple[str, str], dict[str, Any]] = {}
        for name, judged in self.answers.items():
            pairs = self.pairs.take(pa.array(judged.rows))
            columns = (pair_keys(pairs).to_pylist(), pairs.to_pylist(), judged.relevant.tolist())
            for key, pair, answer in zip(*columns, strict=True):
                rows[key, name] = {**pair, "relevant": int(answer), "judge": name}
        for name, checked in self.checked.items():
            keys = pair_keys(pa.Table.from_pylist(checked, LABELS)).to_pylist() if checked else []
            for key, row in zip(keys, checked, strict=True):
                rows.setdefault((key, name), row)
        return Labels(pa.Table.from_pylist(list(rows.values()), LABELS))

    def verdicts(self, precision: float, negative_precision: float) -> tuple[npt.NDArray[np.str_], float, float]:
        """Return (k,) the verdict of each row, and the probabilities from which on, and up to which, one is given.

        A row is called positive where it is relevant with probability ½ at least, and rows at least as probable are
        expected to be relevant in the wanted share. Once somebody was asked, the answers about rows like them have to
        agree: the bar is raised until they do; people's own answers need no such proof. Negative likewise. A bar above
        1, or below 0: no row is called so.
        """
        p, prior, proven = self.probability, self.crowd.prior, np.zeros(len(self.pairs), bool)
        if PEOPLE in self.answers:
            proven[self.answers[PEOPLE].rows] = True
        high, low = max(0.5, threshold(p, precision)), max(0.5, threshold(1 - p, negative_precision))
        bar = self._held(high, p, lambda t: self.judged_share(prior >= t), precision)
        floor = self._held(low, 1 - p, lambda t: 1 - self.judged_share(1 - prior >= t, most=True), negative_precision)
        verdict = np.where(1 - p >= np.where(proven, low, floor), NEGATIVE, UNSURE)
        return np.where(p >= np.where(proven, high, bar), POSITIVE, verdict), bar, 1 - floor

    def judged_share(self, rows: Marks, *, most: bool = False) -> float:
        """Return the share of some rows that is relevant by the answers alone, NaN where they do not tell.

        Taken is that of the best judge whose standard error is at most 0.1 (`share_by_answers`), from 30 answers at
        least: of people, else of the judge who was asked last, and so on. The specificity of a judge whom nobody
        confirms is taken low; for the `most` that may be relevant, as high as on random documents.
        """
        for name in filter(self.heeded, reversed(self._from_cheapest())):
            judged = self.answers[name]
            sp = judged.specificity
            if most and name not in self._confirmed:
                sp = max(sp, self._known.get(name, UNKNOWN)[1])
            share, error = share_by_answers(judged, self._probability[name], rows, specificity=sp)
            if error <= MOST_ERROR:
                return share
        return np.nan

    def heeded(self, name: str) -> bool:
        """Return whether a judge's answers are learned from: where they tell what share of all rows is relevant.

        That is with a standard error of 0.1 at most; or people, or a better judge, showed how often it errs. A judge
        little better than chance is not heeded, however many answers it gave: its errors follow the evidence more than
        its answers follow the truth, and rows would look relevant that are not.
        """
        if name in self._confirmed or not self._telling(name):
            return self._telling(name)
        drawn = np.nan_to_num(self._probability[name], nan=1.0)  # not known: answers that somebody else asked for
        every = np.ones(len(self.pairs), bool)
        return share_by_answers(self.answers[name], drawn, every)[1] <= MOST_ERROR

    def _telling(self, name: str) -> bool:
        """Whether a judge is far better than chance, as far as is known."""
        return self.answers[name].sensitivity + self.answers[name].specificity - 1 >= LEAST_POWER

    def _held(self, least: float, probability: Floats, share: Callable[[float], float], wanted: float) -> float:
        """The smallest threshold, from the least on, at which the judged share is as wanted; above 1 where none is."""
        above = probability[probability >= least]
        if not len(above) or not any(map(self.heeded, self.answers)):
            return least
        tried = np.unique(np.quantile(above, np.linspace(0, 1, STEPS)))
        return next((float(t) for t in tried if share(float(t)) >= wanted), 2.0)

    def _from_cheapest(self) -> list[str]:
        """The judges as they were asked, people last: they judge best."""
        return sorted(self.answers, key=lambda name: name == PEOPLE)

    def _learn(self) -> None:
        """Learn from the answers, having estimated the judges' errors by what was learned before."""
        better: list[str] = []
        for name in reversed(self._from_cheapest()):
            se, sp = self._errors(name, better)
            self.answers[name] = replace(self.answers[name], sensitivity=se, specificity=sp)
            better += [name] if self._telling(name) else []
        heeded = [judged for name, judged in self.answers.items() if self.heeded(name)]
        self.crowd = learn(self.evidence.features, self.evidence.belief, heeded)

    def _errors(self, name: str, better: Sequence[str]) -> tuple[float, float]:
        """Return a judge's sensitivity and specificity; people are right.

        Where a better judge, or a person, judged thirty of the same rows, they are estimated there, by what these
        alone say: a judge with many answers would confirm itself. Else the
        sensitivity is that on labelled positives, and the specificity halfway between chance and that on random
        documents, which are easier to judge; or less, where it would take more relevant rows than there can be for the
        judge to call so many relevant. A judge of whom little is known is believed less than it may deserve.
        """
        if name == PEOPLE:
            self._confirmed.add(name)
            return 1.0, 1.0
        judged, others = self.answers[name], [self.answers[each] for each in better]
        shared = np.isin(judged.rows, np.concatenate([np.zeros(0, np.int64), *(each.rows for each in others)]))
        if shared.sum() < LEAST:
            se, sp = self._known.get(name, UNKNOWN)
            most, weights = self.evidence.most, 1 / self._probability[name][judged.rows]
            known = np.isfinite(weights)
            q = float(np.average(judged.relevant[known], weights=weights[known])) if known.any() else 0.0
            highest = 1 - (q - se * most) / (1 - most) if most < 1 else 1.0
            return se, max(1.01 - se, min((CHANCE + sp) / 2, highest))
        self._confirmed.add(name)
        p = learn(self.evidence.features, self.evidence.belief, others).posterior
        relevant, said = p[judged.rows[shared]], judged.relevant[shared]
        se = (relevant @ said + 1) / (relevant.sum() + 2)
        sp = ((1 - relevant) @ (1 - said) + 1) / ((1 - relevant).sum() + 2)
        return float(np.clip(se, CHANCE, SURE)), float(np.clip(sp, CHANCE, SURE))

    def _check(self, judge: PairJudge, count: int) -> tuple[float, float]:
        """How often a judge is right on labelled positives and on random documents."""
        right = {kind: [0, 0] for kind in CHECKS}
        if count:
            queries = self.collection.query_rows(self.pairs["query_id"].unique())
            pairs, shown = checks_of(judge, self.collection, queries, pairs=count, seed=self.seed)
            rows = []
            for row, answer in zip(pairs.to_pylist(), judge.judge(shown), strict=True):
                if answer is not None:
                    right[row["sources"]][0] += answer == (row["sources"] == CHECKS[0])
                    right[row["sources"]][1] += 1
                    rows.append({**row, "relevant": int(answer), "judge": judge.name})
            self.checked[judge.name] = rows
        return believed_errors(*right.values())

    def _add(self, name: str, rows: Rows, given: Sequence[bool | None]) -> None:
        """Keep what a judge answered; a pair without an answer stays as it was."""
        answers = np.array([np.nan if each is None else float(each) for each in given])
        there = np.isfinite(answers)
        if missing := int((~there).sum()):
            log.info("%s gave no answer on %d of %d rows; they stay as they were", name, missing, len(rows))
        kept = self.answers.get(name, Answers(np.zeros(0, np.int64), np.zeros(0)))
        rows, answers = np.concatenate([kept.rows, rows[there]]), np.concatenate([kept.relevant, answers[there]])
        if len(rows):
            order = np.argsort(rows)
            self.answers[name] = Answers(rows[order], answers[order])
