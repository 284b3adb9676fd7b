"""Opens a collection by what users write on the command line."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from platform import python_version
from typing import Any

from foils.data.beir import read_beir
from foils.data.build import Source, build_stored, open_stored
from foils.data.collection import Collection
from foils.data.store import cache_folder

PREFIX = "lenient:"


def load_collection(name: str | Path, *, keep_identical_ids: bool = False) -> Collection:
    """Open a collection.

    Args:
        name: a BEIR folder; `ir_datasets:ID`; `hf:NAME` (a hub name or a local folder); or `pydocs`. `lenient:`
            before it leaves out documents and queries without a text, and judgements of what is not there, which are
            complaints without; the collection's name then tells how many.
        keep_identical_ids: let a document whose id is a query's own be a negative of the query and an answer to it
            (`Collection.identical`).

    Raises:
        InputError: there is no such collection, or it is not well-formed.
        MissingExtraError: `ir_datasets:` or `hf:` without the extra `hub`.
    """
    return replace(_load(name), keep_identical_ids=keep_identical_ids)


def _load(name: str | Path) -> Collection:
    lenient = str(name).startswith(PREFIX)
    name = str(name).removeprefix(PREFIX) if lenient else name
    kind, colon, rest = str(name).partition(":")
    if colon and kind == "ir_datasets":
        from foils.data.hub import read_ir_datasets

        return read_ir_datasets(rest, lenient=lenient)
    if colon and kind == "hf":
        from foils.data.hub import read_hf

        return read_hf(rest, lenient=lenient)
    if str(name) == "pydocs":
        return _pydocs()
    return read_beir(name, lenient=lenient)


def _pydocs() -> Collection:
    """The documentation of installed packages, kept in the cache for as long as their versions stay."""
    from foils.data.pydocs import pydocs_versions, read_pydocs

    facts = (version("foils"), python_version(), sorted(pydocs_versions().items()))
    key = hashlib.blake2b(repr(facts).encode(), digest_size=16).hexdigest()
    stored = cache_folder() / "collections" / f"pydocs-{key}"
    if (stored / "meta.json").is_file():
        return open_stored(stored)
    data = read_pydocs()

    def source(kind: str, *columns: Iterable[Any]) -> Source:
        return Source(f"pydocs {kind}", lambda _: ((0, row) for row in zip(*columns, strict=True)))

    return build_stored(
        "pydocs",
        stored,
        source("documents", data.doc_ids, [""] * len(data.doc_ids), data.texts),
        source("queries", data.query_ids, data.queries),
        {split: source(f"qrels {split}", *zip(*triples, strict=True)) for split, triples in data.qrels.items()},
    )
