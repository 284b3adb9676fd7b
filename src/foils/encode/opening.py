"""Which encoder a stage uses and where its vectors are kept: the options of every door that embeds texts."""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from foils.data.collection import Collection
from foils.encode.cross_encoders import load_cross_encoder
from foils.encode.encoder import Encoder, EncoderSettings, SentenceEncoder, load_encoder
from foils.encode.models import DEFAULT_MODEL, called, refuse_own
from foils.encode.own_similarity import OwnSimilarity, as_pair_model, open_own
from foils.encode.precision import fastest
from foils.encode.vectors import VectorStore
from foils.runtime.errors import InputError
from foils.runtime.files import cache_folder
from foils.runtime.options import Option, Settings, refuse

if TYPE_CHECKING:
    CrossEncoderLike = str | Path | Any  # Any: a CrossEncoder
    EncoderLike = str | Path | Encoder | Any  # Any: a SentenceTransformer
    StoreLike = str | Path | VectorStore
else:
    CrossEncoderLike = Annotated[str, Option(metavar="MODEL")]
    EncoderLike = Annotated[str, Option(metavar="MODEL")]
    StoreLike = str

OF_CROSS_ENCODERS = ("max_length", "device", "trust_remote_code")  # settings that apply to them too


@dataclass(frozen=True)
class EncoderName(Settings):
    """Which encoder.

    Attributes:
        encoder: A sentence-transformers model: a folder, a hub name, the embedded all-MiniLM-L6-v2, or static:NAME for
            the word table of one. In Python also a SentenceTransformer, or an object with the methods of `Encoder`.
    """

    encoder: EncoderLike = DEFAULT_MODEL


@dataclass(frozen=True)
class StoreSettings(Settings):
    """Where vectors are kept.

    Attributes:
        vectors: `VectorStore`, or its folder, where vectors are kept, so that no text is embedded twice. Default:
            the cache.
    """

    heading = "Encoder"

    vectors: Annotated[StoreLike | None, Option(in_program=False)] = None

    def open_store(self) -> VectorStore:
        """Return the store of vectors."""
        if isinstance(self.vectors, VectorStore):
            return self.vectors
        return VectorStore(self.vectors or cache_folder() / "vectors")


@dataclass(frozen=True)
class EmbeddingSettings(StoreSettings, EncoderSettings):
    """The options of every door that embeds texts, beside the encoder's name."""

    def encoder_settings(self) -> EncoderSettings:
        """Return how the model is used."""
        return EncoderSettings(**{each.name: getattr(self, each.name) for each in fields(EncoderSettings)})

    def open_encoder(self, given: EncoderLike, collection: Collection) -> Encoder:
        """Return an encoder (see `as_encoder`).

        A model by name computes in the `fastest` precision where that is left open.
        """
        settings = self.encoder_settings()
        encoder = as_encoder(given, settings)
        if isinstance(given, (str, Path)) and isinstance(encoder, SentenceEncoder) and self.precision == "auto":
            return fastest(encoder, partial(load_encoder, given, settings), collection, self.open_store())
        return encoder

    def open_cross_encoder(self, given: CrossEncoderLike) -> Any:
        """Return what scores pairs: a model as it is, or that of a name, to which length and device apply too."""
        if not isinstance(given, (str, Path)):
            return as_pair_model(given)
        return load_cross_encoder(given, **{name: getattr(self, name) for name in OF_CROSS_ENCODERS})

    def open_own(self, given: EncoderLike) -> OwnSimilarity:
        """Return a sparse or multi-vector model; its vectors are not kept.

        Raises:
            InputError: a model of another kind, or options that have no effect on one of these.
        """
        refuse(self.changed("vectors"), f"on {called(given)}, whose vectors are not kept; leave it out")
        return open_own(given, self.encoder_settings())


@dataclass(frozen=True)
class EncodingSettings(EmbeddingSettings, EncoderName):
    """The options of every door that embeds texts with one encoder."""

    def open(self, collection: Collection) -> tuple[Encoder, VectorStore]:
        """Load the encoder (see `open_encoder`) and open the store."""
        store = self.open_store()
        return self.open_encoder(self.encoder, collection), store


AT_128 = EncodingSettings(max_length=128)  # tokens, as all five papers train and score


def as_encoder(given: EncoderLike, settings: EncoderSettings) -> Encoder:
    """Return an encoder: of a model's name or folder, of a SentenceTransformer, or as it is.

    Settings do not change an object that is an `Encoder` already.

    Raises:
        InputError: an object of another kind, a model that cannot be loaded, or settings that do not fit it.
    """
    if isinstance(given, (str, Path)):
        return load_encoder(given, settings)
    if all(hasattr(given, name) for name in ("fingerprint", "route", "encode")):
        return given
    refuse_own(given)
    if all(hasattr(given, name) for name in ("encode_query", "encode_document", "prompts")):
        return SentenceEncoder(given, settings)
    raise InputError(
        f"an encoder of type {type(given).__name__}; expected the name of a model, a loaded SentenceTransformer, or an "
        "object with the methods of Encoder"
    )


def description(encoder: Encoder) -> dict[str, Any]:
    """Return what provenance says of an encoder: what it says of itself, at least name, fingerprint and dimension."""
    if hasattr(encoder, "describe"):
        return dict(encoder.describe())
    return {"name": encoder.name, "fingerprint": encoder.fingerprint, "dimension": encoder.dimension}
