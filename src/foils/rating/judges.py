"""Who says which of two documents answers a query better, and what several say together.

A judge gives a probability for each pair, NaN where it failed: a failure is a missing judgement, never a tie and never
a vote. Another way of judging is another class with the four members of `Judge`, or a `ScoringJudge` that scores each
document of a query. It may be a `BetweenJudge` or a `ModelJudge` as well, and where its answers depend on the question
alone have `prepared`: it may then be asked on several machines.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import numpy as np
from scipy.special import expit

from foils.encode import Encoder, Vectors, VectorStore
from foils.encode.cross_encoders import check_one_output, cross_encoder_digest, logits
from foils.encode.encoder import Kind
from foils.encode.vectors import Texts
from foils.llm import Questions, Usage, digest
from foils.rating.pairs import Candidates, Floats, Pairs, Rows
from foils.runtime.errors import InputError

if TYPE_CHECKING:
    from sentence_transformers import CrossEncoder

_AT_ONCE = 2**12  # documents whose vectors are compared together


class Judge(Protocol):
    """Prefers one of two documents.

    Attributes:
        name: what to call it in tables and reports.
        fingerprint: a digest of everything that decides its answers.
        antisymmetric: whether P(i ≻ j) = 1 − P(j ≻ i) by construction, so that one order need be asked.
    """

    name: str
    fingerprint: str
    antisymmetric: bool

    def judge(self, candidates: Candidates, pairs: Pairs) -> Floats:
        """Return (m,) P(first ≻ second | query) in [0, 1], the first shown first; NaN where it failed."""
        ...


@runtime_checkable
class BetweenJudge(Protocol):
    """A judge that can compare candidates of different queries, too."""

    name: str
    antisymmetric: bool

    def between(self, candidates: Candidates, first: Rows, second: Rows) -> Floats:
        """Return (m,) P(first answers its query better than second answers its own), first shown first; NaN: failed."""
        ...


@runtime_checkable
class ModelJudge(Protocol):
    """A judge that asks a language model.

    Attributes:
        questions: asks them, and counts what that takes.
    """

    questions: Questions

    def cost(self, candidates: Candidates, pairs: Pairs) -> Usage:
        """Return about what judging these pairs takes."""
        ...


def prepared(judge: Judge, candidates: Candidates, pairs: Pairs) -> Judge | None:
    """Return the judge ready to be asked about parts of these pairs, in any process; None where it cannot be.

    By its own `prepared(candidates, pairs)`, which does what would be done together for all pairs.
    """
    ready: Judge | None = judge.prepared(candidates, pairs) if hasattr(judge, "prepared") else None
    return ready


def questions_of(judges: Sequence[Judge]) -> list[Questions]:
    """Return the questions of those judges who ask a language model."""
    return [judge.questions for judge in dict.fromkeys(judges) if isinstance(judge, ModelJudge)]


def fingerprint_of(judges: Sequence[Judge]) -> str:
    """Return a digest of everything that decides what judges answer together."""
    if len(judges) == 1:
        return judges[0].fingerprint
    return digest("ensemble", *(judge.fingerprint for judge in judges))


class ScoringJudge(ABC):
    """P(i ≻ j) = σ((s_i − s_j)/temperature), s the score of a document for its query: antisymmetric.

    Args:
        temperature: above 0; the difference in scores that counts as one logit (174 Elo points).
        name: what to call it.
        fingerprint: of everything that decides its answers.
    """

    antisymmetric = True

    def __init__(self, temperature: float, name: str, fingerprint: str) -> None:
        if not temperature > 0:
            raise InputError(f"temperature {temperature}; expected above 0")
        self._temperature, self.name, self.fingerprint = temperature, name, fingerprint

    @abstractmethod
    def score(self, candidates: Candidates, rows: Rows) -> Floats:
        """Return the score of each candidate, (k,) ascending rows, for its own query; NaN where there is none."""

    def prepared(self, candidates: Candidates, pairs: Pairs) -> Judge | None:
        """Return a judge that is ready to be asked about parts of these pairs, anywhere; None: only here."""
        return self

    def judge(self, candidates: Candidates, pairs: Pairs) -> Floats:
        """Return σ of the scaled difference of scores, (m,)."""
        candidates.check(pairs)
        return self.between(candidates, pairs.first, pairs.second)

    def between(self, candidates: Candidates, first: Rows, second: Rows) -> Floats:
        """Return the same of documents that may be of different queries, each with its own, (m,)."""
        rows, place = np.unique(np.concatenate([first, second]), return_inverse=True)
        scores = self.score(candidates, rows) if len(rows) else np.zeros(0)
        return np.asarray(expit((scores[place[: len(first)]] - scores[place[len(first) :]]) / self._temperature))


class BiEncoderJudge(ScoringJudge):
    """A judge by the cosines of an encoder's vectors of query and document.

    Args:
        encoder: makes the vectors; unit ones give cosines.
        temperature: as `ScoringJudge`.
        store: keeps the vectors; None: they are made for each call.
    """

    def __init__(self, encoder: Encoder, *, temperature: float = 0.05, store: VectorStore | None = None) -> None:
        routes = encoder.route("query"), encoder.route("document")
        own = digest("bi-encoder", encoder.fingerprint, *routes, temperature)
        super().__init__(temperature, encoder.name, own)
        self._encoder, self._store = encoder, store
        self._scores: Floats | None = None  # (N,) of all candidates, once it is prepared

    def prepared(self, candidates: Candidates, pairs: Pairs) -> Judge:
        """Score every document of the pairs."""
        candidates.check(pairs)
        rows, scores = np.unique(np.append(pairs.first, pairs.second)), np.full(len(candidates.doc_ids), np.nan)
        scores[rows] = self.score(candidates, rows)
        ready = copy(self)
        ready._scores, ready._store = scores, None
        return ready

    def score(self, candidates: Candidates, rows: Rows) -> Floats:
        """Return the cosines, (k,)."""
        if self._scores is not None:
            return np.asarray(self._scores[rows])
        queries, of = np.unique(candidates.query_of(rows), return_inverse=True)
        asked = self._embed([candidates.queries[row] for row in queries], "query")
        shown, scores = self._embed(_CandidateTexts(candidates, rows), "document"), np.empty(len(rows))
        for part in np.array_split(np.arange(len(rows)), -(-len(rows) // _AT_ONCE) or 1):
            scores[part] = np.einsum("nd,nd->n", asked.take(of[part]), shown.take(part), dtype=np.float64)
        return scores

    def _embed(self, texts: Texts, kind: Kind) -> Vectors:
        if self._store is None:
            return Vectors.of(self._encoder.encode(texts[0 : len(texts)], kind))
        return self._store.embed(self._encoder, texts, kind)


@dataclass(frozen=True)
class _CandidateTexts:
    """Texts of candidates, read in slices."""

    candidates: Candidates
    rows: Rows

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: Any) -> Any:
        return self.candidates.texts(self.rows[index])


class CrossEncoderJudge(ScoringJudge):
    """A judge by a cross-encoder's logits.

    Args:
        model: a loaded sentence-transformers CrossEncoder with one output.
        temperature: as `ScoringJudge`.
        batch_size: texts at once; changes speed alone.
        name: what to call it.
    """

    def __init__(self, model: CrossEncoder, *, temperature: float = 1.0, batch_size: int = 32, name: str = "") -> None:
        check_one_output(model, name or "the cross-encoder")
        fingerprint = digest("cross-encoder", cross_encoder_digest(model), temperature)
        super().__init__(temperature, name or "cross-encoder", fingerprint)
        self.model, self._batch_size = model, batch_size

    def score(self, candidates: Candidates, rows: Rows) -> Floats:
        """Return the logits, (k,); NaN where one is no finite number."""
        queries = [candidates.queries[row] for row in candidates.query_of(rows)]
        texts = list(zip(queries, candidates.texts(rows), strict=True))
        scores = logits(self.model, texts, batch_size=self._batch_size).astype(np.float64)
        return np.where(np.isfinite(scores), scores, np.nan)
