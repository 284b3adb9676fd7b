"""MTEB's protocol for our encoders, and its retrieval tasks as collections. Needs the package mteb.

results = mteb.evaluate(MTEBEncoder(load_encoder("model/")), tasks, cache=None)
collection = collection_from_mteb(mteb.get_task("SciFact"))
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from foils.data import Collection
from foils.encode import Encoder
from foils.runtime.errors import InputError, require

WHOLE = "default"
"""mteb's name for the data of a task that is not in several languages."""


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


def collection_from_mteb(task: Any, *, splits: Sequence[str] | None = None, subset: str = WHOLE) -> Collection:
    """Return a retrieval task of mteb as a collection; the task loads its data if it has not.

    Args:
        task: of `mteb.get_task`, of text, without instructions.
        splits: of the task; None: all that it loads, which are those that it evaluates.
        subset: language, of a task in several.

    Raises:
        MissingExtraError: without the package mteb.
        InputError: no retrieval task, no such split or subset, no texts, or an id with two texts.
    """
    retrieval = require("mteb", "mteb").abstasks.AbsTaskRetrieval
    if not isinstance(task, retrieval):
        raise InputError(f"{type(task).__name__} is no retrieval task of mteb; give one, as of mteb.get_task")
    name = task.metadata.name
    task.load_data()
    task.convert_v1_dataset_format_to_v2(num_proc=None)
    if subset not in task.dataset:
        raise InputError(f"{name} has no subset {subset!r}, only {', '.join(task.dataset)}")
    parts = task.dataset[subset]
    if missing := [split for split in splits or () if split not in parts]:
        raise InputError(f"{name} has loaded no split {', '.join(missing)}, only {', '.join(parts)}")
    documents: dict[str, tuple[str, str]] = {}
    queries: dict[str, str] = {}
    for split in splits or parts:
        part = parts[split]
        if "instruction" in part["queries"].column_names:
            raise InputError(f"the queries of {name} have instructions, which a collection has no place for")
        _add(documents, _rows(part["corpus"], name), f"documents of {name}")
        _add(queries, ((key, text) for key, (_, text) in _rows(part["queries"], name)), f"queries of {name}")
    return Collection.from_dicts(name, documents, queries, {s: parts[s]["relevant_docs"] for s in splits or parts})


def _rows(dataset: Any, name: str) -> Iterable[tuple[str, tuple[str, str]]]:
    for row in dataset:
        if not isinstance(row.get("text"), str):
            raise InputError(f"{name} has {', '.join(row)}; a collection is of texts")
        yield row["id"], (row.get("title") or "", row["text"])


def _add(to: dict[str, Any], rows: Iterable[tuple[str, Any]], what: str) -> None:
    changed = [key for key, value in rows if to.setdefault(key, value) != value]
    if changed:
        raise InputError(f"{len(changed)} {what} have two texts in its splits, {changed[0]!r} first; take one split")


def _name(prompt_type: Any) -> str | None:
    return None if prompt_type is None else str(getattr(prompt_type, "value", prompt_type))
