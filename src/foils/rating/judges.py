"""Who says which of two documents answers a query better, and what several say together.

A judge gives a probability for each pair, NaN where it failed: a failure is a missing judgement, never a tie and never
a vote. Another way of judging is another class with these four members. One whose answers depend on the question alone
may have a fifth, `prepared`: it may then be asked on several machines.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, overload

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


class EnsembleJudge:
    """The mean of several judges' probabilities, p = (1/|P|) Σ R_p(q, d_i, d_j) (eq. 29), R_p the mean of both orders.

    A judge that failed in one order of a pair is left out of that pair's mean; NaN where every judge is. `ask` asks the
    judges one after the other, and keeps the answers of each by themselves.

    Args:
        judges: at least one.

    Raises:
        InputError: no judge.
    """

    antisymmetric = True

    def __init__(self, judges: Sequence[Judge]) -> None:
        if not judges:
            raise InputError("an ensemble needs at least one judge")
        self.judges = tuple(judges)
        self.name = "+".join(judge.name for judge in judges)
        self.fingerprint = digest("ensemble", *(judge.fingerprint for judge in judges))

    def mean(self, answers: Floats) -> Floats:
        """Return (m,) the judges' mean of (J, m) answers, a missing one left out; NaN where all are."""
        known = np.isfinite(answers)
        total, count = np.where(known, answers, 0.0).sum(axis=0), known.sum(axis=0)
        return np.asarray(np.divide(total, count, out=np.full(answers.shape[1], np.nan), where=count > 0))

    def judge(self, candidates: Candidates, pairs: Pairs) -> Floats:
        """Return the mean of the judges' answers, each asked in both orders where order can matter, (m,)."""
        return self.mean(np.stack([_both_orders(judge, candidates, pairs) for judge in self.judges]))


def members(judge: Judge) -> tuple[Judge, ...]:
    """Return the judges of an ensemble, or the judge alone."""
    return judge.judges if isinstance(judge, EnsembleJudge) else (judge,)


def _both_orders(judge: Judge, candidates: Candidates, pairs: Pairs) -> Floats:
    straight = judge.judge(candidates, pairs)
    return straight if judge.antisymmetric else (straight + 1 - judge.judge(candidates, pairs.turned)) / 2


class BiEncoderJudge:
    """P(i ≻ j) = σ((cos(q, d_i) − cos(q, d_j))/temperature), with an encoder's vectors.

    Args:
        encoder: makes the vectors; unit ones give cosines.
        temperature: above 0; the difference in cosine that counts as one logit (174 Elo points).
        store: keeps the vectors; None: they are made for each call.
    """

    antisymmetric = True

    def __init__(self, encoder: Encoder, *, temperature: float = 0.05, store: VectorStore | None = None) -> None:
        self._encoder, self._temperature, self._store = encoder, _positive(temperature), store
        self.name = encoder.name
        self.fingerprint = digest(
            "bi-encoder", encoder.fingerprint, encoder.route("query"), encoder.route("document"), temperature
        )

    def prepared(self, candidates: Candidates, pairs: Pairs) -> Judge:
        """Embed every text of the pairs."""
        candidates.check(pairs)
        return self._compared(candidates, pairs.first, pairs.second)

    def judge(self, candidates: Candidates, pairs: Pairs) -> Floats:
        """Return σ of the scaled difference of cosines, (m,)."""
        return self.prepared(candidates, pairs).judge(candidates, pairs)

    def between(self, candidates: Candidates, first: Rows, second: Rows) -> Floats:
        """Return σ of the scaled difference of cosines, each document's with its own query, (m,)."""
        return self._compared(candidates, first, second).between(candidates, first, second)

    def _compared(self, candidates: Candidates, first: Rows, second: Rows) -> _Compared:
        inside = np.zeros(int(candidates.offsets[-1]), bool)
        inside[first] = inside[second] = True
        rows = np.flatnonzero(inside)
        queries = np.unique(candidates.query_of(rows))
        return _Compared(
            self._embed([candidates.queries[row] for row in queries], "query").spread(
                queries, len(candidates.query_ids)
            ),
            self._embed(_CandidateTexts(candidates, rows), "document").spread(rows, len(inside)),
            self._temperature,
            self.name,
            self.fingerprint,
        )

    def _embed(self, texts: Texts, kind: Kind) -> Vectors:
        if self._store is None:
            return Vectors.of(self._encoder.encode(texts[0 : len(texts)], kind))
        return self._store.embed(self._encoder, texts, kind)


