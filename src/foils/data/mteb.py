"""Retrieval tasks of MTEB as collections. Needs the package mteb.

collection = collection_from_mteb(mteb.get_task("SciFact"))
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from foils.data.collection import Collection
from foils.runtime.errors import InputError, require

WHOLE = "default"
"""mteb's name for the data of a task that is not in several languages."""


def read_mteb(name: str) -> Collection:
    """Read a retrieval task by its name, as mteb fetches and keeps it.

    Raises:
        MissingExtraError: without the package mteb.
        InputError: no such task, none of retrieval, or data that cannot be fetched.
    """
    mteb = require("mteb", "mteb")
    try:
        return collection_from_mteb(mteb.get_task(name))
    except InputError:
        raise
    except (KeyError, OSError, RuntimeError, ValueError) as error:
        said = str(error).strip().partition("\n")[0][:300]
        raise InputError(f"cannot read mteb:{name} ({said}); check the name, and the network") from error


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
