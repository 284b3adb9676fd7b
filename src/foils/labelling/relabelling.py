"""Relabelling: a judge answers about some rows, and a threshold on what it taught says which others are answers."""

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

from foils.data.collection import Collection
from foils.data.labels import Labels, pair_keys
from foils.data.negatives import Negatives
from foils.data.read import AddedLike, CollectionLike, CollectionSettings
from foils.data.sources import SourceLike, as_source
from foils.data.tables import provenance
from foils.encode.opening import AT_128, EncodingSettings
from foils.labelling.doors import JUDGES, PEOPLE, Answer, PairJudge, judge_known, open_judge
from foils.labelling.evidence import evidence_of
from foils.labelling.sheet import pairs_in, shown_of
from foils.llm import LLMSettings, ModelUse, Purse
from foils.llm.prompts import TemplateLike
from foils.rating.judges import Judge, QuestionSettings
from foils.rating.opening import JudgeSettings, Opening
from foils.runtime.errors import InputError, check_names
from foils.runtime.files import without_nan
from foils.runtime.options import Option, Settings, door, several, spelled
from foils.runtime.results import Table, number
from foils.statistics.survey import Answers, Crowd, draw, importance, learn, permanent_numbers, threshold

if TYPE_CHECKING:
    JudgeLike = str | Judge | Answer
else:
    JudgeLike = str

log = logging.getLogger(__name__)
Floats = npt.NDArray[np.float64]
Marks = npt.NDArray[np.bool_]

REJECT, KEEP = "reject", "keep"
POSITIVE, NEGATIVE, UNSURE = "positive", "negative", "unsure"
RELEVANT, NOT_SURE = "relabelled positive", "may be relevant"  # reasons of rejected rows
PROGRAM = "relabel:foils"  # who says in the labels that a promoted pair is relevant
ROUNDS = 2  # draws that the budget is divided into: at random, then where the first half leaves most open
LEAST = 30  # answers that a share, or a judge's errors, are estimated from, at least
MOST_ERROR = 0.1  # standard error of a share that says something
LEAST_POWER = 0.4  # sensitivity + specificity − 1 from which on a judge is believed
STEPS = 41  # thresholds that are tried
CHANCE, SURE = 0.5, 0.999  # specificity by chance; the most that is believed of a judge's sensitivity or specificity
USUAL_ERRORS = (0.8, 0.9)  # sensitivity and specificity of a judge that was not checked
USUAL = 10.0  # checks that they count as, where it was


@dataclass(frozen=True, kw_only=True)
class RelabelSettings(Settings):
    """How rows are relabelled.

    Attributes:
        judge: Who is asked about a sample of the rows: bi-encoder[:MODEL], cross-encoder:MODEL, pairwise:FOLDER or
            llm[:MODEL]. In Python also a judge of `foils.rate`, or a function of query, positive and document that
            returns True, False or None.
        budget: Rows that the judge is asked about: a share of the table up to 1, or a number above 1.
        positive_precision: Wanted share of relevant documents among the rows that are called positive.
        negative_precision: Wanted share of documents that are not relevant among the rows that are called negative.
        unsure: What becomes of rows between the two: keep trains on them as before, reject leaves them out.
        labels: File with answers that are there already, as foils label writes it; may be given several times. People's
            answers are taken for the truth. In Python also labels or a DataFrame.
        checks: Number of labelled positives, and of documents drawn at random, that the judge also judges, so that its
            errors can be estimated; 0 for none.
        question: Prompt of your own for a language model: a text file with {query} and {document}, and optionally
            {answer}. In Python also a `Template`.
        split: Split whose judgements are known, and to which positives are added.
        seed: Seed of the draws; the same seed asks the same questions.
    """

    heading = "Relabelling"

    judge: Annotated[JudgeLike | None, Option(metavar="JUDGE")] = None
    budget: Annotated[float, Option(metavar="ROWS", above=0, needs={"judge": True})] = 0.05
    positive_precision: Annotated[float, Option(above=0, most=1)] = 0.9
    negative_precision: Annotated[float, Option(above=0, most=1)] = 0.95
    unsure: Annotated[str, Option(names=(KEEP, REJECT))] = KEEP
    labels: Annotated[AddedLike, Option(metavar="FILE", parse=list, repeated=True)] = ()
    checks: Annotated[int, Option(least=0, needs={"judge": True})] = 100
    question: Annotated[TemplateLike | None, Option(metavar="FILE", needs={"judge": "llm"})] = None
    split: str = "train"
    seed: Annotated[int, Option(least=0)] = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        if isinstance(self.judge, str):
            check_names("judge", [self.judge.partition(":")[0]], JUDGES)

    def questions(self, rows: int) -> int:
        """Return how many of these rows the judge is asked about."""
        return max(1, round(self.budget * rows)) if self.budget <= 1 else min(rows, round(self.budget))


