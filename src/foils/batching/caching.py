"""A loss that leaves the vectors it computes in HOBIT-C's cache. Needs torch: import this module where it is used."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch

from foils.batching.hobit_c import EmbeddingCache
from foils.runtime.errors import InputError


class CachingLoss(torch.nn.Module):  # type: ignore[misc]
    """Wrap a sentence-transformers loss so that its forward passes fill an `EmbeddingCache`.

    The row numbers travel as labels: the data set needs a column `label` that holds 0..N−1 (`with_rows`), which losses
    with in-batch negatives ignore. Losses that embed in small pieces (the cached ones) work too.

    Args:
        loss: takes (sentence_features, labels) and calls `model` on each column's features, the query's first and the
            positive's second.
        model: the sentence-transformers model that the loss calls.
        cache: filled in training mode, left alone in evaluation.
    """

    def __init__(self, loss: torch.nn.Module, *, model: torch.nn.Module, cache: EmbeddingCache) -> None:
        super().__init__()
        self.loss, self.cache = loss, cache
        self._model = [model]  # in a list: the wrapped loss has registered it already

    @property
    def model(self) -> Any:
        """The model that the wrapped loss calls: by it the trainer of several processes finds what it has to wrap."""
        return self.loss.model

    def forward(self, sentence_features: Iterable[dict[str, Any]], labels: torch.Tensor | None) -> Any:
        """Return the wrapped loss, having stored the query's and the positive's vectors of each row."""
        model = self._model[0]
        if not (model.training and torch.is_grad_enabled()):
            return self.loss(sentence_features, labels)
        if labels is None or labels.ndim != 1 or labels.is_floating_point():
            raise InputError(
                "HOBIT-C needs each row's number as its label; prepare the data with foils.batching.sampler.with_rows"
            )
        seen: list[torch.Tensor] = []
        wanted = 2 * len(labels)

        def keep(_module: Any, _inputs: Any, output: Any) -> None:
            if sum(map(len, seen)) < wanted:
                seen.append(output["sentence_embedding"].detach().float().cpu())

        handle = model.register_forward_hook(keep)
        try:
            value = self.loss(sentence_features, labels)
        finally:
            handle.remove()
        vectors = torch.cat(seen)[:wanted].numpy() if seen else None
        if vectors is None or len(vectors) < wanted:
            raise InputError(
                f"the loss computed {0 if vectors is None else len(vectors)} vectors for {len(labels)} rows; HOBIT-C "
                "needs one that embeds the query's and the positive's column through the model"
            )
        rows = labels.cpu().numpy()
        self.cache.update(rows, vectors[: len(rows)], vectors[len(rows) :])
        return value

    def get_config_dict(self) -> dict[str, Any]:
        """Return the wrapped loss' settings, for the model card."""
        config = getattr(self.loss, "get_config_dict", dict)
        return dict(config())
