"""Negatives that change while a model trains: mined anew with the model as it is, every few epochs (ANCE)."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from transformers import TrainerCallback

from foils.data import Collection, Negatives
from foils.data.training_rows import RowSettings
from foils.encode import EncoderSettings, SentenceEncoder, VectorStore
from foils.mining import DenseRetriever, mine_negatives
from foils.runtime.errors import FailureError
from foils.training.data import DataSets, TrainingSet
from foils.training.fit import checkpoint_of

NEGATIVES = "foils_negatives.parquet"


class Refresh(TrainerCallback):  # type: ignore[misc]
    """Negatives of all data sets are mined anew, each in its own documents, every so many epochs (ANCE).

    They are made at the beginning of epochs, kept with each checkpoint, and restored.

    Args:
        sets: the data sets, whose documents are embedded and searched at each refresh.
        rows: of the training set: whose queries, triplets or lists, and how many negatives of a query.
        every: epochs between two refreshes, at least 1; the first is after so many epochs.

    Attributes:
        data: the first training set, whose texts are replaced.
        loss: whose facts about rows, and whose mask, are replaced, too.

    Source: Xiong et al., ANCE (ICLR 2021), which does so beside the training; here it waits.
    """

    data: TrainingSet
    loss: Any
    negatives: Negatives | None = None

    def __init__(self, sets: DataSets, rows: RowSettings, every: int) -> None:
        self.sets, self.rows, self.every = sets, rows, every

    def following(self, data: TrainingSet, loss: Any) -> TrainingSet:
        """Return a copy of the first training set, whose texts are replaced from now on, and take note of the loss."""
        texts = replace(data.texts)
        self.loss, self.data = loss, replace(data, texts=texts, dataset=data.dataset.with_transform(texts))
        return self.data

    def mined(self, collections: Mapping[str, Collection], model: Any) -> dict[str, Negatives]:
        """Return what a model as it is mines in each of these collections, by name."""
        encoder, found = SentenceEncoder(model, EncoderSettings(), name="checkpoint"), dict[str, Negatives]()
        for name, each in collections.items():
            with tempfile.TemporaryDirectory() as folder:  # vectors of weights that nobody meets again
                asked = each.positives(self.rows.split).query_rows
                retriever = DenseRetriever.of_model(each, encoder, VectorStore(folder), query_rows=asked, name="ance")
                found[name] = mine_negatives(each, retriever, split=self.rows.split, top=self.rows.per_query)
        return found

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Restore the negatives where training resumes."""
        path = checkpoint_of(args, state) / NEGATIVES
        if state.global_step and path.is_file():
            self.take(Negatives.read(path))

    def on_epoch_begin(self, args: Any, state: Any, control: Any, model: Any = None, **_: Any) -> None:
        """Mine where it is time; an epoch that resumes in its middle goes on with what was restored."""
        epochs = state.global_step * args.num_train_epochs / state.max_steps
        if epochs == 0 or not float(epochs).is_integer() or int(epochs) % self.every:
            return
        training = model.training
        try:
            with torch.no_grad():
                self.take(self.sets.joined(self.mined(self.sets.collections, model)))
        finally:
            model.train(training)

    def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Write the negatives into the checkpoint."""
        if self.negatives is not None and state.is_world_process_zero:
            self.negatives.write(checkpoint_of(args, state) / NEGATIVES)

    def take(self, negatives: Negatives) -> None:
        """Train on these negatives from now on, in rows of the same queries and form.

        Raises:
            FailureError: they make other rows than the first.
        """
        data, first = self.sets.training_set(negatives, **vars(self.rows)), self.data.rows
        if data.rows.shape != first.shape or not np.array_equal(data.rows[:, :2], first[:, :2]):
            raise FailureError(
                f"mining anew gave {data.rows.shape[0]} rows of {data.rows.shape[1]} texts for {first.shape[0]} of "
                f"{first.shape[1]}: a list became shorter or longer; ask for fewer negatives, or lists in the place of "
                "triplets"
            )
        self.data.texts.own, self.data.texts.rows, self.negatives = data.texts.own, data.rows, negatives
        self.loss.learn_from(data)
