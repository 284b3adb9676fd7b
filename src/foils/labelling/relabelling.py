"""Relabelling: a judge answers about some rows; a threshold on what it taught says which others are answers.

Two features of a row are seen before anybody judges it: how near it is to labelled positives, and
what the labels of other queries say.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Annotated, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from scipy.sparse import csr_matrix

from foils.data.collection import Collection, DocumentTexts, Positives, Rows
from foils.data.labels import Labels
from foils.data.negatives import Negatives
from foils.data.read import AddedLike, CollectionLike, CollectionSettings
from foils.data.run import ranks_within
from foils.data.sources import SourceLike, as_source
from foils.data.tables import provenance
from foils.encode.encoder import Encoder
from foils.encode.opening import AT_128, EncodingSettings
from foils.encode.vectors import VectorStore
from foils.labelling.doors import JUDGES, PEOPLE, Answer, ask_program, open_judge
from foils.labelling.sheet import LabelSheet, pairs_in, pairs_of
from foils.llm import LLMSettings, Usage
from foils.rating import Judge
from foils.runtime import progress
from foils.runtime.errors import InputError, check_names
from foils.runtime.files import without_nan
from foils.runtime.options import Option, Settings, door, several, spelled
from foils.runtime.results import Table, number
from foils.statistics.survey import Answers, Crowd, learn, threshold

JudgeLike = str | Judge | Answer
log = logging.getLogger(__name__)
Floats = npt.NDArray[np.float64]
Marks = npt.NDArray[np.bool_]

REJECT, KEEP = "reject", "keep"
POSITIVE, NEGATIVE, UNSURE = "positive", "negative", "unsure"
RELEVANT, NOT_SURE = "relabelled positive", "may be relevant"  # reasons of rejected rows
SOURCE, NOT_JUDGED = "table", "query without a judgement"  # of the pairs that are drawn
PROGRAM = "relabel:foils"  # who says in the labels that a promoted pair is relevant
LEAST = 30  # answers that a share, or a judge's errors, are estimated from, at least
MOST_ERROR = 0.1  # standard error of a share that says something
LEAST_POWER = 0.4  # sensitivity + specificity − 1 from which on a judge is believed
STEPS = 41  # thresholds that are tried
# Specificity by chance; the most that is believed of a judge's sensitivity or specificity.
CHANCE, SURE = 0.5, 0.999
USUAL_ERRORS = (0.8, 0.9)  # sensitivity and specificity of a judge that was not checked
USUAL = 10.0  # checks that they count as, where it was
COMPARED = 64  # positives of a query, or queries of a document, that are looked at
AT_ONCE = 4_096  # rows whose labels are followed at once


@dataclass(frozen=True, kw_only=True)
class RelabelSettings(Settings):
    """How rows are relabelled.

    Attributes:
        judge: Who is asked about a sample of the rows: bi-encoder[:MODEL], cross-encoder:MODEL or
            llm[:MODEL]. In Python also a judge of `foils.rate`, or a function of query, positive
            and document that returns True, False or None.
        budget: Rows that the judge is asked about: a share of the table up to 1, or a number above 1.
        positive_precision: Wanted share of relevant documents among the rows that are called positive.
        negative_precision: Wanted share of documents that are not relevant among the rows that are
            called negative.
        unsure: What becomes of rows between the two: keep trains on them as before, reject leaves them out.
        labels: File with answers that are there already, as foils label writes it; may be given
            several times. People's answers are taken for the truth. In Python also labels or a
            DataFrame.
        checks: Number of labelled positives, and of documents drawn at random, that the judge also
            judges, so that its errors can be estimated; 0 for none.
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
    split: str = "train"
    seed: Annotated[int, Option(least=0)] = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        if isinstance(self.judge, str):
            check_names("judge", [self.judge.partition(":")[0]], JUDGES)

    def questions(self, rows: int) -> int:
        """Return how many of these rows the judge is asked about."""
        return max(1, round(self.budget * rows)) if self.budget <= 1 else min(rows, round(self.budget))


