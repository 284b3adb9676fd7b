"""What the trainer hook needs of a model and of a data set: vectors of a column, and numbered rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from foils.errors import InputError

Vectors = NDArray[np.floating]
Encode = Callable[[Sequence[str], str], Vectors]


def encoder_of(model: Any, args: Any, columns: Sequence[str]) -> Encode:
    """Return how the trainer's model embeds a column: with the training's prompts, in evaluation mode.

    `args.prompts` may be one prompt, or a prompt per column; prompts per data set are not seen here.
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
