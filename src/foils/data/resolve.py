"""What users give to a door, as a name, a path or an object, becomes a collection or a source."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from foils.data.added_judgements import with_judgements
from foils.data.collection import Collection
from foils.data.hub_sources import fetched_table
from foils.data.labels import LabelsLike
from foils.data.load import load_collection
from foils.data.negatives import Negatives
from foils.data.pair_columns import parsed_columns
from foils.data.source_rows import without_own
from foils.data.sources import NamedSource, negatives_in_memory, read_source, read_sources
from foils.data.store import file_digest
from foils.data.tables import arrow_table, is_data_set_of_splits
from foils.runtime.errors import InputError
from foils.runtime.options import Option, Settings, numbers_of, spelled
from foils.runtime.several import several

A_COLLECTION = (
    "A file of pairs (CSV, TSV, JSON, JSONL, Parquet), a BEIR folder, ir_datasets:ID, hf:NAME, mteb:TASK, or "
    "pydocs[:PACKAGE,…]. "
    "In Python also a `Collection`, a DataFrame, an Arrow table, a data set of `datasets`, or a dictionary of splits."
)
A_SOURCE = (
    "Negatives, [NAME=]PATH: a Parquet table, triplets or n-tuples in any form that pairs have, whatever foils export "
    "writes, a TREC run, or hf:NAME, a table that foils push put there, triplets or n-tuples. Columns of other names: "
    "PATH:query=COLUMN,negative=COLUMN. In Python also a table of negatives, a DataFrame, an Arrow table, or a data "
    "set of `datasets`, whose splits are one source."
)
SOURCES = A_SOURCE.removesuffix(".") + "; several by name, or in a list. Several may be given."
COLLECTION_ARGS = "collection_args"  # the program's option that takes rarely used settings as its keys
OWN = "negatives"  # name of a source that has none

if TYPE_CHECKING:
    TableLike = str | Path | Any  # Any: a DataFrame of pandas or polars, an Arrow table, a data set of `datasets`
    CollectionLike = str | Path | Collection | Any  # Any: a table of pairs, or a dictionary of splits
    SourceLike = str | Path | Negatives | NamedSource | Any  # Any: a DataFrame of pandas or polars, an Arrow table
    SourcesLike = Mapping[str, SourceLike] | Sequence[SourceLike]
    AddedLike = LabelsLike | Sequence[LabelsLike]
else:
    TableLike = str
    AddedLike = list[str]
    CollectionLike = Annotated[str, Option(metavar="COLLECTION", help=A_COLLECTION)]
    SourceLike = Annotated[str, Option(metavar="SOURCE", help=A_SOURCE)]
    SourcesLike = Annotated[list[str], Option(metavar="SOURCE", help=SOURCES)]


SHARES = partial(numbers_of, float, "split_shares", "three numbers, as 0.8,0.1,0.1")


@dataclass(frozen=True)
class CollectionSettings(Settings):
    """How a collection is read.

    Attributes:
        columns: For pairs: which column is what, as query=QUESTION,positive=ANSWER; the other roles are query_id,
            doc_id, title, negative, score and split. A source with all of these columns is read by the same names.
            Default: what the columns' names say.
        corpus: For pairs: more documents to search, a file (CSV, TSV, JSON, JSONL or Parquet) with a column of texts.
        add_judgements: File of labels whose relevant pairs become positives of train; may be given several times. In
            Python also labels or a DataFrame.
        split_shares: For pairs without splits: shares of the queries in train, dev and test, 0.8,0.1,0.1 by default.
        keep_identical_ids: Treat a document whose id is the query's as any other document. Default: no query is a
            negative of itself, or an answer to itself.
    """

    heading = "Collection"

    columns: Annotated[Mapping[str, str] | None, Option(parse=parsed_columns, metavar="ROLE=COLUMN,…")] = None
    corpus: Annotated[TableLike | None, Option(metavar="FILE")] = None
    add_judgements: Annotated[AddedLike, Option(metavar="FILE", parse=list, repeated=True)] = ()
    split_shares: Annotated[Sequence[float] | None, Option(parse=SHARES, within=COLLECTION_ARGS)] = None
    keep_identical_ids: Annotated[bool, Option(within=COLLECTION_ARGS)] = False

    def open(self, given: CollectionLike) -> Collection:
        """Return a collection as it is, or the one of this name, path or table (see `load_collection`).

        Judgements that are given besides are added to it (see `with_judgements`).
        """
        loaded = load_collection(
            given,
            keep_identical_ids=self.keep_identical_ids,
            columns=self.columns,
            corpus=self.corpus,
            shares=self.split_shares,
        )
        more = several(self.add_judgements)
        return with_judgements(loaded, more) if more else loaded


def identical_ids_caption(queries: int) -> str:
    """Return the remark on this many queries whose own document is left out; empty where there are none."""
    option = spelled("keep_identical_ids", "true")
    return f"{queries:,} queries: the document with the query's own id is left out ({option})" if queries else ""


def as_sources(given: SourcesLike, collection: Collection) -> list[NamedSource]:
    """Return sources of negatives, each with its name.

    Args:
        given: name -> source, or sources: each a table of negatives, a DataFrame with its columns or those of pairs
            with negatives, a dictionary of such tables by split, as a `DatasetDict` is, or a file, `[NAME=]PATH`. A
            `DatasetDict` by itself is one source.
        collection: that they belong to.

    Raises:
        InputError: a source cannot be read, or two have one name.
    """
    if isinstance(given, Mapping) and not is_data_set_of_splits(given):
        return [as_source(source, collection, name=name) for name, source in given.items()]
    if isinstance(given, (str, Path)) or not isinstance(given, Sequence):
        given = [given]
    if all(isinstance(each, (str, Path)) for each in given):
        return read_sources([str(each) for each in given], collection)
    sources = [as_source(each, collection) for each in given]
    names = [each.name for each in sources]
    if repeated := sorted({name for name in names if names.count(name) > 1}):
        raise InputError(f"several sources are called {', '.join(repeated)}; give them as a dictionary, by name")
    return sources


def as_source(given: SourceLike, collection: Collection, *, name: str = "") -> NamedSource:
    """Return one source with its name; without one, that of its file, or of what it says its rows come from.

    Raises:
        InputError: it is not a source, or holds ids that the collection does not know.
    """
    if isinstance(given, (str, Path)):
        return read_source(f"{name}={given}" if name else str(given), collection)
    if not isinstance(given, (NamedSource, Negatives)):
        given = negatives_in_memory(given, name or OWN, collection)
    source = as_table(given)
    if source is not given:
        source = replace(source, negatives=without_own(source.negatives, collection, name or source.name))
    return replace(source, name=name or source.name)


def as_table(given: SourceLike) -> NamedSource:
    """Return a table of negatives with its name, whatever the collection: of a Parquet file, a table or a DataFrame.

    Raises:
        InputError: it is not a table of negatives.
    """
    if isinstance(given, NamedSource):
        return given
    if isinstance(given, (str, Path)):
        path = fetched_table(given)
        return NamedSource(Path(given).name, Negatives.read(path), file_digest(path))
    negatives = given if isinstance(given, Negatives) else Negatives(arrow_table(given))
    return NamedSource(_own_name(negatives), negatives, negatives.digest)


def _own_name(negatives: Negatives) -> str:
    names = negatives.table["source"].unique().to_pylist()
    return str(names[0]) if len(names) == 1 else OWN
