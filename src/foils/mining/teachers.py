"""Teachers' scores of the pairs that are trained on: each pair scored once and kept."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from foils.data.collection import Collection, Rows
from foils.data.negatives import Negatives
from foils.data.texts import texts_of
from foils.encode import EmbeddingSettings
from foils.encode.opening import OF_CROSS_ENCODERS, EncoderLike, description
from foils.mining.cross_encoder import CrossEncoderScorer
from foils.mining.pairs import Marks, PairScorer, Scores, TextPairs
from foils.mining.retrievers import EncoderScorer
from foils.runtime.errors import InputError
from foils.runtime.options import refuse, several, spelled

TEACHER = "teacher"
KINDS = BI_ENCODER, CROSS_ENCODER = "bi-encoder", "cross-encoder"

if TYPE_CHECKING:
    TeachersLike = EncoderLike | Sequence[EncoderLike]
else:
    TeachersLike = list[str]


def check_teachers(teacher: TeachersLike, embedding: EmbeddingSettings) -> None:
    """Refuse scoring without a teacher, and options of an encoder where none is a teacher."""
    kinds = {_kind_of(each)[0] for each in several(teacher)}
    if not kinds:
        ways = ", ".join(spelled("teacher", f"{kind}:MODEL") for kind in KINDS)
        raise InputError(f"no teacher; give one of {ways}")
    if BI_ENCODER not in kinds:
        idle = {key: of for key, of in embedding.changed().items() if key not in (*OF_CROSS_ENCODERS, "vectors")}
        refuse(idle, f"without {spelled('teacher', 'bi-encoder:MODEL')}, which embeds texts; give it, or leave it out")


@dataclass(frozen=True)
class Teacher:
    """A model that scores pairs.

    Attributes:
        name: what to call it.
        describe: returns what provenance says of it.
        scorer: gives the scores.
    """

    name: str
    describe: Callable[[], dict[str, Any]]
    scorer: PairScorer


def open_teachers(teacher: TeachersLike, collection: Collection, embedding: EmbeddingSettings) -> list[Teacher]:
    """Return the teachers, loaded.

    Raises:
        InputError: a model that cannot be loaded.
    """
    store, opened = embedding.open_store(), []
    for kind, model in map(_kind_of, several(teacher)):
        if kind == CROSS_ENCODER:
            name = Path(model).name if isinstance(model, str) else CROSS_ENCODER
            judging = CrossEncoderScorer(embedding.open_cross_encoder(model), store, name=name)
            opened.append(Teacher(name, judging.describe, judging))
        else:
            encoder = embedding.open_encoder(model, collection)
            name = str(description(encoder)["name"])
            opened.append(Teacher(name, partial(description, encoder), EncoderScorer(encoder, store)))
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

        The mean over queries with a negative; NaN where there is none. Of a teacher that knows best, what is missing to
        1 are false negatives.
        """
        queries, shares = self.pairs.query_rows, []
        order = np.argsort(queries, kind="stable")
        for rows in np.split(order, np.flatnonzero(np.diff(queries[order])) + 1):
            above, below = scores[rows[self.positive[rows]]], scores[rows[~self.positive[rows]]]
            if len(above) and len(below):
                shares.append(((np.sign(above[:, None] - below) + 1) / 2).mean())
        return float(np.mean(shares)) if shares else float("nan")


def _kind_of(given: Any) -> tuple[str, Any]:
    if not isinstance(given, (str, Path)):
        return (CROSS_ENCODER if hasattr(given, "predict") and not hasattr(given, "encode") else BI_ENCODER), given
    kind, _, model = str(given).partition(":")
    if kind not in KINDS or not model:
        ways = ", ".join(f"{each}:MODEL" for each in KINDS)
        raise InputError(f"{spelled('teacher', given)}; expected one of {ways}")
    return kind, model
