"""Train a static embedding on the rows of the words that its training reads, the others left out.

A row of the word table whose word does not occur has no gradient, and Adam without weight decay leaves it where it is.
So the result is that of training on the whole table, but for rounding; a step of 16 triplets costs a fifth.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from sentence_transformers.sentence_transformer.modules import StaticEmbedding

import foils.training.bi_encoder as training


class Narrowed(torch.nn.Module):
    """A table of the rows `ids` (ascending) of a larger one."""

    def __init__(self, whole: torch.nn.EmbeddingBag, ids: torch.Tensor) -> None:
        super().__init__()
        self.rows = torch.nn.EmbeddingBag.from_pretrained(
            whole.weight.detach()[ids].clone(), freeze=False, mode=whole.mode
        )
        place = torch.full((whole.num_embeddings,), -1)
        place[ids] = torch.arange(len(ids))
        self.register_buffer("place", place, persistent=False)

    def forward(self, ids: torch.Tensor, offsets: torch.Tensor) -> torch.Tensor:
        return self.rows(self.place[ids], offsets)


def train_narrowed(model: Any, data: Any, *given: Any, **more: Any) -> Any:
    """`train_bi_encoder` of the words of the data alone, where the model is a static embedding."""
    texts = data.texts.collection.query_texts(np.unique(data.rows[:, 0]))
    texts += data.texts.document_texts(np.unique(data.rows[:, 1:]))
    with words_of(model, texts):
        return WHOLE(model, data, *given, **more)


@contextmanager
def words_of(model: Any, texts: Iterable[str]) -> Iterator[None]:
    """Leave out the words that the texts do not have, where the model is a static embedding."""
    module = model[0]
    if not isinstance(module, StaticEmbedding):
        yield
        return
    ids = {each for text in module.tokenizer.encode_batch(list(texts), add_special_tokens=False) for each in text.ids}
    whole, chosen = module.embedding, torch.from_numpy(np.array(sorted(ids)))
    module.embedding = Narrowed(whole, chosen)
    try:
        yield
        with torch.no_grad():
            whole.weight[chosen] = module.embedding.rows.weight
    finally:
        module.embedding = whole


WHOLE = training.train_bi_encoder


@contextmanager
def narrowed() -> Iterator[None]:
    """Train static embeddings so."""
    training.train_bi_encoder = train_narrowed
    try:
        yield
    finally:
        training.train_bi_encoder = WHOLE
