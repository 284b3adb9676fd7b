"""Negatives that change while a model trains: mined anew with the model as it is, every few epochs (ANCE)."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from transformers import TrainerCallback

from foils.data import Collection, Negatives
from foils.data.training_rows import RowSettings
from foils.encode import EncoderSettings, SentenceEncoder, VectorStore
from foils.mining import DenseRetriever, mine_negatives
from foils.runtime.errors import FailureError, InputError
from foils.training.data import DataSets, TrainingSet
from foils.training.fit import checkpoint_of

NEGATIVES = "foils_negatives.parquet"


@dataclass(frozen=True)
class Refresh:
    """Negatives of all data sets are mined anew, each in its own documents, every so many epochs (ANCE).

    Attributes:
        sets: the data sets, whose documents are embedded and searched at each refresh.
        rows: of the training set: whose queries, triplets or lists, and how many negatives of a query.
        every: epochs between two refreshes, at least 1; the first is after so many epochs.

    Source: Xiong et al., ANCE (ICLR 2021), which does so beside the training; here it waits.
    """

    sets: DataSets
    rows: RowSettings
    every: int

    def __post_init__(self) -> None:
        if self.every < 1:
            raise InputError(f"a refresh every {self.every} epochs; expected at least 1")

    def mined(self, collections: Mapping[str, Collection], model: Any) -> dict[str, Negatives]:
        """Return what a model as it is mines in each of these collections, by name."""
        encoder, found = SentenceEncoder(model, EncoderSettings(), name="checkpoint"), dict[str, Negatives]()
        for name, each in collections.items():
            with tempfile.TemporaryDirectory() as folder:  # vectors of weights that nobody meets again
                asked = each.positives(self.rows.split).query_rows
                retriever = DenseRetriever.of_model(each, encoder, VectorStore(folder), query_rows=asked, name="ance")
                found[name] = mine_negatives(each, retriever, split=self.rows.split, top=self.rows.per_query)
        return found

    def mine(self, model: Any) -> Negatives:
        """Return the negatives of all queries by a model as it is."""
        return self.sets.joined(self.mined(self.sets.collections, model))

    def assemble(self, negatives: Negatives) -> TrainingSet:
        """Return the training set of these negatives, of the same queries and form."""
        return self.sets.training_set(negatives, **vars(self.rows))


class LiveTexts:
    """A data set's transform that looks texts up by row number, in a training set that may be replaced.

    Args:
        data: the first one.
    """

    def __init__(self, data: TrainingSet) -> None:
        self.data = data

    def __call__(self, batch: dict[str, Any]) -> dict[str, Any]:
        """Return the texts of the rows whose numbers come as labels."""
        labels = np.asarray(batch["label"], np.int64)
        names = [name for name in self.data.dataset.column_names if name != "label"]
        rows = {name: self.data.rows[labels, column] for column, name in enumerate(names)}
        return self.data.texts({**rows, "label": batch["label"]})

    def texts(self, column: str, rows: Sequence[int]) -> list[str]:
        """Return the texts of rows of queries or positives, which are the same in every training set."""
        return self.data.texts.texts(column, rows)

    def replace(self, data: TrainingSet) -> None:
        """Take another training set with the same queries and positives.

        Raises:
            FailureError: it has other rows than the first.
        """
        if data.rows.shape != self.data.rows.shape or not np.array_equal(data.rows[:, :2], self.data.rows[:, :2]):
            raise FailureError(
                f"mining anew gave {data.rows.shape[0]} rows of {data.rows.shape[1]} texts for "
                f"{self.data.rows.shape[0]} of {self.data.rows.shape[1]}: a list became shorter or longer; ask for "
                "fewer negatives, or lists in the place of triplets"
            )
        self.data = data


def live(data: TrainingSet) -> tuple[TrainingSet, LiveTexts]:
    """Return the training set with texts looked up where they can be replaced, and that place."""
    texts = LiveTexts(data)
    return replace(data, dataset=data.dataset.with_transform(texts)), texts


class NegativesRefresh(TrainerCallback):  # type: ignore[misc]
    """Makes negatives anew at the beginning of epochs, keeps them with each checkpoint, and restores them.

    Args:
        refresh: how.
        texts: where the data set looks its texts up.
        loss: whose facts about rows and whose mask, where it has them, are replaced too (`ContrastiveLoss`).
    """

    def __init__(self, refresh: Refresh, texts: LiveTexts, loss: Any) -> None:
        self.refresh, self.texts, self.loss = refresh, texts, loss
        self.negatives: Negatives | None = None

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Restore the negatives where training resumes."""
        path = checkpoint_of(args, state) / NEGATIVES
        if state.global_step and path.is_file():
            self._take(Negatives.read(path))

    def on_epoch_begin(self, args: Any, state: Any, control: Any, model: Any = None, **_: Any) -> None:
        """Mine where it is time; an epoch that resumes in its middle goes on with what was restored."""
        epochs = state.global_step * args.num_train_epochs / state.max_steps
        if epochs == 0 or not float(epochs).is_integer() or int(epochs) % self.refresh.every:
            return
        training = model.training
        try:
            with torch.no_grad():
                self._take(self.refresh.mine(model))
        finally:
            model.train(training)

    def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Write the negatives into the checkpoint."""
        if self.negatives is not None and state.is_world_process_zero:
            self.negatives.write(checkpoint_of(args, state) / NEGATIVES)

    def _take(self, negatives: Negatives) -> None:
        data = self.refresh.assemble(negatives)
        self.texts.replace(data)
        self.negatives = negatives
        if hasattr(self.loss, "learn_from"):
            self.loss.learn_from(data)
