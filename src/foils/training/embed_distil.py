"""Learning a teacher's vectors, through sentence-transformers' EmbedDistillLoss. Needs torch."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import torch
from sentence_transformers.base.losses.merged_forward import embed_columns
from sentence_transformers.sentence_transformer.losses import EmbedDistillLoss
from torch import Tensor, nn

from foils.encode import EmbeddingSettings
from foils.runtime.errors import InputError, check_names
from foils.runtime.options import spelled
from foils.training.data import TrainingSet
from foils.training.guides import guide_vectors
from foils.training.st_losses import refuse_weights

DISTANCES = ("cosine", "l2", "mse")


class VectorDistillation(nn.Module):  # type: ignore[misc]
    """Mean over the columns of a row of the distance between the model's vector of a text and the teacher's.

    The teacher's vectors were made before, by `guide_vectors`, so that no second model runs. Where the widths differ, a
    linear map of the model's vectors is learned along; it is no part of the trained model. Documents that a short list
    lacks are left out.

    Args:
        model: the SentenceTransformer that trains.
        data: whose row numbers come as labels.
        teacher: an encoder, or the name of one.
        distance: cosine (1 − cos), l2 (the Euclidean length of the difference), mse (the mean of its squares).
        embedding: how the teacher is used, and where its vectors are kept.

    Raises:
        UnknownNameError: no such distance.
        InputError: a teacher that cannot be loaded.

    Source: Kim et al. 2023 (2301.12005), eq. 7 and 8, with l2.
    """

    def __init__(
        self, model: Any, data: TrainingSet, teacher: Any, *, distance: str, embedding: EmbeddingSettings
    ) -> None:
        super().__init__()
        check_names("distance", [distance], DISTANCES)
        self.there, self.vectors = data.rows >= 0, guide_vectors(teacher, data, settings=embedding)
        width = self.vectors.queries.dimension
        projected = None if width == model.get_embedding_dimension() else width
        self.loss = EmbedDistillLoss(model, distance_metric=distance, projection_dim=projected)
        self.model = model

    def learn_from(self, data: TrainingSet) -> None:
        """Take another training set, whose row numbers come as labels from now on."""
        self.there, self.vectors = data.rows >= 0, self.vectors.on(data)

    def forward(self, sentence_features: Iterable[dict[str, Tensor]], labels: Tensor) -> Tensor:
        """Return the loss of a batch.

        Args:
            sentence_features: of anchors, positives, and any number of columns of negatives.
            labels: (b,) row numbers.
        """
        columns = embed_columns(self.model, list(sentence_features))
        rows = labels.cpu().numpy().astype(np.int64)
        queries, documents = self.vectors.of_rows(rows)
        wanted = torch.from_numpy(np.stack([queries, *np.split(documents, len(columns) - 1)])).to(columns[0].device)
        there = torch.from_numpy(self.there[rows].T).to(columns[0].device)
        known = [column for column in range(len(columns)) if there[column].any()]
        return self.loss.compute_loss_from_embeddings(
            [columns[column][there[column]] for column in known], [wanted[column][there[column]] for column in known]
        )

    def get_config_dict(self) -> dict[str, Any]:
        """Return the settings, for the model card."""
        return {**self.loss.get_config_dict(), "teacher": dict(self.vectors.encoder)}


def vector_distillation(
    name: str, model: Any, data: TrainingSet, *, teacher: str, distance: str, embedding: EmbeddingSettings
) -> VectorDistillation:
    """Return the loss `name`, having refused what it would ignore.

    Raises:
        InputError: no teacher, or weights, which it cannot heed.
    """
    if not teacher:
        raise InputError(f"{spelled('loss', name)} learns the vectors of a teacher: set teacher=MODEL")
    refuse_weights(name, data)
    return VectorDistillation(model, data, teacher, distance=distance, embedding=embedding)
