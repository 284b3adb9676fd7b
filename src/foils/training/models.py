"""Models to train, and the learning rate of each kind."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from foils.encode.encoder import PROMPT_NAMES, Kind, prompt_of
from foils.encode.models import is_static, load_model
from foils.encode.similarity import similarity_of
from foils.training.settings import TrainSettings

LEARNING_RATES = {
    "static embedding": (3e-3, None),
    "language model": (3e-4, 128),
    "encoder": (2e-5, None),
    "reranker": (1e-4, 128),
}
"""Kind of model → peak learning rate where none is given, and the width (hidden size) of the transformer that it was
measured on (None: the same for every width). docs/training.md has the measurement, and what it lacks."""
OF_ADAPTERS = 10
"""Times the learning rate of the weights themselves: that of adapters (Schulman et al. 2025, "LoRA without regret")."""


def kind_of(model: Any) -> str:
    """Return which of `LEARNING_RATES` a loaded model is.

    - static embedding: its input module looks up word vectors (StaticEmbedding).
    - encoder: it was saved as an embedding model, with its modules; it is trained further.
    - language model: a transformer that was loaded without modules of its own (or put together by hand), whose
      vectors nobody trained yet.
    - reranker: a CrossEncoder.

    Args:
        model: a SentenceTransformer or a CrossEncoder.
    """
    from sentence_transformers import CrossEncoder

    if isinstance(model, CrossEncoder):
        return "reranker"
    if is_static(model):
        return "static embedding"
    return "encoder" if model.module_kwargs else "language model"


def learning_rate_of(model: Any, *, lora: bool = False) -> float:
    """Return the default peak learning rate of a model: that of its kind, in inverse proportion to a larger width.

    rate · min(1, measured width / width). Adam's best learning rate falls with the width of a transformer's layers
    (Yang et al. 2022, Tensor Programs V): what suits a model of width 128 breaks one of width 768.

    Args:
        model: a SentenceTransformer or a CrossEncoder.
        lora: whether adapters are trained, which take ten times the rate of the weights themselves.
    """
    rate, measured = LEARNING_RATES[kind_of(model)]
    rate *= OF_ADAPTERS if lora else 1
    width = getattr(getattr(model.transformers_model, "config", None), "hidden_size", None)
    return rate if measured is None or not isinstance(width, int) else rate * min(1.0, measured / width)


def with_defaults(settings: TrainSettings, model: Any) -> TrainSettings:
    """Return the settings with the learning rate that suits the model (`learning_rate_of`) where they have none."""
    if settings.learning_rate is not None:
        return settings
    return replace(settings, learning_rate=learning_rate_of(model, lora=settings.lora is not None))


def load_trainable(
    model: str | Path | Any,
    *,
    device: str | None = None,
    similarity: str | None = None,
    query_prompt: str | None = None,
    document_prompt: str | None = None,
    trust_remote_code: bool = False,
) -> Any:
    """Return a SentenceTransformer to train, as `load_model` gives it.

    Args:
        model: a folder, a hub name, the embedded all-MiniLM-L6-v2, or `static:` before one of them, which trains in
            seconds; or a SentenceTransformer, to which the similarity applies.
        device: torch device; None: the first one available.
        similarity: cosine or dot: how it compares vectors from now on, in loss, measure and the saved model; None: its
            own.
        query_prompt: the model's prompt for queries from now on, as `foils.encode.encoder.prompt_of` takes it.
        document_prompt: its prompt for documents, likewise.
        trust_remote_code: run code that comes with the model.

    Raises:
        InputError: there is no such model, or it has no word table.
        UnknownNameError: an unknown similarity, or a prompt `@NAME` that the model does not have.
    """
    if isinstance(model, (str, Path)):
        model = load_model(model, device=device, trust_remote_code=trust_remote_code)
    if similarity is not None:
        model.similarity_fn_name = similarity_of(model, similarity)
    asked: dict[Kind, str | None] = {"query": query_prompt, "document": document_prompt}
    for kind, prompt in asked.items():
        if prompt is not None:
            names, text = PROMPT_NAMES[kind], prompt_of(model, kind, prompt)
            others = {name: own for name, own in (model.prompts or {}).items() if name not in names}
            model.prompts = {**others, names[0]: text}
    return model