def share_by_answers(judged: Answers, probability: Floats, rows: Marks) -> tuple[float, float]:
    """Return the share of some rows that is relevant by answers, and its standard error; NaN and ∞: not known.

    Each answer counts for the rows that it was drawn for, 1/probability, and the share q that is called relevant is
    corrected by the judge's errors, (q + sp − 1)/(se + sp − 1), with standard error √(q(1 − q)/n)/(se + sp − 1), n the
    effective number of answers.

    Args:
        judged: a judge's answers, with its errors.
        probability: (k,) with which each row was drawn for it; NaN: not known, the answer does not count.
        rows: (k,) which rows.

    Source: Rogan & Gladen 1978; Horvitz & Thompson 1952.
    """
    weights = 1 / probability[judged.rows]
    counted = rows[judged.rows] & np.isfinite(weights)
    if counted.sum() < LEAST:
        return float("nan"), float("inf")
    specificity, w = judged.specificity, weights[counted]
    power = judged.sensitivity + specificity - 1
    q = np.average(judged.relevant[counted], weights=w)
    effective = w.sum() ** 2 / (w**2).sum()
    smoothed = (q * effective + 0.5) / (effective + 1)
    error = float(np.sqrt(smoothed * (1 - smoothed) / effective) / power)
    return float(np.clip((q + specificity - 1) / power, 0, 1)), error


def believed_errors(positives: Sequence[int], others: Sequence[int]) -> tuple[float, float]:
    """Return a judge's sensitivity and specificity from checks whose truth is known, as if ten more went as usual.

    Args:
        positives: how many labelled positives it called relevant, and how many it judged.
        others: how many random documents it did not call relevant, and how many it judged.
    """
    right, checked = np.array([positives, others], np.float64).T
    sensitivity, specificity = (right + USUAL * np.array(USUAL_ERRORS)) / (checked + USUAL)
    return max(CHANCE, float(sensitivity)), max(CHANCE, float(specificity))


@dataclass(frozen=True)
class Answered:
    """Answers of one judge, or of people, about rows of the table.

    Attributes:
        answers: the rows that were judged, with the judge's errors.
        probability: (k,) of each row of the table, to be drawn for it; NaN: not known.
        asked: how many rows it was asked about in this run.
        highest: specificity that the judge has at most: that on random documents, where people do not show it.
    """

    answers: Answers
    probability: Floats
    asked: int = 0
    highest: float = 0.0

    @property
    def believed(self) -> bool:
        """Whether the judge is far better than chance, as far as is known."""
        return self.answers.sensitivity + self.answers.specificity - 1 >= LEAST_POWER


def answers_of(labels: Labels, pairs: pa.Table, judge: str | None) -> Answered:
    """Return what labels say of pairs, of a program by its name, or of people, whose answers are the truth."""
    relevant, probability = labels.match(pairs, judge=judge)
    rows = np.flatnonzero(np.isfinite(relevant))
    sensitivity, specificity = (1.0, 1.0) if judge is None else believed_errors(*labels.checks(judge))
    return Answered(Answers(rows, relevant[rows], sensitivity, specificity), probability)


def ask_judge(
    judge: PairJudge,
    collection: Collection,
    pairs: pa.Table,
    features: Floats,
    known: Answered,
    questions: int,
    *,
    seed: int = 0,
) -> Answered:
    """Ask a judge about rows: half of them drawn at random, half where the first half leaves most open.

    Row j keeps its number u_j from draw to draw, so that it is drawn in one of them where u_j < max_r size_rj·T_r:
    the probability that its answer counts with, whichever draw it came from (`foils.statistics.survey.draw`).

    Args:
        judge: whom to ask.
        collection: of the texts.
        pairs: (k,) rows of query_id, doc_id and text.
        features: (k, f) of the rows.
        known: what the judge answered before, which is not asked again, with its errors.
        questions: how many rows.
        seed: of the draws.

    Raises:
        InputError, FailureError: what the judge raises.
    """
    every, numbers = np.arange(len(pairs)), permanent_numbers(pair_keys(pairs).to_pylist(), seed=seed)
    answers, probability = known.answers, known.probability.copy()
    tried = np.isin(every, answers.rows)
    before, asked = tried.copy(), 0
    for part in range(ROUNDS):
        count = (questions - asked) // (ROUNDS - part)
        if not count or tried.all():
            continue
        belief = learn(features, [answers]).prior if len(answers.rows) else None
        size = importance([every], len(every), belief=belief)
        drawn = draw(np.where(tried, 0.0, size), numbers, count)
        rows = np.sort(drawn.rows)
        in_any_draw = np.fmax(probability, np.minimum(1.0, size * drawn.threshold))
        probability = np.where(before, probability, in_any_draw)
        shown = shown_of(collection, pairs.take(pa.array(rows)).to_pylist())
        relevant = np.array([np.nan if each is None else float(each) for each in judge.judge(shown)])
        answered = np.isfinite(relevant)
        if not answered.all():
            missing = int((~answered).sum())
            log.info("%s gave no answer on %d of %d rows; they stay as they were", judge.name, missing, len(rows))
        judged_rows = np.concatenate([answers.rows, rows[answered]])
        order = np.argsort(judged_rows)
        judged_relevant = np.concatenate([answers.relevant, relevant[answered]])[order]
        answers = replace(answers, rows=judged_rows[order], relevant=judged_relevant)
        tried[rows] = True
        asked += len(rows)
    return Answered(answers, probability, asked)