@dataclass(frozen=True)
class Evidence:
    """Features of the rows of a table.

    Attributes:
        rows: (k,) rows of the table whose query the split judges, and whose document is none of its
            positives.
        names: of the features.
        features: (k, f), of mean 0 and standard deviation 1; those that do not vary are left out.
    """

    rows: Rows
    names: tuple[str, ...]
    features: Floats


def evidence_of(
    collection: Collection, negatives: Negatives, encoder: Encoder, store: VectorStore, *, split: str = "train"
) -> Evidence:
    """Return two features of each row.

    - nearest: the similarity of the document to the nearest of the query's labelled positives.
    - labelled together: log(1 + number of ways) from the query over a positive of it and another
      query for which that is labelled, too, to the document. It is 0 where each query has positives
      of its own.

    Args:
        collection: documents, queries, judgements.
        negatives: the table; rows that are rejected are looked at as well.
        encoder: that measures similarity.
        store: of vectors.
        split: whose judgements are known.

    Raises:
        InputError: no row of a query that the split judges.
        UnknownNameError: no such split.
    """
    known = collection.positives(split)
    query_rows, texts = negatives.texts_in(collection)
    places, doc_rows = known.places(query_rows), np.maximum(np.asarray(texts.rows), -1)
    rows = np.flatnonzero((places >= 0) & ~known.contain(query_rows, doc_rows))
    if not len(rows):
        raise InputError(f"no row is of a query that the split {split!r} judges; there is nothing to relabel")
    places = places[rows]
    columns = {
        "nearest": _nearest(known, places, texts.select(rows), encoder, store),
        "labelled together": _labelled_together(known, places, doc_rows[rows], len(collection.documents)),
    }
    varying = {name: values for name, values in columns.items() if values.std() > 1e-9}
    features = [(values - values.mean()) / values.std() for values in varying.values()]
    return Evidence(rows, tuple(varying), np.column_stack([np.zeros((len(rows), 0)), *features]))


def _nearest(known: Positives, places: Rows, texts: DocumentTexts, encoder: Encoder, store: VectorStore) -> Floats:
    """(k,) each text's largest similarity to the first 64 positives of its query, by its place in `known`."""
    positive_rows = np.unique(known.doc_rows)
    positives = store.embed(encoder, DocumentTexts(texts.collection, positive_rows), "document")
    distinct, inverse = np.unique(np.asarray(texts.rows), return_inverse=True)
    documents = store.embed(encoder, DocumentTexts(texts.collection, distinct, texts.own), "document")
    nearest = np.zeros(len(places))
    order = np.argsort(places, kind="stable")
    starts = np.searchsorted(places[order], np.arange(len(known) + 1))
    with progress.task("comparing with positives", total=len(known), unit="queries") as advance:
        for place in range(len(known)):
            of_query = order[starts[place] : starts[place + 1]]
            if len(of_query):
                answers = positives.take(np.searchsorted(positive_rows, known.of(place)[:COMPARED]))
                nearest[of_query] = (documents.take(inverse[of_query]) @ answers.T).max(axis=1)
            advance(1)
    return nearest


def _labelled_together(known: Positives, places: Rows, doc_rows: Rows, documents: int) -> Floats:
    """(k,) log(1 + ways) from each row's query to its document; rows below 0: not in the collection."""
    query, document = np.repeat(np.arange(len(known)), known.counts), known.doc_rows
    queries_of = _first(document, query, (documents + 1, len(known)))
    shared = _first(query, document, (len(known), documents + 1)) @ queries_of
    targets, ways = np.where(doc_rows < 0, documents, doc_rows), np.zeros(len(places))
    for start in range(0, len(places), AT_ONCE):
        part = slice(start, start + AT_ONCE)
        ways[part] = np.asarray(shared[places[part]].multiply(queries_of[targets[part]]).sum(axis=1)).ravel()
    return np.log1p(ways)


def _first(keys: Rows, values: Rows, shape: tuple[int, int]) -> csr_matrix:
    """Return which values each key has, as a matrix of zeros and ones; of each key the first 64 count."""
    order = np.argsort(keys, kind="stable")
    keys, values = keys[order], values[order]
    few = ranks_within(keys) < COMPARED
    return csr_matrix((np.ones(few.sum(), np.int64), (keys[few], values[few])), shape=shape)


