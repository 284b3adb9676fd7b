"""Relabelling: a cascade of judges, each asked where those before it leave most open, within a budget.

The first step costs nothing: the belief of the decision about each row, and its evidence (`evidence_of`). What a judge
answers teaches how the evidence is to be read, for all rows, and how often the judge errs (`foils.statistics.crowd`).
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from foils.data.collection import Collection, Rows
from foils.data.label_files import LABELS
from foils.data.labels import CHECKS, Labels, pair_keys
from foils.labelling.errors import checks_of
from foils.labelling.evidence import Evidence
from foils.labelling.judging import PairJudge
from foils.labelling.sheet import Shown, shown_of
from foils.statistics.crowd import Answers, Counts, Crowd, learn, threshold
from foils.statistics.drawing import draw, importance, permanent_numbers

log = logging.getLogger(__name__)
Floats = npt.NDArray[np.float64]
Marks = npt.NDArray[np.bool_]

ROUNDS = 4  # draws that a judge's budget is divided into
KNOWN = 20.0  # answers to labelled positives that a sensitivity is believed by, at most
BELIEVED = 10.0  # answers that a specificity is believed by
USUAL: Counts = (8.0, 2.0)  # of a judge of whom nothing is known
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
    """

    name: str
    asked: int
    answered: int
    sensitivity: float
    specificity: float
    open_before: float
    open_after: float


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
        self._numbers = permanent_numbers(pair_keys(self.pairs).to_pylist(), seed=self.seed)
        self.crowd: Crowd = self._learned()

    def take(self, labels: Labels) -> None:
        """Take over answers that are there already: people's as the truth, programs' as those of judges."""
        for name in (None, *labels.programs()):
            given = labels.match(self.pairs, judge=name)[0]
            rows = np.flatnonzero(np.isfinite(given))
            if len(rows):
                errors: Mapping[str, Any] = {} if name is None else _priors(*labels.checks(name))
                self.answers["people" if name is None else name] = Answers(rows, given[rows], **errors)
        self.crowd = self._learned()

    def ask(self, judge: PairJudge, questions: int, *, checks: int) -> JudgeUse:
        """Ask a judge about rows, first about those that are most open, in a few draws; learn from each.

        Args:
            judge: whom to ask.
            questions: how many rows.
            checks: labelled positives, and random documents, that it judges first.

        Raises:
            InputError, FailureError: what the judge raises; nothing is taken from a draw that failed.
        """
        before = self.open
        priors = self._check(judge, checks)
        kept = self.answers.get(judge.name)
        tried = np.zeros(len(self.pairs), bool)
        if kept is not None:
            tried[kept.rows] = True
        asked = 0
        for part in range(ROUNDS):
            count = (questions - asked) // (ROUNDS - part)
            size = np.where(
                tried, 0.0, importance([np.arange(len(self.pairs))], len(self.pairs), belief=self.probability)
            )
            if not count or not size.any():
                continue
            rows = np.sort(draw(size, self._numbers, count).rows)
            tried[rows] = True
            asked += len(rows)
            self._add(judge.name, rows, judge.judge(self.shown(rows)), priors)
            self.crowd = self._learned()
        answered = len(self.answers[judge.name].rows) if judge.name in self.answers else 0
        se, sp = self.errors.get(judge.name, (np.nan, np.nan))
        return JudgeUse(
            judge.name, asked, answered - (0 if kept is None else len(kept.rows)), se, sp, before, self.open
        )

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
        return dict(zip(self.answers, self.crowd.errors, strict=True))

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
        relevant in the wanted share; negative likewise.
        """
        high = max(0.5, threshold(self.probability, precision))
        low = min(0.5, 1 - threshold(1 - self.probability, negative_precision))
        verdict = np.where(self.probability <= low, NEGATIVE, UNSURE)
        return np.where(self.probability >= high, POSITIVE, verdict), high, low

    def _learned(self) -> Crowd:
        return learn(self.evidence.features, self.evidence.belief, list(self.answers.values()))

    def _check(self, judge: PairJudge, count: int) -> dict[str, Counts]:
        """How often a judge is right on pairs whose truth is known, as beliefs."""
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
        return _priors(tuple(right[CHECKS[0]]), tuple(right[CHECKS[1]]))  # type: ignore[arg-type]

    def _add(self, name: str, rows: Rows, given: Sequence[bool | None], priors: Mapping[str, Counts]) -> None:
        """Keep what a judge answered; a pair without an answer stays as it was."""
        answers = np.array([np.nan if each is None else float(each) for each in given])
        there = np.isfinite(answers)
        if missing := int((~there).sum()):
            log.info("%s gave no answer on %d of %d rows; they stay as they were", name, missing, len(rows))
        kept = self.answers.get(name)
        rows, answers = rows[there], answers[there]
        if kept is not None:
            rows, answers = np.concatenate([kept.rows, rows]), np.concatenate([kept.relevant, answers])
        if len(rows):
            order = np.argsort(rows)
            self.answers[name] = Answers(rows[order], answers[order], **priors)


def _priors(positives: tuple[int, int], others: tuple[int, int]) -> dict[str, Counts]:
    """What is believed of a judge's errors from its answers where the truth is known, as counts (right, wrong).

    Negatives that were mined are harder to judge than random documents: the specificity lies between chance and that on
    these, and counts as ten answers.
    """
    sensitivity, specificity = USUAL, USUAL
    if positives[1]:
        scale = min(1.0, KNOWN / positives[1])
        sensitivity = (scale * positives[0] + 1, scale * (positives[1] - positives[0]) + 1)
    if others[1]:
        middle = (0.5 + (others[0] + 1) / (others[1] + 2)) / 2
        specificity = (BELIEVED * middle, BELIEVED * (1 - middle))
    return {"sensitivity": sensitivity, "specificity": specificity}