def with_errors(program: Answered, people: Answered) -> tuple[Answered, bool]:
    """Return a program's answers with its errors as people show them, and whether people do.

    Where people judged thirty of the same rows, or more, its sensitivity and specificity are the shares of these rows,
    with one right and one wrong answer more. Else the specificity is halfway between chance and that on random
    documents, which are easier to judge.
    """
    answers = program.answers
    truth = dict(zip(people.answers.rows.tolist(), people.answers.relevant.tolist(), strict=True))
    shared = [at for at, row in enumerate(answers.rows.tolist()) if row in truth]
    if len(shared) < LEAST:
        lower = replace(answers, specificity=(CHANCE + answers.specificity) / 2)
        return replace(program, answers=lower, highest=answers.specificity), False
    relevant = np.array([truth[row] for row in answers.rows[shared].tolist()])
    called = answers.relevant[shared]
    sensitivity = (relevant @ called + 1) / (relevant.sum() + 2)
    specificity = ((1 - relevant) @ (1 - called) + 1) / ((1 - relevant).sum() + 2)
    errors = (float(np.clip(each, 1 - SURE, SURE)) for each in (sensitivity, specificity))
    return replace(program, answers=Answers(answers.rows, answers.relevant, *errors)), True


def verdicts_of(
    crowd: Crowd, answered: Sequence[Answered], people: Answered, precision: float, negative_precision: float
) -> tuple[npt.NDArray[np.object_], float, float]:
    """Return the verdict of each row, and the probabilities from which on, and up to which, one is given.

    A row is called positive where it is relevant with probability ½ at least, rows at least as probable are expected to
    be relevant in the wanted share, and so they are by the answers about them. Negative likewise. A threshold above 1,
    or below 0: no row is called so. A person's answer is the verdict of its row.

    Args:
        crowd: what features and answers say of each row.
        answered: whose answers confirm the shares, the best first (`share_by_answers`): the first whose standard error
            is at most 0.1. Of negative rows the most that may be relevant is taken, by the highest specificity.
        people: a person's answers.
        precision: wanted share of relevant rows among the positive ones.
        negative_precision: wanted share of rows that are not relevant among the negative ones.
    """
    p, prior = crowd.posterior, crowd.prior

    def share(rows: Marks, *, most: bool = False) -> float:
        for each in answered:
            specificity = max(each.answers.specificity, each.highest if most else 0.0)
            answers = replace(each.answers, specificity=specificity)
            value, error = share_by_answers(answers, each.probability, rows)
            if error <= MOST_ERROR:
                return value
        return np.nan

    def confirmed(least: float, probability: Floats, holds: Callable[[float], bool]) -> float:
        above = probability[probability >= least]
        quantiles = np.quantile(above, np.linspace(0, 1, STEPS), method="higher").tolist() if len(above) else []
        return next((each for each in quantiles if holds(each)), 2.0)

    high = confirmed(max(0.5, threshold(p, precision)), p, lambda t: share(prior >= t) >= precision)
    low = confirmed(
        max(0.5, threshold(1 - p, negative_precision)),
        1 - p,
        lambda t: 1 - share(1 - prior >= t, most=True) >= negative_precision,
    )
    verdict = np.where(p >= high, POSITIVE, np.where(1 - p >= low, NEGATIVE, UNSURE)).astype(object)
    verdict[people.answers.rows] = np.where(people.answers.relevant == 1, POSITIVE, NEGATIVE)
    return verdict, high, 1 - low


