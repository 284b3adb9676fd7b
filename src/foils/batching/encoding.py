"""What the trainer hook needs of a model and of a data set: vectors of a column's texts, and numbered rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from foils.data.tables import take
from foils.runtime.errors import InputError

Rows = NDArray[np.int64]
Vectors = NDArray[np.floating]
Encode = Callable[[Sequence[str], str], Vectors]
BLOCK = 16384
"""Texts that are looked up and embedded at once."""


@runtime_checkable
class ColumnTexts(Protocol):
    """A data set's transform by which the text of a column depends on what this column stores, and on nothing else."""

    def texts(self, column: str, stored: Sequence[Any]) -> Sequence[str]:
        """Return the text of each stored value of a column."""
        ...


class DistinctTexts:
    """The texts of a data set's column, each of which is looked up and embedded once, however many rows have it.

    Rows are compared by what the column stores where its texts depend on nothing else (texts themselves, or a transform
    that is `ColumnTexts`), by their texts otherwise.

    Args:
        dataset: a `datasets.Dataset`.
        column: a name of its columns.
    """

    def __init__(self, dataset: Any, column: str) -> None:
        self.dataset, self.column = dataset, column
        transform = dataset.format["format_kwargs"].get("transform")
        self._lookup = transform.texts if isinstance(transform, ColumnTexts) else None
        self._stored: Any = None
        if transform is None or self._lookup is not None:
            self._stored = dataset.with_format("arrow").select_columns([column])[:][column]
            chunks = self._stored.dictionary_encode().unify_dictionaries().chunks
            numbers = [np.asarray(chunk.indices, np.int64) for chunk in chunks]
        else:
            known: dict[str, int] = {}
            blocks = (dataset[start : start + BLOCK][column] for start in range(0, len(dataset), BLOCK))
            numbers = [np.array([known.setdefault(text, len(known)) for text in block], np.int64) for block in blocks]
        self.numbers: Rows = np.concatenate([np.zeros(0, np.int64), *numbers])
        _, self._first = np.unique(self.numbers, return_index=True)

    def texts(self, numbers: Rows) -> list[str]:
        """Return the texts of these numbers."""
        rows = self._first[numbers]
        if self._stored is None:
            return list(self.dataset[rows.tolist()][self.column])
        stored = take(self._stored, rows).to_pylist()
        return stored if self._lookup is None else list(self._lookup(self.column, stored))

    def embedded(self, rows: Rows, encode: Encode) -> tuple[Vectors, Rows]:
        """Return (D, d) vectors of the distinct texts of some rows, and (m,) which of them each row has."""
        wanted, at = np.unique(self.numbers[rows], return_inverse=True)
        vectors = []
        for start in range(0, len(wanted), BLOCK):
            texts = self.texts(wanted[start : start + BLOCK])
            place = {text: i for i, text in enumerate(dict.fromkeys(texts))}
            vectors.append(np.asarray(encode(list(place), self.column))[[place[text] for text in texts]])
        return np.concatenate(vectors), at


def encoder_of(model: Any, args: Any) -> Encode:
    """Return how the trainer's model embeds a column: with the training's prompts and precision, in evaluation mode.

    `args.prompts` may be one prompt, or a prompt per column; prompts per data set are not seen here.
    `args.per_device_eval_batch_size` texts are embedded at once. The trainer has wrapped the model's forward pass in
    the autocast of its precision, which holds here as well.
    """
    prompts = getattr(args, "prompts", None)
    routes = getattr(args, "router_mapping", None) or {}
    size = getattr(args, "per_device_eval_batch_size", 32)

    def encode(texts: Sequence[str], column: str) -> Vectors:
        prompt = prompts.get(column) if isinstance(prompts, dict) else prompts
        more = {"task": routes[column]} if column in routes else {}
        training = model.training
        try:
            vectors: Vectors = model.encode(
                list(texts), prompt=prompt, batch_size=size, show_progress_bar=False, convert_to_numpy=True, **more
            )
        finally:
            model.train(training)
        return vectors

    return encode


def with_rows(dataset: Any) -> Any:
    """Return the data set with a last column `label` that holds each row's number, as HOBIT-C's loss needs it.

    Raises:
        InputError: the data set has a label column already.
    """
    taken = sorted({"label", "labels", "score", "scores"} & set(dataset.column_names))
    if taken:
        raise InputError(f"row numbers travel as labels, but the data set already has {', '.join(taken)}")
    return dataset.add_column("label", list(range(len(dataset))))
