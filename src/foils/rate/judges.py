"""Who says which of two documents answers a query better.

A judge gives a probability for each pair, NaN where it failed: a failure is a missing judgement, never a tie and never
a vote. Another way of judging is another class with these four members.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import numpy as np
from scipy.special import expit

from foils.encode import Encoder, VectorStore
from foils.errors import InputError
from foils.rate.candidates import Candidates
from foils.rate.pairs import Floats, Pairs, Rows

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
        self.fingerprint = _digest(
            "bi-encoder", encoder.fingerprint, encoder.route("query"), encoder.route("document"), temperature
        )

    def judge(self, candidates: Candidates, pairs: Pairs) -> Floats:
        """Return σ of the scaled difference of cosines, (m,)."""
        return _by_scores(candidates, pairs, self._temperature, self._score)

    def _score(self, queries: Sequence[str], query: Rows, documents: Sequence[str]) -> Floats:
        if self._store is None:
            of_query = self._encoder.encode(queries, "query")
            of_document = self._encoder.encode(documents, "document")
        else:
            of_query = self._store.embed(self._encoder, queries, "query").take(slice(None))
            of_document = self._store.embed(self._encoder, documents, "document").take(slice(None))
        return np.asarray(np.einsum("nd,nd->n", of_query[query], of_document, dtype=np.float64))


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
        if model.num_labels != 1:
            raise InputError(
                f"the cross-encoder has {model.num_labels} outputs; a judge needs one score per pair of texts"
            )
        self._model, self._temperature, self._batch_size = model, _positive(temperature), batch_size
        self.name = name or "cross-encoder"
        weights = hashlib.blake2b(digest_size=16)
        for key, tensor in sorted(model.state_dict().items()):
            weights.update(f"{key}{tuple(tensor.shape)}".encode())
            weights.update(tensor.detach().float().cpu().numpy().tobytes())
        self.fingerprint = _digest("cross-encoder", weights.hexdigest(), model.max_length, temperature)

    def judge(self, candidates: Candidates, pairs: Pairs) -> Floats:
        """Return σ of the scaled difference of logits, (m,)."""
        return _by_scores(candidates, pairs, self._temperature, self._score)

    def _score(self, queries: Sequence[str], query: Rows, documents: Sequence[str]) -> Floats:
        import torch

        texts = [(queries[row], document) for row, document in zip(query, documents, strict=True)]
        found = self._model.predict(
            texts, batch_size=self._batch_size, show_progress_bar=False, activation_fn=torch.nn.Identity()
        )
        scores = np.asarray(found, np.float64).reshape(len(texts))
        return np.where(np.isfinite(scores), scores, np.nan)


class EnsembleJudge:
    """The mean of several judges' probabilities, p = (1/|P|) Σ R_p(q, d_i, d_j) (eq. 29).

    A judge that failed on a pair is left out of that pair's mean; NaN where all failed.
    """

    def __init__(self, judges: Sequence[Judge]) -> None:
        if not judges:
            raise InputError("an ensemble needs at least one judge")
        self.judges = tuple(judges)
        self.name = "+".join(judge.name for judge in judges)
        self.fingerprint = _digest("ensemble", *(judge.fingerprint for judge in judges))
        self.antisymmetric = all(judge.antisymmetric for judge in judges)

    def judge(self, candidates: Candidates, pairs: Pairs) -> Floats:
        """Return the mean of the answers, (m,)."""
        answers = np.stack([judge.judge(candidates, pairs) for judge in self.judges])
        known = np.isfinite(answers)
        total = np.where(known, answers, 0.0).sum(axis=0)
        answered = known.sum(axis=0)
        return np.asarray(np.divide(total, answered, out=np.full(len(pairs), np.nan), where=answered > 0))


def load_cross_encoder_judge(
    path: str | Path, *, temperature: float = 1.0, max_length: int | None = None
) -> CrossEncoderJudge:
    """Load a cross-encoder (safetensors weights) as a judge, by local path or hub name.

    Raises:
        InputError: there is no such model, it cannot be loaded, or it has several outputs.
    """
    from sentence_transformers import CrossEncoder

    try:
        model = CrossEncoder(str(path), max_length=max_length, model_kwargs={"use_safetensors": True})
    except (OSError, ValueError, RuntimeError, KeyError) as error:
        said = str(error).strip().partition("\n")[0]
        raise InputError(
            f"cannot load the cross-encoder {str(path)!r}: {said}; give a folder with safetensors weights, or a hub "
            "name that can be reached"
        ) from error
    return CrossEncoderJudge(model, temperature=temperature, name=Path(str(path)).name)


class _Score(Protocol):
    def __call__(self, queries: Sequence[str], query: Rows, documents: Sequence[str], /) -> Floats: ...


def _by_scores(candidates: Candidates, pairs: Pairs, temperature: float, score: _Score) -> Floats:
    """Score every candidate that is in a pair once, and return σ of the pairs' differences over the temperature."""
    candidates.check(pairs)
    rows, place = np.unique(np.concatenate([pairs.first, pairs.second]), return_inverse=True)
    if not len(rows):
        return np.zeros(0)
    asked, query = np.unique(candidates.query_of(rows), return_inverse=True)
    scores = score([candidates.queries[row] for row in asked], query, candidates.texts(rows))
    first, second = place[: len(pairs)], place[len(pairs) :]
    return np.asarray(expit((scores[first] - scores[second]) / temperature))


def _positive(temperature: float) -> float:
    if not temperature > 0:
        raise InputError(f"temperature {temperature}; expected above 0")
    return temperature


def _digest(*parts: object) -> str:
    return hashlib.blake2b(repr(parts).encode(), digest_size=16).hexdigest()
