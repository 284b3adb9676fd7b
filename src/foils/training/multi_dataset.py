"""Training on several data sets at once: what is read, how it is joined, and how much of each an epoch takes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import numpy as np

from foils.batching.multi_dataset import Mixture, mixture_counts
from foils.data import Collection, Negatives
from foils.data.read import CollectionLike, CollectionSettings
from foils.data.sources import NamedSource, SourceLike, as_source
from foils.data.splitting import distinct_names, joined_collections, joined_negatives
from foils.runtime.errors import InputError
from foils.runtime.options import Needs, Option, Settings, numbers_of, spelled
from foils.training.settings import TRAINING_ARGS

if TYPE_CHECKING:
    from foils.training.data import TrainingSet

    DataSetsLike = Sequence[CollectionLike | tuple[CollectionLike, SourceLike]]
else:
    DataSetsLike = list[str]

_ALSO = {"also": True}
SHARES = partial(numbers_of, float, "mixture", "a number for each data set, as 2,1")


def parsed_data_sets(texts: Sequence[str]) -> list[str | tuple[str, str]]:
    """Return what `--also` names: COLLECTION or COLLECTION,SOURCE each; what is there as a file is a collection."""
    read: list[str | tuple[str, str]] = []
    for text in texts:
        collection, comma, source = text.partition(",")
        read.append((collection, source) if comma and not Path(text).exists() else text)
    return read


@dataclass(frozen=True, kw_only=True)
class MixtureSettings(Settings):
    """Several data sets to train on.

    Attributes:
        also: Another data set to train on, as COLLECTION or COLLECTION,SOURCE; may be given several times. In Python a
            list of collections, or of pairs of a collection and a source.
        mixture: Shares of the data sets in an epoch, as 2,1. Default: by their sizes.
        mixture_parts: Pieces of a batch, each of one data set. Default: one for each data set, at most 4.
    """

    heading = "Method"
    needs: ClassVar[Needs] = {"reranker": False, "why": "which takes one data set"}

    also: Annotated[DataSetsLike, Option(metavar="SET", parse=parsed_data_sets, repeated=True)] = ()
    mixture: Annotated[Sequence[float] | None, Option(parse=SHARES, metavar="SHARES", above=0, needs=_ALSO)] = None
    mixture_parts: Annotated[int | None, Option(least=1, within=TRAINING_ARGS, needs=_ALSO)] = None

    def __post_init__(self) -> None:
        super().__post_init__()
        count = 1 + len(self.also)
        if self.also and self.mixture is not None and len(self.mixture) != count:
            shares = ",".join(f"{each:g}" for each in self.mixture)
            raise InputError(f"{spelled('mixture', shares)}: {len(self.mixture)} shares of {count} data sets")

    def has_sources(self, first: SourceLike | None) -> bool:
        """Return whether a data set is given with negatives; `first` are those of the first."""
        return first is not None or any(isinstance(each, tuple) for each in self.also)

    def of(self, names: Sequence[str], source_of: Any) -> Mixture:
        """Return the mixture of rows of these data sets."""
        sizes = np.bincount(source_of, minlength=len(names))
        counts = mixture_counts(np.maximum(sizes, 1).tolist(), self.mixture)
        return Mixture(tuple(names), source_of, counts, self.mixture_parts)

    def describe(self) -> dict[str, Any]:
        """Return what provenance says of them, the data sets apart; nothing where there is one."""
        own = {name: value for name, value in vars(self).items() if name != "also"}
        return own if self.also else {}


@dataclass(frozen=True)
class DataSets:
    """The data sets of a training, by name, and their joint collection.

    Attributes:
        collections: name → collection, at least one.
        sources: name → its negatives; where there are none, no entry.
        settings: how they are mixed.
        whole: the one collection, or all joined.
    """

    collections: Mapping[str, Collection]
    sources: Mapping[str, NamedSource]
    settings: MixtureSettings
    whole: Collection

    @property
    def mixed(self) -> bool:
        """Whether there are several."""
        return len(self.collections) > 1

    @property
    def inputs(self) -> dict[str, str]:
        """Digests of what was read, by name, for provenance."""
        if not self.mixed:
            own = {each.name: each.digest for each in self.sources.values()}
            return {"collection": self.whole.digest, **own}
        named = {f"{name}: {each.name}": each.digest for name, each in self.sources.items()}
        return {**{name: each.digest for name, each in self.collections.items()}, **named}

    @property
    def bare(self) -> dict[str, Collection]:
        """The data sets that have no negatives."""
        return {name: each for name, each in self.collections.items() if name not in self.sources}

    def joined(self, negatives: Mapping[str, Negatives]) -> Negatives:
        """Return tables of negatives, by data set, as one; at least one is given."""
        return joined_negatives(negatives) if self.mixed else next(iter(negatives.values()))

    def training_set(self, negatives: Negatives | None, **rows: Any) -> TrainingSet:
        """Return what is trained on; of several data sets, one set that knows which row is whose.

        Args:
            negatives: of all data sets (`joined`); None: pairs alone are trained on.
            rows: settings of `foils.training.data.training_set`.

        Raises:
            InputError: a data set without rows.
        """
        from foils.training.data import training_set

        data = training_set(self.whole, negatives, **rows)
        if not self.mixed:
            return data
        ends = np.cumsum([len(each.queries) for each in self.collections.values()])
        source_of = np.searchsorted(ends, data.rows[:, 0], "right").astype(np.int64)
        mixture = self.settings.of(list(self.collections), source_of)
        counts = dict(data.counts)
        for name, size, count in zip(mixture.names, mixture.sizes, mixture.counts, strict=True):
            counts |= {f"rows of {name}": int(size), f"rows of {name} in an epoch": int(count)}
        return replace(data, facts=replace(data.facts, sources=source_of), mixture=mixture, counts=counts)

    def check_negatives(self, form: str | None) -> None:
        """Refuse to train on negatives of some data sets alone.

        Raises:
            InputError: rows that are not pairs, and a data set without negatives.
        """
        if self.mixed and self.bare and form != "pairs":
            raise InputError(
                f"no negatives for {', '.join(self.bare)}, and {form} need them for each data set; give "
                f"{spelled('also')} with a source of its own, or {spelled('form', 'pairs')}"
            )


def read_data_sets(
    collection: CollectionLike, source: SourceLike | None, settings: MixtureSettings, reading: CollectionSettings
) -> DataSets:
    """Read the data sets of a training.

    Args:
        collection: the first; columns, a corpus and judgements to add are its own.
        source: its negatives; None: it has none.
        settings: name the others.
        reading: how collections are read.

    Raises:
        InputError: one that cannot be read.
    """
    alone = replace(reading, columns=None, corpus=None, add_judgements=())
    given = [(collection, source, reading)]
    for each in settings.also:
        other, own = each if isinstance(each, tuple) else (each, None)
        given.append((other, own, alone))
    opened = [(how.open(each), negatives) for each, negatives, how in given]
    names = distinct_names(each.name for each, _ in opened)
    collections = {name: each for name, (each, _) in zip(names, opened, strict=True)}
    sources = {
        name: as_source(negatives, each)
        for name, (each, negatives) in zip(names, opened, strict=True)
        if negatives is not None
    }
    whole = opened[0][0] if len(opened) == 1 else joined_collections(collections)
    return DataSets(collections, sources, settings, whole)
