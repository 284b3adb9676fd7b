"""MTEB's protocol for our encoders. Needs the package mteb.

results = mteb.evaluate(MTEBEncoder(load_encoder("model/")), tasks, cache=None)
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from foils.encode import Encoder
from foils.runtime.errors import InputError, require


class MTEBEncoder:
    """An encoder of ours as mteb takes models, with its own prompts, length and precision; scores are inner products.

    Queries have the prompt for queries, all other texts the one for documents, whatever the task: mteb's prompts by
    task are not used, nor is its batch size, which changes no vector. Its results are filed under the encoder's name,
    with the fingerprint of weights and settings as the revision.

    Args:
        encoder: of `foils.encode`, as `load_encoder` gives it.

    Raises:
        MissingExtraError: without the package mteb.
    """

    def __init__(self, encoder: Encoder) -> None:
        self.encoder = encoder
        self.mteb_model_meta = require("mteb", "mteb").models.ModelMeta.create_empty(
            overwrites={
                "name": f"foils/{encoder.name}",
                "revision": encoder.fingerprint,
                "embed_dim": encoder.dimension,
            }
        )

    def encode(
        self, inputs: Iterable[Mapping[str, Any]], *, prompt_type: Any = None, **_: Any
    ) -> npt.NDArray[np.float32]:
        """Return (n, d) vectors of the texts of mteb's batches, in order.

        Args:
            inputs: batches with a list `text` each.
            prompt_type: mteb's `query` or `document`; None: a document.
            _: what else mteb says of the task.

        Raises:
            InputError: a batch without texts, as of images.
        """
        texts: list[str] = []
        for batch in inputs:
            if "text" not in batch:
                raise InputError(f"the task has {', '.join(batch)}; the encoder takes text alone")
            texts += batch["text"]
        return self.encoder.encode(texts, "query" if _name(prompt_type) == "query" else "document")

    def similarity(self, embeddings1: Any, embeddings2: Any) -> Any:
        """Return the (n, m) inner products."""
        return require("mteb.similarity_functions", "mteb").dot_score(embeddings1, embeddings2)

    def similarity_pairwise(self, embeddings1: Any, embeddings2: Any) -> Any:
        """Return the (n,) inner products of vectors in the same places."""
        return require("mteb.similarity_functions", "mteb").pairwise_dot_score(embeddings1, embeddings2)


def _name(prompt_type: Any) -> str | None:
    return None if prompt_type is None else str(getattr(prompt_type, "value", prompt_type))
