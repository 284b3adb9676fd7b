"""The doors of data: opening a collection, and looking at what was understood."""

from __future__ import annotations

from foils.data.collection import Collection
from foils.data.description import Description, describe_collection
from foils.data.resolve import CollectionLike, CollectionSettings
from foils.runtime.doors import door


@door
def load(collection: CollectionLike, *, reading: CollectionSettings) -> Collection:
    """Open a collection: pairs in a file or a table, a BEIR folder, or a data set of others.

    Args:
        collection: A file of pairs (CSV, TSV, JSON, JSONL, Parquet), a BEIR folder, ir_datasets:ID, hf:NAME, or pydocs.
            In Python also a DataFrame, an Arrow table, a data set of `datasets`, or a dictionary of splits.

    Raises:
        InputError: there is no such collection, or it is not well-formed.
        MissingExtraError: what reads it is not installed.
    """
    return reading.open(collection)


@door
def describe(collection: CollectionLike, *, reading: CollectionSettings) -> Description:
    """Show what a collection is: counts, lengths, splits, examples, leakage between splits, and warnings.

    Args:
        collection: A file of pairs (CSV, TSV, JSON, JSONL, Parquet), a BEIR folder, ir_datasets:ID, hf:NAME, or pydocs.
            In Python also a table of pairs, or a `Collection`.

    Raises:
        InputError: there is no such collection, or it is not well-formed.
    """
    return describe_collection(reading.open(collection))
