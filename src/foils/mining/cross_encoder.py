"""Cross-encoder negatives: a pool of candidates, scored pair by pair, each pair once (ECI section 3.2)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, overload

import numpy as np
import numpy.typing as npt

from foils.data.collection import Collection, Rows
from foils.encode.cross_encoders import activated, check_one_output, cross_encoder_digest, logits
from foils.encode.encoder import Kind, check_finite
from foils.encode.own_similarity import as_pair_model
from foils.encode.vectors import VectorStore
from foils.mining.pairs import Retriever, Scores, TextPairs, with_judgements_of
from foils.runtime.errors import InputError

if TYPE_CHECKING:
    from sentence_transformers import CrossEncoder

_BREAK = "\x1f"  # between the length of the query, the query and the document


class CrossEncoderScorer:
    """Scores pairs by a sentence-transformers CrossEncoder's logit, before any activation.

    Pairs are sorted by length. Scores are kept in a store keyed by the model's weights and the texts: a killed run
    loses at most the block in the making, and another run asks for what is missing alone.

    Args:
        model: a loaded CrossEncoder with one output, a SparseEncoder, or a MultiVectorEncoder.
        store: where scores are kept.
        name: of the model, for messages.
        batch_size: pairs at once; changes speed, not scores beyond rounding.
        as_predicted: apply the model's own activation to the logits, as its `predict` does; logits are kept.

    Raises:
        InputError: a model with several outputs.
    """

    def __init__(
        self,
        model: CrossEncoder,
        store: VectorStore,
        *,
        name: str = "cross-encoder",
        batch_size: int = 32,
        as_predicted: bool = False,
    ) -> None:
        model = as_pair_model(model)
        check_one_output(model, name)
        self._encoder = _PairEncoder(model, name, batch_size)
        self._store, self._as_predicted = store, as_predicted
        self.column = "predicted" if as_predicted else "logit"

    @property
    def fingerprint(self) -> str:
        """A digest of everything that decides a score: weights, tokenizer, maximum length."""
        return self._encoder.fingerprint

    def describe(self) -> dict[str, object]:
        """Return what provenance says of the model."""
        return {"name": self._encoder.name, "fingerprint": self.fingerprint}

    def score(self, pairs: TextPairs) -> Scores:
        """Return the score of each pair, (n,).

        Raises:
            FailureError: a score is NaN or infinite.
        """
        kept = self._store.embed(self._encoder, _PairTexts(pairs), "document", task="scoring pairs", unit="pairs")
        logit = np.asarray(kept.take(slice(None)), np.float64).reshape(len(pairs))
        return activated(self._encoder.model, logit) if self._as_predicted else logit


class CrossEncoderRetriever:
    """Ranks a pool's best documents anew by a cross-encoder's logit, ties by document position.

    Documents that are labelled relevant for the query are left out before they cost a score.

    Args:
        collection: documents, queries, judgements.
        scorer: the cross-encoder.
        pool: ranks the candidates: another retriever, a source, a union.
        depth: how many of the pool's documents are scored for each query, at least 1.

    Raises:
        InputError: a depth below 1.
    """

    name = "cross-encoder"
    compares = False

    def __init__(
        self, collection: Collection, scorer: CrossEncoderScorer, pool: Retriever, *, depth: int = 100
    ) -> None:
        if depth < 1:
            raise InputError(f"pool of {depth}; expected at least 1 document per query")
        self._collection, self._scorer, self._pool, self._depth = collection, scorer, pool, depth
        self.column = scorer.column
        self.short = f"the pool ({pool.name}, {depth} deep) has no further document"

    def with_judgements(self, collection: Collection) -> CrossEncoderRetriever | None:
        """Return it for other judgements, which leave out other documents; None where the pool cannot be had so."""
        pool = with_judgements_of(self._pool, collection)
        if pool is None:
            return None
        return CrossEncoderRetriever(collection, self._scorer, pool, depth=self._depth)

    def search(self, query_rows: Rows, depth: int) -> tuple[Rows, Scores]:
        """Return (n, depth) document rows and scores; −1 and NaN after the pool's end."""
        rows, _ = self._pool.search(query_rows, min(self._depth, len(self._collection.documents)))
        queries = np.broadcast_to(np.asarray(query_rows)[:, None], rows.shape)
        labelled = self._collection.known_positives.contain(queries.ravel(), rows.ravel()).reshape(rows.shape)
        inside = (rows >= 0) & ~labelled
        scores = np.full(rows.shape, np.nan)
        scores[inside] = self.score(TextPairs(self._collection, queries[inside], rows[inside], scores[inside]))
        order = np.lexsort((rows, np.where(inside, -scores, np.inf)), axis=1)[:, :depth]
        ranked, values = np.full((len(rows), depth), -1, np.int64), np.full((len(rows), depth), np.nan)
        ranked[:, : order.shape[1]] = np.take_along_axis(np.where(inside, rows, -1), order, axis=1)
        values[:, : order.shape[1]] = np.take_along_axis(scores, order, axis=1)
        return ranked, values

    def score(self, pairs: TextPairs) -> Scores:
        """Return the score of each pair, (n,)."""
        return self._scorer.score(pairs)


class _PairEncoder:
    """The cross-encoder as the store knows encoders: from a pair, written as one text, to a vector of one number."""

    dimension = 1

    def __init__(self, model: CrossEncoder, name: str, batch_size: int) -> None:
        self.name = name
        self.model, self._batch_size = model, batch_size
        self.fingerprint = f"cross-{cross_encoder_digest(model)}"

    def route(self, kind: Kind) -> str:
        return "pair"

    def encode(self, texts: Sequence[str], kind: Kind) -> npt.NDArray[np.float32]:
        vectors = logits(self.model, [_split(text) for text in texts], batch_size=self._batch_size)
        return check_finite(vectors.reshape(-1, 1), texts, self.name)


@dataclass(frozen=True)
class _PairTexts:
    """Each pair as one text, made when it is asked for."""

    pairs: TextPairs

    def __len__(self) -> int:
        return len(self.pairs)

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[str]: ...
    def __getitem__(self, index: int | slice) -> str | Sequence[str]:
        part = index if isinstance(index, slice) else slice(index, index + 1)
        queries = self.pairs.collection.query_texts(self.pairs.query_rows[part])
        joined = [
            f"{len(query)}{_BREAK}{query}{_BREAK}{document}"
            for query, document in zip(queries, self.pairs.documents[part], strict=True)
        ]
        return joined if isinstance(index, slice) else joined[0]


def _split(text: str) -> tuple[str, str]:
    length, _, rest = text.partition(_BREAK)
    return rest[: int(length)], rest[int(length) + 1 :]