@dataclass
class _Compared:
    """A bi-encoder's judge that has its vectors, of all queries and candidates of some pairs."""

    of_query: Vectors
    of_document: Vectors
    temperature: float
    name: str
    fingerprint: str
    antisymmetric: bool = True

    def judge(self, candidates: Candidates, pairs: Pairs) -> Floats:
        """Return σ of the scaled difference of cosines, (m,)."""
        candidates.check(pairs)
        return self.between(candidates, pairs.first, pairs.second)

    def between(self, candidates: Candidates, first: Rows, second: Rows) -> Floats:
        """Return the same of documents that may be of different queries, (m,)."""

        def score(rows: Rows) -> Floats:
            queries, documents = self.of_query.take(candidates.query_of(rows)), self.of_document.take(rows)
            return np.asarray(np.einsum("nd,nd->n", queries, documents, dtype=np.float64))

        return _by_scores(first, second, self.temperature, score)


@dataclass(frozen=True)
class _CandidateTexts:
    """Texts of candidates, read in slices."""

    candidates: Candidates
    rows: Rows

    def __len__(self) -> int:
        return len(self.rows)

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[str]: ...
    def __getitem__(self, index: int | slice) -> str | Sequence[str]:
        if isinstance(index, slice):
            return self.candidates.texts(self.rows[index])
        return self.candidates.texts(self.rows[index : index + 1])[0]


class CrossEncoderJudge:
    """P(i ≻ j) = σ((s(q, d_i) − s(q, d_j))/temperature), with a cross-encoder's logits s.

    Args:
        model: a loaded sentence-transformers CrossEncoder with one output.
        temperature: above 0; the difference in logits that counts as one logit (174 Elo points).
        batch_size: texts at once; changes speed alone.
        name: what to call it.
    """

    antisymmetric = True

    def __init__(self, model: CrossEncoder, *, temperature: float = 1.0, batch_size: int = 32, name: str = "") -> None:
        check_one_output(model, name or "the cross-encoder")
        self.model, self._temperature, self._batch_size = model, _positive(temperature), batch_size
        self.name = name or "cross-encoder"
        self.fingerprint = digest("cross-encoder", cross_encoder_digest(model), temperature)
        self._source: _Source | None = None  # `load_cross_encoder_judge` knows it

    @property
    def max_length(self) -> int:
        """Tokens of query and document together."""
        return int(self.model.max_seq_length)

    def __getstate__(self) -> dict[str, Any]:
        """Send a judge that was loaded by name to other processes by that name: they load the same weights."""
        if self._source is None:
            return self.__dict__
        return {"source": self._source, "temperature": self._temperature, "fingerprint": self.fingerprint}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(_loaded_again(**state).__dict__ if "source" in state else state)

    def prepared(self, candidates: Candidates, pairs: Pairs) -> Judge:
        """Return the judge itself: it is ready."""
        return self

    def judge(self, candidates: Candidates, pairs: Pairs) -> Floats:
        """Return σ of the scaled difference of logits, (m,)."""
        candidates.check(pairs)
        return self.between(candidates, pairs.first, pairs.second)

    def between(self, candidates: Candidates, first: Rows, second: Rows) -> Floats:
        """Return the same of documents that may be of different queries, each with its own, (m,)."""

        def score(rows: Rows) -> Floats:
            queries = [candidates.queries[row] for row in candidates.query_of(rows)]
            texts = list(zip(queries, candidates.texts(rows), strict=True))
            scores = logits(self.model, texts, batch_size=self._batch_size).astype(np.float64)
            return np.where(np.isfinite(scores), scores, np.nan)

        return _by_scores(first, second, self._temperature, score)


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
    judge._source = _Source(place, max_length, trust_remote_code)
    return judge


class _Source(NamedTuple):
    """Where a judge was loaded from, and how."""

    path: str
    max_length: int | None
    trust_remote_code: bool


@lru_cache(maxsize=2)
def _loaded_again(source: _Source, temperature: float, fingerprint: str) -> CrossEncoderJudge:
    """Load a judge in another process; other weights than the sender's are a FailureError."""
    judge = load_cross_encoder_judge(
        source.path,
        temperature=temperature,
        max_length=source.max_length,
        trust_remote_code=source.trust_remote_code,
    )
    if judge.fingerprint != fingerprint:
        raise FailureError(f"the cross-encoder {source.path} has other weights here than where it was sent from")
    return judge


def _by_scores(first: Rows, second: Rows, temperature: float, score: Callable[[Rows], Floats]) -> Floats:
    """Score every candidate that is in a pair once, and return σ of the pairs' differences over the temperature."""
    rows, place = np.unique(np.concatenate([first, second]), return_inverse=True)
    if not len(rows):
        return np.zeros(0)
    scores = score(rows)
    return np.asarray(expit((scores[place[: len(first)]] - scores[place[len(first) :]]) / temperature))


def _positive(temperature: float) -> float:
    if not temperature > 0:
        raise InputError(f"temperature {temperature}; expected above 0")
    return temperature
