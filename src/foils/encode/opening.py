"""Which encoder a stage uses and where its vectors are kept: the options of every door that embeds texts."""

from __future__ import annotations

import logging
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Any, Protocol, cast

import numpy as np

from foils.data.collection import Collection
from foils.encode.encoder import Encoder, EncoderSettings, Kind, SentenceEncoder, load_encoder
from foils.encode.models import CROSS_ENCODER, DEFAULT_MODEL, ENCODER, check_kind, load_cross_encoder
from foils.encode.vectors import VectorStore, cosine_loss
from foils.runtime.errors import FailureError, InputError
from foils.runtime.files import cache_place
from foils.runtime.options import Option, Settings, spelled


class EmbeddingModel(Protocol):
    """A loaded SentenceTransformer."""

    def encode(self, *args: Any, **kwargs: Any) -> Any:
        """Return vectors of texts."""


class PairModel(Protocol):
    """A loaded CrossEncoder."""

    def predict(self, *args: Any, **kwargs: Any) -> Any:
        """Return scores of pairs of texts."""


CrossEncoderLike = Annotated[str | Path | PairModel, Option(metavar="MODEL")]
EncoderLike = Annotated[str | Path | Encoder | EmbeddingModel, Option(metavar="MODEL")]
StoreLike = str | Path | VectorStore

log = logging.getLogger(__name__)

LEAST_COSINE = 0.999  # between a vector and its float32 form, of every text of the sample
SAMPLE = 64  # documents, and as many queries
OF_CROSS_ENCODERS = ("max_length", "device", "trust_remote_code")  # settings that apply to them too


@dataclass(frozen=True)
class EncoderName(Settings):
    """Which encoder.

    Attributes:
        encoder: A sentence-transformers model: a folder, a hub name, the embedded all-MiniLM-L6-v2,
            or static:NAME for the word table of one. In Python also a SentenceTransformer, or an
            object with the methods of `Encoder`.
    """

    encoder: EncoderLike = DEFAULT_MODEL


@dataclass(frozen=True)
class EmbeddingSettings(EncoderSettings):
    """The options of every door that embeds texts, beside the encoder's name.

    Attributes:
        vectors: `VectorStore`, or its folder, where vectors are kept, so that no text is embedded
            twice. Default: the cache.
    """

    vectors: Annotated[StoreLike | None, Option(in_program=False)] = None

    def open_store(self) -> VectorStore:
        """Return the store of vectors."""
        if isinstance(self.vectors, VectorStore):
            return self.vectors
        return VectorStore(self.vectors or cache_place("vectors"))

    def open_encoder(self, model: EncoderLike, collection: Collection) -> Encoder:
        """Return an encoder (see `as_encoder`).

        A model by name computes in the `fastest` precision where that is left open.
        """
        chosen = EncoderSettings(**{each.name: getattr(self, each.name) for each in fields(EncoderSettings)})
        encoder = as_encoder(model, chosen)
        if isinstance(model, str | Path) and isinstance(encoder, SentenceEncoder) and self.precision == "auto":
            return encoder if fastest(encoder, collection, self.open_store()) else load_encoder(model, chosen)
        return encoder

    def open_cross_encoder(self, model: CrossEncoderLike) -> Any:
        """Return what scores pairs: a model as it is, or that of a name, with length and device too."""
        if not isinstance(model, (str, Path)):
            check_kind(model, CROSS_ENCODER)
            return model
        return load_cross_encoder(model, **{name: getattr(self, name) for name in OF_CROSS_ENCODERS})


@dataclass(frozen=True)
class EncodingSettings(EmbeddingSettings, EncoderName):
    """The options of every door that embeds texts with one encoder."""

    def open(self, collection: Collection) -> tuple[Encoder, VectorStore]:
        """Load the encoder (see `open_encoder`) and open the store."""
        return self.open_encoder(self.encoder, collection), self.open_store()


AT_128 = EncodingSettings(max_length=128)  # tokens, as all five papers train and score


def as_encoder(model: EncoderLike, settings: EncoderSettings) -> Encoder:
    """Return an encoder: of a model's name or folder, of a SentenceTransformer, or as it is.

    Settings do not change an object that is an `Encoder` already.

    Raises:
        InputError: an object of another kind, a model that cannot be loaded, or settings that do not fit it.
    """
    if isinstance(model, (str, Path)):
        return load_encoder(model, settings)
    if all(hasattr(model, name) for name in ("fingerprint", "route", "encode")):
        return cast(Encoder, model)
    check_kind(model, ENCODER)
    if all(hasattr(model, name) for name in ("encode_query", "encode_document", "prompts")):
        return SentenceEncoder(model, settings)
    expected = "the name of a model, a loaded SentenceTransformer, or an object with the methods of Encoder"
    raise InputError(f"an encoder of type {type(model).__name__}; expected {expected}")


def description(encoder: Encoder) -> dict[str, Any]:
    """Return what provenance says of an encoder: its own facts, at least name, fingerprint and dimension."""
    if hasattr(encoder, "describe"):
        return dict(encoder.describe())
    return {"name": encoder.name, "fingerprint": encoder.fingerprint, "dimension": encoder.dimension}


def computes_bfloat16(device: Any) -> bool:
    """Tell whether a torch device multiplies bfloat16 by its own instructions, which is faster than float32.

    A GPU says it itself. A processor does with AMX or AVX512-BF16, where torch may use them
    (`ATEN_CPU_CAPABILITY`); on others nothing was measured, so that they count as those that do
    not.
    """
    import torch

    if device.type == "cuda":
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    if device.type != "cpu" or not torch.backends.cpu.get_cpu_capability().startswith("AVX512"):
        return False
    capabilities: dict[str, Any] = getattr(torch.cpu, "get_capabilities", dict)()
    return any(capabilities.get(instructions) for instructions in ("amx_bf16", "avx512_bf16"))


def fastest(exact: SentenceEncoder, collection: Collection, store: VectorStore) -> bool:
    """Move an encoder to the fastest precision that keeps the vectors; one log line says which, and why.

    It is bfloat16 where the device computes it (`computes_bfloat16`), and where the lowest cosine
    of a sample of the collection's texts to their float32 vectors is at least .999; otherwise
    float32. So it is the same on machines of one kind. The vectors of the sample are kept: the next
    call encodes none of them.

    Args:
        exact: computes in float32; it is changed.
        collection: whose texts are the sample: 64 documents and 64 queries, evenly spread.
        store: keeps their vectors.

    Returns:
        Whether the encoder may be used; else it computes in bfloat16, which loses too much, and is
            to be loaded again.
    """
    if exact.static:  # a bag of words looks vectors up
        return True
    if not computes_bfloat16(exact.model.device):
        log.info("precision float32: nothing faster is native to this device")
        return True
    reference = _sample(exact, collection, store)
    exact.compute_in("bfloat16")
    try:
        mean, least = cosine_loss(reference, _sample(exact, collection, store))
    except FailureError:  # vectors that are not finite
        mean = least = np.nan
    keeps = least >= LEAST_COSINE
    log.info(
        "precision %s: cosine of bfloat16 to float32 %.5f on average, %.5f at least, over %d texts; %s",
        "bfloat16" if keeps else "float32", mean, least, len(reference),
        f"{spelled('precision', 'float32')} computes exactly" if keeps else f"at least {LEAST_COSINE} is expected",
    )  # fmt: skip
    return keeps


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
