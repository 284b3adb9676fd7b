"""Relabelling: labels of some rows, and a threshold on what they teach, say which others are answers.

Two features of a row are seen before anybody judges it: how near it is to labelled positives, and
what the labels of other queries say.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
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
from foils.encode.vectors import AT_128, EncodingSettings, VectorStore
from foils.labelling.doors import PEOPLE, pairs_in
from foils.runtime import progress
from foils.runtime.errors import InputError
from foils.runtime.files import without_nan
from foils.runtime.options import Option, door, several, spelled
from foils.runtime.results import Table, number
from foils.statistics.survey import Answers, Crowd, learn, threshold

Floats = npt.NDArray[np.float64]
Marks = npt.NDArray[np.bool_]

POSITIVE, NEGATIVE, UNSURE = "positive", "negative", "unsure"
RELEVANT = "relabelled positive"  # reason of rejected rows
PROGRAM = "relabel:foils"  # who says in the labels that a promoted pair is relevant
LEAST = 30  # answers that a share, or a judge's errors, are estimated from, at least
MOST_ERROR = 0.1  # standard error of a share that says something
LEAST_POWER = 0.4  # sensitivity + specificity − 1 from which on a judge is believed
STEPS = 41  # thresholds that are tried
CHANCE = 0.5  # specificity of a judge that guesses
USUAL_ERRORS = (0.8, 0.9)  # sensitivity and specificity of a judge that was not checked
USUAL = 10.0  # checks that they count as, where it was
COMPARED = 64  # positives of a query, or queries of a document, that are looked at
AT_ONCE = 4_096  # rows whose labels are followed at once


def evidence_of(
    collection: Collection, negatives: Negatives, encoder: Encoder, store: VectorStore, *, split: str = "train"
) -> tuple[Rows, dict[str, Floats]]:
    """Return rows of the table, and features of each, of mean 0 and standard deviation 1.

    The rows are those whose query the split judges, and whose document is none of its positives. A
    feature that does not vary is left out.

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
    return rows, {name: (values - values.mean()) / values.std() for name, values in varying.items()}


def _nearest(known: Positives, places: Rows, texts: DocumentTexts, encoder: Encoder, store: VectorStore) -> Floats:
    """(k,) each text's largest similarity to the first 64 positives of its query, by its place in `known`."""
    positive_rows = np.unique(known.doc_rows)
    positives = store.embed(encoder, DocumentTexts(texts.collection, positive_rows), "document")
    distinct, inverse = np.unique(np.asarray(texts.rows), return_inverse=True)
    documents = store.embed(encoder, DocumentTexts(texts.collection, distinct, texts.own), "document")
    nearest, order = np.zeros(len(places)), np.argsort(places, kind="stable")
    queries, starts = np.unique(places[order], return_index=True)
    with progress.task("comparing with positives", total=len(queries), unit="queries") as advance:
        for place, of_query in zip(queries, np.split(order, starts[1:]), strict=True):
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


@dataclass(frozen=True, kw_only=True)
class Judged(Answers):
    """Answers of one judge, or of people, about rows of the table.

    Attributes:
        probability: (k,) with which each judged row was drawn for the judge; NaN: not known.
        confirmed: whether people's answers show how often the judge errs.
    """

    probability: Floats
    confirmed: bool = True

    @property
    def believed(self) -> bool:
        """Whether the judge is far better than chance, as far as is known."""
        return self.sensitivity + self.specificity - 1 >= LEAST_POWER

    @property
    def facts(self) -> dict[str, Any]:
        """What a result says of the judge; its errors are NaN where it has no answers."""
        errors = (self.sensitivity, self.specificity) if len(self.rows) else (np.nan, np.nan)
        return {
            "answered": len(self.rows), "sensitivity": errors[0], "specificity": errors[1],
            "confirmed": self.confirmed, "believed": self.believed,
        }  # fmt: skip


def share_by_answers(judged: Judged, rows: Marks) -> tuple[float, float]:
    """Return the share of rows that is relevant by answers, and its standard error; NaN and ∞: not known.

    Each answer counts for the rows that it was drawn for, 1/probability, and the share q that is
    called relevant is corrected by the judge's errors, (q + sp − 1)/(se + sp − 1), with standard
    error √(q(1 − q)/n)/(se + sp − 1), n the effective number of answers.

    Args:
        judged: a judge's answers, with its errors.
        rows: (k,) which rows.

    Source: Rogan & Gladen 1978; Horvitz & Thompson 1952.
    """
    counted = rows[judged.rows] & np.isfinite(judged.probability)
    if counted.sum() < LEAST:
        return float("nan"), float("inf")
    w = 1 / judged.probability[counted]
    power = judged.sensitivity + judged.specificity - 1
    q = np.average(judged.relevant[counted], weights=w)
    effective = w.sum() ** 2 / (w**2).sum()
    smoothed = (q * effective + 0.5) / (effective + 1)
    error = float(np.sqrt(smoothed * (1 - smoothed) / effective) / power)
    return float(np.clip((q + judged.specificity - 1) / power, 0, 1)), error


