"""Texts in, ranked ids out: any sentence-transformers model, searching with each query's useful dimensions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from foils.data import Collection
from foils.data.texts import DocumentTexts
from foils.encode import Encoder, EncoderSettings, Vectors, VectorStore, as_encoder
from foils.encode.vectors import Texts
from foils.runtime.errors import InputError
from foils.searching.dimensions import Rows, masked
from foils.searching.faiss_index import as_index
from foils.searching.index import ExactIndex, Index, Scores
from foils.searching.masks import query_masks
from foils.searching.passes import rank_lists, search_vectors
from foils.searching.runs import embed_texts
from foils.searching.settings import FEEDBACK_DEPTH, DimensionSettings, SecondPass, chosen_method


class Hit(NamedTuple):
    """A document found, and the inner product of its vector with the query's, less the dimensions left out."""

    doc_id: str
    score: float


@dataclass(frozen=True)
class TextSearcher:
    """Documents to search with an encoder; made by `of_texts` or `of_collection`.

    Attributes:
        encoder: of queries, documents and answers.
        ids: of the documents.
        documents: their vectors.
        index: what retrieves; it holds the documents in this order.
    """

    encoder: Encoder
    ids: tuple[str, ...]
    documents: Vectors
    index: Index

    @classmethod
    def of_texts(
        cls, model: Any, texts: Mapping[str, str], *, store: VectorStore | None = None, index: Any = None
    ) -> TextSearcher:
        """Embed texts, to search them.

        Args:
            model: a loaded SentenceTransformer, used as it is, its prompts for queries and documents included; any
                `Encoder`; or the name of a model.
            texts: id → text of each document.
            store: keeps the vectors, so that each text is encoded once; None: encode now, keep nothing.
            index: over these documents, in this order: an `Index`, or faiss' own; None: exact search.

        Raises:
            InputError: a model of neither kind, no text, or an index that `as_index` refuses.
        """
        return cls._of(as_encoder(model, EncoderSettings()), list(texts), list(texts.values()), store, index)

    @classmethod
    def of_collection(
        cls, model: Any, collection: Collection, *, store: VectorStore | None = None, index: Any = None
    ) -> TextSearcher:
        """Embed a collection's documents, to search them; arguments and errors as `of_texts`."""
        ids = collection.documents["doc_id"].to_pylist()
        return cls._of(as_encoder(model, EncoderSettings()), ids, DocumentTexts(collection), store, index)

    @classmethod
    def _of(
        cls, encoder: Encoder, ids: Sequence[str], texts: Texts, store: VectorStore | None, index: Any
    ) -> TextSearcher:
        if not ids:
            raise InputError("expected at least one document; found none")
        documents = embed_texts(texts, "document", encoder, store)
        return cls(
            encoder, tuple(ids), documents, ExactIndex(documents) if index is None else as_index(index, documents)
        )

    def search(
        self,
        queries: Sequence[str],
        settings: DimensionSettings | None = None,
        *,
        k: int = 10,
        feedback_depth: int = FEEDBACK_DEPTH,
        rerank_depth: int | None = None,
        feedback: Sequence[Sequence[str]] | None = None,
        answers: Sequence[str] | None = None,
        second_pass: SecondPass = "index",
        rng: np.random.Generator | None = None,
    ) -> list[list[Hit]]:
        """Return the k best documents of each query, best first.

        Args:
            queries: texts.
            settings: how dimensions are chosen; None: selective, or rdime with answers, which have nothing to tune.
            k: how many documents to return.
            feedback_depth: length of the feedback list, from whose end eclipse takes its moon.
            rerank_depth: documents of the first pass that are ranked again, as `search_vectors`.
            feedback: ids of another system's results for each query, best first, in place of the first pass' own.
            answers: an answer text per query, whose vector takes the place of the sun.
            second_pass: `index` ranks all documents again, `retrieved` only those that the first pass retrieved.
            rng: source of the draws of a random moon.

        Raises:
            InputError: ids that are not among the documents, lengths that differ, an answer that is no text or blank,
                or what `search_vectors` refuses.
        """
        ranked = search_vectors(
            self._queries(queries),
            self.documents,
            self.index,
            settings or _untuned(answers),
            k=k,
            feedback_depth=feedback_depth,
            rerank_depth=rerank_depth,
            feedback=None if feedback is None else self.positions(feedback),
            answers=self._answers(answers, len(queries)),
            second_pass=second_pass,
            rng=rng,
        )
        return self._hits(ranked.positions, ranked.scores)

    def rank(
        self,
        queries: Sequence[str],
        candidates: Sequence[Sequence[str]],
        settings: DimensionSettings | None = None,
        *,
        feedback_depth: int = FEEDBACK_DEPTH,
        answers: Sequence[str] | None = None,
        rng: np.random.Generator | None = None,
    ) -> list[list[Hit]]:
        """Rank each query's candidates by inner product, with the dimensions that the candidates themselves choose.

        Args:
            queries: texts.
            candidates: ids for each query, best first: the feedback, and what is ranked.
            settings: how dimensions are chosen, as in a search; a query with too few candidates for them keeps every
                dimension.
            feedback_depth: so many of the best candidates are the feedback; all are ranked.
            answers: an answer text per query, whose vector takes the place of the sun.
            rng: source of the draws of a random moon.

        Raises:
            InputError: ids that are not among the documents or come twice for a query, lengths that differ, or an
                answer that is no text or blank.
        """
        lists, vectors = self.positions(candidates), self._queries(queries)
        masks, _ = query_masks(
            vectors,
            self.documents,
            [rows[:feedback_depth] for rows in lists],
            settings or _untuned(answers),
            answers=self._answers(answers, len(queries)),
            rng=rng,
        )
        return self._hits(*rank_lists(masked(vectors, masks), self.documents, lists))

    def positions(self, lists: Sequence[Sequence[str]]) -> list[Rows]:
        """Return the positions of documents by their ids.

        Raises:
            InputError: ids that are not among the documents, or come twice in a list.
        """
        unknown = list(dict.fromkeys(id_ for of in lists for id_ in of if id_ not in self._position))
        if unknown or any(len(set(of)) < len(of) for of in lists):
            raise InputError(
                f"expected ids of documents, each once for a query; found {len(unknown)} that are not among the "
                f"{len(self.ids):,} documents{': ' if unknown else ''}{', '.join(map(str, unknown[:5]))}, "
                f"{sum(len(set(of)) < len(of) for of in lists)} lists with an id twice"
            )
        return [np.array([self._position[id_] for id_ in of], np.int64) for of in lists]

    @cached_property
    def _position(self) -> dict[str, int]:
        return {id_: position for position, id_ in enumerate(self.ids)}

    def _queries(self, texts: Sequence[str]) -> npt.NDArray[np.float32]:
        if isinstance(texts, str):
            raise InputError(f"expected a list of queries; found one text: {texts[:60]!r}")
        return embed_texts(texts, "query", self.encoder, None).take(slice(None))

    def _answers(self, texts: Sequence[str] | None, count: int) -> npt.NDArray[np.float32] | None:
        if texts is None:
            return None
        if len(texts) != count:
            raise InputError(f"expected an answer for each of {count} queries; found {len(texts)}")
        if silent := [at for at, text in enumerate(texts) if not isinstance(text, str) or not text.strip()]:
            raise InputError(
                f"expected a text that is not blank as the answer to each query; queries {silent[:5]} "
                f"({len(silent)} of {count}) have none, as {texts[silent[0]]!r}; search for them without answers"
            )
        return embed_texts(texts, "document", self.encoder, None).take(slice(None))

    def _hits(self, positions: Sequence[Rows], scores: Sequence[Scores]) -> list[list[Hit]]:
        return [
            [Hit(self.ids[position], score) for position, score in zip(of.tolist(), by.tolist(), strict=True)]
            for of, by in zip(positions, scores, strict=True)
        ]


def _untuned(answers: Sequence[str] | None) -> DimensionSettings:
    return DimensionSettings(chosen_method(answered=answers is not None))
