"""What scores pairs: an encoder, a cross-encoder, and both as teachers, whose scores are kept in a table."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np

from foils.data.collection import DocumentTexts
from foils.data.negatives import Negatives
from foils.data.read import CollectionLike, CollectionSettings
from foils.data.sources import SourceLike, as_source
from foils.data.tables import provenance
from foils.encode.encoder import Encoder, activated, cross_encoder_digest, logits
from foils.encode.models import check_one_output
from foils.encode.tokens import Lazy
from foils.encode.vectors import (
    OF_CROSS_ENCODERS,
    CrossEncoderLike,
    EmbeddingSettings,
    EncoderLike,
    VectorStore,
    description,
    paired_products,
)
from foils.mining.rules import Scores, TextPairs
from foils.runtime.errors import InputError
from foils.runtime.options import Option, door, refuse, spelled
from foils.runtime.results import Table

TEACHER = "teacher"
KINDS = BI_ENCODER, CROSS_ENCODER = "bi-encoder", "cross-encoder"

if TYPE_CHECKING:
    from sentence_transformers import CrossEncoder


class EncoderScorer:
    """Scores pairs by the inner product of an encoder's vectors (cosines, if unit). Texts are embedded once.

    The column of the scores is called by the encoder's similarity: cosine or dot.

    Args:
        encoder: makes the vectors.
        store: keeps them.
    """

    def __init__(self, encoder: Encoder, store: VectorStore) -> None:
        self._encoder, self._store = encoder, store
        self.column: str = getattr(encoder, "similarity", "cosine")

    def describe(self) -> dict[str, Any]:
        """Return what provenance says of the encoder."""
        return description(self._encoder)

    def score(self, pairs: TextPairs) -> Scores:
        """Return (n,) inner products of pairs, of documents in the collection or with a text of their own."""
        rows, query = np.unique(pairs.query_rows, return_inverse=True)
        own, document = np.unique(pairs.doc_rows, return_inverse=True)
        texts = DocumentTexts(pairs.collection, own, pairs.own)
        queries = self._store.embed(self._encoder, pairs.collection.query_texts(rows), "query")
        return paired_products(queries, query, self._store.embed(self._encoder, texts, "document"), document)


class CrossEncoderScorer:
    """Scores pairs by a sentence-transformers CrossEncoder's logit, before any activation.

    The store keeps logits by the model's weights and the texts: a killed run loses at most the block
    in the making, and another run asks for what is missing alone. Pairs are sorted by length.

    Attributes:
        fingerprint: a digest of everything that decides a logit: weights, tokenizer, maximum length.
        column: of the scores in a table.

    Args:
        model: a loaded CrossEncoder with one output.
        store: where scores are kept.
        name: of the model, for messages.
        as_predicted: apply the model's own activation to the logits, as its `predict` does; logits are kept.

    Raises:
        InputError: a model with several outputs.
    """

    def __init__(
        self,
        model: CrossEncoder,
        store: VectorStore,
        *,
        name: str = CROSS_ENCODER,
        as_predicted: bool = False,
    ) -> None:
        check_one_output(model, name)
        self.model, self.name, self.fingerprint = model, name, f"cross-{cross_encoder_digest(model)}"
        self._store, self._as_predicted = store, as_predicted
        self.column = "predicted" if as_predicted else "logit"

    @classmethod
    def of(cls, model: CrossEncoderLike, embedding: EmbeddingSettings) -> CrossEncoderScorer:
        """Open a model, by name or as it is, and keep its scores, in float32, where vectors are kept.

        Raises:
            InputError: it cannot be loaded, or has several outputs.
        """
        name = Path(model).name if isinstance(model, (str, Path)) else CROSS_ENCODER
        return cls(embedding.open_cross_encoder(model), VectorStore(embedding.open_store().folder), name=name)

    def describe(self) -> dict[str, Any]:
        """Return what provenance says of the model."""
        return {"name": self.name, "fingerprint": self.fingerprint}

    def logits_of(self, count: int, read: Callable[[slice], tuple[Sequence[str], Sequence[str]]]) -> Scores:
        """Return (n,) the logits of n pairs, of which `read` gives a slice's queries and documents.

        Raises:
            FailureError: a logit is NaN or infinite.
        """
        pairs = Lazy(count, lambda part: list(zip(*read(part), strict=True)))
        return self._store.score(pairs, partial(logits, self.model), fingerprint=self.fingerprint, name=self.name)

    def score(self, pairs: TextPairs) -> Scores:
        """Return the score of each pair, (n,).

        Raises:
            FailureError: a score is NaN or infinite.
        """
        documents, queries = pairs.documents, pairs.collection.query_texts
        logit = self.logits_of(len(pairs), lambda part: (queries(pairs.query_rows[part]), documents[part]))
        return activated(self.model, logit) if self._as_predicted else logit


@dataclass(frozen=True, kw_only=True)
class ScoredPairs(Negatives):
    """A table with a teacher's scores in the column `teacher`.

    Attributes:
        name: of the teacher.
        pairs: that were scored.
    """

    name: str
    pairs: int

    def tables(self) -> list[Table]:
        """Return the teacher, and how many pairs it scored."""
        return [Table(self.title, ("teacher", "pairs scored"), [(self.name, f"{self.pairs:,}")])]

    def to_json(self) -> dict[str, Any]:
        """Return the settings, and what the teacher scored."""
        teacher = {"name": self.name, "pairs": self.pairs}
        return {"settings": self.provenance.get("settings", {}), "teachers": [teacher]}


def check_teacher(teacher: EncoderLike, embedding: EmbeddingSettings) -> None:
    """Refuse options of an encoder where a cross-encoder is the teacher."""
    if _kind_of(teacher)[0] == CROSS_ENCODER:
        idle = {key: value for key, value in embedding.changed().items() if key not in (*OF_CROSS_ENCODERS, "vectors")}
        refuse(idle, f"without {spelled('teacher', 'bi-encoder:MODEL')}, an encoder; give it or leave it out")


@door(check=check_teacher)
def score_pairs(
    collection: CollectionLike,
    source: SourceLike,
    *,
    teacher: Annotated[EncoderLike, Option(metavar="TEACHER")],
    split: str = "train",
    reading: CollectionSettings,
    embedding: EmbeddingSettings,
) -> ScoredPairs:
    """Score kept negatives and positives by a teacher: a column `teacher`, for losses that learn from one.

    A positive's score stands in a rejected row of its own, which is added where it has none.
    Queries without labels are scored, too. Scores and vectors are kept by the model and the texts,
    so that no pair is scored twice.

    Args:
        teacher: Who scores: bi-encoder:MODEL by the similarity of its vectors, cross-encoder:MODEL
            by its logits. In Python also a SentenceTransformer, an `Encoder` or a CrossEncoder.
        split: Split of the judgements whose positives are scored, of queries with a kept negative.

    Example:
        foils score-pairs scifact/ bm25.parquet --teacher bi-encoder:all-MiniLM-L6-v2 -o taught.parquet

    Raises:
        InputError: a model or table that cannot be read, or the table has the column already.
        UnknownNameError: no such split.
        FailureError: a score is infinite.
    """
    loaded = reading.open(collection)
    named = as_source(source, loaded)
    # 1. What is scored: kept negatives, and the labelled positives of their queries.
    asked = np.unique(loaded.query_rows(named.negatives.kept()["query_id"]))
    queries, documents = loaded.labels(split).pairs()
    queries, documents = (each[np.isin(queries, asked)] for each in (queries, documents))
    ids = loaded.queries["query_id"].take(queries), loaded.documents["doc_id"].take(documents)
    widened, of_positives = named.negatives.with_rejected(*(each.combine_chunks() for each in ids))
    rows = np.union1d(np.flatnonzero(widened.keep), of_positives)
    query_rows, texts = widened.texts_in(loaded)
    pairs = TextPairs(loaded, query_rows[rows], np.asarray(texts.rows)[rows], np.full(len(rows), np.nan), texts.own)

    # 2. By whom.
    kind, model = _kind_of(teacher)
    scorer: CrossEncoderScorer | EncoderScorer
    if kind == CROSS_ENCODER:
        scorer = CrossEncoderScorer.of(model, embedding)
    else:
        scorer = EncoderScorer(embedding.open_encoder(model, loaded), embedding.open_store())
    column = np.full(len(widened), np.nan)  # rows that are not scored
    column[rows] = scorer.score(pairs)
    of_model = scorer.describe()
    facts = {"split": split, "teachers": [of_model]}
    inputs = {"collection": loaded.digest, named.name: named.digest}
    return ScoredPairs.of(
        widened.with_columns({TEACHER: column}),
        provenance=provenance("score_pairs", facts, inputs=inputs, before=named.negatives.provenance),
        title=f"{named.name}, scored by {of_model['name']}",
        collection=loaded,
        split=split,
        name=of_model["name"],
        pairs=len(rows),
    )


def _kind_of(teacher: Any) -> tuple[str, Any]:
    """Return what kind of model a teacher is, and the model or its name."""
    if not isinstance(teacher, (str, Path)):
        pairs_alone = hasattr(teacher, "predict") and not hasattr(teacher, "encode")
        return (CROSS_ENCODER if pairs_alone else BI_ENCODER), teacher
    kind, _, model = str(teacher).partition(":")
    if kind not in KINDS or not model:
        ways = ", ".join(f"{each}:MODEL" for each in KINDS)
        raise InputError(f"{spelled('teacher', teacher)}; expected one of {ways}")
    return kind, model
