"""Vectors of texts by a sentence-transformers model: in batches of tokens, or by the model's own `encode`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from foils.encode.backends import CompiledModel
from foils.encode.batches import WINDOW, Batch, side_by_side, token_batches, tokens_on

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

Floats = npt.NDArray[np.float32]
ENCODE_BATCH = 32  # texts, of a model's own `encode`


def pads_texts(model: SentenceTransformer) -> bool:
    """Tell whether a model makes padded batches of texts, so that they may be cut anew: a plain transformer."""
    first = model[0]
    return (
        type(first).__name__ == "Transformer"
        and not getattr(first, "can_flatten_inputs", False)
        and getattr(first, "query_expansion", None) is None
    )


def own_vectors(
    model: SentenceTransformer,
    texts: Sequence[str],
    kind: str,
    prompt: str,
    *,
    size: int | None,
    cut: bool,
    pool: Any = None,
) -> Floats:
    """Return (n, d) vectors of texts by the model's own `encode_query` or `encode_document`, as they come.

    Args:
        model: with any modules.
        texts: (n,), at least one.
        kind: "query" or "document".
        prompt: put before each.
        size: texts of a batch; None: 32, and for a model that never cuts a text, which is a bag of words, 1,024.
        cut: whether it cuts texts.
        pool: of the model's processes; None: this one.
    """
    encode = model.encode_query if kind == "query" else model.encode_document
    vectors = encode(
        list(texts),
        prompt=prompt,
        batch_size=size or (ENCODE_BATCH if cut else WINDOW),
        show_progress_bar=False,
        convert_to_numpy=False,
        convert_to_tensor=True,
        normalize_embeddings=False,
        pool=pool,
    )
    whole: Floats = vectors.float().cpu().numpy()
    return whole


def batched_vectors(
    model: SentenceTransformer,
    texts: Sequence[str],
    kind: str,
    prompt: str,
    *,
    dimension: int,
    size: int | None,
    compiled: CompiledModel | None = None,
) -> Floats:
    """Return (n, d) vectors of texts in batches of tokens, on a processor one batch on each core at a time.

    Args:
        model: `pads_texts`.
        texts: (n,).
        kind: "query" or "document".
        prompt: put before each.
        dimension: d, of which the model may give more.
        size: texts of a batch; None: as many as its tokens allow (`tokens_on`).
        compiled: runs the transformer in the model's place.
    """
    import torch

    vectors = np.empty((len(texts), dimension), np.float32)
    device = model.device

    def forward(batch: Batch) -> None:
        rows, features = batch
        if compiled is not None:
            vectors[rows] = compiled.encode_batch(features)[:, :dimension]
            return
        with torch.inference_mode():
            moved = {name: value.to(device) if hasattr(value, "to") else value for name, value in features.items()}
            out = model(moved, task=kind)["sentence_embedding"]
            vectors[rows] = out[:, :dimension].float().cpu().numpy()

    batches = token_batches(
        texts,
        lambda part: model.preprocess(part, prompt=prompt, task=kind),
        tokens=tokens_on(device.type),
        size=size,
    )
    model.eval()
    spread = compiled is None and device.type == "cpu" and _without_state(model)
    side_by_side(forward, batches, threads=torch.get_num_threads() if spread else 1)
    return vectors


def _without_state(model: SentenceTransformer) -> bool:
    """Tell whether several threads may run the model: none of its code is its own, no rotation grows with the text."""
    config: Any = model[0].auto_model.config
    rotations = str([getattr(config, name, None) for name in ("rope_parameters", "rope_scaling")])
    ours = type(model[0].auto_model).__module__.startswith("transformers.")
    return ours and "dynamic" not in rotations and "longrope" not in rotations
