"""Text to vectors, each text once."""

from foils.encode.encoder import Encoder, EncoderSettings, Kind, SentenceEncoder, load_encoder
from foils.encode.models import DEFAULT_MODEL, find_model
from foils.encode.opening import AT_128, EmbeddingSettings, EncodingSettings, as_encoder
from foils.encode.vectors import Vectors, VectorStore

__all__ = [
    "AT_128",
    "DEFAULT_MODEL",
    "EmbeddingSettings",
    "Encoder",
    "EncoderSettings",
    "EncodingSettings",
    "Kind",
    "SentenceEncoder",
    "VectorStore",
    "Vectors",
    "as_encoder",
    "find_model",
    "load_encoder",
]
