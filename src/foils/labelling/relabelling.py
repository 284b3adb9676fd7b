"""Relabelling: every row is called by a cascade of judges, each asked where those before it leave most open."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from scipy.special import expit

from foils.data.collection import Collection, Rows
from foils.data.labels import LABELS, Labels, pair_keys
from foils.data.negatives import Negatives
from foils.data.read import AddedLike, CollectionLike, CollectionSettings
from foils.data.sources import SourceLike, as_source
from foils.data.tables import provenance
from foils.encode.opening import AT_128, EncodingSettings
from foils.labelling.doors import JUDGES, Answer, PairJudge, judge_known, open_judge
from foils.labelling.evidence import Evidence, evidence_of
from foils.labelling.sheet import pairs_in, shown_of
from foils.llm import LLMSettings, ModelUse, Purse
from foils.llm.prompts import TemplateLike
from foils.rating.judges import Judge, QuestionSettings
from foils.rating.opening import JudgeSettings, Opening
from foils.runtime.errors import InputError, check_names
from foils.runtime.files import without_nan
from foils.runtime.options import Option, Settings, door, numbers_of, several, spelled
from foils.runtime.results import Table, number
from foils.statistics.noisy_labels import Answers, Crowd, learn, log_odds_of, logits_of, threshold
from foils.statistics.survey import draw, importance, permanent_numbers

REJECT, KEEP = "reject", "keep"

if TYPE_CHECKING:
    JudgesLike = str | Judge | Answer | Sequence[str | Judge | Answer]
    BudgetsLike = float | Sequence[float]
else:
    JudgesLike = list[str]
    BudgetsLike = list[float]


def parsed_budgets(texts: Sequence[str]) -> list[float]:
    """Read numbers, one of each text."""
    return [numbers_of(float, "budget", "a share of the rows, or their number", text)[0] for text in texts]


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
    budget: Annotated[
        BudgetsLike, Option(metavar="ROWS", above=0, parse=parsed_budgets, repeated=True, needs={"judge": True})
    ] = (0.05,)
    positive_precision: Annotated[float, Option(above=0, most=1)] = 0.9
    negative_precision: Annotated[float, Option(above=0, most=1)] = 0.95
    unsure: Annotated[str, Option(names=(REJECT, KEEP))] = REJECT
    labels: Annotated[AddedLike, Option(metavar="FILE", parse=list, repeated=True)] = ()
    checks: Annotated[int, Option(least=0, needs={"judge": True})] = 100
    question: Annotated[TemplateLike | None, Option(metavar="FILE", needs={"judge": "llm"})] = None
    split: str = "train"
    seed: Annotated[int, Option(least=0)] = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_names("judge", [each.partition(":")[0] for each in self.judges if isinstance(each, str)], JUDGES)
        if (given := len(self.budgets)) not in (1, max(1, len(self.judges))):
            said = f"{given} values of {spelled('budget')} for {len(self.judges)} judges"
            raise InputError(f"{said}; give one, or one for each")

    @property
    def judges(self) -> list[str | Judge | Answer]:
        """The judges, from the cheapest to the best."""
        return several(self.judge)

    @property
    def budgets(self) -> list[float]:
        """The budgets as they were given."""
        return [float(each) for each in several(self.budget)]

    def questions(self, rows: int) -> list[int]:
        """Return about how many of these rows each judge is asked."""
        budgets = self.budgets * len(self.judges) if len(self.budgets) == 1 else self.budgets
        return [max(1, round(each * rows)) if each <= 1 else min(rows, round(each)) for each in budgets]


log = logging.getLogger(__name__)
Floats = npt.NDArray[np.float64]
Marks = npt.NDArray[np.bool_]

CHANCE, SURE = 0.5, 0.999  # between which a judge's sensitivity and specificity lie
UNKNOWN = (0.8, 0.9)  # of a judge that was not checked
USUAL = 10.0  # answers that they count as, where it was
LEAST = 30  # answers that a share, or a judge's errors, are estimated from, at least


def share_by_answers(judged: Answers, probability: Floats, rows: Marks) -> tuple[float, float]:
    """Return the share of some rows that is relevant by a judge's answers, and its standard error; NaN and ∞: not told.

    Each answer counts for the rows that it was drawn for, 1/probability, and the share q that the judge calls relevant
    is corrected by its errors, (q + sp − 1)/(se + sp − 1), with standard error √(q(1 − q)/n)/(se + sp − 1), n the
    effective number of answers.

    Args:
        judged: a judge's answers, with its errors.
        probability: (k,) with which each row was drawn for it; NaN: not known, the answer does not count.
        rows: (k,) which rows.

    Source: Rogan & Gladen 1978; Horvitz & Thompson 1952.
    """
    weights = 1 / probability[judged.rows]
    here = rows[judged.rows] & np.isfinite(weights)
    if here.sum() < LEAST:
        return float("nan"), float("inf")
    sp, w = judged.specificity, weights[here]
    power = judged.sensitivity + sp - 1
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


@dataclass
class Judged:
    """The answers of a judge so far.

    Attributes:
        probability: (k,) of each row, to be drawn in any of the draws so far; NaN: not known.
        known: sensitivity and specificity where the truth is known.
        answers: with the judge's errors as they are estimated now.
        checked: answers to pairs whose truth is known.
        asked: rows that it was asked about in this run. answered: of these.
        confirmed: whether people, or a better judge, showed its errors.
    """

    probability: Floats
    known: tuple[float, float] = UNKNOWN
    answers: Answers = field(default_factory=lambda: Answers(np.zeros(0, np.int64), np.zeros(0)))
    checked: Labels = field(default_factory=lambda: Labels(LABELS.empty_table()))
    asked: int = 0
    answered: int = 0
    confirmed: bool = False

    @property
    def telling(self) -> bool:
        """Whether the judge is far better than chance, as far as is known."""
        return self.answers.sensitivity + self.answers.specificity - 1 >= LEAST_POWER

    def add(self, rows: Rows, relevant: Floats) -> None:
        """Keep answers to further rows."""
        rows, relevant = np.concatenate([self.answers.rows, rows]), np.concatenate([self.answers.relevant, relevant])
        order = np.argsort(rows)
        self.answers = replace(self.answers, rows=rows[order], relevant=relevant[order])


@dataclass
class Cascade:
    """The rows of a table, their evidence, and the answers so far.

    Attributes:
        collection: texts and judgements.
        pairs: query_id, doc_id and text of the rows that have evidence.
        evidence: of these rows.
        seed: of the draws.
        judges: name -> answers, from the cheapest judge to the best.
        crowd: what the evidence and the answers say together.
    """

    collection: Collection
    pairs: pa.Table
    evidence: Evidence
    seed: int = 0
    judges: dict[str, Judged] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._numbers = permanent_numbers(pair_keys(self.pairs).to_pylist(), seed=self.seed)
        self.crowd: Crowd = learn(self.evidence.features, self.evidence.belief, [])

    def take(self, labels: Labels) -> None:
        """Take over answers that are there already, before anybody is asked: people's are taken for the truth."""
        for name in (*labels.programs(), None):
            given, probability = labels.match(self.pairs, judge=name)
            if len(rows := np.flatnonzero(np.isfinite(given))):
                known = (SURE, SURE) if name is None else believed_errors(*labels.checks(name))
                self.judges[name or PEOPLE] = Judged(probability, known, Answers(rows, given[rows]))
        self._learn()

    def ask(self, judge: PairJudge, questions: int, *, checks: int) -> None:
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
        every, new = np.arange(len(self.pairs)), judge.name not in self.judges
        own = self.judges.setdefault(judge.name, Judged(np.full(len(every), np.nan)))
        if checks:
            own.checked = judge_known(judge, self.collection, self.pairs["query_id"], pairs=checks, seed=self.seed)
        if checks or new:
            own.known = believed_errors(*own.checked.checks(judge.name))
        known = np.isin(every, own.answers.rows)
        tried = known.copy()
        for part in range(ROUNDS):
            count = (questions - own.asked) // (ROUNDS - part)
            if not count or tried.all():
                continue
            belief, answered = self.crowd.posterior.copy(), own.answers.rows
            if self.heeded(own):  # its own answers are left out of what it is asked by
                belief[answered] = expit(logits_of(belief[answered]) - log_odds_of([own.answers], answered))
            size = importance([every], len(every), belief=belief)
            drawn = draw(np.where(tried, 0.0, size), self._numbers, count)
            rows = np.sort(drawn.rows)
            so_far = np.fmax(own.probability, np.minimum(1.0, size * drawn.threshold))
            own.probability = np.where(known, own.probability, so_far)
            pairs = shown_of(self.collection, self.pairs.take(pa.array(rows)).to_pylist())
            given = np.array([np.nan if each is None else float(each) for each in judge.judge(pairs)])
            there = np.isfinite(given)
            if missing := int((~there).sum()):
                log.info("%s gave no answer on %d of %d rows; they stay as they were", judge.name, missing, len(rows))
            own.add(rows[there], given[there])
            tried[rows] = True
            own.asked += len(rows)
            own.answered += int(there.sum())
            self._learn()

    def use(self, name: str) -> dict[str, Any]:
        """Return what a judge was asked, how often it is right as all answers so far show it, and its standing.

        `sensitivity` and `specificity` are NaN without an answer. `confirmed`: a better judge, or people, judged enough
        of the same rows to show how often it errs. `heeded`: its answers were learned from.
        """
        own = self.judges[name]
        se, sp = (own.answers.sensitivity, own.answers.specificity) if len(own.answers.rows) else (np.nan, np.nan)
        return {
            "name": name, "asked": own.asked, "answered": own.answered, "sensitivity": se, "specificity": sp,
            "confirmed": own.confirmed, "heeded": self.heeded(own),
        }  # fmt: skip

    def labels(self) -> Labels:
        """Return every answer as labels, with those to pairs whose truth is known."""
        rows: dict[tuple[str, str, str], dict[str, Any]] = {}
        for name, own in self.judges.items():
            pairs = self.pairs.take(pa.array(own.answers.rows)).to_pylist()
            answers = zip(pairs, own.answers.relevant.tolist(), strict=True)
            answered = [{**pair, "relevant": int(relevant), "judge": name} for pair, relevant in answers]
            for row in [*answered, *own.checked.table.to_pylist()]:
                rows.setdefault((row["query_id"], row["doc_id"], name), row)
        return Labels(pa.Table.from_pylist([*rows.values()], LABELS))

    def verdicts(self, precision: float, negative_precision: float) -> tuple[npt.NDArray[np.str_], float, float]:
        """Return (k,) the verdict of each row, and the probabilities from which on, and up to which, one is given.

        A row is called positive where it is relevant with probability ½ at least, and rows at least as probable are
        expected to be relevant in the wanted share. Once somebody was asked, the answers about rows like them have to
        agree: the bar is raised until they do; people's own answers need no such proof. Negative likewise. A bar above
        1, or below 0: no row is called so.
        """
        p, prior, proven = self.crowd.posterior, self.crowd.prior, np.zeros(len(self.pairs), bool)
        if PEOPLE in self.judges:
            proven[self.judges[PEOPLE].answers.rows] = True
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
        for own in filter(self.heeded, self._from_best()):
            sp = max(own.answers.specificity, own.known[1] if most and not own.confirmed else 0.0)
            share, error = share_by_answers(replace(own.answers, specificity=sp), own.probability, rows)
            if error <= MOST_ERROR:
                return share
        return np.nan

    def heeded(self, own: Judged) -> bool:
        """Return whether a judge's answers are learned from: where they tell what share of all rows is relevant.

        That is with a standard error of 0.1 at most; or people, or a better judge, showed how often it errs. A judge
        little better than chance is not heeded, however many answers it gave: its errors follow the evidence more than
        its answers follow the truth, and rows would look relevant that are not.
        """
        if own.confirmed or not own.telling:
            return own.telling
        drawn = np.nan_to_num(own.probability, nan=1.0)  # not known: answers that somebody else asked for
        return share_by_answers(own.answers, drawn, np.ones(len(self.pairs), bool))[1] <= MOST_ERROR

    def _held(self, least: float, probability: Floats, share: Callable[[float], float], wanted: float) -> float:
        """The smallest threshold, from the least on, at which the judged share is as wanted; above 1 where none is."""
        above = probability[probability >= least]
        if not len(above) or not any(map(self.heeded, self.judges.values())):
            return least
        tried = np.unique(np.quantile(above, np.linspace(0, 1, STEPS)))
        return next((float(t) for t in tried if share(float(t)) >= wanted), 2.0)

    def _from_best(self) -> list[Judged]:
        """The judges: people, who judge best, then from the last that was asked to the first."""
        others = [own for name, own in reversed(self.judges.items()) if name != PEOPLE]
        return [self.judges[PEOPLE], *others] if PEOPLE in self.judges else others

    def _learn(self) -> None:
        """Learn from the answers, having estimated the judges' errors by what was learned before."""
        better: list[Answers] = []
        for own in self._from_best():
            se, sp = (1.0, 1.0) if own is self.judges.get(PEOPLE) else self._errors(own, better)
            own.answers = replace(own.answers, sensitivity=se, specificity=sp)
            better += [own.answers] if own.telling else []
        if PEOPLE in self.judges:
            self.judges[PEOPLE].confirmed = True
        heeded = [own.answers for own in self.judges.values() if self.heeded(own)]
        self.crowd = learn(self.evidence.features, self.evidence.belief, heeded)

    def _errors(self, own: Judged, better: Sequence[Answers]) -> tuple[float, float]:
        """Return a judge's sensitivity and specificity.

        Where a better judge, or a person, judged thirty of the same rows, they are estimated there, by what these
        alone say: a judge with many answers would confirm itself. Else the
        sensitivity is that on labelled positives, and the specificity halfway between chance and that on random
        documents, which are easier to judge; or less, where it would take more relevant rows than there can be for the
        judge to call so many relevant. A judge of whom little is known is believed less than it may deserve.
        """
        judged = own.answers
        shared = np.isin(judged.rows, np.concatenate([np.zeros(0, np.int64), *(each.rows for each in better)]))
        if shared.sum() < LEAST:
            (se, sp), most, weights = own.known, self.evidence.most, 1 / own.probability[judged.rows]
            known = np.isfinite(weights)
            q = float(np.average(judged.relevant[known], weights=weights[known])) if known.any() else 0.0
            highest = 1 - (q - se * most) / (1 - most) if most < 1 else 1.0
            return se, max(1.01 - se, min((CHANCE + sp) / 2, highest))
        own.confirmed = True
        p = learn(self.evidence.features, self.evidence.belief, better).posterior[judged.rows[shared]]
        said = judged.relevant[shared]
        se = (p @ said + 1) / (p.sum() + 2)
        sp = ((1 - p) @ (1 - said) + 1) / ((1 - p).sum() + 2)
        return float(np.clip(se, CHANCE, SURE)), float(np.clip(sp, CHANCE, SURE))