def share_by_answers(judged: Answers, probability: Floats, rows: Marks) -> tuple[float, float]:
    """Return the share of rows that is relevant by answers, and its standard error; NaN and ∞: not known.

    Each answer counts for the rows that it was drawn for, 1/probability, and the share q that is
    called relevant is corrected by the judge's errors, (q + sp − 1)/(se + sp − 1), with standard
    error √(q(1 − q)/n)/(se + sp − 1), n the effective number of answers.

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
    """Return a judge's sensitivity and specificity from checks of known truth, as if ten more went as usual.

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
        highest: specificity that the judge has at most: that on random documents, where people do
            not show it.
    """

    answers: Answers
    probability: Floats
    highest: float = 0.0

    @property
    def believed(self) -> bool:
        """Whether the judge is far better than chance, as far as is known."""
        return self.answers.sensitivity + self.answers.specificity - 1 >= LEAST_POWER


def answers_of(labels: Labels, pairs: pa.Table, judge: str | None) -> Answered:
    """Return what labels say of pairs: of a program by its name, or of people, who are the truth."""
    relevant, probability = labels.match(pairs, judge=judge)
    rows = np.flatnonzero(np.isfinite(relevant))
    sensitivity, specificity = (1.0, 1.0) if judge is None else believed_errors(*labels.checks(judge))
    return Answered(Answers(rows, relevant[rows], sensitivity, specificity), probability)


def with_errors(program: Answered, people: Answered) -> tuple[Answered, bool]:
    """Return a program's answers with its errors as people show them, and whether people do.

    Where people judged thirty of the same rows, or more, its sensitivity and specificity are the
    shares of these rows, with one right and one wrong answer more. Else the specificity is halfway
    between chance and that on random documents, which are easier to judge.
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

    A row is called positive where it is relevant with probability ½ at least, rows at least as
    probable are expected to be relevant in the wanted share, and so they are by the answers about
    them. Negative likewise. A threshold above 1, or below 0: no row is called so. A person's answer
    is the verdict of its row.

    Args:
        crowd: what features and answers say of each row.
        answered: whose answers confirm the shares, the best first (`share_by_answers`): the first
            whose standard error is at most 0.1. Of negative rows the most that may be relevant is
            taken, by the highest specificity.
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
        levels = np.quantile(above, np.linspace(0, 1, STEPS), method="higher").tolist() if len(above) else []
        return next((each for each in levels if holds(each)), 2.0)

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
    models: Mapping[str, Usage] = field(default_factory=dict)

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
        """Return for each verdict the number of rows, and the share of them expected to be relevant."""
        probability = self.table["relevance"].to_numpy()
        verdicts = np.asarray(self.table["verdict"].fill_null("").to_numpy(zero_copy_only=False))
        probabilities = {name: probability[verdicts == name] for name in (POSITIVE, UNSURE, NEGATIVE)}
        means = {name: float(p.mean()) if np.isfinite(p).any() else None for name, p in probabilities.items()}
        return {name: {"rows": len(p), "relevant": means[name]} for name, p in probabilities.items()}

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
            notes.append(f"Most rows are unsure: the answers do not show the line. What helps is {ways}.")
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
        """Return verdicts, thresholds, what judges were asked and how often they err, and the settings."""
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
            f"nobody says which rows are answers; give {spelled('judge', 'JUDGE')}, or answers of foils "
            f"label: {spelled('labels', 'FILE')}"
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

    The table gains `relevance`, a probability, and `verdict`: positive, negative or unsure. Rows
    that are called positive are no longer trained on as negatives, and can join the judgements:
    --promoted FILE here, and --add-judgements FILE wherever the collection is used. Rejected rows
    have a verdict, too, and stay rejected.

    Raises:
        InputError: a collection, source, judge or labels that cannot be read, nobody to ask, or no
            row of a judged query.
        FailureError: the judge failed; what a language model answered is kept, and the same command goes on.

    Example:
        foils relabel scifact/ dense.parquet --judge llm:NAME --base-url http://localhost:8000/v1
        --promoted found.tsv -o relabelled.parquet
    """
    loaded = reading.open(collection)
    named = as_source(source, loaded)
    present = [name for name in ("relevance", "verdict") if name in named.negatives.table.column_names]
    if present:
        raise InputError(f"{named.name} has {' and '.join(present)} already; relabel the table it came from")

    # 1. What is seen of each row before anybody answers.
    encoder, store = encoding.open(loaded)
    evidence = evidence_of(loaded, named.negatives, encoder, store, split=relabelling.split)
    pairs = pairs_in(named.negatives.table.take(pa.array(evidence.rows)))

    # 2. Answers: those that are there, and the judge's about a sample of the rows.
    tables = [Labels.of(each, loaded).table for each in several(relabelling.labels)]
    labels = Labels(pa.concat_tables(tables)) if tables else Labels(pa.table({}))
    asked, models = dict[str, int](), dict[str, Usage]()
    if relabelling.judge is not None:
        judge = open_judge(relabelling.judge, loaded, llm, encoding)
        sheet, labels = drawn_sheet(loaded, named.negatives, evidence.rows, labels, judge.name, relabelling)
        asked = {judge.name: len(sheet.open(judge.name))}
        models = ask_program(judge, sheet, pairs["query_id"], checks=relabelling.checks, seed=relabelling.seed)
        labels = Labels(pa.concat_tables([labels.table, sheet.labels().table]))

    # 3. How often each judge errs, and what features and answers say together.
    people = answers_of(labels, pairs, None)
    programs = {name: answers_of(labels, pairs, name) for name in dict.fromkeys([*labels.programs(), *asked])}
    corrected = {name: with_errors(each, people) for name, each in programs.items()}
    believed = [each for each, _ in reversed(corrected.values()) if each.believed]
    best_first = [*([people] if len(people.answers.rows) else []), *believed]
    crowd = learn(evidence.features, [each.answers for each in best_first])
    verdict, high, low = verdicts_of(
        crowd, best_first, people, relabelling.positive_precision, relabelling.negative_precision
    )

    # 4. The table with its two columns; rows that are called positive are rejected.
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
    judges = {PEOPLE: (people, True), **corrected} if len(people.answers.rows) else corrected
    return Relabelled.of(
        table.with_provenance(history),
        title=f"{named.name}, relabelled",
        collection=loaded,
        split=relabelling.split,
        judges=tuple(_use(name, asked.get(name, 0), *each) for name, each in judges.items()),
        evidence=dict(zip(("constant", *evidence.names), crowd.weights.tolist(), strict=True)),
        high=high,
        low=low,
        answers=labels,
        models=models,
    )


def drawn_sheet(
    collection: Collection, negatives: Negatives, rows: Rows, labels: Labels, judge: str, settings: RelabelSettings
) -> tuple[LabelSheet, Labels]:
    """Return the sheet of rows that a judge is asked about, as `foils label` draws them, and others' labels.

    What the judge has answered before stands in the sheet.
    """
    pool = pairs_of({SOURCE: negatives.reject(~np.isin(np.arange(len(negatives)), rows), NOT_JUDGED)})
    drawn = pool.draw(settings.questions(len(pool)), seed=settings.seed)
    sheet = LabelSheet.of(None, collection, pool, drawn)
    by_judge = pc.fill_null(pc.equal(labels.table["judge"], judge), False)
    sheet.add(Labels(labels.table.filter(by_judge)))
    return sheet, Labels(labels.table.filter(pc.invert(by_judge)))


def _use(name: str, asked: int, answered: Answered, confirmed: bool) -> dict[str, Any]:
    """What a judge was asked, its errors (NaN: no answers), if people confirm them, and if it is believed."""
    answers = answered.answers
    errors = (answers.sensitivity, answers.specificity) if len(answers.rows) else (np.nan, np.nan)
    return {
        "name": name, "asked": asked, "answered": len(answers.rows), "sensitivity": errors[0],
        "specificity": errors[1], "confirmed": confirmed, "believed": answered.believed,
    }  # fmt: skip
