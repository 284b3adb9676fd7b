"""Opens a collection by what users write on the command line."""

from __future__ import annotations

from pathlib import Path

from foils.data.beir import read_beir
from foils.data.build import build_in_memory
from foils.data.collection import Collection


def load_collection(name: str | Path) -> Collection:
    """Open a collection.

    Args:
        name: a BEIR folder; `ir_datasets:ID`; `hf:NAME` (a hub name or a local folder); or `pydocs`.

    Raises:
        InputError: there is no such collection, or it is not well-formed.
        MissingExtraError: `ir_datasets:` or `hf:` without the extra `hub`.
    """
    kind, colon, rest = str(name).partition(":")
    if colon and kind == "ir_datasets":
        from foils.data.hub import read_ir_datasets

        return read_ir_datasets(rest)
    if colon and kind == "hf":
        from foils.data.hub import read_hf

        return read_hf(rest)
    if str(name) == "pydocs":
        return _pydocs()
    return read_beir(name)


def _pydocs() -> Collection:
    from foils.data.pydocs import read_pydocs

    data = read_pydocs()
    documents = [(identifier, "", text) for identifier, text in zip(data.doc_ids, data.texts, strict=True)]
    return build_in_memory("pydocs", documents, list(zip(data.query_ids, data.queries, strict=True)), data.qrels)