NOT_SURE = "may be relevant"
RELEVANT = "relabelled positive"
PROGRAM = "relabel:foils"  # who says in the labels that a promoted pair is relevant
RECORDED = ("budgets", "checks", "positive_precision", "negative_precision", "unsure", "split")


@dataclass(frozen=True, kw_only=True)
class Relabelled(Negatives):
    """A table with `relevance`, the probability that each row is relevant, and `verdict`.

    Attributes:
        judges: what each was asked, in that order (`Cascade.use`).
        evidence: names of what is seen of a row, and the weight of each.
        high: probability from which on a row that nobody answered about is called positive, above 1: none is; low: up
            to which it is called negative, below 0: none is.
        answers: of all judges, as labels.
        models: name -> use, of the language models among the judges.
    """

    judges: tuple[dict[str, Any], ...]
    evidence: Mapping[str, float]
    high: float
    low: float
    answers: Labels = field(repr=False)
    models: Mapping[str, ModelUse] = field(default_factory=dict)

    @cached_property
    def promoted(self) -> Labels:
        """The rows that are called positive and whose document is in the collection, as labels.

        `foils.load(collection, add_judgements=relabelled.promoted)` is the collection with them as positives.
        """
        table = self.table.filter(pc.equal(self.table["verdict"], POSITIVE))
        if "text" in table.column_names:
            table = table.filter(table["text"].is_null())
        columns = {"query_id": table["query_id"], "doc_id": table["doc_id"]}
        added = {name: pa.repeat(value, len(table)) for name, value in {"relevant": 1, "judge": PROGRAM}.items()}
        return Labels(pa.table({**columns, **added}), self.provenance)

    def counts(self) -> dict[str, dict[str, Any]]:
        """Return for each verdict the number of rows, and the share of them that is expected to be relevant."""
        probability = self.table["relevance"].to_numpy()
        verdicts = np.asarray(self.table["verdict"].fill_null("").to_numpy(zero_copy_only=False))
        of = {name: probability[verdicts == name] for name in (POSITIVE, UNSURE, NEGATIVE)}
        return {name: {"rows": len(p), "relevant": float(p.mean()) if len(p) else None} for name, p in of.items()}

    def tables(self) -> list[Table]:
        """Return the verdicts, and what each judge was asked."""
        bars = {
            POSITIVE: f"≥ {self.high:.2f}" if self.high <= 1 else "–",
            NEGATIVE: f"≤ {self.low:.2f}" if self.low >= 0 else "–",
        }
        counts = self.counts().items()
        rows = [(name, f"{of['rows']:,}", number(of["relevant"]), bars.get(name, "")) for name, of in counts]
        notes = [f"{name}: {count}" for name, count in self.rejected_rows()]
        if without := self.table["verdict"].null_count:
            why = "their query has no positive in the split, or they are positives"
            notes = [f"{without:,} rows without a verdict: {why}", *notes]
        if not len(self.answers):
            ways = f"{spelled('judge')} or {spelled('labels')}"
            notes.append(f"Nobody was asked: the probabilities are a belief. Give a {ways}.")
        tables = [Table(self.title, ("verdict", "rows", "relevant, expected", "probability"), rows, "\n".join(notes))]
        if not self.judges:
            return tables
        columns = ("judge", "asked", "answered", "sensitivity", "specificity", "standing")
        judges: list[tuple[str, ...]] = [
            (
                each["name"], f"{each['asked']:,}", f"{each['answered']:,}", number(each["sensitivity"]),
                number(each["specificity"]),
                "not heeded" if not each["heeded"] else "confirmed" if each["confirmed"] else "not confirmed",
            )
            for each in self.judges
        ]  # fmt: skip
        advice = (
            f"To confirm a judge, label {LEAST} of the same rows yourself ({spelled('labels')}) or ask a better judge "
            "after it: more rows get a verdict. One that is not heeded does not tell what share of the rows is "
            "relevant; asking it about more rows may help, too."
        )
        caption = "" if all(each["heeded"] and each["confirmed"] for each in self.judges) else advice
        judges += [(name, value, *[""] * 4) for model, use in self.models.items() for name, value in use.rows(model)]
        return [*tables, Table("Judges", columns, judges, caption)]

    def to_json(self) -> dict[str, Any]:
        """Return verdicts, thresholds, what the judges were asked and how often they err, and the settings."""
        used = {name: use.to_json() for name, use in self.models.items()}
        return {
            "settings": self.provenance.get("settings", {}),
            "verdicts": self.counts(),
            "thresholds": {
                "positive": self.high if self.high <= 1 else None,
                "negative": self.low if self.low >= 0 else None,
            },
            "promoted": len(self.promoted),
            "judges": [without_nan(each) for each in self.judges],
            "evidence": dict(self.evidence),
            "rejected": self.rejected(),
            **({"language_models": used} if used else {}),
        }


