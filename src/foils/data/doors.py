"""The doors of data: opening a collection, and looking at what was understood."""

from __future__ import annotations

from foils.data.collection import Collection
from foils.data.description import Description, describe_collection
from foils.data.resolve import CollectionLike, CollectionSettings
from foils.runtime.doors import door


@door
def load(collection: CollectionLike, *, reading: CollectionSettings) -> Collection:
    """Open a collection: pairs in a file or a table, a BEIR folder, or a data set of others.

    Raises:
        InputError: there is no such collection, or it is not well-formed.
        MissingExtraError: what reads it is not installed.
    """
    return reading.open(collection)


@door
def describe(collection: CollectionLike, *, reading: CollectionSettings) -> Description:
    """Show what a collection is: counts, lengths, splits, examples, leakage between splits, and warnings.

    Raises:
        InputError: there is no such collection, or it is not well-formed.
    """
    return describe_collection(reading.open(collection))
