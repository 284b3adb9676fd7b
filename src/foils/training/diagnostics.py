"""What training does to whom: gradient ratios, and each query's share of a batch's loss."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from foils.runtime.errors import InputError

Floats = npt.NDArray[np.float64]


def gradient_ratio(difference: npt.ArrayLike, *, temperature: float = 0.07) -> Floats:
    """Return e^{Δs/τ}: how many times harder the nearer of two negatives pulls than the other.

    Args:
        difference: Δs of their similarities, any shape.
        temperature: τ, above 0.

    Source: ANMI 2.0 Theorem 1, eq. 13 (0.3 at 0.07: 72.6).
    """
    if not temperature > 0:
        raise InputError(f"temperature {temperature}; expected above 0")
    return np.asarray(np.exp(np.asarray(difference, np.float64) / temperature))


@dataclass(frozen=True)
class BatchDiagnostics:
    """A batch under InfoNCE, query by query.

    Attributes:
        losses: (b,) −log P₊.
        gradient_norms: (b,) ‖∂L/∂q‖ = ‖Σ_j P_j d_j − d₊‖/τ.
        dominance: (b,) the largest negative's share of all negatives' pull, in (0, 1]; NaN without a negative.
    """

    losses: Floats
    gradient_norms: Floats
    dominance: Floats

    def to_json(self) -> dict[str, float]:
        """Return the means."""
        return {name: float(np.nanmean(values)) for name, values in vars(self).items()}


def batch_diagnostics(
    queries: npt.ArrayLike,
    documents: npt.ArrayLike,
    *,
    mask: npt.NDArray[np.bool_] | None = None,
    temperature: float = 0.05,
) -> BatchDiagnostics:
    """Measure a batch; the first b of the c documents are the queries' positives.

    Args:
        queries: (b, d) unit vectors.
        documents: (c, d) unit vectors, c ≥ b.
        mask: (b, c) candidates left out; not a query's own positive.
        temperature: τ, above 0.

    Raises:
        InputError: shapes that do not fit, or a positive that is masked.
    """
    q, d = np.asarray(queries, np.float64), np.asarray(documents, np.float64)
    b, c = len(q), len(d)
    left_out = np.zeros((b, c), bool) if mask is None else np.asarray(mask, bool)
    if c < b or q.shape[1:] != d.shape[1:] or left_out.shape != (b, c) or not temperature > 0:
        raise InputError(
            f"queries {q.shape}, documents {d.shape}, mask {left_out.shape}, temperature {temperature}; expected "
            "(b, d), (c, d) with c ≥ b, (b, c), above 0"
        )
    own = np.arange(b)
    if left_out[own, own].any():
        raise InputError("the mask leaves positives out; a query's own positive stays")
    logits = np.where(left_out, -np.inf, q @ d.T / temperature)
    peak = logits.max(1, keepdims=True)
    shares = np.exp(logits - peak)
    shares /= shares.sum(1, keepdims=True)
    gradients = (shares @ d - d[:b]) / temperature
    others = shares.copy()
    others[own, own] = 0
    total = others.sum(1)
    dominance = np.divide(others.max(1), total, out=np.full(b, np.nan), where=total > 0)
    losses = peak[:, 0] + np.log(np.exp(logits - peak).sum(1)) - logits[own, own]
    return BatchDiagnostics(losses, np.linalg.norm(gradients, axis=1), dominance)


def loss_curves(
    model: Any, data: Any, batches: Sequence[Sequence[int]], *, temperature: float = 0.05
) -> list[dict[str, float]]:
    """Return the mean diagnostics of each batch of an epoch, in order: what the model sees as the epoch goes on.

    Args:
        model: a SentenceTransformer.
        data: a `TrainingSet`.
        batches: row numbers, batch by batch, as a sampler gives them.
        temperature: τ.
    """
    found = []
    for rows in batches:
        texts = data.dataset[list(rows)]
        columns = [texts[name] for name in texts if name not in ("anchor", "label")]
        settings = {"normalize_embeddings": True, "show_progress_bar": False}
        queries = model.encode(texts["anchor"], **settings)
        documents = np.concatenate([model.encode(column, **settings) for column in columns])
        mask = data.facts.mask(np.asarray(rows, np.int64))
        found.append(batch_diagnostics(queries, documents, mask=mask, temperature=temperature).to_json())
    return found