def believed_errors(positives: Sequence[int], others: Sequence[int]) -> tuple[float, float]:
    """Return a judge's sensitivity and specificity from checks of known truth, as if ten more went as usual.

    Args:
        positives: how many labelled positives it called relevant, and how many it judged.
        others: how many random documents it did not call relevant, and how many it judged.
    """
    right, checked = np.array([positives, others], np.float64).T
    sensitivity, specificity = (right + USUAL * np.array(USUAL_ERRORS)) / (checked + USUAL)
    return max(CHANCE, float(sensitivity)), max(CHANCE, float(specificity))


def answers_of(labels: Labels, pairs: pa.Table, judge: str | None) -> Judged:
    """Return what labels say of pairs: of a program by its name, or of people, who are the truth."""
    relevant, probability = labels.match(pairs, judge=judge)
    rows = np.flatnonzero(np.isfinite(relevant))
    errors = (1.0, 1.0) if judge is None else believed_errors(*labels.checks(judge))
    return Judged(rows, relevant[rows], *errors, probability=probability[rows])


def with_errors(program: Judged, people: Judged) -> Judged:
    """Return a program's answers with its errors as people show them.

    Where people judged thirty of the same rows, or more, its sensitivity and specificity are the
    shares of these rows, with one right and one wrong answer more. Else the specificity is halfway
    between chance and that on random documents, which are easier to judge.
    """
    shared, of_program, of_people = np.intersect1d(program.rows, people.rows, return_indices=True)
    if len(shared) < LEAST:
        lower = (CHANCE + program.specificity) / 2
        return replace(program, specificity=lower, confirmed=False)
    called, relevant = program.relevant[of_program], people.relevant[of_people]
    sensitivity = (relevant @ called + 1) / (relevant.sum() + 2)
    specificity = ((1 - relevant) @ (1 - called) + 1) / ((1 - relevant).sum() + 2)
    return replace(program, sensitivity=float(sensitivity), specificity=float(specificity))


def verdicts_of(
    crowd: Crowd, judged: Sequence[Judged], people: Judged, precision: float
) -> tuple[npt.NDArray[np.object_], float]:
    """Return the verdict of each row, and the probability from which on a row is called positive; above 1: none is.

    A row is called positive where it is relevant with probability ½ at least, rows at least as
    probable are expected to be relevant in the wanted share, and so they are by the answers about
    them. A person's answer is the verdict of its row; all others are unsure.

    Args:
        crowd: what features and answers say of each row.
        judged: whose answers confirm the shares, the best first (`share_by_answers`): the first
            whose standard error is at most 0.1.
        people: a person's answers.
        precision: wanted share of relevant rows among the positive ones.
    """

    def confirmed(level: float) -> bool:
        shares = (share_by_answers(each, crowd.prior >= level) for each in judged)
        return next((value for value, error in shares if error <= MOST_ERROR), np.nan) >= precision

    p = crowd.posterior
    above = p[p >= max(0.5, threshold(p, precision))]
    levels = np.quantile(above, np.linspace(0, 1, STEPS), method="higher").tolist() if len(above) else []
    lowest = next(filter(confirmed, levels), 2.0)
    verdict = np.where(p >= lowest, POSITIVE, UNSURE).astype(object)
    verdict[people.rows] = np.where(people.relevant == 1, POSITIVE, NEGATIVE)
    return verdict, lowest


@dataclass(frozen=True, kw_only=True)
class Relabelled(Negatives):
    """A table with `relevance`, the probability that each row is relevant, and `verdict`.

    Attributes:
        judges: how much each answered, and how often it is right: `people`, and programs.
        lowest: probability from which on a row that nobody answered about is called positive; None: none is.
    """

    judges: tuple[dict[str, Any], ...]
    lowest: float | None

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
        """Return the verdicts, how many rows are left to train on, and how often each judge is right."""
        counts = self.counts()
        rows = [(name, f"{each['rows']:,}", number(each["relevant"])) for name, each in counts.items()]
        notes = [f"{int(self.keep.sum()):,} of {len(self):,} rows are left to train on."]
        notes += [f"{name}: {count}" for name, count in self.rejected_rows()]
        if self.lowest is not None:
            notes.append(f"Rows are called positive from a probability of {self.lowest:.2f} on.")
        if without := self.table["verdict"].null_count:
            why = "their query has no positive in the split, or they are positives"
            notes.append(f"{without:,} rows without a verdict: {why}")
        judges = [
            (each["name"], f"{each['answered']:,}", number(each["sensitivity"]), number(each["specificity"]))
            for each in self.judges
        ]
        doubted = ", ".join(each["name"] for each in self.judges if not each["believed"])
        caption = doubted and f"{doubted}: little better than chance, and not believed."
        return [
            Table(self.title, ("verdict", "rows", "relevant, expected"), rows, "\n".join(notes)),
            Table("Judges", ("judge", "answers", "sensitivity", "specificity"), judges, caption),
        ]

    def to_json(self) -> dict[str, Any]:
        """Return verdicts, the threshold, how much judges answered and how often they err, and the settings."""
        return {
            "settings": self.provenance.get("settings", {}),
            "verdicts": self.counts(),
            "left": int(self.keep.sum()),
            "threshold": self.lowest,
            "promoted": len(self.promoted),
            "judges": [without_nan(each) for each in self.judges],
            "rejected": self.rejected(),
        }


