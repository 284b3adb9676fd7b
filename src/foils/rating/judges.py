"""Who says which of two documents answers a query better, and what several say together.

A judge gives a probability for each pair, NaN where it failed: a failure is a missing judgement, never a tie and never
a vote. Another way of judging is another class with these four members. One whose answers depend on the question alone
may have a fifth, `prepared`: it may then be asked on several machines.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, SupportsIndex

import numpy as np
from scipy.special import expit

from foils.encode import Encoder, Vectors, VectorStore
from foils.encode.cross_encoders import check_one_output, cross_encoder_digest, load_cross_encoder, logits
from foils.encode.encoder import Kind
from foils.encode.vectors import Texts
from foils.llm import digest
from foils.rating.pairs import Candidates, Floats, Pairs, Rows
from foils.runtime.errors import FailureError, InputError

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


def prepared(judge: Judge, candidates: Candidates, pairs: Pairs) -> Judge | None:
    """Return the judge ready to be asked about parts of these pairs, in any process; None where it cannot be.

    By its own `prepared(candidates, pairs)`, which does what would be done together for all pairs.
    """
    ready: Judge | None = judge.prepared(candidates, pairs) if hasattr(judge, "prepared") else None
    return ready


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

    def prepared(self, candidates: Candidates, pairs: Pairs) -> Judge:
        """Return a judge that is ready to be asked about parts of these pairs."""
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

    def prepared(self, candidates: Candidates, pairs: Pairs) -> Judge:
        """Score every document of the pairs."""
        candidates.check(pairs)
        rows, scores = np.unique(np.append(pairs.first, pairs.second)), np.full(len(candidates.doc_ids), np.nan)
        scores[rows] = self.score(candidates, rows)
        return _Scored(scores, self._temperature, self.name, self.fingerprint)

    def score(self, candidates: Candidates, rows: Rows) -> Floats:
        """Return the cosines, (k,)."""
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


class _Scored(ScoringJudge):
    """A judge whose scores of all candidates, (N,), are known."""

    def __init__(self, scores: Floats, temperature: float, name: str, fingerprint: str) -> None:
        super().__init__(temperature, name, fingerprint)
        self._scores = scores

    def score(self, candidates: Candidates, rows: Rows) -> Floats:
        """Return them."""
        return np.asarray(self._scores[rows])


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
        self._source: tuple[str, int | None, bool] | None = None  # `load_cross_encoder_judge` knows it

    def __reduce_ex__(self, protocol: SupportsIndex) -> Any:
        """Send a judge that was loaded by name to other processes by that name: they load the same weights."""
        if self._source is None:
            return super().__reduce_ex__(protocol)
        return _loaded_again, (self._source, self._temperature, self.fingerprint)

    def score(self, candidates: Candidates, rows: Rows) -> Floats:
        """Return the logits, (k,); NaN where one is no finite number."""
        queries = [candidates.queries[row] for row in candidates.query_of(rows)]
        texts = list(zip(queries, candidates.texts(rows), strict=True))
        scores = logits(self.model, texts, batch_size=self._batch_size).astype(np.float64)
        return np.where(np.isfinite(scores), scores, np.nan)


def load_cross_encoder_judge(
    path: str | Path,
    *,
    temperature: float = 1.0,
    max_length: int | None = None,
    device: str | None = None,
    trust_remote_code: bool = False,
) -> CrossEncoderJudge:
    """Load a cross-encoder (safetensors weights) as a judge, by local path or hub name.

    Args:
        path: a folder, or a hub's owner/name.
        temperature: as `CrossEncoderJudge`.
        max_length: in tokens, of query and document together; None: the model's own.
        device: of torch; None: the first one available. Other processes take their own first.
        trust_remote_code: run code that the model brings along.

    Raises:
        InputError: there is no such model, it cannot be loaded, or it has several outputs.
    """
    model = load_cross_encoder(path, max_length=max_length, device=device, trust_remote_code=trust_remote_code)
    judge = CrossEncoderJudge(model, temperature=temperature, name=Path(str(path)).name)
    place = str(Path(path).absolute()) if Path(path).is_dir() else str(path)
    judge._source = place, max_length, trust_remote_code
    return judge


@lru_cache(maxsize=2)
def _loaded_again(source: tuple[str, int | None, bool], temperature: float, fingerprint: str) -> CrossEncoderJudge:
    """Load a judge in another process; other weights than the sender's are a FailureError."""
    path, length, trusted = source
    judge = load_cross_encoder_judge(path, temperature=temperature, max_length=length, trust_remote_code=trusted)
    if judge.fingerprint != fingerprint:
        raise FailureError(f"the cross-encoder {path} has other weights here than where it was sent from")
    return judge