@dataclass(frozen=True, kw_only=True)
class Relabelled(Negatives):
    """A table with `relevance`, the probability that each row is relevant, and `verdict`.

    Attributes:
        judges: what each was asked, and how often it is right: `people`, and the judge.
        evidence: names of what is seen of a row, and the weight of each.
        high: probability from which on a row that nobody answered about is called positive, above 1: none is.
        low: up to which it is called negative, below 0: none is.
        answers: of all judges, as labels.
        models: name -> use, of a language model that judged.
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
        means = {name: float(p.mean()) if np.isfinite(p).any() else None for name, p in of.items()}
        return {name: {"rows": len(p), "relevant": means[name]} for name, p in of.items()}

    def tables(self) -> list[Table]:
        """Return the verdicts, how many rows are left to train on, and what each judge was asked."""
        bars = {
            POSITIVE: f"≥ {self.high:.2f}" if self.high <= 1 else "–",
            NEGATIVE: f"≤ {self.low:.2f}" if self.low >= 0 else "–",
        }
        counts = self.counts()
        rows = [
            (name, f"{each['rows']:,}", number(each["relevant"]), bars.get(name, "")) for name, each in counts.items()
        ]
        notes = [f"{int(self.keep.sum()):,} of {len(self):,} rows are left to train on."]
        notes += [f"{name}: {count}" for name, count in self.rejected_rows()]
        if without := self.table["verdict"].null_count:
            why = "their query has no positive in the split, or they are positives"
            notes.append(f"{without:,} rows without a verdict: {why}")
        if counts[UNSURE]["rows"] > len(self) / 2:
            ways = f"a larger {spelled('budget')}, or labels of your own ({spelled('labels')})"
            notes.append(f"Most rows are unsure: the answers do not show where the line is. What helps is {ways}.")
        columns = ("judge", "asked", "answers", "sensitivity", "specificity")
        errors = [(number(each["sensitivity"]), number(each["specificity"])) for each in self.judges]
        judges: list[tuple[str, ...]] = [
            (each["name"], f"{each['asked']:,}", f"{each['answered']:,}", *shown)
            for each, shown in zip(self.judges, errors, strict=True)
        ]
        judges += [(name, value, *[""] * 3) for model, use in self.models.items() for name, value in use.rows(model)]
        doubted = [each["name"] for each in self.judges if not each["believed"]]
        caption = f"{', '.join(doubted)}: little better than chance, and not believed." if doubted else ""
        return [
            Table(self.title, ("verdict", "rows", "relevant, expected", "probability"), rows, "\n".join(notes)),
            Table("Judges", columns, judges, caption),
        ]

    def to_json(self) -> dict[str, Any]:
        """Return verdicts, thresholds, what the judges were asked and how often they err, and the settings."""
        used = {name: use.to_json() for name, use in self.models.items()}
        return {
            "settings": self.provenance.get("settings", {}),
            "verdicts": self.counts(),
            "left": int(self.keep.sum()),
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


def _check_relabelling(relabelling: RelabelSettings) -> None:
    """Refuse a call in which nobody answers."""
    if relabelling.judge is None and not relabelling.labels:
        raise InputError(
            f"nobody says which rows are answers; give {spelled('judge', 'JUDGE')}, or answers of foils label: "
            f"{spelled('labels', 'FILE')}"
        )


@door(check=_check_relabelling, needs={"llm": {"judge": "llm"}})
def relabel(
    collection: CollectionLike,
    source: SourceLike,
    *,
    relabelling: RelabelSettings,
    reading: CollectionSettings,
    llm: LLMSettings,
    encoding: EncodingSettings = AT_128,
) -> Relabelled:
    """Relabel negatives: say of each row whether it is an answer after all, by a judge's answers about some.

    The table gains `relevance`, a probability, and `verdict`: positive, negative or unsure. Rows that are called
    positive are no longer trained on as negatives, and can join the judgements: --promoted FILE here, and
    --add-judgements FILE wherever the collection is used. Rejected rows are judged, too, and stay rejected.

    Raises:
        InputError: a collection, source, judge or labels that cannot be read, nobody to ask, or no row of a judged
            query.
        FailureError: the judge failed; what a language model answered is kept, and the same command goes on.

    Example:
        foils relabel scifact/ dense.parquet --judge llm:NAME --base-url http://localhost:8000/v1 --promoted found.tsv
        -o relabelled.parquet
    """
    loaded = reading.open(collection)
    named = as_source(source, loaded)
    taken = [name for name in ("relevance", "verdict") if name in named.negatives.table.column_names]
    if taken:
        raise InputError(f"{named.name} has {' and '.join(taken)} already; relabel the table it was made from")
    encoder, store = encoding.open(loaded)
    tables = [Labels.of(each, loaded).table for each in several(relabelling.labels)]
    labels = Labels(pa.concat_tables(tables)) if tables else Labels(pa.table({}))
    evidence = evidence_of(loaded, named.negatives, encoder, store, split=relabelling.split)
    pairs = pairs_in(named.negatives.table.take(pa.array(evidence.rows)))
    people = answers_of(labels, pairs, None)
    programs = {name: answers_of(labels, pairs, name) for name in labels.programs()}
    checked: list[Labels] = []
    models: dict[str, ModelUse] = {}
    if relabelling.judge is not None:
        given: Any = relabelling.judge
        opening = Opening(JudgeSettings(judge=[given]), encoding, llm, QuestionSettings(), Purse(llm.max_cost))
        judge = open_judge(given, loaded, opening, relabelling.question)
        if relabelling.checks:
            checked = [judge_known(judge, loaded, pairs["query_id"], pairs=relabelling.checks, seed=relabelling.seed)]
        known = answers_of(labels, pairs, judge.name)
        errors = believed_errors(
            *Labels(pa.concat_tables([labels.table, *(each.table for each in checked)])).checks(judge.name)
        )
        known = replace(known, answers=replace(known.answers, sensitivity=errors[0], specificity=errors[1]))
        questions = relabelling.questions(len(pairs))
        programs[judge.name] = ask_judge(
            judge, loaded, pairs, evidence.features, known, questions, seed=relabelling.seed
        )
        models = {judge.name: judge.questions.asked} if judge.questions else {}
    corrected = {name: with_errors(each, people) for name, each in programs.items()}
    believed = [each for each, _ in reversed(corrected.values()) if each.believed]
    best_first = [*([people] if len(people.answers.rows) else []), *believed]
    crowd = learn(evidence.features, [each.answers for each in best_first])
    verdict, high, low = verdicts_of(
        crowd, best_first, people, relabelling.positive_precision, relabelling.negative_precision
    )
    relevance = np.full(len(named.negatives), np.nan)
    if best_first:  # without an answer that is believed nothing is known
        relevance[evidence.rows] = crowd.posterior
    verdicts = np.full(len(named.negatives), None, object)
    verdicts[evidence.rows] = verdict
    columns = {"relevance": pa.array(relevance), "verdict": pa.array(verdicts, pa.string())}
    table = named.negatives.with_columns(columns).reject(verdicts == POSITIVE, RELEVANT)
    if relabelling.unsure == REJECT:
        table = table.reject(verdicts == UNSURE, NOT_SURE)
    recorded = ("budget", "checks", "positive_precision", "negative_precision", "unsure", "split")
    settings = {name: getattr(relabelling, name) for name in recorded}
    settings |= {"judges": [*programs], "labels": [len(each) for each in tables], "encoder": encoder.fingerprint}
    digests = {"collection": loaded.digest, named.name: named.digest}
    history = provenance("relabel", settings, inputs=digests, seed=relabelling.seed)
    everybody = {**({PEOPLE: (people, True)} if len(people.answers.rows) else {}), **corrected}
    answers = [_labels_of(pairs, name, each) for name, (each, _) in everybody.items()]
    return Relabelled.of(
        table.with_provenance(history),
        title=f"{named.name}, relabelled",
        collection=loaded,
        split=relabelling.split,
        judges=tuple(_use(name, each, confirmed) for name, (each, confirmed) in everybody.items()),
        evidence=dict(zip(("constant", *evidence.names), crowd.weights.tolist(), strict=True)),
        high=high,
        low=low,
        answers=Labels(pa.concat_tables([*answers, *(each.table for each in checked)])),
        models=models,
    )


def _use(name: str, answered: Answered, confirmed: bool) -> dict[str, Any]:
    """What a judge was asked, its errors (NaN without answers), and whether people confirm them and it is believed."""
    answers = answered.answers
    errors = (answers.sensitivity, answers.specificity) if len(answers.rows) else (np.nan, np.nan)
    return {
        "name": name, "asked": answered.asked, "answered": len(answers.rows), "sensitivity": errors[0],
        "specificity": errors[1], "confirmed": confirmed, "believed": answered.believed,
    }  # fmt: skip


def _labels_of(pairs: pa.Table, name: str, answered: Answered) -> pa.Table:
    """A judge's answers, as the table of labels."""
    rows = pairs.take(pa.array(answered.answers.rows))
    relevant = pa.array(answered.answers.relevant.astype(np.int8))
    return Labels(rows.append_column("relevant", relevant).append_column("judge", pa.repeat(name, len(rows)))).table
