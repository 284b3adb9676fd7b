"""The precision that is fastest without changing a vector by more than a little: what `precision="auto"` becomes."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from foils.data.collection import Collection
from foils.encode.vectors import VectorStore, cosine_loss
from foils.runtime.errors import FailureError
from foils.runtime.options import spelled

if TYPE_CHECKING:
    from foils.encode.encoder import Kind, SentenceEncoder

LEAST_COSINE = 0.999  # between a vector and its float32 form, of every text of the sample
SAMPLE = 64  # documents, and as many queries
_NATIVE = ("amx_bf16", "avx512_bf16")  # instructions that multiply bfloat16

log = logging.getLogger(__name__)


def computes_bfloat16(device: Any) -> bool:
    """Tell whether a torch device multiplies bfloat16 by instructions of its own, which is faster than float32.

    A GPU says it itself. A processor does with AMX or AVX512-BF16, where torch may use them (`ATEN_CPU_CAPABILITY`); on
    others nothing was measured, so that they count as those that do not.
    """
    import torch

    if device.type == "cuda":
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    if device.type != "cpu" or not torch.backends.cpu.get_cpu_capability().startswith("AVX512"):
        return False
    capabilities: dict[str, Any] = getattr(torch.cpu, "get_capabilities", dict)()
    return any(capabilities.get(name) for name in _NATIVE)


def multiplies(model: Any) -> bool:
    """Tell whether a model multiplies matrices at all; a bag of words looks vectors up."""
    import torch

    lookups = (torch.nn.Embedding, torch.nn.EmbeddingBag)
    layers = (module for module in model.modules() if not isinstance(module, lookups))
    return any(each.ndim >= 2 for layer in layers for each in layer.parameters(recurse=False))


def fastest(
    exact: SentenceEncoder, again: Callable[[], SentenceEncoder], collection: Collection, store: VectorStore
) -> SentenceEncoder:
    """Return the encoder in the fastest precision that keeps the vectors; one line of the log says which, and why.

    It is bfloat16 where the device computes it (`computes_bfloat16`), and where the lowest cosine of a sample of the
    collection's texts to their float32 vectors is at least .999; otherwise float32. So it is the same on machines of
    one kind. The vectors of the sample are kept: the next call encodes none of them.

    Args:
        exact: computes in float32; it is changed, so that only what is returned may be used.
        again: loads it once more.
        collection: whose texts are the sample: 64 documents and 64 queries, evenly spread.
        store: keeps their vectors.
    """
    if not multiplies(exact.model):
        return exact
    if not computes_bfloat16(exact.model.device):
        log.info("precision float32: nothing faster is native to this device")
        return exact
    reference = _sample(exact, collection, store)
    fast = exact.in_precision("bfloat16")
    try:
        vectors = _sample(fast, collection, store)
    except FailureError:  # vectors that are not finite
        vectors = np.full_like(reference, np.nan)
    told_apart = reference.any(axis=1)
    mean, least = cosine_loss(reference[told_apart], vectors[told_apart]) if told_apart.any() else (1.0, 1.0)
    kept, why = "bfloat16", f"{spelled('precision', 'float32')} computes exactly"
    if not least >= LEAST_COSINE:
        kept, why = "float32", f"at least {LEAST_COSINE} is expected"
    log.info(
        "precision %s: cosine of bfloat16 to float32 %.5f on average, %.5f at least, over %d texts; %s",
        kept, mean, least, len(reference), why,
    )  # fmt: skip
    return fast if kept == "bfloat16" else again()


def _sample(encoder: SentenceEncoder, collection: Collection, store: VectorStore) -> Any:
    """The vectors, (m, d), of documents and queries of a collection."""
    sides: list[tuple[Kind, Any, Any]] = [
        ("document", collection.documents, collection.document_texts),
        ("query", collection.queries, collection.query_texts),
    ]
    vectors = []
    for kind, table, texts_of in sides:
        rows = np.unique(np.linspace(0, len(table) - 1, SAMPLE).astype(int))[: len(table)]
        vectors.append(store.embed(encoder, texts_of(rows), kind, task="trying precisions").take(slice(None)))
    return np.concatenate(vectors)
