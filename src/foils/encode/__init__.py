"""Text to vectors, each text once."""

from foils.encode.encoder import Encoder, EncoderSettings, Kind, SentenceEncoder, load_encoder
from foils.encode.models import DEFAULT_MODEL, find_model
from foils.encode.vectors import DocumentTexts, Vectors, VectorStore

__all__ = [
    "DEFAULT_MODEL",
    "DocumentTexts",
    "Encoder",
    "EncoderSettings",
    "Kind",
    "SentenceEncoder",
    "VectorStore",
    "Vectors",
    "find_model",
    "load_encoder",
]
