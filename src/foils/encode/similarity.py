"""How a model compares vectors: by the cosine, or by the inner product of vectors of any length."""

from __future__ import annotations

import logging
from typing import Any

from foils.runtime.errors import InputError, UnknownNameError

SIMILARITIES = ("cosine", "dot")
OF_COSINES = 0.05


def similarity_of(model: Any, asked: str | None = None) -> str:
    """Return how vectors of a sentence-transformers model are compared: cosine or dot.

    Args:
        model: a SentenceTransformer; what it was trained for stands in its `similarity_fn_name`.
        asked: in place of the model's own; None: the model's own.

    Raises:
        UnknownNameError: `asked` is neither.
        InputError: the model was made for a distance, by which nothing here compares.
    """
    if asked is not None and asked not in SIMILARITIES:
        raise UnknownNameError("similarity", asked, SIMILARITIES)
    own = str(model.similarity_fn_name or "cosine")
    if asked is None and own not in SIMILARITIES:
        raise InputError(
            f"the model compares vectors by {own} distance; retrieval here ranks by cosine or dot: choose one of them "
            "as the similarity"
        )
    return asked or own


def check_temperature_of(similarity: str, temperature: float) -> None:
    """Warn where inner products are divided by the temperature that is usual for cosines.

    Args:
        similarity: cosine or dot.
        temperature: τ, which divides similarities.
    """
    if similarity == "dot" and temperature == OF_COSINES:
        logging.getLogger(__name__).warning(
            "temperature %g is made for cosines, and this model compares by inner product, whose values are larger: "
            "the usual temperature is 1",
            temperature,
        )
