"""Relabelling: every row is called by a cascade of judges, each asked where those before it leave most open."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from scipy.special import expit

from foils.data.collection import Collection, Rows
from foils.data.labels import CHECKS, LABELS, Labels, LabelsLike, pair_keys, with_judgements
from foils.data.negatives import Negatives
from foils.labelling.evidence import Evidence
from foils.labelling.judging import Answer, PairJudge, checks_of
from foils.labelling.sheet import Pair, shown_of
from foils.llm import ModelUse
from foils.llm.prompts import TemplateLike
from foils.rating.judges import Judge
from foils.runtime.errors import InputError
from foils.runtime.options import Option, Settings, several, spelled
from foils.runtime.results import Table, number
from foils.statistics.noisy_labels import Answers, Crowd, evidence_of, learn, logits_of, threshold
from foils.statistics.survey import draw, importance, permanent_numbers

REJECT, KEEP = "reject", "keep"
SHARE = 0.05

if TYPE_CHECKING:
    JudgesLike = str | Judge | Answer | Sequence[str | Judge | Answer]
    AnswersLike = LabelsLike | Sequence[LabelsLike]
    BudgetsLike = float | Sequence[float]
else:
    JudgesLike = list[str]
    AnswersLike = list[str]
    BudgetsLike = list[float]


@dataclass(frozen=True, kw_only=True)
class RelabelSettings(Settings):
    """How rows are relabelled.

    Attributes:
        judge: Who is asked, in the order from the cheapest to the best: bi-encoder[:MODEL], cross-encoder:MODEL,
            pairwise:FOLDER or llm[:MODEL]; may be given several times. Each is asked where those before it leave most
            open. In Python also a judge of `foils.rate`, or a function of query, positive and document that returns
            True, False or None.
        budget: Rows that a judge is asked about: a share of the table up to 1, or a number above 1. Give one for each
            judge, in their order, or one for all. Default: 0.05.
        positive_precision: Wanted share of relevant documents among the rows that are called positive.
        negative_precision: Wanted share of documents that are not relevant among the rows that are called negative.
        unsure: What becomes of rows between the two: reject leaves them out of the training, keep trains on them.
        labels: File with answers that are there already, as foils label writes it; may be given several times. People's
            answers are taken for the truth, a program's for one more judge's. In Python also labels or a DataFrame.
        checks: Number of labelled positives, and of documents drawn at random, that each judge also judges, so that
            its errors can be estimated; 0 for none.
        question: Prompt of your own for a language model: a text file with {query} and {document}, and optionally
            {answer}. In Python also a `Template`.
        split: Split whose judgements are known, and to which positives are added.
        seed: Seed of the draws; the same seed asks the same questions.
    """

    heading = "Relabelling"

    judge: Annotated[JudgesLike, Option(metavar="JUDGE", parse=list, repeated=True)] = ()
    budget: Annotated[BudgetsLike, Option(metavar="ROWS", parse=list, repeated=True)] = (SHARE,)
    positive_precision: Annotated[float, Option(above=0, most=1)] = 0.9
    negative_precision: Annotated[float, Option(above=0, most=1)] = 0.95
    unsure: Annotated[str, Option(names=(REJECT, KEEP))] = REJECT
    labels: Annotated[AnswersLike, Option(metavar="FILE", parse=list, repeated=True)] = ()
    checks: Annotated[int, Option(least=0)] = 100
    question: Annotated[TemplateLike | None, Option(metavar="FILE")] = None
    split: str = "train"
    seed: Annotated[int, Option(least=0)] = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        budgets = self.budgets
        if not budgets or any(not each > 0 or (each > 1 and each != int(each)) for each in budgets):
            given = spelled("budget", " ".join(map(str, budgets)))
            raise InputError(f"{given}; expected shares above 0 and up to 1, or whole numbers")
        if len(budgets) not in (1, max(1, len(self.judges))):
            raise InputError(
                f"{len(budgets)} values of {spelled('budget')} for {len(self.judges)} judges; give one, or one for each"
            )

    @property
    def judges(self) -> list[str | Judge | Answer]:
        """The judges, from the cheapest to the best."""
        return several(self.judge)

    @property
    def budgets(self) -> list[float]:
        """The budgets as they were given."""
        return [float(each) for each in several(self.budget)]

    @property
    def files(self) -> list[LabelsLike]:
        """The labels that are there already, one or several."""
        return several(self.labels)

    def questions(self, rows: int) -> list[int]:
        """Return about how many of these rows each judge is asked."""
        budgets = self.budgets * len(self.judges) if len(self.budgets) == 1 else self.budgets
        return [max(1, round(each * rows)) if each <= 1 else min(rows, int(each)) for each in budgets]


log = logging.getLogger(__name__)
Floats = npt.NDArray[np.float64]
Marks = npt.NDArray[np.bool_]

CHANCE, SURE = 0.5, 0.999  # between which a judge's sensitivity and specificity lie
UNKNOWN = (0.8, 0.9)  # of a judge that was not checked
USUAL = 10.0  # answers that they count as, where it was
LEAST = 30  # answers that a share, or a judge's errors, are estimated from, at least


def share_by_answers(
    judged: Answers, probability: Floats, rows: Marks, *, specificity: float | None = None
) -> tuple[float, float]:
    """Return the share of some rows that is relevant by a judge's answers, and its standard error; NaN and ∞: not told.

    Each answer counts for the rows that it was drawn for, 1/probability, and the share q that the judge calls relevant
    is corrected by its errors, (q + sp − 1)/(se + sp − 1), with standard error √(q(1 − q)/n)/(se + sp − 1), n the
    effective number of answers.

    Args:
        judged: a judge's answers, with its errors.
        probability: (k,) with which each row was drawn for it; NaN: not known, the answer does not count.
        rows: (k,) which rows.
        specificity: in the place of the judge's.

    Source: Rogan & Gladen 1978; Horvitz & Thompson 1952.
    """
    weights = 1 / probability[judged.rows]
    here = rows[judged.rows] & np.isfinite(weights)
    if here.sum() < LEAST:
        return float("nan"), float("inf")
    sp = judged.specificity if specificity is None else specificity
    w, power = weights[here], judged.sensitivity + sp - 1
    q = np.average(judged.relevant[here], weights=w)
    effective = w.sum() ** 2 / (w**2).sum()
    smoothed = (q * effective + 0.5) / (effective + 1)
    error = float(np.sqrt(smoothed * (1 - smoothed) / effective) / power)
    return float(np.clip((q + sp - 1) / power, 0, 1)), error


def believed_errors(positives: Sequence[int], others: Sequence[int]) -> tuple[float, float]:
    """Return a judge's sensitivity and specificity from checks whose truth is known, as if ten more went as usual.

    Args:
        positives: how many labelled positives it called relevant, and how many it judged.
        others: how many random documents it did not call relevant, and how many it judged.
    """
    pairs = zip((positives, others), UNKNOWN, strict=True)
    se, sp = ((right + USUAL * usual) / (of + USUAL) for (right, of), usual in pairs)
    return max(CHANCE, se), max(CHANCE, sp)


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

    def shown(self, rows: Rows) -> list[Pair]:
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


NOT_SURE = "may be relevant"
RELEVANT = "relabelled positive"


def pairs_of_rows(negatives: Negatives, rows: np.ndarray[tuple[int], np.dtype[np.int64]]) -> pa.Table:
    """Return the pairs of some rows; a text is null where the document is in the collection."""
    table = negatives.table.take(pa.array(rows))
    text = table["text"] if "text" in table.column_names else pa.nulls(len(table), pa.large_string())
    return pa.table({"query_id": table["query_id"], "doc_id": table["doc_id"], "text": text})


def marked(
    negatives: Negatives,
    rows: np.ndarray[tuple[int], np.dtype[np.int64]],
    probability: np.ndarray[tuple[int], np.dtype[np.float64]],
    verdict: np.ndarray[tuple[int], np.dtype[np.str_]],
    unsure: bool,
) -> Negatives:
    """The table with what was found; rows without evidence have neither, and stay as they are."""
    relevance, said = np.full(len(negatives), np.nan), np.full(len(negatives), None, object)
    relevance[rows], said[rows] = probability, verdict
    table = negatives.with_columns({"relevance": pa.array(relevance), "verdict": pa.array(said, pa.string())})
    table = table.reject(said == POSITIVE, RELEVANT)
    return table.reject((said == UNSURE) & unsure, NOT_SURE)


PROGRAM = "relabel:foils"  # who says in the labels that a promoted pair is relevant
MANY = 0.05  # share of the rows whose loss is worth a remark


@dataclass(frozen=True, kw_only=True)
class Relabelled(Negatives):
    """A table with `relevance`, the probability that each row is relevant, and `verdict`.

    Attributes:
        judges: what each was asked, in that order.
        evidence: names of what is seen of a row, and the weight of each.
        high: probability from which on a row that nobody answered about is called positive, above 1: none is; low: up
            to which it is called negative, below 0: none is.
        lost: rows that are unsure, and rejected for it, and were called negative before anybody was asked.
        answers: of all judges, as labels.
        models: name -> use, of the language models among the judges.
    """

    judges: tuple[JudgeUse, ...]
    evidence: Mapping[str, float]
    high: float
    low: float
    lost: int
    answers: Labels = field(repr=False)
    models: Mapping[str, ModelUse] = field(default_factory=dict)

    @cached_property
    def promoted(self) -> Labels:
        """The rows that are called positive and whose document is in the collection, as labels."""
        table = self._of(POSITIVE)
        if "text" in table.column_names:
            table = table.filter(table["text"].is_null())
        columns = {name: table[name] for name in ("query_id", "doc_id")}
        relevant, judge = pa.repeat(pa.scalar(1), len(table)), pa.repeat(pa.scalar(PROGRAM), len(table))
        return Labels(pa.table({**columns, "relevant": relevant, "judge": judge}), self.provenance)

    def with_promoted(self) -> Collection:
        """Return the collection with the promoted rows as positives of the split.

        Raises:
            InputError: the collection is not known.
        """
        if self.collection is None:
            raise InputError("the collection of this table is not known; relabel it again")
        return with_judgements(self.collection, [self.promoted], split=self.split)

    def counts(self) -> dict[str, dict[str, Any]]:
        """Return for each verdict the number of rows, and the share of them that is expected to be relevant."""
        probability = self.table["relevance"].to_numpy()
        verdicts = np.asarray(self.table["verdict"].fill_null("").to_numpy(zero_copy_only=False))
        of = {name: probability[verdicts == name] for name in (POSITIVE, UNSURE, NEGATIVE)}
        return {name: {"rows": len(p), "relevant": float(p.mean()) if len(p) else None} for name, p in of.items()}

    def tables(self) -> list[Table]:
        """Return the verdicts, and what each judge was asked."""
        rows = [
            (name, f"{of['rows']:,}", number(of["relevant"]), said)
            for (name, of), said in zip(self.counts().items(), self._bars(), strict=True)
        ]
        without = self.table["verdict"].null_count
        notes = [f"{without:,} rows without a verdict: their query has no positive in the split, or they are positives"]
        notes = notes if without else []
        notes += [f"{name}: {count}" for name, count in self.rejected_rows()]
        if not len(self.answers):
            ways = f"{spelled('judge')} or {spelled('labels')}"
            notes.append(f"Nobody was asked: the probabilities are a belief. Give a {ways}.")
        elif self.high > 1 and self.low < 0:
            notes.append(
                "The answers do not tell which rows are which: ask about more rows, ask a better judge, or label some "
                "yourself, so that the judge's errors are known."
            )
        notes += self._doubts()
        verdicts = Table(self.title, ("verdict", "rows", "relevant, expected", "probability"), rows, "\n".join(notes))
        return [verdicts, *([self._judges()] if self.judges else [])]

    def _doubts(self) -> list[str]:
        """What to do about judges that were not heeded, or whom nobody confirmed and who cost many rows."""
        confirm = f"label {LEAST} of the same rows yourself ({spelled('labels')}) or ask a better judge after it"
        unheeded = [each.name for each in self.judges if each.answered and not each.heeded]
        doubted = [each.name for each in self.judges if each.heeded and not each.confirmed]
        notes = []
        if unheeded:
            notes.append(
                f"{', '.join(unheeded)}: not heeded, for the answers do not tell what share of the rows is relevant; "
                f"ask about more rows, or {confirm}."
            )
        if doubted and self.lost >= MANY * len(self):
            notes.append(
                f"{self.lost:,} rows that were called negative before anybody was asked are unsure now, and left out "
                f"of the training. Nobody confirmed {', '.join(doubted)}: {confirm}, leave it out, or give "
                f"{spelled('unsure', 'keep')}."
            )
        return notes

    def _bars(self) -> tuple[str, str, str]:
        """From which probability on a row that nobody answered about has each verdict."""
        return (f"≥ {self.high:.2f}" if self.high <= 1 else "–", "", f"≤ {self.low:.2f}" if self.low >= 0 else "–")

    def _judges(self) -> Table:
        columns = ("judge", "asked", "answered", "sensitivity", "specificity", "wrong before", "wrong after")
        rows = [
            (each.name, f"{each.asked:,}", f"{each.answered:,}", number(each.sensitivity), number(each.specificity),
             f"{each.open_before:,.0f}", f"{each.open_after:,.0f}")
            for each in self.judges
        ]  # fmt: skip
        rows += [
            (name, value, "", "", "", "", "") for model, use in self.models.items() for name, value in use.rows(model)
        ]
        return Table("Judges", columns, rows, "wrong: rows that a best guess is expected to get wrong")

    def to_json(self) -> dict[str, Any]:
        """Return verdicts, thresholds, what the judges were asked and how often they err, and the settings."""
        used = {name: use.usage.to_json(use.price) for name, use in self.models.items()}
        return {
            "settings": self.provenance.get("settings", {}),
            "verdicts": self.counts(),
            "thresholds": {
                "positive": self.high if self.high <= 1 else None,
                "negative": self.low if self.low >= 0 else None,
            },
            "promoted": len(self.promoted),
            "lost": self.lost,
            "judges": [
                {name: None if value != value else value for name, value in asdict(each).items()}
                for each in self.judges
            ],
            "evidence": dict(self.evidence),
            "rejected": self.rejected(),
            **({"language_models": used} if used else {}),
        }

    def _of(self, verdict: str) -> pa.Table:
        return self.table.filter(pc.fill_null(pc.equal(self.table["verdict"], verdict), False))
