"""Matryoshka training: the first dimensions of a vector are to be good vectors, too. Needs sentence-transformers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from foils.encode.similarity import similarity_of
from foils.runtime.errors import InputError
from foils.runtime.options import spelled


def matryoshka_loss(model: Any, loss: Any, dimensions: Sequence[int]) -> Any:
    """Return the sum of a loss of whole vectors and of those cut to their first dimensions, each made of length 1.

    It is sentence-transformers' MatryoshkaLoss, all weights 1; the whole vector is always among the dimensions.

    Args:
        model: a SentenceTransformer that compares vectors by their cosine.
        loss: of it, cached or not, ours or sentence-transformers'.
        dimensions: at which vectors are cut, each below the model's own, or it.

    Raises:
        InputError: a dimension beyond the model's, a model that compares by inner products, or a cached loss that
            learns something beside the model.

    Source: Kusupati et al. 2022, "Matryoshka representation learning", eq. 1.
    """
    from sentence_transformers.base.losses.gradcache import uses_gradient_cache
    from sentence_transformers.sentence_transformer.losses import MatryoshkaLoss

    whole, named = model.get_embedding_dimension(), spelled("matryoshka")
    if similarity_of(model) != "cosine":
        raise InputError(f"{named}: the model compares vectors by inner products, and parts of vectors are compared by "
                         f"cosines; give {spelled('similarity')} cosine, or leave it out")  # fmt: skip
    if beyond := [each for each in dimensions if each > whole]:
        raise InputError(f"{named} {', '.join(map(str, beyond))}: the model has {whole} dimensions; give fewer")
    if uses_gradient_cache(loss) and hasattr(loss, "own_parameters") and loss.own_parameters():
        raise InputError(f"{named} with {spelled('mini_batch_size')}, and a loss that learns beside the model: leave "
                         "one of them out")  # fmt: skip
    return MatryoshkaLoss(model, loss, sorted({*dimensions, whole}, reverse=True))
