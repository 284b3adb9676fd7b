"""Sources of negatives on the Hugging Face hub: a table that foils put there, or a data set of triplets or n-tuples."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from foils.data.hub import fetching, hf_pairs
from foils.data.tables import Records
from foils.runtime.errors import InputError

TABLE = "negatives.parquet"  # of a repository that holds a table of negatives


def fetched_table(name: str | Path) -> Path:
    """Return the file of a table of negatives: fetched from the hub for `hf:NAME`, and any other path as it is.

    Raises:
        InputError: no such repository, none that holds a table of negatives, or none that can be reached.
    """
    if not str(name).startswith("hf:"):
        return Path(name)
    with fetching(f"{name}, as {TABLE} of a data set"):
        return _table(str(name).removeprefix("hf:"))


def fetched_source(path: Path) -> Path | Mapping[str, Records]:
    """Return the file of a source; of `hf:` a table of negatives, or else the records of pairs, by split.

    Args:
        path: of a file, or `hf:NAME`, or of pairs also `hf:NAME:CONFIGURATION[:SPLIT]` (see `foils.data.hub.hf_pairs`).

    Raises:
        MissingExtraError: pairs without the package `datasets`.
        InputError: no such repository, none of these in it, or none that can be reached.
    """
    name = str(path).removeprefix("hf:")
    if name == str(path):
        return path
    from huggingface_hub.errors import EntryNotFoundError

    if ":" not in name:
        try:
            with fetching(f"{path}, as {TABLE} of a data set", but=EntryNotFoundError):
                return _table(name)
        except EntryNotFoundError:
            pass
    if (pairs := hf_pairs(name)) is None:
        raise InputError(f"{path} is a collection in BEIR's layout; a source is {TABLE}, or has a column of negatives")
    return pairs


def _table(name: str) -> Path:
    """The file of a repository or a folder."""
    from huggingface_hub import hf_hub_download
    from huggingface_hub.errors import LocalEntryNotFoundError

    if not Path(name).is_dir():
        return Path(hf_hub_download(name, TABLE, repo_type="dataset"))
    if not (path := Path(name, TABLE)).is_file():
        raise LocalEntryNotFoundError(f"no {TABLE} in the folder")
    return path
