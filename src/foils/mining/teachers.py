"""Teachers' scores of the pairs that are trained on: each pair scored once and kept."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Protocol

import numpy as np
from scipy.stats import rankdata

from foils.data.collection import Collection, Rows
from foils.data.negatives import Negatives
from foils.data.texts import texts_of
from foils.encode import EmbeddingSettings
from foils.encode.opening import OF_CROSS_ENCODERS, EncoderLike, description
from foils.llm import LLMSettings, ModelUse, PairQuestions, ValueForm
from foils.llm.prompts import TemplateLike
from foils.mining.cross_encoder import CrossEncoderScorer
from foils.mining.pairs import Marks, Scores, TextPairs
from foils.mining.retrievers import EncoderScorer
from foils.runtime.errors import InputError
from foils.runtime.options import Option, Settings, refuse, several, spelled

TEACHER = "teacher"
MEAN, RANK = "mean", "rank"
BI_ENCODER, CROSS_ENCODER, LLM = "bi-encoder", "cross-encoder", "llm"
KINDS = (BI_ENCODER, CROSS_ENCODER, LLM)

if TYPE_CHECKING:
    TeachersLike = EncoderLike | Sequence[EncoderLike]
else:
    TeachersLike = list[str]


GRADES = "grade-2"
HIGHEST = 4
GRADE = ValueForm(
    "grade",
    {"type": "integer", "minimum": 0, "maximum": HIGHEST},
    kind="grade",
    prompt=("foils.mining", GRADES),
    words=f'Answer in JSON: {{"grade": N}}, where N is a whole number from 0 to {HIGHEST}.',
    accepts=lambda value: type(value) is int and 0 <= value <= HIGHEST,
    unreadable=f"an answer without a grade from 0 to {HIGHEST}",
)


class LLMScorer(PairQuestions):
    """Grades of a language model, from 0 to 4, for each pair by itself; NaN where no answer came or could be read.

    Source: pointwise grades from 0 to 4 are those of Zhuang et al. 2024 (2310.14122), whose expected grade needs the
    probabilities of words, which servers may lack; here a grade is what the model says.
    """

    form = GRADE

    def describe(self) -> dict[str, Any]:
        """Return what provenance says of it."""
        return {"name": self.name, "fingerprint": self.fingerprint}

    def score(self, pairs: TextPairs) -> Scores:
        """Return the grade of each pair, (n,).

        Raises:
            InputError: the server refuses the key, or does not know the model.
            FailureError: question after question failed, or the log cannot be written; what was answered is kept.
            MissingExtraError: the openai package is not installed.
        """
        queries, documents = pairs.collection.query_texts(pairs.query_rows), pairs.documents[:]
        grades = self.answers(list(zip(queries, documents, strict=True)))
        return np.array([np.nan if grade is None else grade for grade in grades], np.float64)


class Teacher(Protocol):
    """Scores pairs; NaN where it has no score."""

    def score(self, pairs: TextPairs) -> Scores:
        """Return (n,) scores, higher is better."""
        ...


@dataclass(frozen=True, kw_only=True)
class TeacherSettings(Settings):
    """Who scores pairs, and how several scores become one.

    Attributes:
        teacher: Who scores: bi-encoder:MODEL by the similarity of its vectors, cross-encoder:MODEL by its logits,
            llm[:MODEL] by grades from 0 to 4; may be given several times. In Python also a SentenceTransformer, an
            `Encoder` or a CrossEncoder, or a list.
        average: Of several teachers: mean, of their scores as they are, which suits teachers of one scale, as the
            logits of cross-encoders; or rank, of (n − rank) / (n − 1) among the n documents of a query, in [0, 1].
        question: Prompt of your own for a language model: a text file with {query} and {document}, and optionally
            {answer}. In Python also a `Template`. Without {answer}, the form of the answer is explained at the end.
    """

    heading = "Teachers"

    teacher: Annotated[TeachersLike, Option(metavar="TEACHER", parse=list, repeated=True)] = ()
    average: Annotated[str, Option(names=(MEAN, RANK))] = MEAN
    question: Annotated[TemplateLike | None, Option(metavar="FILE")] = None

    @property
    def kinds(self) -> list[tuple[str, Any]]:
        """The kind of each teacher, and its model: a name, or an object.

        Raises:
            InputError: a name without a kind, or without a model where one is needed.
        """
        return [_kind_of(each) for each in several(self.teacher)]


def check_teachers(teaching: TeacherSettings, llm: LLMSettings, embedding: EmbeddingSettings) -> None:
    """Refuse scoring without a teacher, and options that nobody heeds."""
    kinds = {kind for kind, _ in teaching.kinds}
    flag = spelled("teacher")
    if not kinds:
        ways = ", ".join(spelled("teacher", f"{kind}:MODEL") for kind in KINDS)
        raise InputError(f"no teacher; give one of {ways}")
    if len(teaching.kinds) == 1:
        refuse(teaching.changed("average"), f"with one {flag}; give a second, or leave it out")
    if LLM not in kinds:
        refuse({**teaching.changed("question"), **llm.changed()}, f"without {spelled('teacher', 'llm:MODEL')}; give it")
    if BI_ENCODER not in kinds:
        heeded = {*OF_CROSS_ENCODERS, "vectors"} if CROSS_ENCODER in kinds else set()
        idle = {name: value for name, value in embedding.changed().items() if name not in heeded}
        refuse(idle, f"without {spelled('teacher', 'bi-encoder:MODEL')}, which embeds texts; give it, or leave it out")


@dataclass(frozen=True)
class OpenTeacher:
    """A teacher that is ready.

    Attributes:
        name: what to call it.
        describe: returns what provenance says of it, once it has scored.
        scorer: gives the scores.
        asked: of a language model, what it was asked; else None.
    """

    name: str
    describe: Callable[[], dict[str, Any]]
    scorer: Teacher
    asked: ModelUse | None = None


def open_teachers(
    teaching: TeacherSettings, collection: Collection, llm: LLMSettings, embedding: EmbeddingSettings
) -> list[OpenTeacher]:
    """Return the teachers, loaded.

    Raises:
        InputError: a model that cannot be loaded.
    """
    store, opened = embedding.open_store(), []
    for kind, model in teaching.kinds:
        if kind == LLM:
            client = LLMSettings(**{**vars(llm), "llm_model": model or llm.llm_model}).client()
            asking = LLMScorer(client, llm.folder(collection), teaching.question, llm.sampling())
            opened.append(OpenTeacher(asking.name, asking.describe, asking, asking.asked))
        elif kind == CROSS_ENCODER:
            name = Path(model).name if isinstance(model, str) else CROSS_ENCODER
            judging = CrossEncoderScorer(embedding.open_cross_encoder(model), store, name=name)
            opened.append(OpenTeacher(name, judging.describe, judging))
        else:
            encoder = embedding.open_encoder(model, collection)
            name = str(description(encoder)["name"])
            opened.append(OpenTeacher(name, partial(description, encoder), EncoderScorer(encoder, store)))
    return opened


@dataclass(frozen=True)
class TaughtPairs:
    """The pairs of a table that teachers score.

    Attributes:
        negatives: the table, with a rejected row for each positive that had none.
        rows: (n,) those of its rows that are scored: kept ones, and positives.
        positive: (n,) which of them are positives.
        pairs: their texts.
    """

    negatives: Negatives
    rows: Rows
    positive: Marks
    pairs: TextPairs

    @classmethod
    def of(cls, negatives: Negatives, collection: Collection, split: str) -> TaughtPairs:
        """Return the kept negatives of a table, and the positives of a split of their queries.

        Raises:
            UnknownNameError: no such split.
        """
        asked = np.unique(collection.query_rows(negatives.kept()["query_id"]))
        queries, documents = collection.positives(split).pairs()
        queries, documents = (rows[np.isin(queries, asked)] for rows in (queries, documents))
        ids = collection.queries["query_id"].take(queries), collection.documents["doc_id"].take(documents)
        widened, of_positives = negatives.with_rejected(*(column.combine_chunks() for column in ids))
        rows = np.union1d(np.flatnonzero(widened.keep), of_positives)
        query_rows, texts = texts_of(widened, collection)
        doc_rows = np.arange(len(texts))[rows] if texts.rows is None else texts.rows[rows]
        pairs = TextPairs(collection, query_rows[rows], doc_rows, np.full(len(rows), np.nan), texts.own)
        return cls(widened, rows, np.isin(rows, of_positives), pairs)

    def with_columns(self, columns: dict[str, Scores]) -> Negatives:
        """Return the table with columns of scores, each (n,); NaN in the rows that are not scored.

        Raises:
            InputError: the table has one of them already.
        """
        wide = {name: np.full(len(self.negatives), np.nan) for name in columns}
        for name, scores in columns.items():
            wide[name][self.rows] = scores
        return self.negatives.with_columns(wide)

    def preferred(self, scores: Scores) -> float:
        """Return the share of (positive, negative) of a query whose positive has the higher score, ties counted half.

        The mean over queries with a scored positive and negative; NaN where there is none. Of a teacher that knows
        best, what is missing to 1 are false negatives.
        """
        known = np.isfinite(scores)
        lists = _lists(self.pairs.query_rows[known])
        scores, positive = scores[known], self.positive[known]
        shares = []
        for rows in lists:
            above, below = scores[rows][positive[rows]], scores[rows][~positive[rows]]
            if len(above) and len(below):
                shares.append(((np.sign(above[:, None] - below) + 1) / 2).mean())
        return float(np.mean(shares)) if shares else float("nan")


def averaged(scores: Scores, queries: Rows, average: str) -> Scores:
    """Return (n,) the average of several teachers; NaN where one has no score.

    Args:
        scores: (t, n) of each teacher and pair.
        queries: (n,) each pair's query.
        average: mean, or rank: (n_q − rank) / (n_q − 1) among the n_q pairs of a query that all have scored, ties at
            their mean rank; 1 where there is one alone.
    """
    if average == MEAN:
        return np.asarray(scores.mean(0), np.float64)
    known = np.isfinite(scores).all(0)
    ranks = np.where(known, np.ones_like(scores), np.nan)
    of_known = np.flatnonzero(known)
    for rows in (of_known[each] for each in _lists(queries[known])):
        if len(rows) > 1:
            ranks[:, rows] = (rankdata(scores[:, rows], axis=1) - 1) / (len(rows) - 1)
    return np.asarray(ranks.mean(0), np.float64)


def _lists(queries: Rows) -> list[Rows]:
    """The places of each query's pairs."""
    order = np.argsort(queries, kind="stable")
    return np.split(order, np.flatnonzero(np.diff(queries[order])) + 1)


def _kind_of(given: Any) -> tuple[str, Any]:
    if not isinstance(given, (str, Path)):
        return (CROSS_ENCODER if hasattr(given, "predict") and not hasattr(given, "encode") else BI_ENCODER), given
    kind, _, model = str(given).partition(":")
    if kind not in KINDS or not (model or kind == LLM):
        ways = ", ".join(f"{each}:MODEL" for each in KINDS)
        raise InputError(f"{spelled('teacher', given)}; expected one of {ways}")
    return kind, model
