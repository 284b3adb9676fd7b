"""The doors of data: opening a collection, looking at what was understood, and handing negatives to other tools."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from foils.data.collection import Collection
from foils.data.description import Description, describe_collection
from foils.data.formats import FORMS, Exported
from foils.data.push import Pushed, push_to_hub
from foils.data.read import CollectionLike, CollectionSettings
from foils.data.sources import SourceLike, as_source
from foils.runtime.doors import door
from foils.runtime.options import Option, refuse, spelled

if TYPE_CHECKING:
    PushLike = SourceLike
else:
    PushLike = Annotated[str, Option(metavar="TABLE")]


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

    Forms: triplets, tuples, labelled-pairs and labelled-lists (sentence-transformers, PyLate), flagembedding, tevatron,
    nemo (NeMo AutoModel) and trec. Files are JSON lines; of trec, a run.

    Args:
        form: Form of the records.
        scores: Column of the table whose scores go along, of positives and negatives: score, cosine, logit, elo, … The
            table of foils rate and of foils score-pairs has those of positives.
        number: Negatives in an n-tuple; shorter lists are left out. Default: as many as the positive with most has.
        split: Split of the judgements whose positives go along.

    Raises:
        InputError: nothing to export, or scores that are missing.
        UnknownNameError: no such form, split or column.
    """
    if form != "tuples":
        refuse({"number": number}, f"with {spelled('form')} {form}; it goes with {spelled('form')} tuples")
    loaded = reading.open(collection)
    return Exported(loaded, as_source(source, loaded).negatives, form, split, scores or "", number)


@door
def push(
    what: PushLike,
    to: Annotated[str, Option(metavar="REPOSITORY")],
    *,
    license: str,
    public: bool = False,
    overwrite: bool = False,
) -> Pushed:
    """Put a table of negatives on the Hugging Face hub, with a card that says how it was made.

    It is read again as the source hf:OWNER/NAME, with the same digest. Of absolute paths in its provenance only the
    last part is sent. Log in first, by `hf auth login` or HF_TOKEN.

    Args:
        what: The Parquet file of a table. In Python also a table of negatives.
        to: Where to: hf:OWNER/NAME, made where it is not there.
        license: Licence, by the hub's identifier, as apache-2.0 or cc-by-4.0; that of the texts may decide it.
        public: Let everyone see it. Default: only you, and who you share the repository with.
        overwrite: Replace the files that the repository holds.

    Raises:
        InputError: HF_HUB_OFFLINE is set, nothing that can be pushed, or a repository that holds files.
        FailureError: the hub refuses, or cannot be reached.
    """
    return push_to_hub(what, to, license=license, public=public, overwrite=overwrite)
