"""What users give to a door, as a name, a path or an object, becomes a collection or a source."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import pyarrow as pa

from foils.data.collection import Collection
from foils.data.load import load_collection
from foils.data.negatives import Negatives
from foils.data.sources import NamedSource, read_source, read_sources
from foils.data.store import file_digest
from foils.runtime.errors import InputError
from foils.runtime.options import Option, Settings, spelled

if TYPE_CHECKING:
    CollectionLike = str | Path | Collection
    SourceLike = str | Path | Negatives | NamedSource | Any  # Any: a DataFrame of pandas or polars, an Arrow table
    SourcesLike = Mapping[str, SourceLike] | Sequence[SourceLike]
else:
    CollectionLike = Annotated[str, Option(metavar="COLLECTION")]
    SourceLike = Annotated[str, Option(metavar="SOURCE")]
    SourcesLike = Annotated[list[str], Option(metavar="SOURCE")]


@dataclass(frozen=True)
class CollectionSettings(Settings):
    """How a collection is read.

    Attributes:
        keep_identical_ids: Treat a document whose id is the query's as any other document. Default: no query is a
            negative of itself, or an answer to itself.
    """

    keep_identical_ids: bool = False

    def open(self, given: CollectionLike) -> Collection:
        """Return a collection as it is, or the one of this name or path (see `load_collection`)."""
        if isinstance(given, Collection):
            return replace(given, keep_identical_ids=True) if self.keep_identical_ids else given
        return load_collection(given, keep_identical_ids=self.keep_identical_ids)


def identical_ids_caption(queries: int) -> str:
    """Return the remark on this many queries whose own document is left out; empty where there are none."""
    option = spelled("keep_identical_ids")
    return f"{queries:,} queries: the document with the query's own id is left out ({option})" if queries else ""


def as_sources(given: SourcesLike, collection: Collection) -> list[NamedSource]:
    """Return sources of negatives, each with its name.

    Args:
        given: name -> source, or sources: each a table of negatives, a DataFrame with its columns, or a file,
            `[NAME=]PATH`.
        collection: that they belong to.

    Raises:
        InputError: a source cannot be read, or two have one name.
    """
    if isinstance(given, Mapping):
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
    source = as_table(given)
    if source is not given:
        source.negatives.rows_in(collection)
    return replace(source, name=name or source.name)


def as_table(given: SourceLike) -> NamedSource:
    """Return a table of negatives with its name, whatever the collection: of a Parquet file, a table or a DataFrame.

    Raises:
        InputError: it is not a table of negatives.
    """
    if isinstance(given, NamedSource):
        return given
    if isinstance(given, (str, Path)):
        return NamedSource(Path(given).name, Negatives.read(given), file_digest(given))
    negatives = given if isinstance(given, Negatives) else Negatives(_arrow(given))
    return NamedSource(_own_name(negatives), negatives, negatives.digest)


def _own_name(negatives: Negatives) -> str:
    names = negatives.table["source"].unique().to_pylist()
    return str(names[0]) if len(names) == 1 else "negatives"


def _arrow(given: Any) -> pa.Table:
    """An Arrow table of what offers one: pyarrow's own, or a DataFrame."""
    if isinstance(given, pa.Table):
        return given
    if hasattr(given, "__arrow_c_stream__"):
        return pa.table(given)
    if hasattr(given, "__dataframe__") or type(given).__module__.startswith("pandas"):
        return pa.Table.from_pandas(given, preserve_index=False)
    raise InputError(
        f"a source of type {type(given).__name__}; expected a table of negatives, a DataFrame with its columns, or the "
        "path of a file"
    )