@door()
def relabel(
    collection: CollectionLike,
    source: SourceLike,
    *,
    labels: Annotated[AddedLike, Option(metavar="FILE", parse=list, repeated=True)] = (),
    positive_precision: Annotated[float, Option(above=0, most=1)] = 0.9,
    split: str = "train",
    reading: CollectionSettings,
    encoding: EncodingSettings = AT_128,
) -> Relabelled:
    """Relabel negatives: say of each row whether it is an answer after all, by labels of some of them.

    The table gains `relevance`, a probability, and `verdict`: positive, negative (where a person
    says so) or unsure. Rows that are called positive are no longer trained on as negatives, and can
    join the judgements: --promoted FILE here, and --add-judgements FILE wherever the collection is
    used. Rejected rows have a verdict, too, and stay rejected.

    Args:
        labels: File with answers about rows of the table, as foils label writes it; may be given
            several times. People's answers are taken for the truth, and those of programs for what
            their checks are worth. In Python also labels or a DataFrame.
        positive_precision: Wanted share of relevant documents among the rows that are called positive.
        split: Split whose judgements are known, and to which positives are added.

    Raises:
        InputError: a collection, source or labels that cannot be read, no labels, or no row of a
            judged query.

    Example:
        foils relabel scifact/ dense.parquet --labels labels.tsv --promoted found.tsv -o relabelled.parquet
    """
    tables = several(labels)
    if not tables:
        raise InputError(f"no labels; give those that foils label wrote: {spelled('labels', 'FILE')}")
    loaded = reading.open(collection)
    named = as_source(source, loaded)
    present = [name for name in ("relevance", "verdict") if name in named.negatives.table.column_names]
    if present:
        raise InputError(f"{named.name} has {' and '.join(present)} already; relabel the table it came from")

    # 1. What is seen of each row before anybody answers.
    encoder, store = encoding.open(loaded)
    rows, features = evidence_of(loaded, named.negatives, encoder, store, split=split)
    pairs = pairs_in(named.negatives.table.take(pa.array(rows)))

    # 2. How often each judge errs, and what features and answers say together.
    answers = Labels(pa.concat_tables([Labels.of(each, loaded).table for each in tables]))
    people = answers_of(answers, pairs, None)
    judges = {PEOPLE: people} if len(people.rows) else {}
    programs = {name: with_errors(answers_of(answers, pairs, name), people) for name in answers.programs()}
    best_first = [*judges.values(), *(each for each in programs.values() if each.believed)]
    judges |= programs
    crowd = learn(np.column_stack([np.zeros((len(rows), 0)), *features.values()]), best_first)
    verdict, lowest = verdicts_of(crowd, best_first, people, positive_precision)

    # 3. The table with its two columns; rows that are called positive are rejected.
    relevance = np.full(len(named.negatives), np.nan)
    if best_first:  # without an answer that is believed nothing is known
        relevance[rows] = crowd.posterior
    verdicts = np.full(len(named.negatives), None, object)
    verdicts[rows] = verdict
    columns = {"relevance": pa.array(relevance), "verdict": pa.array(verdicts, pa.string())}
    table = named.negatives.with_columns(columns).reject(verdicts == POSITIVE, RELEVANT)
    settings = {"positive_precision": positive_precision, "split": split, "labels": len(answers)}
    settings |= {"judges": [*programs], "encoder": encoder.fingerprint}
    history = provenance("relabel", settings, inputs={"collection": loaded.digest, named.name: named.digest})
    return Relabelled.of(
        table.with_provenance(history),
        title=f"{named.name}, relabelled",
        collection=loaded,
        split=split,
        judges=tuple({"name": name, **each.facts} for name, each in judges.items()),
        lowest=lowest if lowest <= 1 else None,
    )
