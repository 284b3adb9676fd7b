"""The doors of data: opening a collection, looking at what was understood, and handing negatives to other tools."""

from __future__ import annotations

from typing import Annotated

from foils.data.collection import Collection
from foils.data.description import Description, describe_collection
from foils.data.read import CollectionLike, CollectionSettings
from foils.data.sources import FORMS, Exported, SourceLike, as_source
from foils.runtime.options import Option, door, refuse, spelled


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

    Example:
        foils describe pairs.csv --columns query=question,positive=answer
    """
    return describe_collection(reading.open(collection))


@door
def export(
    collection: CollectionLike,
    source: SourceLike,
    *,
    form: Annotated[str, Option(names=tuple(FORMS))] = "triplets",
    scores: Annotated[str | None, Option(metavar="COLUMN")] = None,
    number: Annotated[int | None, Option(least=1)] = None,
    split: str = "train",
    reading: CollectionSettings,
) -> Exported:
    """Export the kept negatives, with their queries and positives, in a form that a training tool reads.

    Forms: triplets, tuples, labelled-pairs and labelled-lists (sentence-transformers, PyLate), flagembedding and
    tevatron. Files are JSON lines.

    Args:
        form: Form of the records.
        scores: Column of the table whose scores go along, of positives and negatives: score, cosine, logit, elo, … The
            table of foils rate and of foils score-pairs has those of positives.
        number: Negatives in an n-tuple; shorter lists are left out. Default: as many as the positive with most has.
        split: Split of the judgements whose positives go along.

    Example:
        foils export scifact/ rated.parquet --form flagembedding --scores elo -o train.jsonl

    Raises:
        InputError: nothing to export, or scores that are missing.
        UnknownNameError: no such form, split or column.
    """
    if form != "tuples":
        refuse({"number": number}, f"with {spelled('form')} {form}; it goes with {spelled('form')} tuples")
    loaded = reading.open(collection)
    return Exported(loaded, as_source(source, loaded).negatives, form, split, scores or "", number)