@door(needs={"llm": {"judge": "llm"}})
def relabel(
    collection: CollectionLike,
    source: SourceLike,
    *,
    relabelling: RelabelSettings,
    reading: CollectionSettings,
    llm: LLMSettings,
    encoding: EncodingSettings = AT_128,
) -> Relabelled:
    """Relabel negatives: say of each row whether it is an answer after all, by a cascade of judges within a budget.

    The table gains `relevance`, a probability, and `verdict`: positive, negative or unsure. Rows that are called
    positive are no longer trained on as negatives, and can join the judgements: --promoted FILE here, and
    --add-judgements FILE wherever the collection is used. Rejected rows are judged, too, and stay rejected.

    Raises:
        InputError: a collection, source, judge or labels that cannot be read, or no row of a judged query.
        FailureError: a judge failed; what a language model answered is kept, and the same command goes on.

    Example:
        foils relabel scifact/ dense.parquet --judge llm:NAME --base-url http://localhost:8000/v1 --promoted found.tsv
        -o relabelled.parquet
    """
    loaded = reading.open(collection)
    named = as_source(source, loaded)
    encoder, store = encoding.open(loaded)
    if taken := [name for name in ("relevance", "verdict") if name in named.negatives.table.column_names]:
        raise InputError(f"{named.name} has {' and '.join(taken)} already; relabel the table it was made from")
    labels = [Labels.of(each, loaded) for each in several(relabelling.labels)]
    who: Any = relabelling.judges
    opening = Opening(JudgeSettings(judge=who), encoding, llm, QuestionSettings(), Purse(llm.max_cost))
    judges = [open_judge(each, loaded, opening, relabelling.question) for each in relabelling.judges]
    evidence = evidence_of(loaded, named.negatives, encoder, store, split=relabelling.split, seed=relabelling.seed)
    pairs = pairs_in(named.negatives.table.take(pa.array(evidence.rows)))
    cascade = Cascade(loaded, pairs, evidence, seed=relabelling.seed)
    if labels:
        cascade.take(Labels(pa.concat_tables(each.table for each in labels)))
    for judge, count in zip(judges, relabelling.questions(len(evidence.rows)), strict=True):
        cascade.ask(judge, count, checks=relabelling.checks)
    verdict, high, low = cascade.verdicts(relabelling.positive_precision, relabelling.negative_precision)
    settings = {"judges": [each.name for each in judges], "labels": [len(each) for each in labels]}
    settings |= {name: getattr(relabelling, name) for name in RECORDED} | {"encoder": encoder.fingerprint}
    digests = {"collection": loaded.digest, named.name: named.digest}
    relevance, said = np.full(len(named.negatives), np.nan), np.full(len(named.negatives), None, object)
    relevance[evidence.rows], said[evidence.rows] = cascade.crowd.posterior, verdict
    columns = {"relevance": pa.array(relevance), "verdict": pa.array(said, pa.string())}
    table = named.negatives.with_columns(columns).reject(said == POSITIVE, RELEVANT)
    if relabelling.unsure == REJECT:
        table = table.reject(said == UNSURE, NOT_SURE)
    made = provenance("relabel", settings, inputs=digests, seed=relabelling.seed)
    return Relabelled.of(
        table.with_provenance(made),
        title=f"{named.name}, relabelled",
        collection=loaded,
        split=relabelling.split,
        judges=tuple(cascade.use(judge.name) for judge in judges),
        evidence=dict(zip(("constant", *evidence.names), cascade.crowd.weights.tolist(), strict=True)),
        high=high,
        low=low,
        answers=cascade.labels(),
        models={judge.name: judge.questions.asked for judge in judges if judge.questions},
    )
